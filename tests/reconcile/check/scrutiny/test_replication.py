"""Marks that stand for too long: each with its own reason, the oldest first, and none of a ledger that is gone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reconcile.check.scrutiny.bookie_findings import list_unaware
from reconcile.check.scrutiny.replication import StoredReplication, find_overdue, list_overdue
from reconcile.findings.table import FindingRun
from recovery.codecs.keys import mark_keys
from recovery.codecs.replication_lock import encode_guard, lock_key
from recovery.codecs.store_kind import ETCD, ZOOKEEPER
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.support.findings import said
from tests.support.inventories import fill_row

NOW = datetime(2026, 1, 2, tzinfo=UTC)
RUN = FindingRun("now", NOW)
HOUR_S = 3600.0
ALL = ("bk1", "bk2", "bk3", "bk4")


def node(path: str, kind: str, raw: bytes = b"", owner: int | None = None, at: datetime = NOW) -> dict[str, Any]:
    """A row of CATALOG_NODES."""
    return fill_row(tables.CATALOG_NODES, {"path": path, "kind": kind, "raw": raw, "owner": owner, "changed_at": at})


def mark(ledger: int, hours: float, replica: str = "bk1") -> dict[str, Any]:
    """A mark that is so old."""
    [path] = mark_keys(*(pa.array([half]).to_numpy() for half in (0, ledger)))
    since = int((NOW - timedelta(hours=hours)).timestamp() * 1000)
    return node(path, "mark", f'replica: "{replica}"\nctime: {since}\n'.encode())


def around(
    nodes: list[dict[str, Any]], registered: tuple[str, ...] = ALL, *, auditor: bool = True
) -> StoredReplication:
    """A store's nodes beside its ledgers."""
    nodes = [*nodes, *(node(f"/available/{name}", "registration", owner=1) for name in registered)]
    if auditor:
        nodes.append(node("/underreplication/auditorelection/V_0000000001", "other", owner=2))
    return StoredReplication.from_nodes(pa.Table.from_pylist(nodes, schema=tables.CATALOG_NODES), ZOOKEEPER)


def stored(*ledgers: int, members: tuple[str, ...] = ("bk1", "bk2"), state: str = "CLOSED") -> pa.Table:
    """CATALOG_LEDGERS of these, all of one kind."""
    rows = [
        fill_row(
            tables.CATALOG_LEDGERS,
            {"ledger": n, "bucket": LedgerId(0, n).bucket, "raw": b"", "state": state,
             "segments": [{"first": 0, "members": list(members)}]},
        )
        for n in ledgers
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=tables.CATALOG_LEDGERS)


def overdue(records: pa.Table, replication: StoredReplication, lost: int = 0) -> list[dict[str, Any]]:
    """What is found of marks; of each ledger so many entries are lost."""
    late = list_overdue(records, replication, RUN, HOUR_S)
    rows: list[dict[str, Any]] = find_overdue(records, late, np.full(len(records), lost), replication, RUN).to_pylist()
    return rows


def reason(records: pa.Table, replication: StoredReplication) -> str:
    """Why the only overdue mark stands."""
    [found] = overdue(records, replication)
    return said(found)["store", "why it is still marked"].partition(":")[0]


@pytest.mark.parametrize(
    ("nodes", "registered", "record", "why"),
    [
        ([], ("bk3", "bk4"), stored(7), "no source"),
        ([], ALL, stored(7, state="OPEN"), "open, and nothing shows that its only segment has entries"),
        ([node(lock_key(LedgerId(0, 7)), "lock", b'bookieId: "host1"\n')], ALL, stored(7), "dead lock of host1"),
        ([node(lock_key(LedgerId(0, 7)), "lock", b'bookieId: "host1"\n', 5)], ALL, stored(7), "locked by host1"),
        ([node(lock_key(LedgerId(0, 7)), "lock", encode_guard("ab" * 32))], ALL, stored(7),
         "guarded by bkmeta-guard abababababababab"),
        ([], ("bk2",), stored(7), "no destination"),
        ([node("/underreplication/disable", "other")], ALL, stored(7), "replication is disabled"),
        ([], ALL, stored(7), "no worker has taken it"),
    ],
)  # fmt: skip
def test_each_reason_has_its_own_words(
    nodes: list[dict[str, Any]], registered: tuple[str, ...], record: pa.Table, why: str
) -> None:
    """No source, open and empty, dead or living locks, guards, no destination, disabled, or nobody at work."""
    assert reason(record, around([mark(7, 2), *nodes], registered)) == why


def test_without_an_auditor_nobody_works() -> None:
    """A vote without a session is nobody's, either."""
    dead = node("/underreplication/auditorelection/V_0000000001", "other")
    assert reason(stored(7), around([mark(7, 2), dead], auditor=False)) == "no auditor is elected"


