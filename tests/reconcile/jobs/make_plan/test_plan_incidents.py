"""What went wrong elsewhere, on the disks of real bookies: the facts are shown, and acting on them loses nothing.

The cluster is one that ran; what its store says now is made for each test, from the records that it had.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconcile.check.guard_locks import look_at_guards
from reconcile.clusters import open_inventories
from reconcile.compare.knowledge import Knowledge
from reconcile.compare.single_ledger import StoredLedger, read_only_ledger
from reconcile.errors import PlanError
from reconcile.explain.ledger import explain
from reconcile.jobs.diagnose.explain import read_catalog
from reconcile.jobs.make_plan.plan import make_plan
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.plan import plan_reader
from reconcile.plan.actions import LEAVE, REUSE_LOCK_TIME, Passwords
from reconcile.plan.edits import Edits, edit_plan
from reconcile.plan.manifest import read_plan_manifest
from reconcile.report.pages import plan_page
from reconcile.report.picture import ledgers_by_outcome
from reconcile.report.plan_verdict import describe_plan
from reconcile.write import apply as engine
from recovery.capture.live import capture
from recovery.codecs import entry as entry_codec
from recovery.codecs import entry_log, ledger_metadata, store
from recovery.codecs.entry import EntryHeader
from recovery.codecs.replication_lock import encode_reuse, lock_key, read_reuse_end
from recovery.codecs.store import LOCKS, Layout
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.dataset import Dataset, DatasetWriter, open_dataset, prepare
from recovery.infer.lost_disks import LostDisk
from recovery.model import metadata as md
from recovery.model.ids import LedgerId
from recovery.spark import session
from tests.recovery.collect.test_pipeline_golden import options
from tests.simulation.bookie_dir import PAYLOAD, locations, make_bookie, write_index
from tests.support.cases import operator, truth
from tests.support.findings import found, said
from tests.support.scannable_store import ScannableMemory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CASE = "c02-clean-interleaved"
ROOT = "/ledgers"
NAMES = tuple(one["id"] for one in operator(CASE)["bookies"])
PASSWORDS = Passwords.from_candidates([one.encode() for one in operator(CASE)["passwords"]])
Recover = Callable[..., Dataset]


def now() -> datetime:
    """The tests' clock."""
    return datetime(2030, 1, 1, tzinfo=UTC)


def key_of(ledger: int) -> str:
    """The key of a ledger in the store."""
    return ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger))


def records() -> dict[int, bytes]:
    """The record of each ledger of the cluster, as its store had it."""
    return {one["ledger"]: base64.b64decode(one["raw"]) for one in truth(CASE)["ledgers"]}


def captured(folder: Path, ledgers: Mapping[int, bytes], **nodes: bytes) -> Dataset:
    """The catalog of a store with these ledgers; nodes by their names below the root."""
    source = ScannableMemory()
    source.put(ROOT + store.LAYOUT, store.layout_bytes(Layout.HIERARCHICAL))
    for name, value in nodes.items():
        source.put(f"{ROOT}/{name}", value)
    for ledger, raw in ledgers.items():
        source.put(key_of(ledger), raw)
    with DatasetWriter(folder, "catalog", binding={"root": ROOT}, secret=True) as out:
        capture(source, ROOT, None, out, clock=now)
    return open_dataset(folder, "catalog")


@pytest.fixture(scope="module")
def spark() -> "Iterator[SparkSession]":
    """One session for this module."""
    with session("local[1]") as running:
        yield running


@pytest.fixture(scope="module")
def inventories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, ...]:
    """The disks of all bookies."""
    folder = tmp_path_factory.mktemp("inventories")
    for number in range(len(NAMES)):
        collect(options(CASE, number), folder / str(number), now=now, progress=lambda _: None)
    return open_inventories([str(path) for path in sorted(folder.iterdir())])


@pytest.fixture
def recovered(spark: "SparkSession", inventories: tuple[Dataset, ...], tmp_path: Path) -> Recover:
    """Gives the plan of the inventories, a store and snapshots."""

    def made(name: str, **changes: Any) -> Dataset:
        values: dict[str, Any] = {
            "inventories": inventories,
            "live": None,
            "snapshots": (),
            "layout": Layout.HIERARCHICAL,
            "root": ROOT,
            "passwords": PASSWORDS,
            "expected": NAMES,
            "default_quorum": None,
        }
        prepare(tmp_path / name, "plan", secret=True)
        if "store" in changes:
            # The store is captured beside the plan, as the command does.
            changes["live"] = captured(tmp_path / name / "store", **changes.pop("store"))
        make_plan(PlanRequest(**{**values, **changes}), tmp_path / name, spark, now=now)
        plan = open_dataset(tmp_path / name, "plan")
        assert plan_reader.overview(plan, shown=0).problems == ()
        counts = plan.manifest["counts"]
        assert sum(counts[one] for one in ("clean", "skipped", "undecided", "with_findings")) == counts["looked_at"]
        return plan

    return made


