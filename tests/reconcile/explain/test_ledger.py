"""The parts of an explanation: reasons in words, the grid, the verdict where nothing or only one side is known."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.protocols import Versioned
from reconcile.compare.knowledge import Knowledge, QuorumStatement, StatedQuorums
from reconcile.compare.single_ledger import StoredLedger, as_catalog_row
from reconcile.explain.grid import GridSegment, grid
from reconcile.explain.ledger import Explanation, explain
from reconcile.explain.verdict import Standing, VerdictFacts, judge
from reconcile.findings.refusal_texts import REASONS
from reconcile.rules.holds import HOLD_MARK
from recovery.capture.live import capture
from recovery.codecs import ledger_metadata, store
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, DatasetWriter, open_dataset, write_manifest, write_part
from recovery.errors import InputError
from recovery.infer.lost_disks import LostDisk
from recovery.infer.refusal import Refusal
from recovery.model import metadata as md
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.support.command import process
from tests.support.inventories import write_inventory
from tests.support.plan_folder import Ledger as PlannedLedger
from tests.support.plan_folder import write_plan
from tests.support.scannable_store import ScannableMemory

LEDGER = LedgerId(0, 7)
NAMES = ("b1", "b2", "b3")


def _copies(groups: Mapping[str, Sequence[tuple[int, int, int, int]]]) -> pa.Table:
    """Copies with the columns that a grid reads."""
    keys = ("first", "last", "size", "period")
    rows = [
        {"bookie": name, "groups": [dict(zip(keys, g, strict=True)) for g in held]} for name, held in groups.items()
    ]
    schema = pa.schema([pa.field("bookie", pa.string()), pa.field("groups", tables.GROUPS)])
    return pa.Table.from_pylist(rows, schema=schema)


def _rows(lines: Sequence[str]) -> dict[str, str]:
    return {name: cells for name, _, cells in (line.partition("  ") for line in lines)}


def test_every_refusal_has_words() -> None:
    """No reason for a hold is without a sentence that says what it means, and one that says what would settle it."""
    assert set(REASONS) == set(Refusal)
    assert [reason for reason, (said, settles) in REASONS.items() if not said or not settles] == []


def test_a_grid_shows_who_holds_what_of_a_record() -> None:
    """All, some, none of what is due, and what is not due: each has its sign, by stretch."""
    segments = [GridSegment(0, NAMES, 3, 3), GridSegment(30, ("b1", "b2", "b4"), 3, 3)]
    copies = _copies({"b1": [(0, 0, 60, 0)], "b2": [(0, 0, 45, 0)], "b3": [(0, 0, 40, 0)]})
    found = _rows(list(grid(copies, segments)))
    assert found["b1"] == "#" * 60
    assert found["b2"] == "#" * 45 + "!" * 15
    assert found["b3"] == "#" * 30 + "+" * 10 + "." * 20
    assert found["b4"] == "." * 30 + "!" * 30
    assert found["segments"].strip() == "|" + " " * 29 + "|"


def test_a_striped_record_sends_each_its_share() -> None:
    """With W below E a bookie that holds its two of every three entries holds all that is due."""
    runs = {"b1": [(0, 597, 1, 3), (2, 599, 1, 3)], "b2": [(0, 597, 2, 3)], "b3": [(1, 598, 2, 3)]}
    found = _rows(list(grid(_copies(runs), [GridSegment(0, NAMES, 3, 2)])))
    assert {found[name] for name in NAMES} == {"#" * 60}


def test_a_grid_without_a_record_shows_what_is_held() -> None:
    """Where nothing says who should hold what, only all, some and none are told."""
    found = _rows(list(grid(_copies({"b1": [(0, 0, 60, 0)], "b2": [(0, 0, 1, 0), (59, 59, 1, 0)]}), [])))
    assert (found["b1"], found["b2"]) == ("#" * 60, "#" + "." * 58 + "#")
    assert list(grid(_copies({"b1": []}), [])) == []


@given(
    st.dictionaries(
        st.sampled_from(NAMES),
        st.lists(
            st.tuples(st.integers(0, 1 << 60), st.integers(0, 1000), st.integers(1, 50), st.integers(51, 100)),
            max_size=4,
        ),
    ),
    st.lists(st.tuples(st.integers(1, 1 << 60), st.integers(1, 3)), max_size=3),
)
@example({"b1": [(9007199254740943, 0, 50, 51)]}, [(9_007_199_254_740_992, 1)])
def test_any_groups_have_a_grid(held: dict[str, list[tuple[int, int, int, int]]], cuts: list[tuple[int, int]]) -> None:
    """However large the entries and however odd the record, the grid is drawn, with as many cells in each row."""
    groups = {
        name: [(first, first + runs * period, size, period if runs else 0) for first, runs, size, period in rows]
        for name, rows in held.items()
    }
    starts = sorted({0, *(first for first, _ in cuts)})
    segments = [GridSegment(first, NAMES, 3, 2) for first in starts]
    lines = list(grid(_copies(groups), segments))
    rows = {name: cells for name, cells in _rows(lines).items() if name in NAMES}
    assert len({len(cells) for cells in rows.values()}) <= 1
    assert all(set(cells) <= set("#-!+.") for cells in rows.values())


def _record(**changed: Any) -> md.LedgerMetadata:
    values: dict[str, Any] = {
        "format": 3, "ensemble_size": 3, "write_quorum": 2, "ack_quorum": 2, "state": md.LedgerState.CLOSED,
        "last_entry": 9, "length": 90, "segments": (md.Segment(0, NAMES),), "digest": md.Digest.CRC32C,
        "password": b"hunter2", **changed,
    }  # fmt: skip
    return md.LedgerMetadata(**values)


def _stored(raw: bytes | None, members: tuple[str, ...] = ()) -> StoredLedger:
    row = tables.CATALOG_LEDGERS.empty_table()
    if raw is not None:
        row = as_catalog_row(Versioned(raw, 4, created_ms=1_700_000_000_000, changed_ms=None), LEDGER)
    return StoredLedger("zk://x", row, tables.CATALOG_HISTORY.empty_table(), None, members, complete=True)


def _explained(
    stored: Sequence[StoredLedger], *, has_store: bool = True, expected: tuple[str, ...] | None = None
) -> Explanation:
    return explain(LEDGER, [], stored, None, Knowledge(expected=expected), has_store=has_store)


def test_a_record_in_the_store_is_shown_without_its_password() -> None:
    """Everything that a reader would see, and not what would let him read."""
    found = _explained([_stored(ledger_metadata.encode(_record()))])
    assert found.standing is Standing.SETTLED
    assert found.verdict == "ledger 7: in the store, CLOSED"
    assert found.stored is not None
    assert (found.stored["password"], found.stored["version"]) == ("set, not shown", "4")
    assert "hunter2" not in repr(found)
    assert found.timeline == ("2023-11-14T22:13:20+00:00: its record was created (zk://x)",)


def test_a_hold_in_the_store_is_not_settled() -> None:
    """A hold keeps data that nobody can read: it is said until somebody resolves it."""
    raw = ledger_metadata.encode(_record(state=md.LedgerState.IN_RECOVERY, last_entry=None, length=None,
                                         custom=((HOLD_MARK, b"hole"),)))  # fmt: skip
    found = _explained([_stored(raw)])
    assert (found.standing, "hold" in found.verdict) == (Standing.OPEN, True)


def test_a_topic_is_said_by_its_name() -> None:
    """What Pulsar wrote beside a record names its topic; anybody who asks knows topics, not numbers."""
    custom = (("application", b"pulsar"), ("pulsar/managed-ledger", b"public/default/persistent/orders"))
    found = _explained([_stored(ledger_metadata.encode(_record(custom=custom)))])
    assert found.stored is not None
    assert found.stored["topic"] == "public/default/persistent/orders"


def test_a_record_that_cannot_be_read_is_said() -> None:
    """Bytes that are no record are not taken for one, nor for nothing."""
    found = _explained([_stored(b"garbage")])
    assert found.standing is Standing.OPEN
    assert found.stored is not None
    assert found.stored["error"]


@pytest.mark.parametrize(("expected", "standing"), [(None, Standing.UNDECIDED), (("b1",), Standing.UNDECIDED)])
def test_what_nothing_knows_may_exist_where_nobody_looked(expected: tuple[str, ...] | None, standing: Standing) -> None:
    """Absent is not unknown: with bookies that were not looked at the answer is undecided, never no."""
    found = _explained([_stored(None)], expected=expected)
    assert found.standing is standing
    assert "not everything" in found.verdict


def test_an_earlier_catalog_alone_is_no_present_record() -> None:
    """What a catalog had is shown in time, and is not what the store has."""
    found = _explained([_stored(ledger_metadata.encode(_record()))], has_store=False)
    assert found.stored is None
    assert "snapshot" in found.verdict
    assert found.timeline


def test_a_store_knows_who_deleted_and_when_unless_it_is_said_not_to() -> None:
    """Of ZooKeeper each change is known with its session; of etcd when it was received."""
    key = {"bucket": LEDGER.bucket, "scope": LEDGER.scope, "ledger": LEDGER.ledger}
    raw = ledger_metadata.encode(_record())
    deleted = key | {"txn": 7, "at": datetime(2030, 1, 1, tzinfo=UTC), "session": 0xABC, "op": "deleted", "before": raw}
    history = pa.Table.from_pylist([deleted], schema=tables.CATALOG_HISTORY)
    plain = replace(_stored(None), history=history)
    told = [" ".join(map(str, _explained([one]).timeline)) for one in (plain, replace(plain, keeps_times=False))]
    assert ["0xabc" in text for text in told] == [True, False], told


def test_a_row_of_a_record_is_as_a_capture_has_it() -> None:
    """A record read by itself has the columns of a catalog, in their types."""
    row = as_catalog_row(Versioned(ledger_metadata.encode(_record()), 4, created_txn=7, changed_txn=9), LEDGER)
    assert row.schema == tables.CATALOG_LEDGERS
    # What a scrutiny found missing counts of the record that it saw, which its transaction tells.
    assert (row["created_txn"].to_pylist(), row["changed_txn"].to_pylist()) == ([7], [9])
    assert (row["bucket"].to_pylist(), row["state"].to_pylist()) == ([LEDGER.bucket], ["CLOSED"])
    assert np.array_equal(row["last_entry"].to_numpy(), [9])


def test_three_sides_are_said_with_the_deletion(tmp_path: Path) -> None:
    """From a capture that remembers: who is right, who deleted it and when, each change with what readers saw then."""
    source = ScannableMemory()
    source.put("/ledgers/LAYOUT", store.layout_bytes(Layout.HIERARCHICAL))
    ledger = LedgerId(0, 7)
    key = "/ledgers" + store.ledger_key(Layout.HIERARCHICAL, ledger)
    closed = md.LedgerMetadata(
        3, 1, 1, 1, md.LedgerState.CLOSED, 4, 9, (md.Segment(0, ("b1",)),), md.Digest.CRC32, b"secret", creator_token=0
    )
    source.put(key, ledger_metadata.encode(closed))
    source.session = 0xABC
    source.put(key, None)
    with DatasetWriter(tmp_path / "cat", "catalog", binding={"root": "/ledgers"}, secret=True) as out:
        capture(source, "/ledgers", None, out, clock=lambda: datetime(2030, 1, 1, tzinfo=UTC))
    done = process("explain", "7", "--snapshot", tmp_path / "cat", "--json")
    assert done.code == 3
    assert "deleted in transaction" in done.result["verdict"]
    assert "session 0xabc" in " ".join(done.result["sides"])
    assert any("CLOSED, 5 entries, 1/1/1" in line for line in done.result["timeline"])
    assert "secret" not in done.out


def test_an_explanation_with_a_plan_knows_what_the_plan_knew(tmp_path: Path) -> None:
    """Which bookies the cluster has, and that a password gave the key: without naming either again."""
    coverage = {
        "scanned": ["b1", "b2"],
        "complete": ["b1", "b2"],
        "not_complete": [],
        "members_known_from": ["expected by the operator"],
        "not_scanned": ["b3"],
        "not_named": [],
    }
    write_plan(tmp_path / "plan", [PlannedLedger(7, [(0, NAMES)], password=b"secret")], coverage=coverage)
    plan = with_grade(tmp_path, "password", "verified")
    inventory = open_dataset(write_inventory(tmp_path / "b1", "b1", [7], instance=None), "inventory")
    found = explain(LEDGER, [inventory], [], plan, Knowledge(), has_store=False)
    assert found.coverage.bookies.scanned == ("b1",)
    assert found.coverage.bookies.not_scanned == ("b2", "b3")
    assert found.coverage.bookies.members_known_from == ("expected by the operator",)
    [password] = [field for field in found.fields if field.name == "password"]
    assert "gave it when the plan was made" in password.evidence


@pytest.mark.parametrize(("guard", "word"), [("lock", "made first"), ("named", "replication"), ("release", "removed")])
def test_a_guard_of_a_plan_is_said(tmp_path: Path, guard: str, word: str) -> None:
    """What is done with the lock beside the record."""
    plan = write_plan(tmp_path / "plan", [PlannedLedger(7, [(0, NAMES)], guard=guard)])
    found = explain(LEDGER, [], [], plan, Knowledge(), has_store=False)
    assert any(word in line for line in found.actions)


def test_a_guarded_row_says_by_which_reading_and_what_may_hide_more() -> None:
    """It comes back readable, and waits."""
    row = PlannedLedger(7, [(0, NAMES)]).row() | {"outcome": "guarded", "reading": "likeliest", "raw": None}
    facts = VerdictFacts(
        ledger=LEDGER,
        row=row,
        reason="a bookie was not looked at",
        is_in_store=False,
        record=None,
        is_guarded=False,
        is_in_snapshot=False,
        has_actions=True,
        deletion=None,
        disagreements=(),
        may_exist_elsewhere=True,
    )
    verdict, standing = judge(facts)
    assert standing is Standing.OPEN
    assert "comes back from bookies guarded, by the likeliest reading" in verdict
    assert "a bookie was not looked at" in verdict


def with_grade(folder: Path, field: str, grade: str) -> Dataset:
    """Return the plan with another grade for a field of all its ledgers."""
    made = open_dataset(folder / "plan", "plan")
    rows = [row | {"grades": row["grades"] | {field: grade}} for row in made.read("reconstruction").to_pylist()]
    table = pa.Table.from_pylist(rows, schema=tables.RECONSTRUCTION)
    part = write_part(folder / "plan", "reconstruction", "graded", [table], secret=True)
    parts = {name: made.parts(name) for name in ("actions", "findings")} | {"reconstruction": [part]}
    extra = {name: made.manifest[name] for name in ("hash", "counts", "reasons", "prior")}
    kept = {name: made.manifest[name] for name in ("binding", "coverage")}
    write_manifest(folder / "plan", "plan", parts, secret=True, extra=extra, **kept)
    return open_dataset(folder / "plan", "plan")


def test_what_only_bookies_have_names_no_catalog_that_was_not_given(tmp_path: Path) -> None:
    """That it may be younger than the snapshot is said only where there is one."""
    inventory = open_dataset(write_inventory(tmp_path / "b1", "b1", [7], instance=None), "inventory")
    empty = _stored(None)
    alone = explain(LEDGER, [inventory], [empty], None, Knowledge(), has_store=True)
    assert any(line.startswith("bookies_only") for line in alone.sides)
    assert "snapshot" not in "\n".join(alone.sides)
    both = explain(LEDGER, [inventory], [empty, empty], None, Knowledge(), has_store=True)
    assert "created after the snapshot was taken" in "\n".join(both.sides)


def test_what_is_stated_of_quorums_and_lost_disks_counts_as_for_recover(tmp_path: Path) -> None:
    """Two full copies, and a bookie that nobody looked at: their shape is a guess until somebody states it."""
    inventories = [
        open_dataset(write_inventory(tmp_path / name, name, [7], instance=None, entries=4), "inventory")
        for name in ("b1", "b2")
    ]

    def decide(**known: Any) -> Explanation:
        return explain(LEDGER, inventories, [], None, Knowledge(expected=("b1", "b2", "b3"), **known), has_store=False)

    assert decide().coverage.bookies.not_scanned == ("b3",)
    lost = decide(lost=(LostDisk("b3"),))
    assert (lost.coverage.bookies.not_scanned, lost.coverage.bookies.lost) == ((), ("b3",))
    assert "universal reading" in lost.verdict
    stated = decide(lost=(LostDisk("b3"),), stated_quorums=StatedQuorums((QuorumStatement((2, 2, 1), 7, 7),)))
    assert "likeliest reading" in stated.verdict
    with pytest.raises(InputError, match="is not a bookie"):
        decide(lost=(LostDisk("b4"),))
