"""What a store's history says was deleted, by session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from reconcile.errors import PlanError
from reconcile.plan.alternatives import RESTORE
from reconcile.plan.manifest import HistorySource, PlanManifest
from reconcile.plan.views.deletions import (
    CaptureBefore,
    SessionDeletions,
    find_capture_before,
    group_by_session,
    parse_session,
    select_deleted_by,
)
from recovery.codecs import ledger_metadata
from recovery.dataset import sort_by_key
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment

AT = datetime(2026, 1, 2, tzinfo=UTC)


@dataclass(frozen=True)
class Plan:
    """The tables of a plan, read as a dataset is."""

    tables: Mapping[str, pa.Table]
    manifest: Mapping[str, Any] = field(default_factory=dict)
    path: str = "plan"

    def rows(self, name: str) -> int:
        """Return how many rows a table has."""
        count: int = self.tables[name].num_rows
        return count

    def read(self, name: str, *, buckets: range, columns: Sequence[str]) -> pa.Table:
        """Return the rows of some buckets."""
        bucket = pc.field("bucket")
        wanted = (bucket >= buckets.start) & (bucket < buckets.stop)
        return self.tables[name].filter(wanted).select(list(columns))


def table(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows of ledgers in the order of a plan; what is not said is null."""
    keyed = [{"bucket": LedgerId(0, row["ledger"]).bucket, "scope": 0, **row} for row in rows]
    free = pa.schema([pa.field(field.name, field.type) for field in schema])
    return sort_by_key(pa.Table.from_pylist(keyed, schema=free))


def test_sessions_are_counted_with_what_nobody_decided() -> None:
    """Of each session: ledgers, those on bookies, and of these the ones held; other holds do not count."""
    deleted = {1: 7, 2: 7, 3: 9, 4: 9, 5: 9}
    sides = [
        {
            "ledger": ledger,
            "relation": "deleted",
            "on_bookies": ledger != 5,
            "deleted_txn": 100 + ledger,
            "deleted_at": AT,
            "deleted_session": session,
        }
        for ledger, session in deleted.items()
    ]
    sides += [{"ledger": ledger, "relation": "bookies_only", "on_bookies": True} for ledger in range(6, 40)]
    outcomes = {1: "held", 2: "restored", 3: "deleted", 4: "waiting"} | dict.fromkeys(range(6, 40), "held")
    plan = Plan(
        {
            "sides": table(tables.SIDES, sides),
            "reconstruction": table(
                tables.RECONSTRUCTION, [{"ledger": n, "outcome": outcome} for n, outcome in outcomes.items()]
            ),
            "actions": tables.ACTIONS.empty_table(),
        }
    )
    assert group_by_session(plan) == (  # type: ignore[arg-type]  # what of a dataset is read
        SessionDeletions(7, 2, 2, 1, 101, 102, AT, AT),
        SessionDeletions(9, 3, 2, 2, 103, 105, AT, AT),
    )


@pytest.mark.parametrize(("purged_in", "is_advised"), [(99, True), (100, False), (150, False)])
def test_no_capture_of_a_moment_before_a_purge_is_advised(purged_in: int, is_advised: bool) -> None:
    """The state at transaction 99 has the record of what was purged later, and not its tombstone."""
    told = {"relation": "deleted", "on_bookies": True, "deleted_at": AT}
    sides = [
        {"ledger": 1, **told, "deleted_txn": 100, "deleted_session": 7},
        {"ledger": 2, **told, "deleted_txn": purged_in, "deleted_session": 7, "tombstone": "purged by bkmeta"},
    ]
    held = [{"ledger": n, "outcome": outcome} for n, outcome in ((1, "held"), (2, "deleted"))]
    read = {
        "sides": table(tables.SIDES, sides),
        "reconstruction": table(tables.RECONSTRUCTION, held),
        "actions": tables.ACTIONS.empty_table(),
    }
    manifest = PlanManifest(histories=(HistorySource("zkfiles:///copy", 200, chosen=False),))
    written = {"binding": manifest.binding.to_json(), "coverage": manifest.coverage.to_json(), **manifest.to_json()}
    plan = Plan(read, written)
    [session] = group_by_session(plan)  # type: ignore[arg-type]  # what of a dataset is read
    assert (session.ledgers, session.undecided, session.purged) == (2, 1, 1)
    of_mistake = replace(session, first_txn=100)
    advice = find_capture_before(plan, of_mistake)  # type: ignore[arg-type]  # what of a dataset is read
    assert (advice is not None) == is_advised


LATER = AT.replace(hour=3)


