"""Ledgers that bookies hold and no record names: a note, which grows old where bookies collect, and only there."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from reconcile.check.scrutiny.unlisted import find_unlisted, raise_old
from reconcile.findings.table import FindingRun
from recovery.codecs.store_kind import ETCD, ZOOKEEPER, StoreKind
from recovery.model import tables
from tests.reconcile.rules.test_copies_properties import Ledger, make_copies, make_stored
from tests.support.findings import said

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ALONE = Ledger(2, 2, 9, [(0, ["bk0", "bk1"])], {"bk0": set(range(10))})


@pytest.mark.parametrize(("kind", "severity"), [(ZOOKEEPER, "warning"), (ETCD, "info")])
def test_on_etcd_it_says_why_bookies_keep_it_and_stays_a_note(kind: StoreKind, severity: str) -> None:
    """There a bookie that has run for a while collects nothing more: its age shows nothing."""
    stored = make_stored([ALONE]).slice(0, 0)
    found = find_unlisted(stored, make_copies([ALONE]), None, FindingRun("r", NOW - timedelta(days=2)), kind)
    [row] = raise_old(found, FindingRun("s", NOW), 3600.0, kind).to_pylist()
    assert (row["category"], row["severity"]) == ("DATA_WITHOUT_RECORD", severity)
    why = said(row).get(("store", "why it may still be held"), "")
    assert ("gcOverreplicatedLedgerWaitTime" in why) is (kind is ETCD)
    assert found.schema == pa.schema(tables.FINDINGS)


def test_when_it_was_written_last_is_evidence_where_it_was_searched_for() -> None:
    """Of each ledger its own; of one that no file dates that it is not known; unasked, nothing is said."""
    copies = make_copies([ALONE, ALONE])
    keys = copies.filter(pc.equal(copies["ledger"], 1)).slice(0, 1).select(list(tables.KEY_COLUMNS))
    dated = keys.append_column("last_write", pa.array(["2026-01-01T00:00:00+00:00"]))
    stored, run, field = (
        make_stored([ALONE]).slice(0, 0),
        FindingRun("r", NOW),
        ("bookies", "written last, at the latest"),
    )
    told = {
        row["ledger"]: said(row)[field]
        for row in find_unlisted(stored, copies, None, run, last_writes=dated).to_pylist()
    }
    assert told == {0: "not known: no bookie has it", 1: "2026-01-01T00:00:00+00:00"}
    assert all(field not in said(row) for row in find_unlisted(stored, copies, None, run).to_pylist())