def rows_of(plan: Dataset) -> dict[int, dict[str, Any]]:
    """RECONSTRUCTION by ledger."""
    return {row["ledger"]: row for row in plan.read("reconstruction").to_pylist()}


def written(plan: Dataset, target: ScannableMemory, journal: Path) -> None:
    """Write a plan into a store."""
    rights = engine.ApplyOptions(plan_hash=plan.manifest["hash"])
    engine.apply(lambda: plan.batches("actions"), target, ROOT, journal, rights, now=now)


def test_entries_above_the_end_of_a_closed_ledger_are_critical(recovered: Recover, tmp_path: Path) -> None:
    """A store that closed a ledger at 0 while bookies hold more, acknowledged: every fact is in one critical finding.

    A recovery closed a ledger while its writer, whom bookies without their fence did not stop, was promised more.
    """
    known = {ledger: md for ledger, raw in records().items() if (md := ledger_metadata.decode(raw)).last_entry}
    ledger, record = next((n, one) for n, one in known.items() if (one.last_entry or 0) >= 9 and one.write_quorum > 1)
    cut = replace(record, last_entry=0, length=1)
    live = captured(tmp_path / "live", {**records(), ledger: ledger_metadata.encode(cut)})
    plan = recovered("plan", live=live)
    beyond = found(plan, "ENTRIES_BEYOND_LAST_ENTRY")
    assert beyond.keys() == {ledger}
    finding = beyond[ledger]
    assert finding["severity"] == "critical"
    assert plan.manifest["counts"]["critical"] == 1
    assert [(one["first"], one["first"] + one["size"] - 1) for one in finding["entries"]] == [(1, record.last_entry)]
    holders = {name for segment in record.segments for name in segment.members}
    assert set(finding["bookies"]) <= holders
    evidence = said(finding)
    assert evidence["store", "last_entry"] == "0"
    assert int(evidence["bookies", "largest LAC"]) > 0
    assert any("agrees" in value for (_, name), value in evidence.items() if name.startswith("entry "))
    assert [row["op"] for row in plan.read("actions").to_pylist() if row["ledger"] == ledger] in ([], [LEAVE])


def test_what_a_proposed_record_leaves_out_is_said(recovered: Recover, tmp_path: Path) -> None:
    """A snapshot's record is closed without an entry, and each member has thirty whose headers all say LAC -1.

    The bytes allow the record, so it comes back as it was; but not as if nothing were there.
    """
    names = [f"b{number}:3181" for number in range(3)]
    for number, name in enumerate(names):
        disks = make_bookie(tmp_path / name, {7: range(30), 8: range(5)}, bookie=name, password=b"one")
        records_of = [
            entry_codec.encode(
                EntryHeader(ledger, n, -1 if ledger == 7 else n - 1, 10 * (n + 1)), bytes(10), md.Digest.CRC32C, b"one"
            )
            for ledger, n in [*((7, n) for n in range(30)), *((8, n) for n in range(5))]
        ]
        disks.log().write_bytes(entry_log.encode(records_of, with_map=False))
        for ledger, count in ((7, 30), (8, 5)):
            write_index(disks, ledger, locations(disks, 0, ledger), password=b"one", size=count)
        folders = CollectOptions(disks.ledger_dirs, (), disks.journal_dirs, passwords=(b"one",))
        collect(folders, tmp_path / f"of-{number}", now=now, progress=lambda _: None)
    closed = md.LedgerMetadata(
        3, 3, 3, 2, md.LedgerState.CLOSED, -1, 0, (md.Segment(0, tuple(names)),), md.Digest.CRC32C, b"one", 0, ()
    )
    snapshot = captured(
        tmp_path / "snapshot",
        {
            7: ledger_metadata.encode(closed),
            8: ledger_metadata.encode(replace(closed, last_entry=4, length=50)),
        },
    )
    plan = recovered(
        "plan",
        inventories=open_inventories([str(tmp_path / f"of-{number}") for number in range(3)]),
        expected=tuple(names),
        passwords=Passwords.from_candidates([b"one"]),
        snapshots=(snapshot,),
    )
    counts = plan.manifest["counts"]
    assert {ledger: (row["outcome"], row["last_entry"]) for ledger, row in rows_of(plan).items()} == {
        7: ("restored", -1),
        8: ("restored", 4),
    }
    assert (counts["restored"], counts["clean"], counts["with_findings"], counts["beyond_end"]) == (2, 1, 1, 1)
    assert (counts["disagreements"], counts["critical"]) == (0, 0)
    assert "1 of them ends below entries that bookies hold" in describe_plan(read_plan_manifest(plan))
    [finding] = found(plan, "ENTRIES_BEYOND_LAST_ENTRY").values()
    assert (finding["ledger"], finding["severity"], finding["bookies"]) == (7, "warning", names)
    assert said(finding)["plan", "last_entry"] == "-1"
    assert [(one["first"], one["size"]) for one in finding["entries"]] == [(0, 30)]


