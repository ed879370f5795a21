"""Ledgers that bookies hold and the store does not list: deleted and not collected yet, or a record that is lost.

    who says what
    a bookie with it in its index   holds it: it has not collected it
    a bookie with it in logs only   has collected it: it saw that the store did not list it
    the run before                  listed it, or did not

DATA_WITHOUT_RECORD is a note; a warning where it was seen first longer ago than the grace: collection takes no so long.
On etcd it stays a note: there bookies stop collecting while they run.
"""

from datetime import timedelta
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.preflight.gc_settings import COLLECTION_STOPS
from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun, FindingStatement, make_ledger_findings
from reconcile.rules.copy_bytes import state_bytes, state_last_writes
from reconcile.rules.sides import ABSENT, unite
from recovery.codecs.store_kind import ZOOKEEPER, StoreKind
from recovery.model.tables import KEY_COLUMNS

_HELD: Final = pa.array(["index", "journal"])


def find_unlisted(
    stored: pa.Table,
    copies: pa.Table,
    earlier_records: pa.Table | None,
    run: FindingRun,
    kind: StoreKind = ZOOKEEPER,
    last_writes: pa.Table | None = None,
) -> pa.Table:
    """Return a finding for each.

    Args:
        stored: CATALOG_LEDGERS of a bucket range, or its key columns: all that the store lists there.
        copies: COPIES of the same range.
        earlier_records: CATALOG_LEDGERS of the range as the run before saw them; None: there is none.
        run: this one.
        kind: of the store.
        last_writes: key columns, and as text when each was written last, at the latest; None: not searched for.
    """
    keys = list(KEY_COLUMNS)
    ledgers_held = (
        copies.filter(pc.is_in(copies["source"], value_set=_HELD)).group_by(keys).aggregate([("entries", "max")])
    )
    rows, listed = unite([ledgers_held, stored]).rows
    alone = ledgers_held.take(pa.array(np.sort(rows[(rows != ABSENT) & (listed == ABSENT)])))
    names: dict[tuple[int, int], dict[str, set[str]]] = {}
    copies_alone = copies.filter(pc.is_in(copies["ledger"], value_set=alone["ledger"].combine_chunks()))
    for row in copies_alone.select(["scope", "ledger", "bookie", "source"]).to_pylist():
        where = "log" if row["source"] == "log" else "held"
        names.setdefault((row["scope"], row["ledger"]), {}).setdefault(row["bookie"], set()).add(where)
    ledgers = list(zip(alone["scope"].to_pylist(), alone["ledger"].to_pylist(), strict=True))
    holders = [sorted(name for name, kinds in names[key].items() if "held" in kinds) for key in ledgers]
    collected = [sorted(name for name, kinds in names[key].items() if kinds == {"log"}) for key in ledgers]
    known = np.zeros(alone.num_rows, np.bool_)
    if earlier_records is not None:
        places, earlier = unite([alone, earlier_records]).rows
        known[places[(places != ABSENT) & (earlier != ABSENT)]] = True
    statements = [
        FindingStatement("store", "record", "none", "store"),
        FindingStatement(
            "earlier", "record", "not asked" if earlier_records is None else pc.if_else(pa.array(known), "yes", "none")
        ),
        FindingStatement("bookies", "hold it", pa.array([", ".join(names) for names in holders], pa.string())),
        FindingStatement("bookies", "entries on one of them, at most", alone["entries_max"]),
        *state_bytes(alone, copies_alone),
        *([] if last_writes is None else [state_last_writes(alone, last_writes)]),
        FindingStatement(
            "bookies", "have collected it", pa.array([", ".join(names) for names in collected], pa.string())
        ),
        *([] if kind.has_replication else [FindingStatement("store", "why it may still be held", COLLECTION_STOPS)]),
    ]
    return make_ledger_findings(
        Category.DATA_WITHOUT_RECORD,
        alone.select(keys),
        statements,
        run,
        subject="record",
        bookies=pa.array(holders, pa.list_(pa.string())),
        unknowns=["whether it was deleted, or its record is lost"],
    )


def raise_old(findings: pa.Table, run: FindingRun, grace_s: float, kind: StoreKind = ZOOKEEPER) -> pa.Table:
    """Return findings, with notes that bookies should have ended within the grace raised to warnings.

    That is what is held without a record, where bookies collect while they run, and ledgers in limbo.
    """
    limit = pa.scalar(run.at - timedelta(seconds=grace_s), pa.timestamp("us", "UTC"))
    names = [Category.LEDGER_IN_LIMBO, *([Category.DATA_WITHOUT_RECORD] if kind.has_replication else [])]
    note = pc.and_(
        pc.is_in(findings["category"], value_set=pa.array([str(name) for name in names])),
        pc.equal(findings["severity"], "info"),
    )
    old = pc.and_(note, pc.less(findings["first_seen"], limit))
    where = findings.schema.get_field_index("severity")
    return findings.set_column(where, findings.schema.field(where), pc.if_else(old, "warning", findings["severity"]))
