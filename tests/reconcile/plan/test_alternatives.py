"""Held ledgers whose content is in doubt: what a person can choose, what it costs, and which guard comes with it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from reconcile.compare import decide
from reconcile.compare.decide import Case
from reconcile.compare.evidence import Evidence, KnownTables
from reconcile.plan.actions import Passwords, make_ledger_actions
from reconcile.plan.alternatives import GUARDED, GUARDED_BY_NAMES, offer_alternatives
from reconcile.plan.edits import Edits, edit_plan
from reconcile.plan.manifest import read_plan_manifest
from reconcile.rules.holds import HOLD_PASSWORD_SIZE, NAMED_MARK
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout
from recovery.dataset import open_dataset
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, Segment, State
from recovery.testing import simulator
from tests.recovery.infer.test_reconstruct import KNOWN, NAMES, SECRET, Row, full, header, row, striped
from tests.support.plan_folder import Ledger, write_plan

PASSWORDS: Final = Passwords.from_candidates((simulator.PASSWORD,))
OTHER_KEY: Final = b"x" * 32
HIDING: Final = ("f:3181",)
DOUBTED: Final[Mapping[Refusal, tuple[list[Row], list[str]]]] = {
    Refusal.DELETED_SOMEWHERE: (
        [*full(), row("d:3181", [3], source="log")],
        ["CLOSED, 20 entries, 3/3/2, 0 entries that nobody serves, 0 copies not named"],
    ),
    Refusal.LENGTHS_DIFFER: (
        [*full(2), row("c:3181", range(20), headers=[header(19, length=1)])],
        ["CLOSED, 20 entries, 3/3/1, 0 entries that nobody serves, 0 copies not named"],
    ),
    Refusal.TWO_KEYS: (
        [*full(), row("d:3181", range(2, 7), key=OTHER_KEY)],
        [
            "CLOSED, 20 entries, 3/3/2, 0 entries that nobody serves, 0 copies not named",
            "CLOSED, 7 entries, 1/1/1, 2 entries that nobody serves, 0 copies not named",
        ],
    ),
    Refusal.LOGS_OR_JOURNALS_ONLY: (
        full(source="log"),
        ["CLOSED, 20 entries, 3/3/2, 20 entries that nobody serves, 0 copies not named"],
    ),
    Refusal.CONTRADICTION: (
        [*striped(9)[:2], row("c:3181", [1, 2], groups=[{"first": 5, "last": 4, "size": 1, "period": 0}])],
        ["CLOSED, 9 entries, 2/2/1, 0 entries that nobody serves, 0 copies not named"],
    ),
}


def offer(rows: Sequence[Row], layout: Layout, hiding: Sequence[str] | None = HIDING) -> list[Row]:
    """Return what the plan's action of ledger 7 offers, which holds it."""
    bookies = simulator.bookies(NAMES)
    known = Evidence(live=None, snapshots=(), everywhere=True, looked_at=True)
    case = Case((), bookies, known, SECRET, layout, None, members_known=True)
    nothing = tables.CATALOG_LEDGERS.empty_table()
    beside = KnownTables(
        nothing, (), tables.CATALOG_HISTORY.empty_table(), nothing.select(list(tables.KEY_COLUMNS)), None
    )
    copies = pa.Table.from_pylist(list(rows), schema=tables.COPIES)
    part = decide.decide_range(case, KNOWN, copies, beside, 0)
    assert part.outcomes()["outcome"].to_pylist() == ["held"]
    actions = make_ledger_actions(part.outcomes(), layout, PASSWORDS, b"\0" * HOLD_PASSWORD_SIZE)
    offered, _ = offer_alternatives(part, layout, PASSWORDS, actions, copies, lambda: hiding)
    (action,) = offered.to_pylist()
    others: list[Row] = action["alternatives"]
    return others


@pytest.mark.parametrize("reason", DOUBTED)
def test_a_held_ledger_with_a_reading_offers_it_with_its_cost(reason: Refusal) -> None:
    """By each key that its copies have; what only logs have nobody serves, and of impossible groups none is counted."""
    rows, texts = DOUBTED[reason]
    others = offer(rows, Layout.HIERARCHICAL)
    assert [other["reads_as"] for other in others] == texts
    assert [other["label"] for other in others] == [GUARDED, f"{GUARDED}, other key"][: len(texts)]
    for other in others:
        record = ledger_metadata.decode(other["value"])
        assert (record.state, record.custom) == (State.CLOSED, ())


def test_without_locks_the_record_names_everybody() -> None:
    """A store without locks never offers one: the choice is guarded by names, or there is none.

    Of two keys there is none: a record keeps the copies of whom it names, and a reader would ask both for one entry.
    """
    rows, _ = DOUBTED[Refusal.DELETED_SOMEWHERE]
    (other,) = offer(rows, Layout.ETCD)
    record: LedgerMetadata = ledger_metadata.decode(other["value"])
    assert other["label"] == GUARDED_BY_NAMES
    assert set(record.segments[0].members) == {*NAMES[:4], *HIDING}
    assert record.custom == ((NAMED_MARK, b"named"),)
    assert offer(rows, Layout.ETCD, None) == []
    assert offer(DOUBTED[Refusal.TWO_KEYS][0], Layout.ETCD) == []
    assert offer(rows, Layout.ETCD, [f"n{n}:3181" for n in range(13)]) == []


@pytest.mark.parametrize(
    ("label", "guard", "by_names"), [(GUARDED, "lock", 0), (GUARDED_BY_NAMES, "named", 1), ("restore", None, 0)]
)
def test_the_choice_brings_its_guard(label: str, guard: str | None, by_names: int, tmp_path: Path) -> None:
    """What is chosen under a guard is written under that one, and counted so."""
    segments = [(0, ["b1", "b2", "b3"])]
    record = LedgerMetadata(
        3, 3, 2, 2, State.CLOSED, 9, 90, (Segment(0, ("b1", "b2", "b3")),), Digest.CRC32C, b"pw", creator_token=0
    )
    value = ledger_metadata.encode(record)
    plan = write_plan(tmp_path / "plan", [Ledger(3, segments, reason="two_keys", offers={label: value})])
    edit_plan(plan, Edits(choose={LedgerId(0, 3): label}), tmp_path / "chosen")
    chosen = open_dataset(tmp_path / "chosen", "plan")
    (action,) = (row for row in chosen.read("actions").to_pylist() if row["ledger"] == 3)
    assert (action["op"], action["value"], action["guard"]) == ("create", value, guard)
    counts = read_plan_manifest(chosen).counts
    assert (counts.held, counts.guarded, counts.restored) == (0, int(guard is not None), int(guard is None))
    assert counts.guarded_by_names == by_names
