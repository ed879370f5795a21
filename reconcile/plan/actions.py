"""The exact writes that bring a store to what bookies show, as rows of the table ACTIONS.

The order of a restore, as phases of `seq`:

    phase  what
    1      id generators raised
    2      ledgers: records of restored and guarded ledgers, and holds
    2      behind all ledgers: nodes of upper layers, those above others first
    3      the nodes that clients and bookies expect, LAYOUT
    4      instance id
    5      cookies

    seq = phase << 48 | bucket << 32 | number inside both (bucket 0 where the action is of no ledger and no upper layer)

Nodes of upper layers have buckets of their own, behind those of ledgers: so their order and their hashes are made, and
read, without holding all of them.

    bucket = 4096 + depth of the path * 64 + (CRC-32 of the path & 63)

`plan_hash` has the ids of actions and the hash that binds a confirmation to a plan.
"""

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.plan.plan_hash import SYSTEM_BUCKET, with_ids
from reconcile.rules import diff
from reconcile.rules.holds import encode_holds, is_named, is_open_hold
from recovery.codecs import ledger_metadata, store
from recovery.codecs.entry import master_key
from recovery.codecs.keys import ledger_keys
from recovery.codecs.replication_lock import encode_reuse, lock_key
from recovery.model import tables
from recovery.model.ids import BUCKETS, LedgerId

LEAVE: Final = "leave"
"""Op of an action that writes nothing: a chosen alternative of it creates, or replaces where a version is named."""
KEEP: Final = "keep"
"""Op of an action that makes the lock of an id that two ledgers have: it keeps copies until a named end."""
REUSE_LOCK: Final = "reuse_lock"
"""Kind of the actions of such locks."""
REUSE_LOCK_TIME: Final = timedelta(days=7)
"""So long such a lock stands: enough for an export; meanwhile no worker repairs the younger ledger."""
SUBTREE: Final = "subtree"
"""Kind of the actions of upper layers' nodes."""
PARTITIONS: Final = 64
"""Buckets of one depth of upper layers' nodes."""


class Guard(StrEnum):
    """What keeps the copies of a ledger whose record may not name all of them, or ends that."""

    LOCK = "lock"
    """The writer makes a lock of the ledger, then the record."""
    NAMED = "named"
    """The record names all bookies that may have any, and holds while replication is disabled."""
    RELEASE = "release"
    """The writer replaces a guarded record, then removes the lock that this program made."""


class PlanPhase(IntEnum):
    """What is written one after the other, in this order; `phase_of` tells two that share the numbers of `seq`."""

    GENERATORS = 1
    LEDGERS = 2
    SUBTREES = 6
    LAYOUT = 3
    INSTANCE_ID = 4
    COOKIES = 5


PHASES: Final = {
    "generator": PlanPhase.GENERATORS,
    "ledger": PlanPhase.LEDGERS,
    REUSE_LOCK: PlanPhase.LEDGERS,
    "subtree": PlanPhase.LEDGERS,
    "node": PlanPhase.LAYOUT,
    "layout": PlanPhase.LAYOUT,
    "instance_id": PlanPhase.INSTANCE_ID,
    "cookie": PlanPhase.COOKIES,
}
"""Phase that the `seq` of each kind begins with; nodes of upper layers come behind all ledgers by their buckets."""


def phase_of(seq: int) -> PlanPhase:
    """Return the phase that a sequence number belongs to."""
    is_node = seq >> 48 == PlanPhase.LEDGERS and seq >> 32 & 0xFFFF >= BUCKETS
    return PlanPhase.SUBTREES if is_node else PlanPhase(seq >> 48)


@dataclass(frozen=True, slots=True)
class Passwords:
    """Candidate passwords, the empty one always among them; never printed."""

    values: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"Passwords({len(self.values)})"

    @classmethod
    def from_candidates(cls, candidates: Iterable[bytes]) -> "Passwords":
        """Take candidates in their order, the empty password first, each once."""
        return cls(tuple(dict.fromkeys((b"", *candidates))))

    @property
    def key_hashes(self) -> tuple[bytes, ...]:
        """SHA-256 of each password's master key, as inventories hold them."""
        return tuple(hashlib.sha256(master_key(p)).digest() for p in self.values)


def _column(value: Any, rows: int, kind: pa.DataType) -> pa.Array:  # noqa: ANN401 - any Arrow scalar
    return pa.nulls(rows, kind) if value is None else pa.array([value], kind).take(pa.array(np.zeros(rows, np.int64)))


