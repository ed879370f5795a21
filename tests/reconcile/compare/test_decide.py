"""What all ranges are decided from, and what is done with it: who may hide what, the prior, layouts, stated quorums."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from reconcile.compare import decide
from reconcile.compare.decide import Case, decide_range, prepare_case, sample_ranges
from reconcile.compare.evidence import Catalog, KnownTables
from reconcile.compare.knowledge import Knowledge, QuorumStatement, StatedQuorums
from reconcile.rules.segments import copy_findings
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.infer.prior import Prior, ShapeCounts
from recovery.infer.reconstruct import InferOptions
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerState, Segment
from tests.reconcile.compare.test_compare_evidence import ALL, RECORD, written
from tests.reconcile.compare.test_three_way import PLAIN
from tests.reconcile.rules.test_sides import catalog
from tests.recovery.infer.test_reconstruct import KNOWN, NAMES, SECRET, header, striped
from tests.simulation.simulator import bookies, copy_row

EMPTY: Final = tables.CATALOG_LEDGERS.empty_table()
NOTHING: Final = KnownTables(EMPTY, (), tables.CATALOG_HISTORY.empty_table(), EMPTY.select(list(tables.KEY_COLUMNS)))


def case_of(
    options: InferOptions = SECRET, layout: Layout | None = None, *inventories: Dataset, **changes: Any
) -> Case:
    """Return a case of five bookies."""
    given: dict[str, Any] = {"members_known": True, **changes}
    return Case(inventories, bookies(NAMES), PLAIN, options, layout, None, **given)


def outcome(case: Case, rows: Sequence[dict[str, Any]], prior: Prior = KNOWN) -> dict[str, Any]:
    """Return the row of the one ledger."""
    copies = pa.Table.from_pylist(list(rows), schema=tables.COPIES)
    [row] = decide_range(case, prior, copies, NOTHING, 0).outcomes().to_pylist()
    return dict(row)


def with_damage(folder: Path, *damage: dict[str, Any]) -> Dataset:
    """Write an inventory that has damage alone."""
    made = [{"bookie": NAMES[0], "incarnation": 1, "file": "0.log", "reason": "zeros", **row} for row in damage]
    with DatasetWriter(folder, "inventory", binding={}) as out:
        out.append("damage", pa.Table.from_pylist(made, schema=tables.DAMAGE))
        out.close(coverage={})
    return open_dataset(folder, "inventory")


def test_who_may_have_more_than_was_seen(tmp_path: Path) -> None:
    """Who was not looked at, and who has damage that hides entries of no ledger in particular; if all are known."""
    damaged = with_damage(
        tmp_path / "a",
        {"bookie": NAMES[0], "hides_entries": True},
        {"bookie": NAMES[1], "hides_entries": True, "ledger": 7},
        {"bookie": NAMES[2], "hides_entries": False},
    )
    named = InferOptions(unscanned_bookies=("z:1",))
    assert case_of(named, None, damaged).list_hiding() == (NAMES[0], "z:1")
    assert case_of(named, None, damaged, members_known=False).list_hiding() is None
    assert case_of(InferOptions(unscanned_bookies=1), None, damaged).list_hiding() is None


def test_the_prior_of_a_large_cluster_is_counted_on_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twice as many rows as are counted, each second range."""
    monkeypatch.setattr(decide, "PRIOR_ROWS", 10)
    parts = [range(n, n + 1) for n in range(6)]
    assert [len(sample_ranges(parts, rows)) for rows in (10, 11, 20, 21, 60)] == [6, 3, 3, 2, 1]


@pytest.mark.parametrize(
    ("unscanned", "lost", "shapes"), [(("b0",), (), [3]), ((), ("b0",), [3]), (1, (), [3, 2]), ((), (), [3, 2])]
)
def test_bookies_that_are_not_there_explain_what_is_missing(
    unscanned: int | tuple[str, ...], lost: tuple[str, ...], shapes: list[int]
) -> None:
    """By their names: who was not looked at, and who is lost. Two copies are what one bookie left of three."""
    others = [f"b{n}" for n in range(1, 10)]
    counts = ShapeCounts(
        {}, {3: 112, 2: 60}, {3: dict.fromkeys(others, 30), 2: dict.fromkeys(others, 9)}, frozenset(others)
    )
    answer = {
        "shapes": counts.to_json(),
        "quorums": {},
        "deletions": dict.fromkeys(("on_bookies", "deleted", "let_go", "named"), 0),
        "kept": [],
    }
    _, prior = prepare_case(case_of(InferOptions(unscanned_bookies=unscanned, lost_bookies=lost)), [answer])
    assert [shape.ensemble for shape in prior.shapes] == shapes


