"""Ledgers that are not settled: holds, and records under a guard.

A hold keeps a ledger's data and serves no client; its custom metadata has the reason. A delete puts a hold in the place
of a record for a while (its quarantine); such a hold has a mark of that too. A guarded record is readable, a lock keeps
every copy, and its custom metadata says nothing: it is known by the lock. One that is guarded by names alone has no
lock, but a mark in its custom metadata.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingRun, FindingStatement, make_ledger_findings
from reconcile.words import count_noun
from recovery.codecs import ledger_metadata
from recovery.codecs.replication_lock import is_guard, ledger_of_lock
from recovery.model import tables
from recovery.model.groups import count, from_arrow
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerState
from recovery.model.tables import KEY_COLUMNS

HOLD_MARK: Final = "bkmeta.hold"
"""Key of the custom metadata with the reason of a hold."""
QUARANTINE_MARK: Final = "bkmeta.quarantine"
"""Key of the custom metadata that marks a hold as the quarantine of a delete, with its end (ISO 8601)."""
HOLD_PASSWORD_SIZE: Final = 20
NAMED_MARK: Final = "bkmeta.guard"
"""Key of the custom metadata of a record that names all possible holders, and claims no shape."""
_COMPARED: Final = (
    Category.ENTRIES_BEYOND_LAST_ENTRY,
    Category.ENTRIES_MISSING,
    Category.QUORUM_DIFFERS,
    Category.ENTRY_LOST,
    Category.BELOW_ACK_QUORUM,
    Category.BELOW_WRITE_QUORUM,
    Category.ENTRIES_MISPLACED,
    Category.OVER_REPLICATED,
)
"""Findings that assume a record to be the true one."""
_BESIDE_INDEX: Final = (".log", ".compacted", ".txn")
"""Files beside an index that are no part of it."""
_SUGGESTED_FOR_FILES: Final = (
    "copy this bookie's folders before it starts; put back the index files that a backup has, or let other bookies' "
    "copies serve these ledgers: bkmeta explain LEDGER"
)


def find_holds(catalog: pa.Table) -> pa.Table:
    """Return the holds that a store has: the columns of a key, reason and holders, as RECONSTRUCTION has them."""
    records = catalog.filter(pa.array(is_hold(catalog)))
    customs = [{item["key"]: item["value"] for item in custom} for custom in records["custom"].to_pylist()]
    reasons = [custom[HOLD_MARK].decode(errors="replace") for custom in customs]
    holders = [sorted({m for s in segments for m in s["members"]}) for segments in records["segments"].to_pylist()]
    return (
        records.select(list(KEY_COLUMNS))
        .append_column("reason", pa.array(reasons, pa.string()))
        .append_column("holders", pa.array(holders, pa.list_(pa.string())))
    )


def is_hold(stored: pa.Table) -> npt.NDArray[np.bool_]:
    """Mark records of a store that are holds of bkmeta; CATALOG_LEDGERS in."""
    return _is_marked(stored, HOLD_MARK)


def is_named(stored: pa.Table) -> npt.NDArray[np.bool_]:
    """Mark records of a store that are guarded by names alone; the column custom of CATALOG_LEDGERS in."""
    return _is_marked(stored, NAMED_MARK)


def is_quarantine(stored: pa.Table) -> npt.NDArray[np.bool_]:
    """Mark records of a store that are holds of a delete; the column custom of CATALOG_LEDGERS in."""
    return _is_marked(stored, QUARANTINE_MARK)


def is_open_hold(stored: pa.Table) -> npt.NDArray[np.bool_]:
    """Mark records of a store that are holds waiting for evidence; CATALOG_LEDGERS in."""
    return is_hold(stored) & ~is_quarantine(stored)


def encode_holds(
    reasons: pa.Array, holders: pa.Array, secrets: bytes, marks: Mapping[str, bytes] | None = None
) -> pa.Array:
    """Encode holds: IN_RECOVERY, HMAC, random password, one segment of exactly the holders, E = W = their count, A = 1.

    Each of those was chosen because every other form was seen to lose data. Source: docs/operations/safety.md.

    Args:
        reasons: text of each.
        holders: list of the bookies of each, at least one.
        secrets: `HOLD_PASSWORD_SIZE` random bytes for each.
        marks: further custom metadata, the same of all.

    Returns:
        Binary.
    """
    count = len(reasons)
    marks = marks or {}
    width = pc.cast(pc.list_value_length(holders), pa.int32())
    offsets = np.arange(count + 1, dtype=np.int32)
    fields = list(tables.SEGMENTS.value_type)
    segment = pa.StructArray.from_arrays(
        [pa.array(np.zeros(count, np.int64)), holders.cast(fields[1].type)], fields=fields
    )
    keys = pa.array([HOLD_MARK, *marks] * count, pa.string())
    values = [value for reason in reasons.to_pylist() for value in (reason.encode(), *marks.values())]
    custom = pa.StructArray.from_arrays([keys, pa.array(values, pa.binary())], fields=list(tables.CUSTOM.value_type))
    sizes = np.arange(count + 1, dtype=np.int32) * HOLD_PASSWORD_SIZE
    password = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(sizes.tobytes()), pa.py_buffer(secrets[: count * HOLD_PASSWORD_SIZE])]
    )
    columns = {
        "ensemble_size": width,
        "write_quorum": width,
        "ack_quorum": pa.array(np.ones(count, np.int32)),
        "state": pa.array([str(LedgerState.IN_RECOVERY)] * count, pa.string()),
        "last_entry": pa.nulls(count, pa.int64()),
        "length": pa.nulls(count, pa.int64()),
        "digest": pa.array([str(Digest.HMAC)] * count, pa.string()),
        "ctime": pa.nulls(count, pa.int64()),
        "custom": pa.ListArray.from_arrays(pa.array(offsets * (1 + len(marks))), custom),
        "password": password,
        "segments": pa.ListArray.from_arrays(offsets, segment),
    }
    return ledger_metadata.encode_columns(pa.table(columns))


def _is_marked(stored: pa.Table, key: str) -> npt.NDArray[np.bool_]:
    mask = np.zeros(stored.num_rows, np.bool_)
    lists = stored["custom"].combine_chunks()
    marked = pc.equal(pc.struct_field(lists.flatten(), 0), key)
    mask[pc.list_parent_indices(lists).filter(marked).to_numpy()] = True
    return mask


def findings(rows: pa.Table, run: FindingRun) -> pa.Table:
    """Return a finding for each ledger that is held: rows of RECONSTRUCTION, or as `find_holds` returns them, in."""
    statements = [FindingStatement("bookies", "reason", rows["reason"])]
    return make_ledger_findings(Category.HELD, rows, statements, run, subject="reason", bookies=rows["holders"])


def list_guarded(nodes: pa.Table) -> frozenset[LedgerId]:
    """Return the ledgers that a store has guards' locks of; CATALOG_NODES in: path, kind, raw, owner."""
    locks = nodes.filter(pc.equal(nodes["kind"], "lock")).select(["path", "raw", "owner"]).to_pylist()
    guards = (ledger_of_lock(row["path"]) for row in locks if is_guard(row["raw"], row["owner"] or 0))
    return frozenset(ledger for ledger in guards if ledger is not None)