def _actions(columns: Mapping[str, Any], rows: int) -> pa.Table:
    """Fill the columns that a create has the same of everywhere, then the ids."""
    fields = {}
    for field in tables.ACTIONS:
        given = columns.get(field.name)
        if field.name == "alternatives" and given is None:
            fields[field.name] = pa.array([[]] * rows, field.type)
        elif field.name in ("wave", "choice"):
            fields[field.name] = _column(0, rows, field.type)
        elif field.name == "id":
            fields[field.name] = _column(b"", rows, field.type)
        elif isinstance(given, (pa.Array, pa.ChunkedArray)):
            fields[field.name] = given.cast(field.type)
        else:
            fields[field.name] = _column(given, rows, field.type)
    return with_ids(pa.table(fields, schema=tables.ACTIONS))


def _ledger_seq(bucket: pa.ChunkedArray) -> pa.Array:
    """Number the rows, which are sorted by bucket, inside their buckets."""
    values = bucket.to_numpy().astype(np.int64)
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    inside = np.arange(len(values)) - np.repeat(starts, np.diff(np.r_[starts, len(values)]))
    return pa.array((int(PlanPhase.LEDGERS) << 48) | (values << 32) | inside)


def _encode_restored(rows: pa.Table, passwords: Passwords) -> pa.Array:
    indexes = pc.index_in(rows["key"], value_set=pa.array(passwords.key_hashes, pa.binary()))
    known = pa.array(list(passwords.values), pa.binary()).take(indexes)
    # Without a verified password there is none to write: such a record is of format 1.
    password = pc.if_else(pc.equal(rows["format"], 1), pa.scalar(None, pa.binary()), known)
    # Where a snapshot's record is the base, it says more than fields: what is written is in `raw`.
    base = rows["raw"].combine_chunks()
    made = rows.filter(pc.is_null(base))
    encoded = ledger_metadata.encode_columns(_record_columns(made, password.filter(pc.is_null(base)), made["segments"]))
    return pc.replace_with_mask(base, pc.is_null(base), encoded)


def _record_columns(rows: pa.Table, password: pa.Array, segments: pa.Array) -> pa.Table:
    names = (
        "ensemble_size",
        "write_quorum",
        "ack_quorum",
        "state",
        "last_entry",
        "length",
        "digest",
        "ctime",
        "custom",
    )
    return pa.table({**{name: rows[name] for name in names}, "password": password, "segments": segments})


def _encode_held(rows: pa.Table, secrets: bytes) -> pa.Array:
    return encode_holds(rows["reason"].combine_chunks(), rows["holders"].combine_chunks(), secrets)


def select_released(
    rows: pa.Table,
    stored: pa.Table,
    matched: diff.Matched,
    guarded: npt.NDArray[np.bool_],
    named: npt.NDArray[np.bool_] | None = None,
) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Return the ledgers whose hold or guarded record can be replaced, and which records of the store those are.

    A hold is replaced by a record of any reading, unless a delete put it there. A guarded record is replaced by a
    proved one, whose lock then goes unless it leaves out a bookie with copies that are missing where they belong; and
    by one that reads further, under the lock that there is, or by its names.

    Args:
        rows: RECONSTRUCTION.
        stored: CATALOG_LEDGERS.
        matched: both sides.
        guarded: which records of the store are under a guard.
        named: which rows are guarded by names alone.

    Returns:
        Their rows of RECONSTRUCTION, with the record's version as `expects`, its bytes as `before`, its ensemble size
        as `ensemble_before`, and `guard`.
    """
    restored, readable = (
        pc.is_in(rows["outcome"], pa.array(outcomes)).to_numpy()[matched.held_rows]
        for outcomes in (["restored"], ["restored", "guarded"])
    )
    further = pc.fill_null(
        pc.greater(
            rows["last_entry"].take(pa.array(matched.held_rows)),
            stored["last_entry"].take(pa.array(matched.stored_rows)),
        ),
        fill_value=False,
    ).to_numpy()
    is_guarded = guarded[matched.stored_rows]
    # Without a lock a record keeps the copies that it names, and no others.
    unlocked = is_named(stored)[matched.stored_rows]
    by_names = np.zeros(len(restored), np.bool_) if named is None else named[matched.held_rows]
    leaves_out = np.zeros(len(restored), np.bool_)
    leaves_out[is_guarded] = _leaves_out_copies(rows.take(pa.array(matched.held_rows[is_guarded])))
    better = np.where(unlocked, (restored & ~leaves_out) | (by_names & further), restored | (readable & further))
    mask = (is_open_hold(stored)[matched.stored_rows] & readable) | (is_guarded & better)
    made, before = (
        rows.take(pa.array(matched.held_rows[mask])),
        stored.take(pa.array(matched.stored_rows[mask])),
    )
    of_store = np.zeros(stored.num_rows, np.bool_)
    of_store[matched.stored_rows[mask]] = True
    locked = is_guarded & ~unlocked
    guard = pa.array(
        np.select(
            [mark[mask] for mark in (locked & restored & ~leaves_out, ~restored & by_names, locked | ~restored)],
            [str(kind) for kind in (Guard.RELEASE, Guard.NAMED, Guard.LOCK)],
            "",
        )
    )
    guard = pc.if_else(pc.equal(guard, ""), pa.scalar(None, pa.string()), guard)
    made = made.append_column("expects", before["version"]).append_column("before", before["raw"])
    made = made.append_column("ensemble_before", before["ensemble_size"])
    return made.append_column("guard", guard), of_store


def _leaves_out_copies(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Say which records leave out a bookie that holds entries, and lack copies; RECONSTRUCTION in."""
    names_all = np.array(
        [
            set(holders) <= {member for segment in segments or () for member in segment["members"]}
            for holders, segments in zip(rows["holders"].to_pylist(), rows["segments"].to_pylist(), strict=True)
        ],
        np.bool_,
    )
    leaves_out: npt.NDArray[np.bool_] = ~names_all & (rows["missing"].to_numpy() > 0)
    return leaves_out