def test_a_record_that_names_wrong_bookies_or_lost_middle_entries_is_not_clean(
    recovered: Recover, inventories: tuple[Dataset, ...], tmp_path: Path
) -> None:
    """Ends and quorums agree, so only entry by entry shows it: each wrong record is one finding, the others none.

    A record was put back by hand with another bookie's name, and a bookie lost an index page in the middle.
    """
    decoded = {ledger: ledger_metadata.decode(raw) for ledger, raw in records().items()}
    ledger, record = next(
        (n, one)
        for n, one in decoded.items()
        if (one.last_entry or 0) >= 9 and len(one.segments) == 1 and len(one.segments[0].members) < len(NAMES)
    )
    members = record.segments[0].members
    stranger = next(name for name in NAMES if name not in members)
    renamed = replace(record, segments=(replace(record.segments[0], members=(stranger, *members[1:])),))
    live = captured(tmp_path / "live", {**records(), ledger: ledger_metadata.encode(renamed)})
    before = found(recovered("before", live=captured(tmp_path / "right", records())), "ENTRIES_MISPLACED")
    misplaced = found(recovered("plan", live=live), "ENTRIES_MISPLACED")
    assert before == {}
    assert misplaced.keys() == {ledger}
    assert (misplaced[ledger]["bookies"], misplaced[ledger]["severity"]) == (
        [stranger],
        "critical" if record.write_quorum == 1 else "warning",
    )
    disks = make_bookie(tmp_path / "b0", {7: [*range(4), *range(6, 10)]}, bookie="b0:3181", password=b"one")
    folders = CollectOptions(disks.ledger_dirs, (), disks.journal_dirs, passwords=(b"one",))
    collect(folders, tmp_path / "of-b0", now=now, progress=lambda _: None)
    alone = replace(
        decoded[ledger], ensemble_size=1, write_quorum=1, ack_quorum=1, last_entry=9, length=100, password=b"one",
        segments=(md.Segment(0, ("b0:3181",)),),
    )  # fmt: skip
    plan = recovered(
        "middle",
        inventories=open_inventories([str(tmp_path / "of-b0")]),
        expected=("b0:3181",),
        live=captured(tmp_path / "middle-live", {7: ledger_metadata.encode(alone)}),
    )
    lost = found(plan, "ENTRY_LOST")
    assert [(one["first"], one["size"]) for one in lost[7]["entries"]] == [(4, 2)]
    assert plan.manifest["counts"]["clean"] == 0


def test_no_id_is_given_twice_and_one_that_was_is_told(recovered: Recover, tmp_path: Path) -> None:
    """A snapshot counts ids to 5,000, bookies hold up to 5,900: the next is above; one with two keys is held and told.

    A store that was put back to an older state gave ids out again.
    """
    made = []
    for number, password in enumerate((b"before", b"after")):
        name = f"b{number}:3181"
        disks = make_bookie(
            tmp_path / name, {5_400: range(4), 5_800 + number: [0], 5_900: [0]} if not number else {5_400: range(4)},
            bookie=name, password=password,
        )  # fmt: skip
        folders = CollectOptions(disks.ledger_dirs, (), disks.journal_dirs, passwords=(b"before", b"after"))
        collect(folders, tmp_path / f"of-{number}", now=now, progress=lambda _: None)
        made.append(str(tmp_path / f"of-{number}"))
    plan = recovered(
        "plan",
        inventories=open_inventories(made),
        expected=("b0:3181", "b1:3181"),
        passwords=Passwords.from_candidates([b"before", b"after"]),
        default_quorum=(1, 1, 1),
    )
    reused = found(plan, "ID_REUSE")
    assert reused.keys() == {5_400}
    assert reused[5_400]["severity"] == "critical"
    text = said(reused[5_400])["bookies", "keys"]
    assert "on b0:3181" in text
    assert "on b1:3181" in text
    assert (rows_of(plan)[5_400]["outcome"], rows_of(plan)[5_400]["reason"]) == ("held", "two_keys")
    assert "(1 of them: two ledgers under one id, ID_REUSE)" in describe_plan(read_plan_manifest(plan))
    target = ScannableMemory()
    target.raise_counter(f"{ROOT}{store.SHORT_GENERATOR}", 5_000)
    written(plan, target, tmp_path / "journal")
    held = target.get(f"{ROOT}{store.SHORT_GENERATOR}")
    assert held is not None
    assert held.children_created == 5_901