def test_an_id_that_a_layout_has_no_place_for_waits() -> None:
    """Where the layout is known."""
    rows = [copy_row(1 << 40, name, range(9), headers=[header(8)]) for name in NAMES[:3]]
    waiting = {
        layout: outcome(case_of(SECRET, layout), rows)["outcome"] for layout in (None, Layout.LEGACY, Layout.FLAT)
    }
    assert waiting == {None: "restored", Layout.LEGACY: "waiting", Layout.FLAT: "restored"}


def test_where_nothing_names_the_members_what_lacks_copies_is_not_restored() -> None:
    """A bookie that nobody knows of may have them; what is whole is restored all the same."""
    lacking = striped(30)[:2]
    assert outcome(case_of(), lacking)["outcome"] == "restored"
    assert outcome(case_of(members_known=False), lacking)["outcome"] != "restored"
    assert outcome(case_of(members_known=False), striped(30))["outcome"] == "restored"


def test_stated_quorums_are_taken_of_the_ledgers_that_they_name() -> None:
    """Of others the cluster's."""
    rows = [copy_row(7, name, [0], headers=[header(0)]) for name in NAMES[:2]]
    prior = Prior.build(ShapeCounts(), {(2, 2, 2): 9})
    for first, shape in ((7, (5, 2, 1)), (8, (2, 2, 2))):
        stated = StatedQuorums((QuorumStatement((5, 2, 1), first, first),))
        found = outcome(case_of(stated_quorums=stated), rows, prior)
        assert (found["ensemble_size"], found["write_quorum"], found["ack_quorum"]) == shape


def test_bookies_run_that_the_store_has_a_registration_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not bookies with a cookie alone; without a store no bookie is known to run."""
    running: list[list[str]] = []

    def keep(_: pa.Table, names: Iterable[str]) -> dict[str, int | None]:
        running.append(list(names))
        return {}

    monkeypatch.setattr(copy_findings, "list_running", keep)
    nodes = [{"path": "/available/a:1", "kind": "registration"}, {"path": "/cookies/b:1", "kind": "cookie"}]
    live = Catalog.read(written(tmp_path, nodes=nodes))
    for store in (live, None):
        replace(case_of(), evidence=replace(PLAIN, live=store)).see_bookies()
    assert running == [["a:1"], []]


def test_quorums_are_those_of_records_that_are_not_in_recovery(tmp_path: Path) -> None:
    """A hold is one, and its quorums are of its own making."""
    records = {
        1: RECORD,
        2: replace(RECORD, state=LedgerState.OPEN, last_entry=None, length=None),
        3: replace(
            RECORD, ensemble_size=3, write_quorum=1, ack_quorum=1, state=LedgerState.IN_RECOVERY, last_entry=None
        ),
    }
    wide = replace(RECORD, ensemble_size=2, segments=(Segment(0, ("a:1", "b:1")),), write_quorum=1, ack_quorum=1)
    quorums = dict(decide._quorums(written(tmp_path, {**records, 4: wide}), ALL))
    assert quorums == {(RECORD.ensemble_size, RECORD.write_quorum, RECORD.ack_quorum): 2, (2, 1, 1): 1}


def test_a_record_of_a_snapshot_without_a_place_waits() -> None:
    """Where the layout is known; nothing else is known of the ledger."""
    record = replace(RECORD, last_entry=-1, length=0)
    stored = catalog({LedgerId(0, 1 << 40): record})
    known = replace(NOTHING, snapshots=((stored, 5),))
    copies = tables.COPIES.empty_table()
    for layout, outcome in ((None, "restored"), (Layout.LEGACY, "waiting"), (Layout.FLAT, "restored")):
        case = case_of(SECRET, layout)
        [row] = decide_range(case, KNOWN, copies, known, 0).outcomes().to_pylist()
        assert row["outcome"] == outcome, layout


def test_passwords_are_never_shown() -> None:
    """Whoever prints what is known."""
    assert "secret" not in repr(Knowledge(passwords=(b"secret",)))