def make_ledger_actions(rows: pa.Table, layout: store.Layout, passwords: Passwords, secrets: bytes) -> pa.Table:
    """Propose a record for every ledger that the store lacks, or has only a hold of.

    Args:
        rows: RECONSTRUCTION, sorted by key; outcome restored, guarded or held. Where it has the columns of
            `select_released`, rows with `expects` replace a record.
        layout: of the target.
        passwords: a restored or guarded row of format 3 has the key of one of them.
        secrets: `HOLD_PASSWORD_SIZE` random bytes for each held row.

    Returns:
        ACTIONS, one row a ledger, in the order of `rows`.
    """
    count = rows.num_rows
    is_held = pc.equal(rows["outcome"], "held").combine_chunks()
    restored = pc.invert(is_held)
    guard = pc.if_else(pc.equal(rows["outcome"], "guarded"), str(Guard.LOCK), pa.scalar(None, pa.string()))
    columns = rows.column_names
    replaces = rows["expects"].combine_chunks() if "expects" in columns else pa.nulls(count, pa.int64())
    replaced = rows["before"].combine_chunks() if "before" in columns else pa.nulls(count, pa.binary())
    records = pa.concat_arrays(
        [_encode_restored(rows.filter(restored), passwords), _encode_held(rows.filter(is_held), secrets)]
    )
    back = np.argsort(np.r_[np.flatnonzero(restored), np.flatnonzero(is_held)])
    return _actions(
        {
            "bucket": rows["bucket"],
            "scope": rows["scope"],
            "ledger": rows["ledger"],
            "seq": _ledger_seq(rows["bucket"]),
            "op": pc.if_else(restored, pc.if_else(pc.is_valid(replaces), "replace", "create"), "hold"),
            "kind": "ledger",
            "expects": replaces,
            "before": replaced,
            "key": ledger_keys(layout, rows["scope"].to_numpy(), rows["ledger"].to_numpy()),
            "value": records.take(pa.array(back)),
            "guard": pc.coalesce(rows["guard"], guard) if "guard" in columns else guard,
        },
        count,
    )


def make_leave_actions(
    keys: pa.Table, layout: store.Layout, alternatives: pa.Array, *, instead: pa.Table | None
) -> pa.Table:
    """Return actions that write nothing, unless a person chooses one of their alternatives.

    Args:
        keys: the key columns, sorted.
        layout: of the target.
        alternatives: as ACTIONS has them.
        instead: version and raw of the records that a chosen alternative replaces; None: it is created.

    Returns:
        ACTIONS of op leave, of those ledgers that the layout has a place for; without seq.
    """
    good = pa.array(~store.find_placeless(layout, keys["scope"].to_numpy(), keys["ledger"].to_numpy()))
    named = keys.filter(good)
    return _actions(
        {
            **{name: named[name] for name in tables.KEY_COLUMNS},
            "seq": 0,
            "op": LEAVE,
            "kind": "ledger",
            "key": ledger_keys(layout, named["scope"].to_numpy(), named["ledger"].to_numpy()),
            "alternatives": alternatives.filter(good),
            **(
                {}
                if instead is None
                else {"expects": instead["version"].filter(good), "before": instead["raw"].filter(good)}
            ),
        },
        named.num_rows,
    )