def test_the_oldest_come_first_and_young_ones_and_those_of_gone_ledgers_not_at_all() -> None:
    """One just inside of the grace, one just outside; a mark without its own time counts by its node's."""
    [path] = mark_keys(*(pa.array([half]).to_numpy() for half in (0, 4)))
    by_node = node(path, "mark", b"", at=NOW - timedelta(hours=30))
    marks = [mark(1, 1.001), mark(2, 0.999), mark(3, 20), by_node, mark(5, 50)]
    rows = overdue(stored(1, 2, 3, 4), around(marks))
    assert [row["ledger"] for row in rows] == [4, 3, 1]
    assert [row["bookies"] for row in rows] == [[], ["bk1"], ["bk1"]]


def test_who_holds_a_lock_and_since_when_replication_is_disabled_is_told() -> None:
    """By the time when the node was made, where the store keeps one."""
    began = datetime(2026, 1, 1, 12, tzinfo=UTC)
    lock = node(lock_key(LedgerId(0, 7)), "lock", b'bookieId: "host1"\n', 5) | {"created_at": began}
    assert reason(stored(7), around([mark(7, 2), lock])) == "locked by host1 since 2026-01-01T12"
    off = node("/underreplication/disable", "other") | {"created_at": began}
    assert reason(stored(7), around([mark(7, 2), off])) == "replication is disabled since 2026-01-01T12"
    [found] = list_unaware({"bk1": 3}, around([off]), 0.0, {"bk1": 0.0})
    assert found.statements[2].value == "replication is disabled since 2026-01-01T12:00:00+00:00"


@pytest.mark.parametrize(("lost", "severity"), [(0, "warning"), (1, "critical")])
def test_a_mark_of_what_no_bookie_has_is_critical(lost: int, severity: str) -> None:
    """Whichever of the two findings it is; how many entries are lost is said."""
    segments = [{"first": first, "members": ["bk1", "bk2"]} for first in (0, 5)]
    records = stored(7, state="OPEN").to_pylist()[0] | {"segments": segments}
    pending = pa.Table.from_pylist([records], schema=tables.CATALOG_LEDGERS)
    for record, category in ((stored(7), "UNDER_REPLICATED_OVERDUE"), (pending, "OPEN_FRAGMENT_PENDING")):
        [found] = overdue(record, around([mark(7, 2)]), lost)
        assert (found["category"], found["severity"]) == (category, severity)
        assert said(found)["bookies", "entries that no bookie has"] == str(lost)


def test_on_etcd_bookies_are_registered_elsewhere_and_no_auditor_is_missed() -> None:
    """Writable and read-only bookies are known; that no auditor is elected is no finding where there never is one."""
    nodes = [node("/bookies/writable/bk1:1", "registration", owner=1), node("/bookies/readonly/bk2:1", "registration")]
    kept = StoredReplication.from_nodes(pa.Table.from_pylist(nodes, schema=tables.CATALOG_NODES), ETCD)
    assert (kept.writable, kept.read_only, kept.is_kept) == (frozenset(["bk1:1"]), frozenset(["bk2:1"]), False)
    assert list(list_unaware({"bk3:1": 4}, kept, 0, {"bk3:1": 1e6})) == []


def test_an_overdue_mark_says_which_fragments_are_done() -> None:
    """A segment without a bookie that lacks copies is done; the others name these bookies."""
    segments = [
        {"first": 0, "members": ["bk3", "bk4"]},
        {"first": 10, "members": ["bk1", "bk3"]},
        {"first": 25, "members": ["bk1", "bk2"]},
    ]
    row = {"ledger": 7, "bucket": LedgerId(0, 7).bucket, "raw": b"", "state": "CLOSED", "last_entry": 40}
    records = pa.Table.from_pylist(
        [fill_row(tables.CATALOG_LEDGERS, {**row, "segments": segments})], schema=tables.CATALOG_LEDGERS
    )
    [found] = overdue(records, around([mark(7, 2)]))
    assert said(found)["store", "fragments done"] == "1 of 3: 0…9"
    assert said(found)["store", "fragments not done"] == "2 of 3: 10…24 (bk1), 25…40 (bk1)"
    # A mark that names no bookie: those that are not registered lack copies.
    [path] = mark_keys(*(pa.array([half]).to_numpy() for half in (0, 7)))
    unnamed = node(path, "mark", b"", at=NOW - timedelta(hours=2))
    [found] = overdue(records, around([unnamed], ("bk1", "bk3", "bk4")))
    assert said(found)["store", "fragments not done"] == "1 of 3: 25…40 (bk2)"
    [found] = overdue(records, around([unnamed]))
    assert said(found)["store", "fragments done"].startswith("3 of 3: ")


@pytest.mark.parametrize(("waited_s", "told"), [(660.0, True), (659.0, False)])
def test_an_auditor_that_lives_and_marks_nothing_is_named_once_it_had_its_time(waited_s: float, *, told: bool) -> None:
    """It waits for a lost bookie, then it audits; of another bookie that is gone for less long nothing is said yet."""
    found = list(list_unaware({"bk1": 3, "bk2": 5}, around([]), 600.0, {"bk1": waited_s, "bk2": 10.0}))
    assert [one.subject for one in found] == (["bk1"] if told else [])
    if found:
        values = {one.field: one.value for one in found[0].statements}
        assert values["why"] == "the auditor waits 600 s, and the bookie is gone for 660 s at least"
        assert values["ledgers that name it and are not marked"] == 3
