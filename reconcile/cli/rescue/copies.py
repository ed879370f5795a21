"""What a rescue brings from hosts: the files of a store's servers, and inventories of bookies' disks."""

import hashlib
import json
import re
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reconcile.cli.rescue import scripts
from reconcile.cli.rescue.hosts import BookieHost, ServerHost, Transport
from reconcile.cli.rescue.transports import HostError, make_own_command, require_done, run_script
from reconcile.words import count_noun
from recovery.dataset import MANIFEST, open_dataset
from recovery.errors import Reason, RecoveryError

_TRIES: Final = 3
"""Times that a folder is copied until what was copied is what is there; files that grow meanwhile differ."""
_CODES: Final = (0, 3, 4)
_NO_PROGRAM: Final = (126, 127)
"""With these a shell ends that has not found a program, or may not run it."""


class _NoProgramError(HostError):
    """A host has no such program, or it does not run there."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A folder of a bookie that was not read whole: its path on the host, and whether it is not there at all."""

    path: str
    is_missing: bool


@dataclass(frozen=True, slots=True)
class FetchedBookie:
    """What was collected of a bookie.

    Attributes:
        name: of its host.
        bookie: its id; None: nothing was collected.
        is_complete: whether everything of it was read.
        verdict: one line.
        gaps: its folders that were not read whole.
        disks: its folders, on its host; those that are missing, too.
        is_unread: whether the program could not be run there.
    """

    name: str
    bookie: str | None
    is_complete: bool
    verdict: str
    gaps: tuple[Gap, ...] = ()
    disks: tuple[str, ...] = ()
    is_unread: bool = False


@dataclass(frozen=True, slots=True)
class SavedLedgers:
    """What was saved of a bookie's disks.

    Attributes:
        verdict: one line.
        unread: what of them was not looked at; empty: all was.
        unreadable: what could not be read; empty: nothing.
    """

    verdict: str
    unread: str = ""
    unreadable: str = ""


def copy_server(server: ServerHost, folder: Path, *, again: bool = False) -> None:
    """Copy the folders of a server of the store below a folder, and compare what was copied with what is there.

    Args:
        server: whose folders.
        folder: gets a folder of the server's name.
        again: whether that is made again if it is there; else it stays as it is.

    Raises:
        HostError: the host cannot be reached, or some files are another each time.
    """
    target = folder / server.host.name
    if target.exists() and not again:
        return
    fresh = folder / f".{server.host.name}.new"
    for number, source in enumerate(server.folders):
        _copy_folder(server, source, fresh / str(number))
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)


def _copy_folder(server: ServerHost, source: str, target: Path) -> None:
    host, differing = server.host, [""]
    for _ in range(_TRIES):
        shutil.rmtree(target, ignore_errors=True)
        _fetch(host.name, lambda out: run_script(host, scripts.build_copy(source), stdout=out), target)
        listed = require_done(host, run_script(host, scripts.build_hashes(source)), "sha256sum").out
        differing = _list_differing(listed.decode(errors="surrogateescape"), target)
        if not differing:
            return
    raise HostError(f"{host.name}: {source}/{differing[0]} is another file each time that it is copied")


def collect_bookie(bookie: BookieHost, folder: Path, passwords: Path | None) -> FetchedBookie:
    """Collect a bookie's disks on its host, and bring the inventory below a folder, unless it is there already."""
    target = folder / bookie.name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if not (target / MANIFEST).exists():
            is_here = bookie.host.transport is Transport.LOCAL and bookie.copy is None
            (_collect_here if is_here else _collect_there)(bookie, target, passwords)
        inventory = open_dataset(target, "inventory")
        inventory.verify()
        [row] = inventory.read("bookies").to_pylist()
    except (HostError, RecoveryError) as error:
        problem = str(error).removeprefix(f"{bookie.name}: ")
        verdict, is_unread = f"not collected: {problem}", isinstance(error, _NoProgramError)
        return FetchedBookie(bookie.name, None, is_complete=False, verdict=verdict, is_unread=is_unread)
    unread = dict.fromkeys(item["path"] for item in row["dirs"] if not item["complete"])
    damage = inventory.read("damage", columns=["file", "reason"]).to_pylist()
    missing = {item["file"] for item in damage if item["reason"] == Reason.MISSING}
    count = inventory.rows("copies")
    verdict = f"{row['bookie']}, {count} rows, " + ("read completely" if row["complete"] else "NOT read completely")
    disks = tuple(dict.fromkeys(item["path"] for item in row["dirs"]))
    gaps = tuple(Gap(path, path in missing) for path in unread)
    return FetchedBookie(bookie.name, row["bookie"], bool(row["complete"]), verdict, gaps, disks)