def test_a_store_that_was_initialised_again_is_shown_with_all_that_it_reused(
    recovered: Recover, inventories: tuple[Dataset, ...], tmp_path: Path
) -> None:
    """A new instance id, no cookies, ids given out a second time: each is a finding, and what is lost still comes back.

    The record of the new ledger stays as it is; the instance id and a cookie are replaced only where that is asked for.
    """
    reused = sorted(ledger for ledger, raw in records().items() if ledger_metadata.decode(raw).last_entry != -1)[:3]
    new = md.LedgerMetadata(
        format=3, ensemble_size=2, write_quorum=2, ack_quorum=2, state=md.LedgerState.CLOSED, last_entry=0, length=1,
        segments=(md.Segment(0, NAMES[:2]),), digest=md.Digest.CRC32C, password=b"of the new ledger",
    )  # fmt: skip
    made = {ledger: ledger_metadata.encode(new) for ledger in reused}
    nodes = {"INSTANCEID": b"00000000-new", f"cookies/{NAMES[0]}": b'5\nbookieHost: "x"\n'}
    plan = recovered("plan", store={"ledgers": made, **nodes})
    live = open_dataset(tmp_path / "plan" / "store", "catalog")
    assert found(plan, "INSTANCE_ID_DIFFERS").keys() == {store.INSTANCE_ID}
    assert found(plan, "COOKIE_DIFFERS").keys() == {f"{store.COOKIES}/{NAMES[0]}"}
    assert found(plan, "BOOKIE_WITHOUT_COOKIE").keys() == {f"{store.COOKIES}/{name}" for name in NAMES[1:]}
    again = found(plan, "ID_REUSE")
    assert again.keys() == set(reused)
    for ledger, finding in again.items():
        assert finding["severity"] == "critical"
        evidence = said(finding)
        assert evidence["store", "key"] != evidence["bookies", "key"]
        outside = evidence["bookies", "hold it, and are not in the record"]
        holders = {name for segment in ledger_metadata.decode(records()[ledger]).segments for name in segment.members}
        assert set(outside.split(", ")) <= holders - set(NAMES[:2]) or outside == "none"
    actions = {row["ledger"]: row["op"] for row in plan.read("actions").to_pylist() if row["kind"] == "ledger"}
    assert not actions.keys() & set(reused)
    assert {ledger for ledger, op in actions.items() if op in ("create", "hold")} == rows_of(plan).keys() - set(reused)
    edits = Edits(replace_instance_id=True, replace_cookies=frozenset({NAMES[0]}))
    edit_plan(plan, edits, tmp_path / "edited")
    edited = open_dataset(tmp_path / "edited", "plan")
    assert plan_reader.overview(edited, shown=0).problems == ()
    typed = {row["kind"]: row for row in edited.read("actions").to_pylist() if row["op"] == "replace"}
    assert typed.keys() <= {"instance_id", "cookie"}
    assert typed["instance_id"]["before"] == b"00000000-new"
    instances = {row["instance_id"] for one in inventories for row in one.read("bookies").to_pylist()}
    assert {typed["instance_id"]["value"].decode()} == instances
    known = Knowledge(passwords=PASSWORDS.values, expected=NAMES, layout=Layout.HIERARCHICAL)
    one = LedgerId(0, reused[0])
    side = StoredLedger(
        "store",
        read_only_ledger(live, "ledgers", one),
        read_only_ledger(live, "history", one),
        None,
        NAMES[:1],
        complete=True,
    )
    lines = explain(one, inventories, [side], None, known, has_store=True).disagreements
    assert any(line.startswith("ID_REUSE (critical)") for line in lines)


