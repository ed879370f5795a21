"""The acid test: metadata are lost, something brings them back, and the real Java client reads every entry.

`lose` loses them: all, those of ledgers, or those of some ledgers. `recover` uses the program as its user does. `judge`
compares a cluster with its truth (`truth.json` of a case, or `History.truth`), lets its bookies collect garbage, and
reads all that the truth says must be readable. `restore_truth`, and `sabotage` after it, test the judge itself.
"""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any, Final

from reconcile.cli.main import main
from recovery.dataset import open_dataset
from tests.support.cluster import Cluster, ClusterError, bookies_of, encoded
from tests.support.kept_bytes import Kept, Place, kept, less

COLLECTING: Final = {"gcWaitTime": "1000", "gcOverreplicatedLedgerWaitTime": "1000", "flushInterval": "500"}
"""Of bookies that look for garbage, and for copies too many, every second."""
FIELDS: Final = ("E", "W", "A", "state", "last", "length", "digest", "password", "custom", "ctime")
SEGMENT_FIELDS: Final = ("segments_exact", "segments_equivalent", "segments_readable")
GRADED: Final = {
    "E": "ensemble_size",
    "W": "write_quorum",
    "A": "ack_quorum",
    "state": "state",
    "last": "last_entry",
    "length": "length",
    "digest": "digest",
    "segments_equivalent": "segments",
}
"""Judged fields that a reconstruction grades, and its names for them. (Even a verified password may stay unwritten.)"""


class Loss(StrEnum):
    """What of the store is lost."""

    ALL = "all"
    LEDGERS = "ledgers"
    """The records of all ledgers."""
    SOME = "some"
    """Those of a third of them."""


@dataclass(slots=True)
class Ledgers:
    """Ledgers by how they came back."""

    expected: int = 0
    present: int = 0
    readable: int = 0
    """Open to the client, and every expected entry right."""
    unparseable: int = 0
    """The Java client rejects the bytes."""
    empty_expected: int = 0
    """Without any entry: on no bookie's disk, so only a snapshot could bring them back."""
    empty_present: int = 0
    open_errors: int = 0
    held: int = 0
    held_intact: int = 0
    """Held, and with the true record put back every expected entry is right."""


@dataclass(slots=True)
class Entries:
    """Entries of all ledgers by what the client read."""

    expected: int = 0
    """Up to the last entry (acknowledged entry, where the truth is not closed), less what these disks cannot give."""
    read: int = 0
    held: int = 0
    corrupt: int = 0
    missing: int = 0
    acknowledged_lost: int = 0
    """Wrong or missing, although the writer was told that they are safe."""
    beyond_end: int = 0
    """Past the true end of a closed ledger."""


@dataclass(slots=True)
class Judgement:
    """What a cluster is worth after its metadata came back."""

    ledgers: Ledgers = field(default_factory=Ledgers)
    entries: Entries = field(default_factory=Entries)
    fields: dict[str, dict[int, bool]] = field(default_factory=dict)
    """By field: the ledgers that it was compared for, and whether it is equal. Holds are not compared."""
    held: set[int] = field(default_factory=set)
    invented: list[int] = field(default_factory=list)
    """Ledgers that never were."""
    resurrected: list[int] = field(default_factory=list)
    """Ledgers deleted on purpose that are back, and not as holds."""
    held_deleted: list[int] = field(default_factory=list)
    layout: bool = False
    instance_id: bool = False
    cookies: dict[str, bool] = field(default_factory=dict)
    """By bookie id: equal to the truth."""
    bookies_failed: dict[int, str] = field(default_factory=dict)
    """Bookies that refused to start, and why."""
    collected: dict[Place, tuple[Kept, Kept]] = field(default_factory=dict)
    """Of ledgers that were not deleted on purpose, where bookies have less than they had: that, and what is left."""
    changed: set[int] = field(default_factory=set)
    """Ledgers whose records were not lost and are others now."""
    new_ledger: int | None = None
    """The id that the next client gets; None if it gets none."""
    problems: list[str] = field(default_factory=list)
    """A line for each ledger that is neither readable nor an intact hold."""

    @property
    def back(self) -> int:
        """Ledgers that are readable, or kept by a hold without a loss."""
        return self.ledgers.readable + self.ledgers.held_intact

    def overstated(self, plan: Mapping[int, Mapping[str, Any]]) -> dict[tuple[int, str], str]:
        """Return the grades of a reconstruction that say seen of what is not true, by ledger and field."""
        grades = {
            (ledger, name): plan[ledger]["grades"][column]
            for name, column in GRADED.items()
            for ledger in self.unequal(name)
        }
        return {place: grade for place, grade in grades.items() if grade in ("observed", "verified")}

    def unequal(self, name: str) -> set[int]:
        """Return the ledgers that a field is not equal for."""
        return {ledger for ledger, equal in self.fields[name].items() if not equal}