def make_reuse_locks(keys: pa.Table, end: datetime) -> pa.Table:
    """Return the actions that make the locks of ids that two ledgers have: for a time they keep the older copies.

    Args:
        keys: the key columns, of ids that locks have a place for.
        end: of the locks; aware.

    Returns:
        ACTIONS of op keep; without seq.
    """
    ids = zip(keys["scope"].to_pylist(), keys["ledger"].to_pylist(), strict=True)
    return _actions(
        {
            **{name: keys[name] for name in tables.KEY_COLUMNS},
            "seq": 0,
            "op": KEEP,
            "kind": REUSE_LOCK,
            "key": pa.array([lock_key(LedgerId(*pair)) for pair in ids], pa.string()),
            "value": encode_reuse(end),
        },
        keys.num_rows,
    )


def make_reuse_releases(locks: pa.Table) -> pa.Table:
    """Return the actions that remove such locks, or leave them until a person accepts the older ledger's loss.

    Args:
        locks: the key columns with path, version, raw and op of each.

    Returns:
        ACTIONS of op remove or leave; without seq.
    """
    return _actions(
        {
            **{name: locks[name] for name in tables.KEY_COLUMNS},
            "seq": 0,
            "op": locks["op"],
            "kind": REUSE_LOCK,
            "key": locks["path"],
            "expects": locks["version"],
            "before": locks["raw"],
        },
        locks.num_rows,
    )


def number_actions(actions: Sequence[pa.Table]) -> pa.Table:
    """Unite actions of ledgers of one bucket range, and number them in the order of their keys."""
    united = pa.concat_tables(actions)
    order = np.lexsort([united[name].to_numpy() for name in reversed(tables.KEY_COLUMNS)])
    sorted_ = united.take(pa.array(order))
    index = tables.ACTIONS.get_field_index("seq")
    return sorted_.set_column(index, tables.ACTIONS.field(index), _ledger_seq(sorted_["bucket"]))


@dataclass(frozen=True, slots=True)
class SystemWrite:
    """One write that is of no ledger; a replacement names the version and the bytes that it replaces."""

    phase: PlanPhase
    op: str
    kind: str
    key: str
    value: bytes
    expects: int | None = None
    before: bytes | None = None


def make_system_actions(writes: Sequence[SystemWrite]) -> pa.Table:
    """Return the writes of no ledger as ACTIONS, in the order of their phases."""
    ordered = sorted(enumerate(writes), key=lambda item: (item[1].phase, item[0]))
    count = len(ordered)
    return _actions(
        {
            "bucket": SYSTEM_BUCKET,
            "seq": pa.array([(int(w.phase) << 48) | i for i, (_, w) in enumerate(ordered)], pa.int64()),
            "op": pa.array([w.op for _, w in ordered], pa.string()),
            "kind": pa.array([w.kind for _, w in ordered], pa.string()),
            "key": pa.array([w.key for _, w in ordered], pa.string()),
            "value": pa.array([w.value for _, w in ordered], pa.binary()),
            "expects": pa.array([w.expects for _, w in ordered], pa.int64()),
            "before": pa.array([w.before for _, w in ordered], pa.binary()),
        },
        count,
    )


def find_places(paths: pa.Array) -> npt.NDArray[np.int64]:
    """Return the buckets of upper layers' nodes by the paths that they have in the store."""
    depth = pc.count_substring(paths, "/").to_numpy(zero_copy_only=False).astype(np.int64)
    hashed = np.fromiter((zlib.crc32(path.encode()) for path in paths.to_pylist()), np.int64, len(paths))
    places: npt.NDArray[np.int64] = BUCKETS + depth * PARTITIONS + hashed % PARTITIONS
    return places


def make_subtree_actions(rows: pa.Table) -> pa.Table:
    """Return the writes of upper layers' nodes as ACTIONS, numbered in their order.

    Args:
        rows: bucket, op, path, value, acl, expects and before, sorted by bucket; a counter that is raised has a row of
            its own, behind that of its node.
    """
    count = rows.num_rows
    return _actions(
        {
            **{name: rows[name] for name in ("bucket", "op", "value", "acl", "expects", "before")},
            "seq": _ledger_seq(rows["bucket"]),
            "kind": SUBTREE,
            "key": pc.binary_join_element_wise("/", rows["path"], ""),
        },
        count,
    )
