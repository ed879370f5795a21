"""One look at a bucket range: which ledgers are judged by what, and what each becomes."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from reconcile.check.scrutiny.judge import Demands, LookJudgement, judge_range
from reconcile.check.scrutiny.replication import StoredReplication
from reconcile.findings.table import FindingRun
from reconcile.rules.segments.copies import Sight
from reconcile.rules.segments.placement import PlacementSettings
from recovery.codecs.keys import mark_keys
from recovery.codecs.store_kind import ZOOKEEPER
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.reconcile.jobs.scrutiny.test_sampled_look import make_sample
from tests.reconcile.rules.test_copies_properties import NOTHING_HIDDEN, Ledger, make_copies, make_stored
from tests.support.inventories import fill_row

AT = datetime(2026, 1, 2, tzinfo=UTC)
DEMANDS = Demands(3600.0, None, PlacementSettings())
BOOKIES = ("bk0", "bk1", "bk2")


def make_ledger(held: dict[str, set[int]], ack: int = 1) -> Ledger:
    """A closed ledger of two bookies and ten entries."""
    return Ledger(2, ack, 9, [(0, ["bk0", "bk1"])], held)


def make_nodes(*ledgers: int, hours: float = 2) -> pa.Table:
    """CATALOG_NODES: marks that are so old, and bookies that are registered."""
    since = int(AT.timestamp() * 1000 - hours * 3_600_000)
    paths = [mark_keys(*(pa.array([half]).to_numpy() for half in (0, ledger)))[0] for ledger in ledgers]
    rows: list[dict[str, Any]] = [{"path": path, "kind": "mark", "raw": f"ctime: {since}\n".encode()} for path in paths]
    rows += [{"path": f"/available/{name}", "kind": "registration", "raw": b"", "owner": 1} for name in BOOKIES]
    return pa.Table.from_pylist([fill_row(tables.CATALOG_NODES, row) for row in rows], schema=tables.CATALOG_NODES)


def list_copies(ledgers: list[Ledger], *fenced: tuple[int, str]) -> pa.Table:
    """COPIES with their buckets and ends; those of these ledgers and bookies are fenced."""
    rows = make_copies(ledgers).to_pylist()
    for row in rows:
        held = ledgers[row["ledger"]].held[row["bookie"]]
        row["bucket"] = LedgerId(0, row["ledger"]).bucket
        row["last"] = max(held, default=None)
        row["fenced"] = (row["ledger"], row["bookie"]) in fenced
    return pa.Table.from_pylist(rows, schema=tables.COPIES)


def look(ledgers: list[Ledger], *, marked: tuple[int, ...] = (), hours: float = 2, **known: Any) -> LookJudgement:
    """One look at ledgers that are numbered from 0; every bookie was asked, if nothing else is said."""
    usual = {"everywhere": True, "sight": Sight(dict.fromkeys(BOOKIES), frozenset(), NOTHING_HIDDEN)}
    return judge_range(
        make_stored(ledgers).sort_by([(name, "ascending") for name in tables.KEY_COLUMNS]),
        list_copies(ledgers),
        replication=StoredReplication.from_nodes(make_nodes(*marked, hours=hours), ZOOKEEPER),
        demands=DEMANDS,
        run=FindingRun("r", AT),
        **{**usual, **known},
    )


def tell(judged: LookJudgement) -> dict[int, set[tuple[str, str]]]:
    """Category and severity of what is found of each ledger."""
    told: dict[int, set[tuple[str, str]]] = {}
    for row in judged.findings.to_pylist():
        told.setdefault(row["ledger"], set()).add((row["category"], row["severity"]))
    return told


WHOLE = {"bk0": set(range(10)), "bk1": set(range(10))}


@pytest.mark.parametrize(
    ("held", "seen", "everywhere", "severity"),
    [
        ({}, BOOKIES, True, "critical"),
        ({"bk0": set(range(9))}, BOOKIES, True, "critical"),
        ({}, BOOKIES, False, "warning"),
        # Whoever may have them was not seen.
        ({}, ("bk0", "bk2"), True, "warning"),
        ({"bk0": set(range(10))}, BOOKIES, True, "warning"),
        ({"bk2": set(range(10))}, BOOKIES, True, "warning"),
        (WHOLE, BOOKIES, True, "warning"),
    ],
)
def test_an_overdue_mark_is_critical_where_an_entry_is_on_no_bookie(
    held: dict[str, set[int]], seen: tuple[str, ...], *, everywhere: bool, severity: str
) -> None:
    """And nothing else is said of its copies: others are at work on them."""
    sight = Sight(dict.fromkeys(seen), frozenset(), NOTHING_HIDDEN)
    ledgers = [make_ledger(WHOLE), make_ledger(held), make_ledger(WHOLE)]
    judged = look(ledgers, marked=(1, 2), sight=sight, everywhere=everywhere)
    told = tell(judged)
    assert told[1] == {("UNDER_REPLICATED_OVERDUE", severity)}
    assert told[2] == {("UNDER_REPLICATED_OVERDUE", "warning")}
    assert 0 not in told


def test_a_young_mark_is_skipped_whatever_is_lost() -> None:
    """The auditor knows of it: it has its time."""
    judged = look([make_ledger({})], marked=(0,), hours=0.5)
    assert tell(judged) == {}
    assert judged.verdicts.select(["verdict", "reason"]).to_pylist() == [{"verdict": "skipped", "reason": "marked"}]
    assert not judged.suspect.any()


def test_copies_of_marked_ledgers_are_asked_for_and_not_judged() -> None:
    """They count against what was judged; those of another ledger do not."""
    judged = look([make_ledger({}), make_ledger(WHOLE)], marked=(0,), hours=0.5)
    assert (judged.positions, judged.judged, judged.passed) == (40, 20, {"marked": 20})
    nothing = look([make_ledger(WHOLE)])
    assert (nothing.positions, nothing.judged, nothing.passed) == (20, 20, {})


def test_entries_beyond_the_end_that_one_bookie_shows_are_a_note_whoever_was_asked() -> None:
    """So are as many as acknowledge one, but these are looked at again: a LAC may show more."""
    one, two = ({"bk0": set(range(n)), "bk1": set(range(m))} for n, m in ((11, 10), (11, 11)))
    for everywhere in (True, False):
        judged = look([make_ledger(one, ack=2), make_ledger(two, ack=2)], everywhere=everywhere)
        told = tell(judged)
        assert ("ENTRIES_BEYOND_LAST_ENTRY", "info") in told[0]
        assert ("ENTRIES_BEYOND_LAST_ENTRY", "info") in told[1]
        assert dict(zip(judged.verdicts["ledger"].to_pylist(), judged.suspect.tolist(), strict=True)) == {
            0: False,
            1: True,
        }


def test_an_open_ledger_that_a_bookie_fenced_is_a_recovery_that_stands_still() -> None:
    """By what an inventory says; nothing of its entries is judged while it is open."""
    ledgers = [make_ledger(WHOLE), make_ledger(WHOLE)]
    stored = make_stored(ledgers)
    for name, value in (("state", ["OPEN"] * 2), ("changed_at", [datetime(2026, 1, 1, tzinfo=UTC)] * 2)):
        place = stored.schema.get_field_index(name)
        stored = stored.set_column(place, stored.schema.field(place), pa.array(value, stored.field(place).type))
    judged = judge_range(
        stored.sort_by([(name, "ascending") for name in tables.KEY_COLUMNS]), list_copies(ledgers, (1, "bk1")),
        Sight(dict.fromkeys(BOOKIES), frozenset(), NOTHING_HIDDEN),
        StoredReplication.from_nodes(make_nodes(), ZOOKEEPER),
        DEMANDS, FindingRun("r", AT),
        everywhere=True,
    )  # fmt: skip
    assert tell(judged) == {1: {("RECOVERY_STUCK", "warning")}}


def test_a_closed_ledger_that_a_bookie_keeps_in_limbo_is_a_note() -> None:
    """The copies are judged all the same; a marked ledger, and one in limbo nowhere, have none."""
    ledgers = [make_ledger(WHOLE)] * 3
    rows = [row | {"limbo": row["ledger"] < 2 and row["bookie"] == "bk1"} for row in list_copies(ledgers).to_pylist()]
    judged = judge_range(
        make_stored(ledgers).sort_by([(name, "ascending") for name in tables.KEY_COLUMNS]),
        pa.Table.from_pylist(rows, schema=tables.COPIES), Sight(dict.fromkeys(BOOKIES), frozenset(), NOTHING_HIDDEN),
        StoredReplication.from_nodes(make_nodes(1, hours=0.5), ZOOKEEPER), DEMANDS, FindingRun("r", AT),
        everywhere=True,
    )  # fmt: skip
    assert tell(judged) == {0: {("LEDGER_IN_LIMBO", "info")}}
    assert judged.findings["bookies"].to_pylist() == [["bk1"]]
    assert judged.judged == 40
    assert not judged.suspect.any()


def date_records(ledgers: list[Ledger], txn: int) -> pa.Table:
    """CATALOG_LEDGERS in key order that changed last in a transaction."""
    stored = make_stored(ledgers)
    where = stored.schema.get_field_index("changed_txn")
    stored = stored.set_column(where, stored.schema.field(where), pa.array([txn] * len(ledgers), pa.int64()))
    return stored.sort_by([(name, "ascending") for name in tables.KEY_COLUMNS])


def test_what_a_look_saw_to_be_missing_is_kept_and_its_time_too() -> None:
    """Of marked ledgers, too: another bookie's silence, and the bookie's own, make neither anything else."""
    ledgers = [make_ledger({"bk0": set(range(10))}, ack=2), make_ledger({"bk0": set(range(10))}), make_ledger(WHOLE)]
    stored = date_records(ledgers, 5)
    replication = StoredReplication.from_nodes(make_nodes(1, hours=0.5), ZOOKEEPER)
    seen = {"copies": list_copies(ledgers), "replication": replication, "demands": DEMANDS, "everywhere": True}
    first = judge_range(
        stored, sight=Sight(dict.fromkeys(BOOKIES), frozenset(), NOTHING_HIDDEN), run=FindingRun("1", AT), **seen
    )
    missing = first.missing.select(["ledger", "bookie", "entries", "record_txn", "seen"]).to_pylist()
    assert {row["ledger"] for row in missing} == {0, 1}
    assert all((row["bookie"], row["entries"], row["record_txn"], row["seen"]) == ("bk1", 10, 5, AT) for row in missing)
    assert tell(first)[0] == {("BELOW_ACK_QUORUM", "critical")}
    later = FindingRun("2", datetime(2026, 1, 3, tzinfo=UTC))
    for silent in ({"bk0"}, {"bk1"}, {"bk0", "bk1"}):
        left = Sight(dict.fromkeys(set(BOOKIES) - silent), frozenset(), NOTHING_HIDDEN)
        shown = list_copies(
            [
                Ledger(2, one.ack, 9, one.segments, {k: v for k, v in one.held.items() if k not in silent})
                for one in ledgers
            ]
        )
        now = {**seen, "copies": shown, "everywhere": False}
        second = judge_range(stored, sight=left, run=later, earlier_missing=first.missing, **now)
        assert tell(second)[0] == {("BELOW_ACK_QUORUM", "critical")}
        times = {(row["ledger"], row["bookie"]): row["seen"] for row in second.missing.to_pylist()}
        assert times == dict.fromkeys([(0, "bk1"), (1, "bk1")], AT if "bk1" in silent else later.at)


def test_what_was_read_in_part_is_undecided_and_waits_for_no_bookie() -> None:
    """The next run reads on; where a bookie did not say whether it has an entry, it is asked again."""
    both = make_ledger({"bk0": set(range(10))})
    rows = [
        make_sample(0, "bk1", range(4)),
        make_sample(1, "bk1", range(4), failed=1),
        make_sample(2, "bk1", range(10)),
    ]
    samples = pa.Table.from_pylist(rows, schema=tables.SAMPLES)
    sight = Sight({"bk0": None}, frozenset(), NOTHING_HIDDEN, samples=samples)
    judged = look([both, both, both], sight=sight, everywhere=False, awaited=frozenset({"bk1"}))
    words = {row["ledger"]: (row["verdict"], row["reason"]) for row in judged.verdicts.to_pylist()}
    assert words == {0: ("undecided", "sampled"), 1: ("undecided", "not seen"), 2: ("clean", None)}
    again = judged.verdicts.filter(pa.array(judged.suspect))["ledger"].to_pylist()
    assert again == [1]
    assert (judged.positions, judged.judged) == (60, 30 + 4 + 4 + 10)