def test_what_is_called_kept_of_a_reused_id_is_kept_for_a_time(recovered: Recover, tmp_path: Path) -> None:
    """The store has the younger ledger of each id, by the same key: a lock with an end, until its loss is named.

    The bars of the report count what the plan does: what is in the store already is no hold.
    """
    known = {n: one for n, raw in records().items() if ((one := ledger_metadata.decode(raw)).last_entry or 0) >= 5}
    # Bookies that the younger record does not name have the older one's entries.
    reused = {
        n: next(name for name in NAMES if name not in one.segments[0].members)
        for n, one in known.items()
        if len(one.segments) == 1 and set(NAMES) - set(one.segments[0].members)
    }
    reused = dict(list(reused.items())[:3])
    young = {
        n: replace(
            known[n],
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            last_entry=0,
            length=1,
            segments=(md.Segment(0, (name,)),),
        )
        for n, name in reused.items()
    }
    made = {n: ledger_metadata.encode(one) for n, one in young.items()}
    plan = recovered("plan", store={"ledgers": made})
    assert found(plan, "ID_REUSE").keys() == set(made)
    manifest = read_plan_manifest(plan)
    assert (manifest.counts.ids_reused, manifest.counts.reuse_locks) == (len(made), len(made))
    assert f"{len(made)} ids in the store have two ledgers (ID_REUSE)" in describe_plan(manifest)
    bar = ledgers_by_outcome(manifest.counts)
    assert (bar["in_store"], sum(bar.values())) == (len(made), manifest.counts.ledgers)
    assert bar["held"] == sum(row["op"] == "hold" for row in plan.read("actions").to_pylist())
    page = plan_page(plan, (), verdict="", made=now())
    assert "no worker repairs the younger ledger" in page
    assert f"{len(made)} ledgers: in the store already" in page
    target = ScannableMemory()
    for n, raw in made.items():
        target.put(key_of(n), raw)
    written(plan, target, tmp_path / "journal")
    end = now() + REUSE_LOCK_TIME
    for n, raw in made.items():
        lock = target.get(ROOT + lock_key(LedgerId(0, n)))
        assert lock is not None
        assert read_reuse_end(lock.value, lock.owner) == end
        record = target.get(key_of(n))
        assert record is not None
        assert record.value == raw
    seen = look_at_guards(plan, target, ROOT)
    assert (seen.reuse_kept, seen.wrong) == (len(made), 0)
    assert look_at_guards(plan, target, ROOT, int(end.timestamp() * 1000)).reuse_over == len(made)
    # Their locks stand: nothing is written, until a person names the loss of one, or the end is past.
    locked = {f"{LOCKS.removeprefix('/')}/urL{n:010d}": encode_reuse(end) for n in made}
    again = recovered("again", store={"ledgers": made, **locked})
    assert not found(again, "DEAD_LOCK")
    ops = {row["ledger"]: row["op"] for row in again.read("actions").to_pylist() if row["kind"] == "reuse_lock"}
    assert ops == dict.fromkeys(made, LEAVE)
    first = LedgerId(0, min(made))
    edit_plan(again, Edits(accept_loss=frozenset({first})), tmp_path / "named")
    named = open_dataset(tmp_path / "named", "plan")
    assert plan_reader.overview(named, shown=0).problems == ()
    rows = [row for row in named.read("actions").to_pylist() if row["kind"] == "reuse_lock" and row["op"] == "remove"]
    assert [row["ledger"] for row in rows] == [first.ledger]
    with pytest.raises(PlanError, match="two ledgers have the id"):
        edit_plan(again, Edits(drop=frozenset({first})), tmp_path / "dropped")
    past = {name: encode_reuse(now()) for name in locked}
    over = recovered("over", store={"ledgers": made, **past})
    assert found(over, "DEAD_LOCK").keys() == {f"/{name}" for name in past}
    removed = {row["ledger"] for row in over.read("actions").to_pylist() if row["op"] == "remove"}
    assert removed == set(made)
    edit_plan(plan, Edits(accept_loss=frozenset({first})), tmp_path / "lost")
    lost = open_dataset(tmp_path / "lost", "plan")
    assert plan_reader.overview(lost, shown=0).problems == ()
    assert read_plan_manifest(lost).counts.reuse_locks == len(made) - 1
    emptied = ScannableMemory()
    written(lost, emptied, tmp_path / "journal-lost")
    assert emptied.get(ROOT + lock_key(first)) is None


