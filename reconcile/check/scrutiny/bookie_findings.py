"""Findings of bookies: registered and silent ones, and lost ones that the auditor does not know.

BOOKIE_SILENT     a bookie is registered, and answered in no look
AUDITOR_UNAWARE   records name a bookie that is not registered, its ledgers are not marked, and: no bookie is elected
                  auditor, or replication is disabled, or the auditor had the time that it waits for a lost bookie;
                  never on etcd
ALIAS_UNRESOLVED  records name a bookie without a registration and without a cookie in the store
SUSPECT_DISK      an inventory shows that many files of one folder are damaged, as a failing disk damages them
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.scrutiny.lifecycle import is_mass
from reconcile.check.scrutiny.replication import StoredReplication
from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingStatement
from recovery.errors import Reason

LOST_BOOKIE_DELAY: Final = "/underreplication/lostBookieRecoveryDelay"
_GAPS: Final = 12
"""Most gaps that are named one by one."""
AUDIT_S: Final = 60.0
"""Seconds that an audit of a lost bookie may take until its first marks exist."""


def list_silent(bookies: Iterable[str], why: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each registered bookie that does not answer; `why`: the error."""
    for bookie in sorted(bookies):
        statements = [
            FindingStatement("store", "registration", "yes", "registration"),
            FindingStatement("bookies", "answer", why.get(bookie) or "none", "wire"),
        ]
        yield Finding(Category.BOOKIE_SILENT, bookie, statements, bookies=[bookie])


def list_unresolved(unresolved: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each name in records that is not a known bookie's."""
    for name, why in sorted(unresolved.items()):
        yield Finding(
            Category.ALIAS_UNRESOLVED, name, [FindingStatement("store", "name", why, "records")], bookies=[name]
        )


def list_suspect_disks(damage: pa.Table) -> Iterator[Finding]:
    """Yield a finding for each folder on a suspect disk; DAMAGE of inventories in."""
    for row in damage.filter(pc.equal(damage["reason"], Reason.SUSPECT_DISK.value)).to_pylist():
        statements = [
            FindingStatement("bookies", "folder", row["file"], "inventory"),
            FindingStatement("bookies", "damage", row["detail"], "inventory"),
        ]
        yield Finding(Category.SUSPECT_DISK, f"{row['bookie']} {row['file']}", statements, bookies=[row["bookie"]])


def list_unaware(
    unmarked: Mapping[str, int], replication: StoredReplication, delay_s: float, waited_s: Mapping[str, float]
) -> Iterator[Finding]:
    """Yield a finding for each lost bookie with ledgers that should be marked by now.

    Args:
        unmarked: bookie that is not registered → ledgers that name it and are not marked.
        replication: of the store.
        delay_s: seconds that the auditor waits for a lost bookie.
        waited_s: for each of them, seconds for which every look of this and earlier runs found it gone.
    """
    if not replication.is_kept:
        return
    general = replication.disabled or (None if replication.auditor else "no auditor is elected")
    for bookie, ledgers in sorted(unmarked.items()):
        why = general
        if why is None and waited_s[bookie] >= delay_s + AUDIT_S:
            why = f"the auditor waits {delay_s:.0f} s, and the bookie is gone for {waited_s[bookie]:.0f} s at least"
        if why is None:
            continue
        statements = [
            FindingStatement("store", "registration", "none", "registration"),
            FindingStatement("store", "ledgers that name it and are not marked", ledgers, "records"),
            FindingStatement("store", "why", why, "underreplication"),
        ]
        yield Finding(Category.AUDITOR_UNAWARE, bookie, statements, bookies=[bookie])


def list_listing_doubts(gaps: Sequence[str], vanished: int, listed: int) -> Iterator[Finding]:
    """Yield a finding where the store's list of ledgers is not to be believed.

    Args:
        gaps: parts of the store that could not be read, with the reason.
        vanished: ledgers that the run before listed, and that are no longer in the store.
        listed: ledgers that the run before listed.
    """
    statements = [FindingStatement("store", "not read", gap) for gap in gaps[:_GAPS]]
    if len(gaps) > _GAPS:
        statements.append(FindingStatement("store", "more parts that were not read", len(gaps) - _GAPS))
    if is_mass(vanished, listed):
        statements.append(FindingStatement("earlier", "ledgers that it listed and are gone", f"{vanished} of {listed}"))
    if statements:
        yield Finding(Category.LISTING_INCOMPLETE, "ledgers", statements, unknowns=["whether the others were deleted"])


def read_lost_bookie_delay(nodes: pa.Table) -> float:
    """Return how many seconds the auditor waits for a lost bookie; CATALOG_NODES in."""
    raws = nodes.filter(pc.equal(nodes["path"], LOST_BOOKIE_DELAY))["raw"].to_pylist()
    text = raws[0].decode(errors="replace").strip() if raws else ""
    return float(text) if text.isdecimal() else 0.0


def count_naming(stored: pa.Table, bookies: Iterable[str], but: pa.Table | None = None) -> dict[str, int]:
    """Count the ledgers that name each of some bookies.

    Args:
        stored: CATALOG_LEDGERS.
        bookies: the bookies to count.
        but: key columns of ledgers to leave out, for example marked ones.
    """
    gone = pa.array(sorted(bookies), pa.string())
    segments = stored["segments"].combine_chunks()
    members = pc.struct_field(pc.list_flatten(segments), "members")
    row_of = pc.list_parent_indices(segments).take(pc.list_parent_indices(members))
    names = pc.list_flatten(members)
    keys = stored.select(["scope", "ledger"]).take(row_of).append_column("bookie", names)
    keys = keys.filter(pc.is_in(names, value_set=gone)).group_by(["scope", "ledger", "bookie"]).aggregate([])
    if but is not None:
        keys = keys.join(but.select(["scope", "ledger"]), ["scope", "ledger"], join_type="left anti")
    return {row["values"]: row["counts"] for row in pc.value_counts(keys["bookie"]).to_pylist()}