def _collect_here(bookie: BookieHost, target: Path, passwords: Path | None) -> None:
    words = ["collect", "--bookie-conf", bookie.conf, "--out", str(target), "--json"]
    words += [] if passwords is None else ["--passwords", str(passwords)]
    done = subprocess.run(make_own_command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    _require_done(bookie.name, "collect", done.returncode, done.stdout)


def _collect_there(bookie: BookieHost, target: Path, passwords: Path | None) -> None:
    """Collect into a folder of the host's that another try finds again, bring it here, and remove it."""
    host, room = bookie.host, _Room.make(bookie, target, passwords)
    words = f"{room.program} collect --bookie-conf {shlex.quote(bookie.conf)} --out {room.path}/try-$$ --json"
    # What an earlier try left may still be at work there: each has a folder of its own.
    keep = f"[ ! -f {room.path}/try-$$/{MANIFEST} ] || [ -d {room.path}/out ] || mv {room.path}/try-$$ {room.path}/out"
    script = f"[ -d {room.path}/out ] || {{ {words}{room.passwords}; code=$?; {keep}; exit $code; }}"
    answer = run_script(host, script)
    if answer.out or answer.code:
        _require_done(bookie.name, "collect", answer.code, answer.out or answer.err.encode())
    fresh = target.with_name(f".{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    room.fetch("out", fresh)
    open_dataset(fresh, "inventory").verify()
    fresh.rename(target)
    room.remove()


def export_ledgers(
    bookie: BookieHost,
    collected: str,
    disks: Sequence[str],
    ledgers: Sequence[str],
    folder: Path,
    passwords: Path | None,
) -> "SavedLedgers":
    """Write what a bookie's disks have of some ledgers, whatever their records say, below a folder of this machine.

    Args:
        bookie: whose disks.
        collected: its id.
        disks: its folders, on its host.
        ledgers: their ids.
        folder: gets a folder of the bookie's name, in place of one that is there.
        passwords: file of candidates; None: none.

    Raises:
        HostError: the host cannot be reached, or nothing was written there.
    """
    target = folder / bookie.name
    folder.mkdir(parents=True, exist_ok=True)
    room = _Room.make(bookie, target, passwords)
    named = " ".join(f"--disk {shlex.quote(f'{collected}={disk}')}" for disk in disks)
    # There may be more of them than an argument takes.
    room.send("".join(f"{ledger}\n" for ledger in ledgers).encode(), "ledgers")
    words = f"{room.program} export --from {room.path}/ledgers {named} --logs --json{room.passwords}"
    keep = f"case $code in {'|'.join(map(str, _CODES))}) rm -rf {room.path}/out; mv {room.path}/try-$$ {room.path}/out"
    script = f"{words} --out {room.path}/try-$$; code=$?; {keep};; esac; exit $code"
    answer = run_script(bookie.host, script)
    result = _require_done(bookie.name, "export", answer.code, answer.out or answer.err.encode())
    incomplete = dict(result["coverage"]["incomplete"])
    count = int(result["counts"]["unreadable"])
    unread = next((f"{reasons[0] if reasons else 'no cookie'}" for reasons in incomplete.values()), "")
    unreadable = f"{count_noun(count, 'entry', 'entries')} cannot be read" if count else ""
    fresh = target.with_name(f".{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    room.fetch("out", fresh)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    room.remove()
    verdict = re.sub(rf" written to {re.escape(room.path)}/\S+", "", result["verdict"])
    return SavedLedgers(f"written to {target}: {verdict}", unread, unreadable)


@dataclass(frozen=True, slots=True)
class _Room:
    """A folder of a host's for one piece of work, with the program and the candidates where they are needed.

    Attributes:
        bookie: whose host.
        path: of the folder there.
        program: as its shell takes it.
        passwords: the option that names the candidates, or nothing.
    """

    bookie: BookieHost
    path: str
    program: str
    passwords: str

    @classmethod
    def make(cls, bookie: BookieHost, target: Path, passwords: Path | None) -> "_Room":
        """Make it for what will be at a place of this machine; another try finds the same again."""
        mark = hashlib.sha256(str(target.absolute()).encode()).hexdigest()[:12]
        path = f"/tmp/bkmeta-rescue-{mark}"  # noqa: S108 - of mode 0700, made by us
        host = bookie.host
        script = f"umask 077; mkdir -p {path}; [ -O {path} ] && [ ! -L {path} ]"
        require_done(host, run_script(host, script), f"making {path}")
        program = shlex.quote(bookie.program)
        if bookie.copy is not None:
            program = f"{path}/bkmeta"
            size = bookie.copy.stat().st_size
            has_it = f'[ "$(wc -c <{program} 2>/dev/null)" = {size} ]'
            script = f"{has_it} || {{ cat >{program}.new && mv {program}.new {program}; }}; chmod 700 {program}"
            require_done(host, run_script(host, script, stdin=bookie.copy), "copying the program")
        room = cls(bookie, path, program, "" if passwords is None else f" --passwords {path}/passwords")
        if passwords is not None:
            room.send(passwords, "passwords")
        return room

    def send(self, content: bytes | Path, name: str) -> None:
        """Write a file of it, from bytes or a file of this machine."""
        script = f"umask 077; cat >{self.path}/{name}"
        require_done(self.bookie.host, run_script(self.bookie.host, script, stdin=content), f"copying the {name}")

    def fetch(self, name: str, target: Path) -> None:
        """Bring a folder of it to this machine."""
        script = f"tar -C {self.path}/{name} -cf - ."
        _fetch(self.bookie.name, lambda out: run_script(self.bookie.host, script, stdout=out), target)

    def remove(self) -> None:
        """Remove it."""
        require_done(self.bookie.host, run_script(self.bookie.host, f"rm -rf {self.path}"), f"removing {self.path}")


def _require_done(name: str, command: str, code: int, out: bytes) -> dict[str, Any]:
    lines = out.decode(errors="replace").splitlines()
    try:
        result: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        result = {"verdict": lines[-1] if lines else "it said nothing"}
    if code not in _CODES:
        kind = _NoProgramError if code in _NO_PROGRAM else HostError
        raise kind(f"{name}: {command} ended with {code}: {result['verdict']}")
    return result


def _fetch(name: str, write: Any, target: Path) -> None:  # noqa: ANN401 - a function of a file
    """Unpack a tar that a host writes."""
    target.mkdir(parents=True)
    packed = target.with_name(f"{target.name}.tar")
    try:
        with packed.open("wb") as out:
            answer = write(out)
        if answer.code:
            raise HostError(f"{name}: tar ended with {answer.code}: {answer.err}")
        with tarfile.open(packed) as tar:
            # Debian 12 has Python 3.11.2, where filters do not exist yet; later ones warn if none is chosen.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(target)  # noqa: S202 - of the operator's own host
    except (OSError, tarfile.TarError) as error:
        raise HostError(f"{name}: what it sent cannot be unpacked ({error})") from error
    finally:
        packed.unlink(missing_ok=True)


def _list_differing(listed: str, folder: Path) -> list[str]:
    """Return the files that a host has otherwise than a copy; those that came since are none."""
    differing = []
    for line in listed.splitlines():
        digest, _, name = line.partition("  ")
        path = folder / name
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            differing.append(name)
    return differing
