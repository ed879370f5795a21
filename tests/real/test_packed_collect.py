"""`scripts/pack collect`: one file, alone in a folder that is the whole system, collects as bkmeta does."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from PyInstaller.archive.readers import CArchiveReader

from recovery.backup.chain import open_backup
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout, ledger_key, places
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support import command
from tests.support.cases import cache_home, case_dir, truth
from tests.support.etcd_server import EtcdServer
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.real, pytest.mark.timeout(1200)]

CASE: Final = "c09"
"""Bookies of both kinds: one with RocksDB."""
LIBRARIES: Final = ("c.so.6", "m.so.6", "dl.so.2", "pthread.so.0", "rt.so.1", "util.so.1", "z.so.1")
LOADER: Final = "ld-linux-x86-64.so.2"
SYSTEM: Final = tuple(f"lib{name}" for name in LIBRARIES)
"""The C library and zlib, which every such Linux has; the file brings the rest."""
NAMES: Final = ("b1", "b4")
MOST_PACKED: Final = 80_000_000
MOST_UNPACKED: Final = 200_000_000
DEVICES: Final = ("null", "zero", "urandom")
FOLDERS: Final = ("bin", "dev/shm", "lib64", "proc", "tmp")
IN_ROOT: Final = """
mount -t proc proc "$0/proc"; mount -t tmpfs shm "$0/dev/shm"
for device in null zero urandom; do mount --bind "/dev/$device" "$0/dev/$device"; done
exec chroot "$0" /bkmeta-collect "$@"
"""


@pytest.fixture(scope="module")
def packed() -> Path:
    """What `scripts/pack collect` makes; kept until something that goes into it changes."""
    names = ["uv.lock", "scripts/pack", "scripts/collect_program"]
    roots = [command.ROOT / name for name in (*names, "recovery", "reconcile", "backends")]
    files = sorted(file for root in roots for file in ([root] if root.is_file() else root.rglob("*")) if file.is_file())
    made_of = [file for file in files if "__pycache__" not in file.parts]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in made_of)).hexdigest()[:16]
    target = cache_home() / "packed" / f"collect-{digest}"
    if not target.exists():
        for old in target.parent.glob("collect-*"):
            old.unlink()
        fresh = target.with_name(f".collect-{os.getpid()}")
        done = subprocess.run(
            [command.ROOT / "scripts" / "pack", "collect", fresh], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        fresh.rename(target)
    return target


@pytest.fixture(scope="module")
def root(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the file, a bookie's disks and the C library; nothing else: no shell, no Python."""
    made = tmp_path_factory.mktemp("root")
    for folder in FOLDERS:
        (made / folder).mkdir(parents=True)
    for device in DEVICES:
        (made / "dev" / device).touch()
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    places = dict(line.split()[:: len(line.split()) - 1] for line in reversed(known.splitlines()[1:]) if " => " in line)
    for place in (Path(places[name]) for name in SYSTEM if name in places):
        inside = made / place.parent.relative_to("/")
        inside.mkdir(parents=True, exist_ok=True)
        shutil.copy(place, inside)
    shutil.copy(places[LOADER], made / "lib64")
    shutil.copy(packed, made / "bkmeta-collect")
    shutil.copytree(case_dir(CASE) / "bookies", made / "bookies")
    return made