@pytest.mark.parametrize(
    ("session", "text", "when"),
    [
        (
            SessionDeletions(-1, 2, 1, 1, 0x10, 0x12, AT, LATER),
            (
                "session 0xffffffffffffffff: 2 ledgers (1 on bookies), transactions 0x10 to 0x12, "
                "from 2026-01-02T00:00:00+00:00 to 2026-01-02T03:00:00+00:00"
            ),
            ("2026-01-02T00:00:00+00:00", "2026-01-02T03:00:00+00:00"),
        ),
        (
            SessionDeletions(7, 1, 1, 1, 0x10, 0x10, AT, AT, 1),
            (
                "session 0x7: 1 ledger (1 on bookies), transaction 0x10, at 2026-01-02T00:00:00+00:00; "
                "bkmeta purged 1 of them by a certificate, and they stay deleted"
            ),
            ("2026-01-02T00:00:00+00:00", "2026-01-02T00:00:00+00:00"),
        ),
        (
            SessionDeletions(None, 1, 0, 0, 1, 1, None, AT),
            "no session known: 1 ledger (0 on bookies), transaction 0x1, at an unknown time",
            (None, "2026-01-02T00:00:00+00:00"),
        ),
        (
            SessionDeletions(None, 1, 0, 0, 1, 1, AT, None),
            "no session known: 1 ledger (0 on bookies), transaction 0x1, at an unknown time",
            ("2026-01-02T00:00:00+00:00", None),
        ),
    ],
)
def test_a_session_says_what_it_deleted(
    session: SessionDeletions, text: str, when: tuple[str | None, str | None]
) -> None:
    """As a line for people, and for programs; what is not known is said, or null."""
    assert str(session) == text
    told = session.to_json()
    assert told["session"] == (None if session.session is None else session.name)
    assert parse_session(session.name) == session.session
    assert (told["first_at"], told["last_at"]) == when
    assert (told["ledgers"], told["purged"]) == (session.ledgers, session.purged)


@pytest.mark.parametrize(
    ("text", "session"),
    [
        ("none", None),
        ("0x7", 7),
        ("12", 12),
        ("0xffffffffffffffff", -1),
        ("-1", -1),
        ("0x7fffffffffffffff", (1 << 63) - 1),
        ("0x8000000000000000", -1 << 63),
        (f"{-1 << 63}", -1 << 63),
    ],
)
def test_a_session_is_read_as_it_is_shown(text: str, session: int | None) -> None:
    """In hex, in decimal, with a sign or without."""
    assert parse_session(text) == session


@pytest.mark.parametrize("text", ["", "x", "0x10000000000000000", f"{(-1 << 63) - 1}", "1.5"])
def test_what_is_no_session_is_refused(text: str) -> None:
    """No number, or one that no session has."""
    with pytest.raises(ValueError, match="not a session"):
        parse_session(text)


def told(*purged: int, histories: Sequence[HistorySource] = ()) -> Plan:
    """Return a plan that has histories, and ledgers that were purged in some transactions."""
    sides = [
        {"ledger": n, "relation": "deleted", "deleted_txn": txn, "tombstone": "purged by bkmeta"}
        for n, txn in enumerate(purged)
    ]
    manifest = PlanManifest(histories=tuple(histories))
    written = {"binding": manifest.binding.to_json(), "coverage": manifest.coverage.to_json(), **manifest.to_json()}
    return Plan({"sides": table(tables.SIDES, sides), "actions": tables.ACTIONS.empty_table()}, written)


def of(uri: str, txn: int | None, *, chosen: bool = False) -> HistorySource:
    """Return a source of history."""
    return HistorySource(uri, txn, chosen=chosen)


@pytest.mark.parametrize(
    ("histories", "uri"),
    [
        ([], None),
        ([of("a", 99)], None),
        ([of("a", 99), of("b", 100)], "b"),
        ([of("a", None)], "a"),
        ([of("a", None, chosen=True)], "a"),
        ([of("a", 150, chosen=True)], "a"),
        ([of("a", 200, chosen=True)], None),
        ([of("a", 200, chosen=True), of("b", 200)], None),
        ([of("a", 200), of("b", 300)], "a"),
    ],
)
def test_a_capture_is_advised_of_the_first_source_that_can_give_it(
    histories: Sequence[HistorySource], uri: str | None
) -> None:
    """One that reaches the first deletion; unless a person chose a moment behind the last one."""
    deletions = SessionDeletions(7, 1, 1, 1, 100, 200, AT, AT)
    advice = find_capture_before(told(histories=histories), deletions)  # type: ignore[arg-type]  # what is read of it
    assert advice == (None if uri is None else CaptureBefore(uri, 99))