def test_a_ledger_that_was_closed_empty_comes_back_byte_for_byte(recovered: Recover, tmp_path: Path) -> None:
    """No bookie has anything of it, and a snapshot says that there was nothing; unless something contradicts."""
    empty = {ledger for ledger, raw in records().items() if ledger_metadata.decode(raw).last_entry == -1}
    held = rows_of(recovered("alone")).keys()
    ghosts = {100_000 + n: raw for n, raw in enumerate(records()[ledger] for ledger in empty)}
    assert ghosts
    full = next(one for raw in records().values() if (one := ledger_metadata.decode(raw)).last_entry not in (None, -1))
    still_open = replace(full, state=md.LedgerState.OPEN, last_entry=None, length=None)
    gone = {200_000: ledger_metadata.encode(full), 200_001: ledger_metadata.encode(still_open)}
    past = captured(tmp_path / "past", {**records(), **ghosts, **gone})
    plan = recovered("plan", snapshots=(past,))
    rows = rows_of(plan)
    assert rows.keys() >= ghosts.keys() - held
    target = ScannableMemory()
    for ledger, raw in ghosts.items():
        assert (rows[ledger]["outcome"], rows[ledger]["holders"]) == ("restored", [])
        assert set(rows[ledger]["grades"].values()) == {"snapshot"}
        assert rows[ledger]["raw"] == raw
    assert plan.manifest["sides"]["earlier_only"] >= len(ghosts)
    # What had entries is not restored without them, and not passed over in silence: its bookies kept all else.
    gone_since = {ledger: row["severity"] for ledger, row in found(plan, "DELETED_SINCE").items()}
    assert gone_since == dict.fromkeys(gone, "warning")
    assert found(plan, "ONLY_IN_EARLIER") == {}
    assert not rows.keys() & gone.keys()
    written(plan, target, tmp_path / "journal")
    for ledger, raw in ghosts.items():
        kept = target.get(key_of(ledger))
        assert kept is not None
        assert kept.value == raw
    # Where some bookie was not looked at, nothing says that they are lost: what was closed is proposed as it was.
    unseen = recovered("unseen", snapshots=(past,), expected=(*NAMES, "10.0.0.99:3181"))
    rows = rows_of(unseen)
    assert {ledger: rows[ledger]["raw"] for ledger in ghosts} == ghosts
    assert rows[200_000]["raw"] == gone[200_000]
    assert rows[200_000]["missing"] == ((full.last_entry or 0) + 1) * full.write_quorum
    # All members of the open one may have been replaced before its first entry, by that bookie where A is 1.
    assert (still_open.ack_quorum, rows[200_001]["outcome"]) == (1, "held")
    assert rows[200_001]["holders"] == ["10.0.0.99:3181"]
    for category, ledger, outcome in (("DELETED_SINCE", 200_000, "restored"), ("ONLY_IN_EARLIER", 200_001, "held")):
        ((other, only),) = found(unseen, category).items()
        assert (other, only["severity"]) == (ledger, "warning")
        assert said(only)["plan", "outcome"] == outcome


def test_what_was_deleted_after_the_snapshot_is_not_the_first_line(recovered: Recover, tmp_path: Path) -> None:
    """Bookies hold nothing, or only logs: a reason of its own, also where a bookie is lost; no loss, no contradiction.

    The ledgers of a bookie that was wiped are no such: of these the snapshot's record is all that is left.
    """
    names = [f"b{n}:3181" for n in range(3)]
    stored: dict[str, dict[int, list[int]]] = {name: {} for name in names}
    recorded: dict[int, bytes] = {}
    gone, logged, last = range(4), range(10, 13), 4
    for ledger in range(20):
        members = tuple(names[(ledger + n) % 3] for n in range(3))
        recorded[ledger] = ledger_metadata.encode(
            md.LedgerMetadata(
                format=3, ensemble_size=3, write_quorum=2, ack_quorum=2, state=md.LedgerState.CLOSED, last_entry=last,
                length=(last + 1) * len(PAYLOAD), segments=(md.Segment(0, members),), digest=md.Digest.CRC32C,
                password=b"",
            )
        )  # fmt: skip
        for entry in range(last + 1) if ledger not in gone else ():
            for n in range(2):
                stored[members[(entry + n) % 3]].setdefault(ledger, []).append(entry)
    made: dict[str, str] = {}
    for name in names:
        disks = make_bookie(tmp_path / name, stored[name], bookie=name, rotated=True)
        for ledger in logged:
            disks.index(ledger).unlink()
        folders = CollectOptions(disks.ledger_dirs, (), disks.journal_dirs, passwords=(b"",))
        made[name] = str(tmp_path / f"of-{name}")
        collect(folders, Path(made[name]), now=now, progress=lambda _: None)
    past = captured(tmp_path / "past", recorded)
    known: dict[str, Any] = {
        "expected": tuple(names), "snapshots": (past,), "passwords": Passwords.from_candidates([b""]),
    }  # fmt: skip
    for name, left, lost in (("all", names, ()), ("lost", names[:2], (LostDisk.parse(names[2]),))):
        plan = recovered(name, inventories=open_inventories([made[one] for one in left]), lost=lost, **known)
        rows = rows_of(plan)
        assert {rows[n]["reason"] for n in logged} == {"deleted_since"}
        assert {rows[n]["outcome"] for n in logged} == {"held"}
        assert not rows.keys() & set(gone)
        assert found(plan, "DELETED_SINCE").keys() == set(gone)
        assert not found(plan, "RECORD_CONTRADICTED").keys() | found(plan, "ONLY_IN_EARLIER").keys()
        manifest = read_plan_manifest(plan)
        assert (manifest.counts.entries_lost, manifest.counts.critical) == (0, 0)
        verdict = describe_plan(manifest)
        assert verdict.startswith("13 of 16 lost ledgers come back; 3 were probably deleted since the snapshot")
        left_alone = {r["ledger"]: r["op"] for r in plan.read("actions").to_pylist() if r["ledger"] in gone}
        assert left_alone == dict.fromkeys(gone, LEAVE)
    # Two of three bookies were wiped: nothing that they lack says that it was deleted.
    for name in names[1:]:
        disks = make_bookie(tmp_path / f"{name}-new", {}, bookie=name)
        folders = CollectOptions(disks.ledger_dirs, (), disks.journal_dirs, passwords=(b"",))
        made[name] = str(tmp_path / f"of-{name}-new")
        collect(folders, Path(made[name]), now=now, progress=lambda _: None)
    wiped = recovered("wiped", inventories=open_inventories(list(made.values())), **known)
    assert found(wiped, "ONLY_IN_EARLIER").keys() == set(gone)
    assert not found(wiped, "DELETED_SINCE")