def run(root: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run the file with nothing but its folder around it; return its exit code and result."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    done = subprocess.run(
        ["unshare", *as_root, "--mount", "--pid", "--fork", "sh", "-euc", IN_ROOT, str(root), *arguments, "--json"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=command.PATIENCE_S * 2,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def _list_options(bookie: Path) -> list[str]:
    """Return the folders of a bookie of the case, as `collect` takes them."""
    folders = [path for path in sorted(bookie.iterdir()) if path.is_dir()]
    return [word for path in folders for word in (f"--{path.name.rstrip('s0123456789')}-dir", str(path))]


def test_a_bookie_is_collected_where_nothing_else_is(root: Path, tmp_path: Path) -> None:
    """Each bookie's inventory has the rows that bkmeta itself gives."""
    kinds = set()
    for name in NAMES:
        options = _list_options(root / "bookies" / name)
        inside = [option.removeprefix(str(root)) for option in options]
        code, result = run(root, "collect", *inside, "--out", f"/tmp/{name}")
        own = command.process("collect", *options, "--out", tmp_path / name, "--json")
        assert (code, result["counts"]) == (own.code, own.result["counts"])
        kinds.add(result["storage"])
        for table in ("copies", "damage"):
            inventories = (open_dataset(folder, "inventory") for folder in (root / "tmp" / name, tmp_path / name))
            taken, expected = (inventory.read(table).to_pylist() for inventory in inventories)
            assert taken == expected
    assert len(kinds) == 2, kinds
    assert "db" in kinds or "mixed" in kinds, kinds


def test_it_has_its_commands_and_no_solver(root: Path, packed: Path) -> None:
    """`doctor`, `export` and `inspect` work, too; it takes 80 MB at most, unpacked 200."""
    code, healthy = run(root, "doctor")
    assert (code, {check["state"] for check in healthy["checks"]}) == (0, {"ok"})
    log = next(path for path in sorted((root / "bookies").rglob("*.log")) if path.stat().st_size)
    code, result = run(root, "inspect", str(log).removeprefix(str(root)))
    assert (code, result["counts"]["damaged"]) == (0, 0)
    (root / "ids").write_text("1\n")
    known = next(bookie["id"] for bookie in truth(CASE)["bookies"] if f"b{bookie['n']}" == NAMES[0])
    disks = ["--disk", f"{known}=/bookies/{NAMES[0]}", "--from", "/ids", "--logs"]
    code, exported = run(root, "export", *disks, "--out", "/tmp/entries")
    assert (code in (0, 3, 4), exported["counts"].get("ledgers")) == (True, 1), exported
    assert run(root, "recover")[0] == 2
    assert packed.stat().st_size <= MOST_PACKED
    entries = CArchiveReader(str(packed)).toc
    assert not [name for name in entries if name.startswith(("scipy", "pandas", "opentelemetry"))]
    unpacked = sum(size for _, _, size, _, kind in entries.values() if kind in "bx")
    assert 50_000_000 < unpacked < MOST_UNPACKED


def test_it_captures_follows_and_takes_deletes_back(packed: Path, etcd_server: EtcdServer, tmp_path: Path) -> None:
    """A real etcd: `backup follow` until a delete is sealed, `capture`, and the ledger in the plan of `undelete`."""
    etcd_server.wipe()
    root, place = f"/{tmp_path.name}", tmp_path / "backup"
    uri = f"etcd://{etcd_server.hosts}{root}"
    record = ledger_metadata.encode(
        LedgerMetadata(
            3, 1, 1, 1, LedgerState.CLOSED, 1, 30, (Segment(0, ("b1:3181",)),), Digest.CRC32, b"pw", creator_token=0
        )
    )
    etcd_server.put(root)
    factory = b"org.apache.bookkeeper.metadata.etcd.EtcdLedgerManagerFactory\n1"
    etcd_server.put(root + places(Layout.ETCD).layout, factory)
    keys = [root + ledger_key(Layout.ETCD, LedgerId(0, number)) for number in range(3)]

    def start(*words: object) -> subprocess.Popen[bytes]:
        arguments = [str(packed), *map(str, words), "--json"]
        return subprocess.Popen(arguments, stdout=subprocess.PIPE, env=command.environment())

    def finish(process: subprocess.Popen[bytes]) -> tuple[int, dict[str, Any]]:
        printed, _ = process.communicate(timeout=command.PATIENCE_S)
        return process.returncode, json.loads(printed.splitlines()[-1])

    follower = start("backup", "follow", "--metadata", uri, "--to", place, "--seal-after", "1s|1KiB")
    try:
        until(lambda: (place / "head.json").exists() and bool(open_backup(place).manifest.bases), "a base")
        for key in keys:
            etcd_server.put(key, record)
        late = etcd_server.delete(keys[1])
        until(lambda: open_backup(place).manifest.through >= late, "all is sealed")
        follower.send_signal(signal.SIGTERM)
        assert finish(follower)[0] == 0
    finally:
        follower.kill()
        follower.wait()
    code, captured = finish(start("capture", "--metadata", uri, "--out", tmp_path / "catalog"))
    assert (code, captured["counts"]["ledgers"]) == (0, 2)
    plan = tmp_path / "plan"
    code, made = finish(start("undelete", 1, "--metadata", uri, "--history", f"backup:{place}", "--out", plan))
    assert (code in (0, 3), made["counts"]["restored"]) == (True, 1), made
    assert 1 in open_dataset(plan, "plan").read("actions")["ledger"].to_pylist()