@pytest.mark.parametrize(("purged", "is_advised"), [((50, 150), False), ((150, 50), False), ((50, 60), True)])
def test_the_last_purge_decides(purged: Sequence[int], is_advised: bool) -> None:
    """Of several ledgers that were purged, in whatever order they stand."""
    plan = told(*purged, histories=[of("a", 300)])
    deletions = SessionDeletions(7, 1, 1, 1, 100, 200, AT, AT)
    assert (find_capture_before(plan, deletions) is not None) == is_advised  # type: ignore[arg-type]  # likewise


def record(last: int | None, state: LedgerState = LedgerState.CLOSED) -> bytes:
    """Return the bytes of a record."""
    segments = (Segment(0, ("b1",)),)
    length = None if last is None else last + 1
    return ledger_metadata.encode(LedgerMetadata(3, 1, 1, 1, state, last, length, segments, Digest.CRC32C, b""))


DELETED: Mapping[int, tuple[int | None, bool, bytes | None]] = {
    1: (7, True, record(5)),
    2: (7, False, record(5)),
    3: (7, False, record(-1)),
    4: (7, True, None),
    5: (None, True, record(5)),
    6: (7, False, record(None, LedgerState.OPEN)),
    7: (8, False, None),
}
"""Session, whether bookies have something of it, and its last record."""


@pytest.fixture
def deleted() -> Plan:
    """Return a plan of those, and of one that bkmeta purged; ledger 30 was not deleted, 2 has other actions, too."""
    sides = [
        {"ledger": n, "relation": "deleted", "on_bookies": on, "deleted_txn": n, "deleted_session": session}
        for n, (session, on, _) in DELETED.items()
    ]
    purged: dict[str, Any] = {
        "on_bookies": True,
        "deleted_txn": 1,
        "deleted_session": 9,
        "tombstone": "purged by bkmeta",
    }
    sides += [
        {"ledger": 20, "relation": "deleted", **purged},
        {"ledger": 30, "relation": "bookies_only", "on_bookies": True, "deleted_session": 7},
    ]
    offered = {n: value for n, (_, _, value) in DELETED.items()} | {20: record(5), 30: record(5)}
    actions = [
        {
            "ledger": n,
            "op": "hold" if n % 2 else "leave",
            "alternatives": [{"label": RESTORE, "value": value, "reads_as": ""}] if value is not None else [],
        }
        for n, value in offered.items()
    ]
    return Plan({"sides": table(tables.SIDES, sides), "actions": table(tables.ACTIONS, actions)})


@pytest.mark.parametrize(
    ("sessions", "restorable", "ledgers"),
    [
        ([7], False, {1, 4}),
        ([7], True, {1, 3}),
        ([None], False, {5}),
        ([None], True, {5}),
        ([7, None], True, {1, 3, 5}),
    ],
)
def test_ledgers_are_chosen_by_who_deleted_them(
    sessions: Sequence[int | None], restorable: bool, ledgers: set[int], deleted: Plan
) -> None:
    """Those on bookies; to be restored, only with a record, and without copies only where no entry was lost."""
    chosen = select_deleted_by(deleted, sessions, restorable=restorable)  # type: ignore[arg-type]  # what is read of it
    assert {ledger.ledger for ledger in chosen} == ledgers


@pytest.mark.parametrize(
    ("session", "restorable", "problem", "remedy"),
    [
        (6, False, "has no ledger on bookies that session 0x6 deleted", "bkmeta plan show"),
        (8, True, "that session 0x8 deleted, and whose record is known", "bkmeta plan show"),
        (9, True, "what bkmeta purged by a certificate stays deleted", "bkmeta explain LEDGER"),
    ],
)
def test_a_session_that_deleted_none_of_them_is_named(
    session: int, restorable: bool, problem: str, remedy: str, deleted: Plan
) -> None:
    """With what there is to see; what was purged is named one by one, or not at all."""
    with pytest.raises(PlanError, match=problem) as refused:
        select_deleted_by(deleted, [7, session], restorable=restorable)  # type: ignore[arg-type]  # likewise
    assert remedy in str(refused.value)
    assert ("purged" in str(refused.value)) == (session == 9)


def test_no_known_session_is_named_as_it_is_typed() -> None:
    """Where nothing was deleted by nobody knows whom."""
    plan = Plan({"sides": tables.SIDES.empty_table(), "actions": tables.ACTIONS.empty_table()})
    with pytest.raises(PlanError, match="that session none deleted"):
        select_deleted_by(plan, [None], restorable=False)  # type: ignore[arg-type]  # what of a dataset is read