def test_nothing_of_an_earlier_catalog_is_dropped_where_a_bookie_is_missing(
    recovered: Recover, inventories: tuple[Dataset, ...], tmp_path: Path
) -> None:
    """Each of its ledgers is restored or held: those that only the missing bookie had, too; and explained so."""
    missing = NAMES[-1]
    left = [one for one in inventories if missing not in one.read("bookies")["bookie"].to_pylist()]
    record = next(
        one for raw in records().values() if (one := ledger_metadata.decode(raw)).last_entry not in (None, -1)
    )
    alone = replace(record, ensemble_size=1, write_quorum=1, ack_quorum=1, segments=(md.Segment(0, (missing,)),))
    still_open = replace(alone, state=md.LedgerState.OPEN, last_entry=None, length=None)
    made = {300_000: ledger_metadata.encode(alone), 300_001: ledger_metadata.encode(still_open)}
    past = captured(tmp_path / "past", {**records(), **made})
    plan = recovered("plan", snapshots=(past,), inventories=tuple(left))
    rows = rows_of(plan)
    assert rows.keys() >= records().keys() | made.keys()
    assert {row["outcome"] for row in rows.values()} <= {"restored", "held"}
    assert rows[300_000]["raw"] == made[300_000]
    assert (rows[300_001]["outcome"], rows[300_001]["holders"]) == ("held", [missing])
    counts = plan.manifest["counts"]
    assert counts["restored"] + counts["held"] == counts["ledgers"] == len(rows)
    actions = {row["ledger"]: row for row in plan.read("actions").to_pylist() if row["kind"] == "ledger"}
    assert [one["value"] for one in actions[300_001]["alternatives"]] == [made[300_001]]
    hold = ledger_metadata.decode(actions[300_001]["value"])
    assert (hold.state, [list(s.members) for s in hold.segments]) == (md.LedgerState.IN_RECOVERY, [[missing]])
    known = Knowledge(passwords=PASSWORDS.values, expected=NAMES, layout=Layout.HIERARCHICAL)
    for ledger, outcome in ((300_000, "restored"), (300_001, "held")):
        stored = [read_catalog(past.path, past, LedgerId(0, ledger))]
        for given in (None, plan):
            told = explain(LedgerId(0, ledger), left, stored, given, known, has_store=False)
            assert told.outcome == outcome
            assert "nothing that was looked at knows it" not in told.verdict