def mark_guarded(stored: pa.Table, guarded: frozenset[LedgerId]) -> npt.NDArray[np.bool_]:
    """Mark rows of guarded ledgers; columns scope and ledger in."""
    numbers = pa.array([ledger.ledger for ledger in guarded], pa.int64())
    near = np.flatnonzero(pc.is_in(stored["ledger"], value_set=numbers).to_numpy())
    mask = np.zeros(stored.num_rows, np.bool_)
    ids = zip(*(stored[name].take(pa.array(near)).to_pylist() for name in ("scope", "ledger")), strict=True)
    mask[near] = [LedgerId(*key) in guarded for key in ids]
    return mask


def count_holes(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Return how many entries up to its end no bookie serves, of each ledger; RECONSTRUCTION in."""
    groups = from_arrow(_fill_lists(rows["holes"]))
    holes = np.zeros(rows.num_rows, np.int64)
    np.add.at(holes, groups.key, count(*groups[1:]))
    return holes


def find_guarded(rows: pa.Table, run: FindingRun) -> pa.Table:
    """Return a finding for each guarded ledger: its reading, the cost, and the possibly hidden copies.

    Args:
        rows: RECONSTRUCTION, outcome guarded.
        run: this one.
    """
    holes = count_holes(rows)
    statements = [
        FindingStatement("bookies", "reading", rows["reading"]),
        FindingStatement("bookies", "reason", rows["reason"]),
        FindingStatement("bookies", "requests an entry, about", pa.array(_estimate_requests(rows, holes))),
        FindingStatement("bookies", "entries that nobody serves", pa.array(holes)),
        FindingStatement("bookies", "copies that the record does not name", rows["extra"]),
    ]
    return make_ledger_findings(
        Category.GUARDED,
        rows,
        statements,
        run,
        subject="reading",
        bookies=rows["holders"],
        entries=_fill_lists(rows["holes"]),
        unknowns=["the entries of bookies that were not seen"],
    )


def _estimate_requests(rows: pa.Table, holes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return how many bookies a reader asks for an entry, on average: of n members that k of have it, (n + 1)/(k + 1).

    A reader asks the members of a write set one after the other, in the order of the ring, until one has the entry.
    """
    write = pc.fill_null(rows["write_quorum"], 1).to_numpy()
    entries = pc.fill_null(rows["last_entry"], -1).to_numpy() + 1
    copy_counts = write * entries - rows["missing"].to_numpy()
    copies = np.clip(copy_counts / np.maximum(entries - holes, 1), 1, write)
    return np.asarray(np.round((write + 1) / (copies + 1), 1))


def find_without_index(
    bookies: Iterable[Mapping[str, Any]], damage: pa.Table, lost: Sequence[str] = ()
) -> list[Finding]:
    """Return a finding for each bookie with logs and with a missing or damaged folder of its index.

    The bookie takes log records of ledgers outside of its index for garbage, even if the store lists these ledgers.
    Index files with damaged content still have their names: only their ledgers are in doubt; that is a warning.

    Args:
        bookies: rows of BOOKIES; folders alone are read.
        damage: DAMAGE of them; file, ledger and hides_entries are read.
        lost: bookies with parts that are stated to be gone: a warning.
    """
    harms: dict[str, list[Mapping[str, Any]]] = {}
    for harm in damage.filter(damage["hides_entries"]).select(["bookie", "file", "scope", "ledger"]).to_pylist():
        harms.setdefault(harm["bookie"], []).append(harm)
    found = []
    for row in bookies:
        gone = [folder["path"] for folder in row["dirs"] if folder["role"] == "index" and not folder["complete"]]
        if gone and any(folder["role"] == "ledger" and folder["bytes"] for folder in row["dirs"]):
            ledgers = _list_harmed(gone, harms.get(row["bookie"], ()))
            what = "not all was seen" if ledgers is None else f"{count_noun(len(ledgers), 'ledger')} may be incomplete"
            text = f"{row['bookie']} has logs, and of its index {what}: {', '.join(sorted(gone))}"
            severity = "warning" if ledgers is not None or row["bookie"] in lost else None
            statement = FindingStatement("bookies", "index", text)
            subject, names = f"index of {row['bookie']}", [row["bookie"]]
            suggested = None if ledgers is None else _SUGGESTED_FOR_FILES
            found.append(
                Finding(
                    Category.INDEX_INCOMPLETE,
                    subject,
                    (statement,),
                    severity=severity,
                    bookies=names,
                    suggested=suggested,
                )
            )
    return found


def _list_harmed(folders: Sequence[str], harms: Iterable[Mapping[str, Any]]) -> set[LedgerId] | None:
    """Return the ledgers that the damage of some index folders names; None if a folder hides others too."""
    of_index = [harm for harm in harms if not harm["file"].endswith(_BESIDE_INDEX)]
    ledgers = set()
    for folder in folders:
        inside = [harm for harm in of_index if f"{harm['file']}/".startswith(f"{folder}/")]
        if not inside or any(harm["ledger"] is None for harm in inside):
            return None
        ledgers |= {LedgerId(harm["scope"] or 0, harm["ledger"]) for harm in inside}
    return ledgers


def find_lost(rows: pa.Table, run: FindingRun) -> pa.Table:
    """Return findings of ledgers that come back without all of their entries.

    Args:
        rows: RECONSTRUCTION, outcome restored.
        run: this one.

    Returns:
        ENTRY_LOST where entries up to the end are on no bookie, or acknowledged ones above it; LEFT_OVER where more may
        be gone, and nothing shows what.
    """
    holes = count_holes(rows)
    last, lac = (pc.fill_null(rows[name], -1).to_numpy() for name in ("last_entry", "lac_low"))
    above = np.where(pc.is_valid(rows["reason"]).to_numpy(), np.maximum(lac - last, 0), 0)
    lost = pa.array((holes > 0) | (above > 0))
    gone = rows.filter(lost)
    missing = [
        FindingStatement("bookies", "entries that nobody serves", pa.array(holes).filter(lost)),
        FindingStatement("bookies", "acknowledged entries above the end", pa.array(above).filter(lost)),
        FindingStatement("bookies", "reason", gone["reason"]),
    ]
    rest = rows.filter(pc.and_not(pc.is_valid(rows["reason"]), lost))
    return pa.concat_tables(
        [
            make_ledger_findings(
                Category.ENTRY_LOST,
                gone,
                missing,
                run,
                subject="entries",
                bookies=gone["holders"],
                entries=_fill_lists(gone["holes"]),
            ),
            make_ledger_findings(
                Category.LEFT_OVER,
                rest,
                [
                    FindingStatement("bookies", "reason", rest["reason"]),
                    FindingStatement("bookies", "last_entry", rest["last_entry"]),
                ],
                run,
                subject="last_entry",
                bookies=rest["holders"],
                unknowns=["which entries the lost bookies had"],
            ),
        ]
    )


def find_reopening(released: pa.Table, run: FindingRun) -> pa.Table:
    """Return findings of settled ledgers that get another ensemble size: open readers do not survive that.

    Args:
        released: RECONSTRUCTION of them, with `ensemble_before`.
        run: this one.
    """
    changed = released.filter(pc.less(released["ensemble_size"], released["ensemble_before"]))
    statements = [
        FindingStatement("store", "ensemble_size", changed["ensemble_before"]),
        FindingStatement("bookies", "ensemble_size", changed["ensemble_size"]),
    ]
    return make_ledger_findings(Category.READERS_MUST_REOPEN, changed, statements, run, subject="ensemble_size")


def drop_compared(findings: pa.Table, stored: pa.Table, under_guard: npt.NDArray[np.bool_]) -> pa.Table:
    """Leave out findings that assume a guarded record to be the true one: it waits for its settling.

    Args:
        findings: of any ledgers.
        stored: records of a store; its key columns.
        under_guard: which of them are under a guard.
    """
    if not under_guard.any():
        return findings
    guarded = stored.select(["scope", "ledger"]).filter(pa.array(under_guard))
    compared = pc.is_in(findings["category"], value_set=pa.array([str(category) for category in _COMPARED]))
    pairs = [
        np.stack([pc.fill_null(table[name], -1).to_numpy().astype(np.int64) for name in ("scope", "ledger")], axis=1)
        for table in (guarded, findings)
    ]
    code = np.unique(np.concatenate(pairs), axis=0, return_inverse=True)[1].ravel()
    is_guarded = np.isin(code[guarded.num_rows :], code[: guarded.num_rows])
    return findings.filter(pc.invert(pc.and_(compared, pa.array(is_guarded))))


def _fill_lists(lists: pa.ChunkedArray) -> pa.Array:
    return pc.fill_null(lists.combine_chunks(), pa.scalar([], tables.GROUPS))