def is_hold(row: Mapping[str, Any]) -> bool:
    """Whether a record keeps a ledger's data and serves nobody."""
    return (
        "error" not in row
        and row["state"] == "IN_RECOVERY"
        and row["digest"] in ("MAC", "HMAC")
        and row["A"] == 1
        and row["E"] == row["W"]
        and len(row["segments"]) == 1
    )


def write_set(row: Mapping[str, Any], entry: int) -> frozenset[str]:
    """Return the bookies that an entry of a ledger was written to."""
    ensemble: Sequence[str] = [members for first, members in row["segments"] if first <= entry][-1:]
    members = ensemble[0] if ensemble else ()
    return frozenset(members[(entry + k) % len(members)] for k in range(row["W"])) if members else frozenset()


def end_of(row: Mapping[str, Any]) -> int:
    """Return the last entry that a row of a truth vouches for: of what is not closed, the last acknowledged one."""
    return int(row["last"]) if row["state"] == "CLOSED" else int(row["writer"]["acked_last"])


def _password(row: Mapping[str, Any]) -> str:
    # A History keeps every password as the JVM wants it; a case keeps its record's, and the writer's as text.
    known: str | None = row["password"]
    return encoded(row["writer"]["password"].encode()) if known is None else known


def read_ledger(cluster: Cluster, row: Mapping[str, Any], *, recovery: bool) -> Any:
    """Read every entry of a ledger by the Java client."""
    known = {"digest": row["writer"]["digest"], "password": _password(row)}
    return cluster("read", ledger=row["ledger"], recovery=recovery, **known)