def test_a_catalog_alone_brings_a_lost_store_back(recovered: Recover, tmp_path: Path) -> None:
    """As a restored snapshot would: closed records byte for byte, others held, ids not given again, the instance id."""
    full = next(one for raw in records().values() if (one := ledger_metadata.decode(raw)).last_entry not in (None, -1))
    still_open = ledger_metadata.encode(replace(full, state=md.LedgerState.OPEN, last_entry=None, length=None))
    past = captured(tmp_path / "past", {**records(), 400_000: still_open}, INSTANCEID=b"an-instance")
    plan = recovered("plan", snapshots=(past,), inventories=(), expected=None)
    rows = rows_of(plan)
    assert {ledger: row["raw"] for ledger, row in rows.items() if row["outcome"] == "restored"} == records()
    assert (rows[400_000]["outcome"], plan.manifest["counts"]["held"]) == ("held", 1)
    target = ScannableMemory()
    written(plan, target, tmp_path / "journal")
    for ledger, raw in records().items():
        kept = target.get(key_of(ledger))
        assert kept is not None
        assert kept.value == raw
    assert target.get(ROOT + store.LAYOUT) is not None
    instance = target.get(ROOT + store.INSTANCE_ID)
    assert instance is not None
    assert instance.value == b"an-instance"
    counter = target.get(ROOT + store.SHORT_GENERATOR)
    assert counter is not None
    assert (counter.children_created or 0) > 400_000
    # A store that has ledgers speaks against what it lacks; a person may choose otherwise.
    kept_ledger = min(records())
    beside = recovered("beside", store={"ledgers": {kept_ledger: records()[kept_ledger]}}, snapshots=(past,),
                       inventories=(), expected=None)  # fmt: skip
    assert rows_of(beside) == {}
    left = {row["ledger"]: row["op"] for row in beside.read("actions").to_pylist() if row["kind"] == "ledger"}
    assert left == dict.fromkeys((records().keys() | {400_000}) - {kept_ledger}, LEAVE)


def test_an_earlier_record_that_bytes_contradict_is_a_finding_and_a_hold(
    recovered: Recover, inventories: tuple[Dataset, ...], tmp_path: Path
) -> None:
    """Closed without entries, above all of them, of another digest or length: never clean, and nobody is surely right.

    Only a larger length alone takes no entry from a reader, so that this one is readable meanwhile.
    """
    known = {n: one for n, raw in records().items() if ((one := ledger_metadata.decode(raw)).last_entry or 0) >= 5}
    larger = {"length": 9_999}
    kinds: list[dict[str, Any]] = [
        {"last_entry": -1, "length": 0}, {"last_entry": 999, "length": 99_999}, larger, {"length": 1},
        {"digest": md.Digest.HMAC}, {"password": b"another"},
    ]  # fmt: skip
    chosen = [n for n, one in known.items() if one.digest is md.Digest.CRC32C][: len(kinds)]
    assert len(chosen) == len(kinds)
    wrong = {n: ledger_metadata.encode(replace(known[n], **kind)) for n, kind in zip(chosen, kinds, strict=True)}
    past = captured(tmp_path / "past", {**records(), **wrong})
    plan = recovered("plan", snapshots=(past,))
    rows = rows_of(plan)
    contradicted = found(plan, "RECORD_CONTRADICTED")
    assert contradicted.keys() == set(chosen)
    sides = {row["ledger"]: row for row in plan.read("sides").to_pylist()}
    operator_knows = Knowledge(passwords=PASSWORDS.values, expected=NAMES, layout=Layout.HIERARCHICAL)
    for ledger, kind in zip(chosen, kinds, strict=True):
        outcome, right = ("guarded", "earlier") if kind == larger else ("held", "nobody")
        assert rows[ledger]["outcome"] == outcome
        assert contradicted[ledger]["severity"] == "critical"
        field = "key" if "password" in kind else next(iter(kind))
        evidence = said(contradicted[ledger])
        assert evidence["earlier", field] != evidence["bookies", field]
        assert sides[ledger]["right"] == right
        assert sides[ledger]["verdict"] in ("RECORD_CONTRADICTED", "ID_REUSE")
        stored = [read_catalog(past.path, past, LedgerId(0, ledger))]
        told = explain(LedgerId(0, ledger), inventories, stored, None, operator_knows, has_store=False)
        assert told.outcome == outcome
        assert any(line.startswith("RECORD_CONTRADICTED (critical)") for line in told.disagreements)
        assert any(line.endswith(f"right: {right}") for line in told.sides)
    others = records().keys() - set(chosen)
    assert all(rows[n]["raw"] == records()[n] for n in others if ledger_metadata.decode(records()[n]).state == "CLOSED")


def test_where_nothing_names_the_members_a_gap_may_be_on_one_of_them(
    recovered: Recover, inventories: tuple[Dataset, ...]
) -> None:
    """Without a bookie that nobody named: what lacks copies is held, no end is seen, what is whole comes back."""
    named = rows_of(recovered("named"))
    whole = rows_of(recovered("whole", expected=None))
    assert {ledger: row["outcome"] for ledger, row in whole.items() if not named[ledger]["missing"]} == {
        ledger: row["outcome"] for ledger, row in named.items() if not row["missing"]
    }
    assert "observed" not in {row["grades"]["last_entry"] for row in whole.values()}
    partial = rows_of(recovered("partial", expected=None, inventories=inventories[1:]))
    assert all(row["missing"] == 0 for row in partial.values() if row["outcome"] == "restored")
    held = [row for row in partial.values() if row["reason"] == "source_incomplete"]
    assert held