def _compare(judgement: Judgement, true: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    def mark(name: str, *, equal: bool) -> None:
        judgement.fields[name][true["ledger"]] = equal

    # A record of format 1 has neither digest nor password, and its ledger has both.
    wanted = {**true, "digest": true["digest"] or true["writer"]["digest"], "password": _password(true)}
    for name in FIELDS:
        if name in ("last", "length") and true["state"] != "CLOSED":
            continue
        if name == "ctime" and not true["ctime_stored"]:
            continue
        mark(name, equal=wanted[name] == found[name])
    sets = [(write_set(true, entry), write_set(found, entry)) for entry in range(end_of(true) + 1)]
    mark("segments_exact", equal=true["segments"] == found["segments"])
    mark("segments_equivalent", equal=all(a == b for a, b in sets))
    mark("segments_readable", equal=all(a & b for a, b in sets))


def _judge_ledger(
    judgement: Judgement,
    cluster: Cluster,
    true: Mapping[str, Any],
    found: Mapping[str, Any] | None,
    lost: set[int],
    *,
    compared: bool,
) -> None:
    ledgers, entries = judgement.ledgers, judgement.entries
    ledger, end, acknowledged = true["ledger"], end_of(true), true["writer"]["acked_last"]
    wanted = [entry for entry in range(end + 1) if entry not in lost]
    ledgers.expected += 1
    ledgers.empty_expected += not true["entries"]
    entries.expected += len(wanted)
    if found is None:
        entries.missing += len(wanted)
        entries.acknowledged_lost += sum(entry <= acknowledged for entry in wanted)
        if wanted:
            judgement.problems.append(f"{ledger}: absent")
        return
    ledgers.present += 1
    ledgers.empty_present += not true["entries"]
    held = is_hold(found) and found["raw"] != true["raw"]
    if held:
        judgement.held.add(ledger)
        ledgers.held += 1
        cluster("zk_put", nodes=[{"path": true["path"], "data": true["raw"]}])
        found = true
    elif "error" in found:
        ledgers.unparseable += 1
    elif compared:
        _compare(judgement, true, found)
    answer = read_ledger(cluster, true, recovery=found.get("state") != "CLOSED")
    ledgers.open_errors += "open_error" in answer
    read = answer["entries"]
    right = [entry for entry in wanted if read[entry : entry + 1] == [true["entries"][entry]]]
    wrong = sorted(set(wanted) - set(right))
    past = max(0, len(read) - end - 1) if true["state"] == "CLOSED" else 0
    if held and not wrong:
        ledgers.held_intact += 1
        entries.held += len(right)
        return
    entries.read += len(right)
    corrupt = sum("igest" in str(read[entry][1]) or read[entry][0] is not None for entry in wrong if entry < len(read))
    entries.corrupt += corrupt
    entries.missing += len(wrong) - corrupt
    entries.acknowledged_lost += sum(entry <= acknowledged for entry in wrong)
    entries.beyond_end += past
    whole = not wrong and "open_error" not in answer
    ledgers.readable += whole
    if not whole or past:
        judgement.problems.append(
            f"{ledger}: {'held, ' * held}{found.get('state', found.get('error'))}, {len(right)} of {len(wanted)} right,"
            f" {corrupt} corrupt, {past} past the end, first wrong {wrong[:3]}, {answer.get('open_error', 'opened')}"
        )


def lose(cluster: Cluster, truth: Mapping[str, Any], loss: Loss, seed: int = 1) -> set[int]:
    """Lose what of the store is to be lost, and return the ledgers whose records are gone."""
    root, rows = truth["root"], truth["ledgers"]
    lost = {row["ledger"]: row["path"] for row in rows}
    gone = [root]
    if loss is Loss.LEDGERS:
        gone = sorted({"/".join(path.split("/")[: root.count("/") + 2]) for path in lost.values()})
    elif loss is Loss.SOME:
        lost = {ledger: lost[ledger] for ledger in Random(seed).sample(sorted(lost), max(1, len(lost) // 3))}
        gone = list(lost.values())
    cluster("zk_wipe", paths=gone)
    return set(lost)


def judge(
    cluster: Cluster, truth: Mapping[str, Any], lost: set[int] | None = None, *, collecting: bool = False
) -> Judgement:
    """Start the bookies that will start, compare every record with the truth, and read everything.

    A hold is judged by what it is for: the true record is put in its place, and then every entry must be readable.

    Args:
        cluster: with a store that metadata came back to.
        truth: of it.
        lost: ledgers whose records were lost; None: of all.
        collecting: bookies end two passes of garbage collection before anything is read.
    """
    judgement = Judgement(fields={name: {} for name in FIELDS + SEGMENT_FIELDS})
    root = truth["root"]
    now = cluster.nodes(root)
    was = {node["path"]: node["data"] for node in truth["znodes"]}
    judgement.layout = f"{root}/LAYOUT" in now and now[f"{root}/LAYOUT"]["data"] == was[f"{root}/LAYOUT"]
    instance = base64.b64decode(now.get(f"{root}/INSTANCEID", {}).get("data") or "")
    judgement.instance_id = instance.decode(errors="replace") == truth["instance_id"]
    cookies = [path for path in was if path.startswith(f"{root}/cookies/")]
    judgement.cookies = {path.rsplit("/", 1)[1]: path in now and now[path]["data"] == was[path] for path in cookies}
    found: dict[int, dict[str, Any]] = {}
    # Without a layout, a bookie or a client would make one, and hide that there was none.
    bookies = bookies_of(truth)
    if f"{root}/LAYOUT" in now:
        before = kept(cluster.home, bookies) if collecting else {}
        for bookie in bookies:
            props = dict(bookie.props) | (COLLECTING if collecting else {})
            try:
                cluster.start(replace(bookie, props=props))
            except ClusterError as error:
                judgement.bookies_failed[bookie.n] = str(error)
        found = cluster.ledgers()
        if collecting:
            judgement.new_ledger = cluster.collect_garbage(len(bookies) - len(judgement.bookies_failed))
            judgement.collected = less(before, kept(cluster.home, bookies))
    baseline = truth.get("baseline", {})
    true_rows = {row["ledger"]: row for row in truth["ledgers"]}
    judgement.collected = {place: pair for place, pair in judgement.collected.items() if place[1] in true_rows}
    for ledger, row in true_rows.items():
        unreadable = set(baseline.get(str(ledger), {}).get("unreadable", ()))
        was_lost = lost is None or ledger in lost
        if not was_lost and found[ledger]["raw"] != row["raw"]:
            judgement.changed.add(ledger)
        _judge_ledger(judgement, cluster, row, found.get(ledger), unreadable, compared=was_lost)
    deleted = {row["ledger"] for row in truth["deleted"]}
    judgement.invented = sorted(found.keys() - true_rows.keys() - deleted)
    judgement.resurrected = sorted(ledger for ledger in found.keys() & deleted if not is_hold(found[ledger]))
    judgement.held_deleted = sorted(ledger for ledger in found.keys() & deleted if is_hold(found[ledger]))
    if found and judgement.new_ledger is None and len(judgement.bookies_failed) < len(bookies):
        judgement.new_ledger = cluster("new_ledger")
    return judgement


def hidden(row: Mapping[str, Any]) -> bool:
    """Whether a segment of a ledger is so short that some position of its ensemble got no entry.

    Nothing on any disk shows such a position, nor with it E, nor, of a single entry, W. No reader needs it either.
    """
    starts = [first for first, _ in row["segments"]]
    ends = [*starts[1:], end_of(row) + 1]
    return any(end - start + row["W"] - 1 < row["E"] for start, end in zip(starts, ends, strict=True))


def restore_truth(cluster: Cluster, truth: Mapping[str, Any]) -> None:
    """Write back exactly what was lost."""
    cluster("zk_put", nodes=[{"path": node["path"], "data": node["data"]} for node in truth["znodes"]])
    cluster("zk_put", nodes=[{"path": row["path"], "data": row["raw"]} for row in truth["ledgers"]])
    generator = f"{truth['root']}/idgen"
    if any(node["path"] == generator for node in truth["znodes"]):
        cluster("zk_raise", path=generator, next=truth["largest_id_ever"] + 1)


@dataclass(frozen=True, slots=True)
class Faults:
    """What `sabotage` did, by ledger id."""

    removed: int
    misplaced: int
    invented: int
    resurrected: int


def sabotage(cluster: Cluster, truth: Mapping[str, Any]) -> Faults:
    """Put four faults into a restored truth that a judge must find."""
    rows = [
        row
        for row in truth["ledgers"]
        if row["state"] == "CLOSED" and len(row["entries"]) > 2 and row["E"] > 1 and len(row["segments"]) == 1
    ]
    removed, misplaced = rows[0], next(row for row in rows[1:] if row["E"] < len(truth["bookies"]))
    members = misplaced["segments"][0][1]
    stranger = next(bookie["id"] for bookie in truth["bookies"] if bookie["id"] not in members)
    raw = base64.b64decode(misplaced["raw"])
    for member, other in (
        (members[0], "\0" * len(members[0])),
        (members[1], members[0]),
        ("\0" * len(stranger), stranger),
    ):
        if len(member) != len(other):
            raise AssertionError("ids of one length, else the bytes are no record any more")
        raw = raw.replace(member.encode(), other.encode())
    invented = max(row["ledger"] for row in truth["ledgers"]) + 1000
    resurrected = truth["deleted"][0]["ledger"]
    cluster("zk_wipe", paths=[removed["path"]])
    puts = {misplaced["path"]: base64.b64encode(raw).decode()}
    for ledger in (invented, resurrected):
        puts[_hierarchical(truth["root"], ledger)] = removed["raw"]
    cluster("zk_put", nodes=[{"path": path, "data": data} for path, data in puts.items()])
    return Faults(removed["ledger"], misplaced["ledger"], invented, resurrected)


def _hierarchical(root: str, ledger: int) -> str:
    digits = f"{ledger:010d}"
    return f"{root}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"


def passwords_file(passwords: Sequence[bytes], target: Path) -> Path:
    """Write passwords as the program wants them: one a line, base64 for what is not plain text, for the owner only."""
    lines = []
    for password in passwords:
        plain = password.decode("ascii", errors="replace")
        lines.append(
            plain if plain.isprintable() and "\ufffd" not in plain else "base64:" + base64.b64encode(password).decode()
        )
    target.touch(mode=0o600)
    target.write_text("".join(f"{line}\n" for line in lines))
    return target


def run(*arguments: str | Path, codes: Sequence[int] = (0,)) -> str:
    """Run the program as its user does and return what it printed.

    Raises:
        AssertionError: another exit code; the message holds everything printed.
    """
    words, printed = [str(argument) for argument in arguments], io.StringIO()
    code: object = None
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            main(words)
        except SystemExit as ended:
            code = ended.code
    if code not in codes:
        raise AssertionError(f"bkmeta {' '.join(words)}: exit code {code}\n{printed.getvalue()}")
    return printed.getvalue()


@dataclass(frozen=True, slots=True)
class Recovered:
    """A recovery as the operator saw it.

    Attributes:
        plan: the rows of its reconstruction, by ledger.
        untouched: no file on the bookies' disks was made, changed or removed.
    """

    plan: dict[int, dict[str, Any]]
    untouched: bool


def _disks(home: Path) -> dict[Path, tuple[int, int]]:
    files = (path for path in (home / "bookies").rglob("*"))
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


class Operator:
    """One who has the disks, the passwords, and the names of the bookies.

    Args:
        home: folder that the bookies' folders are in.
        truth: names the bookies and their folders, the root and its layout; nothing else of it is used.
        passwords: candidates.
        work: a new folder.
        is_partial: it is known that disks are gone or damaged.
        with_spark: Spark carries the tasks of `recover`; else this process, as it does for so few ledgers.
    """

    def __init__(
        self,
        home: Path,
        truth: Mapping[str, Any],
        passwords: Sequence[bytes],
        work: Path,
        *,
        is_partial: bool = False,
        with_spark: bool = False,
    ) -> None:
        work.mkdir()
        self.master = ("--master", "local[2]") if with_spark else ()
        self.home, self.truth, self.work, self.is_partial = home, truth, work, is_partial
        self.bookies = bookies_of(truth)
        self.secrets = passwords_file(passwords, work / "passwords")
        self.expected = work / "bookies"
        self.expected.write_text("".join(f"{bookie['id']}\n" for bookie in truth["bookies"]))
        self.inventories: list[str | Path] = []

    def collect(self) -> None:
        """Collect every bookie's folders that are there."""
        for bookie in self.bookies:
            kinds = {"--journal-dir": bookie.journals, "--ledger-dir": bookie.ledgers, "--index-dir": bookie.indexes}
            named = [(option, self.home / name) for option, names in kinds.items() for name in names or ()]
            folders = [word for option, folder in named if folder.exists() for word in (option, folder)]
            inventory = self.work / f"inventory-{bookie.n}"
            codes = (0, 3, 4) if self.is_partial else (0,)
            run("collect", *folders, "--passwords", self.secrets, "--out", inventory, codes=codes)
            self.inventories += ["--inventory", inventory]

    def recover(
        self, zookeeper: str, name: str = "plan", snapshot: Path | None = None, stated: Sequence[str] = ()
    ) -> dict[int, dict[str, Any]]:
        """Bring metadata back to a ZooKeeper that lost them; return the rows of the reconstruction, by ledger.

        Args:
            zookeeper: its address.
            name: of the plan.
            snapshot: a copy of what its folder was.
            stated: more that is said to `recover`.
        """
        plan, root = self.work / name, self.truth["root"]
        store = ("--metadata", f"zk+{self.truth.get('manager', 'hierarchical').lower()}://{zookeeper}{root}")
        earlier = ("--snapshot", f"zkfiles://{snapshot}?root={root}") if snapshot else ()
        known: tuple[str | Path, ...] = (
            "--passwords",
            self.secrets,
            "--expect-bookies",
            self.expected,
            *self.master,
            *stated,
        )
        # 3: something is held or guarded, which the judge looks at
        codes = (0, 3, 4) if self.is_partial else (0, 3)
        run("recover", *self.inventories, *store, *earlier, *known, "--out", plan, codes=codes)
        manifest = json.loads((plan / "manifest.json").read_text())
        unseen = len(manifest["coverage"]["not_scanned"])
        accepted = ("--accept-unseen", str(unseen)) if unseen and self.is_partial else ()
        run("apply", plan, *store, "--confirm", manifest["hash"], *accepted)
        return {row["ledger"]: row for row in open_dataset(plan, "plan").read("reconstruction").to_pylist()}


def recover(
    cluster: Cluster,
    truth: Mapping[str, Any],
    passwords: Sequence[bytes],
    work: Path,
    snapshot: Path | None = None,
    *,
    with_spark: bool = False,
) -> Recovered:
    """Bring metadata back as an operator would who has the disks, the passwords and a ZooKeeper that lost them.

    Args:
        cluster: with that ZooKeeper; its bookies are stopped.
        truth: names the bookies and their folders, the root and its layout; nothing else of it is used.
        passwords: candidates.
        work: a new folder.
        snapshot: a copy of what the ZooKeeper's folder was.
        with_spark: as of an `Operator`.
    """
    operator = Operator(cluster.home, truth, passwords, work, with_spark=with_spark)
    before = _disks(cluster.home)
    operator.collect()
    plan = operator.recover(cluster.zookeeper, snapshot=snapshot)
    return Recovered(plan, before == _disks(cluster.home))
