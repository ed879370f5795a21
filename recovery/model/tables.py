"""The Arrow schemas of everything that crosses a boundary: the one source of every dataset's columns.

Ids are signed 64-bit patterns (Spark has no unsigned integers). `KEY` columns come first wherever rows belong to a
ledger; such tables are sorted by (bucket, scope, ledger) in their datasets. Comments beside a field say what its name
cannot.
"""

from typing import Final

import pyarrow as pa

SCHEMA_VERSION: Final = (1, 12)
"""Major, minor: readers take any minor of the same major."""


def _field(name: str, kind: pa.DataType, *, null: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=null)


def _list_of(**fields: pa.DataType) -> pa.ListType:
    return pa.list_(pa.field("item", pa.struct([_field(k, v) for k, v in fields.items()]), nullable=False))


_I32: Final = pa.int32()
_I64: Final = pa.int64()
_TEXT: Final = pa.string()
_BYTES: Final = pa.binary()
_BOOL: Final = pa.bool_()
_TIME: Final = pa.timestamp("us", tz="UTC")
_TEXTS: Final = pa.list_(_field("item", _TEXT))

KEY: Final = (_field("bucket", pa.int16()), _field("scope", _I64), _field("ledger", _I64))
KEY_COLUMNS: Final = ("bucket", "scope", "ledger")

GROUPS: Final = _list_of(first=_I64, last=_I64, size=_I64, period=_I64)
"""Sequence groups: runs [s, s + size) for s = first, first + period, …, last; period 0 iff first = last."""

HEADERS: Final = pa.list_(
    pa.field(
        "item",
        pa.struct(
            [
                _field("entry", _I64),
                _field("lac", _I64),
                _field("length", _I64),  # cumulative payload bytes, this entry included
                _field("size", _I64),  # bytes of the whole entry, header and digest included
                _field("digest", _TEXT, null=True),  # the type that verified; null: none did
            ]
        ),
        nullable=False,
    )
)

COPIES: Final = pa.schema(
    [
        *KEY,
        _field("bookie", _TEXT),
        _field("incarnation", _I64),
        _field("source", _TEXT),  # index, log, journal, wire; each lists only what stronger ones lack
        _field("part", _I32),  # at most GROUPS_PER_ROW groups a row; facts of the ledger stand in part 0
        _field("groups", GROUPS),  # regrouped by us, disjoint, ascending; empty is evidence too
        _field("entries", _I64),
        _field("first", _I64, null=True),
        _field("last", _I64, null=True),
        # The largest group (most entries, then the lower first), flat: settles a clean copy without the nested column.
        _field("g_first", _I64, null=True),
        _field("g_last", _I64, null=True),
        _field("g_size", _I64, null=True),
        _field("g_period", _I64, null=True),
        _field("g_count", _I64),
        _field("complete", _BOOL),  # absence of other entries on this bookie may be believed
        _field("fenced", _BOOL),  # false says nothing
        _field("limbo", _BOOL),
        _field("key_kind", _TEXT),  # absent, empty, zero, set
        _field("key", _BYTES, null=True),  # SHA-256 of the stored master key, where key_kind = set
        _field("explicit_lac", _I64, null=True),
        _field("lac_record", _BYTES, null=True),  # as stored, at most 36 bytes
        _field("headers", HEADERS),  # confirmed reads; at least of the last entry held
    ]
)
GROUPS_PER_ROW: Final = 65_536

BOOKIES: Final = pa.schema(
    [
        _field("bookie", _TEXT),
        _field("incarnation", _I64),
        _field("incarnation_evidence", _list_of(kind=_TEXT, value=_TEXT)),
        _field("instance_id", _TEXT, null=True),
        _field("cookie", _BYTES, null=True),  # VERSION, byte for byte
        _field(
            "version_files",
            pa.list_(
                pa.field(
                    "item",
                    pa.struct(
                        [
                            _field("path", _TEXT),
                            _field("inode", _I64),
                            _field("born", _TIME, null=True),  # null: the file system does not keep it
                            _field("mtime", _TIME),
                        ]
                    ),
                    nullable=False,
                )
            ),
        ),
        _field("storage", _TEXT),  # interleaved (Sorted writes the same files), db, mixed, none
        _field("mode", _TEXT),  # disks, wire, table
        _field("dirty", _BOOL, null=True),  # a DIRTY file was there: no clean stop; null: could not be told
        _field("started", _TIME),
        _field("ended", _TIME),
        # The store's last transaction or revision before anything was read or asked; null: only `started` tells.
        _field("as_of", _I64, null=True),
        _field("complete", _BOOL),  # every folder of the cookie was seen and read to its end, and nothing hides entries
        _field("dirs", _list_of(path=_TEXT, role=_TEXT, complete=_BOOL, bytes=_I64, unread=_I64)),
        _field("journals", _list_of(id=_I64, mark=_I64)),  # replay starts here; -1: nowhere in it
        _field("max_ids", _list_of(scope=_I64, ledger=_I64)),  # per scope, unsigned maximum
        _field("ledgers", _I64),
        _field("entries", _I64),
        _field("damaged", _I64),
        _field("expands_storage", _BOOL, null=True),  # allowStorageExpansion; null: its configuration was not read
        _field("stamps_cookies", _BOOL, null=True),  # starts whatever its cookie in the store is; null: the same
    ]
)

DAMAGE: Final = pa.schema(
    [
        _field("bookie", _TEXT),
        _field("incarnation", _I64),
        _field("file", _TEXT),
        _field("offset", _I64, null=True),
        _field("length", _I64, null=True),
        _field("reason", _TEXT),
        _field("scope", _I64, null=True),
        _field("ledger", _I64, null=True),
        _field("hides_entries", _BOOL),  # an entry may stand there that nothing else lists
        _field("detail", _TEXT, null=True),
        _field("hides", _TEXT, null=True),  # nothing, ledger, unlisted, everything; null: as much as hides_entries says
        _field("entries", GROUPS, null=True),  # all that it hides of its ledger; null: more may be hidden
    ]
)

SAMPLES: Final = pa.schema(
    [
        *KEY,
        _field("bookie", _TEXT),
        _field("held", GROUPS),  # entries that it gave when it was asked for them
        _field("entries", _I64),  # of these
        _field("lacks", GROUPS),  # entries of which it said that it has them not
        _field("lacking", _I64),  # of these
        _field("no_ledger", _BOOL),  # it said that it knows no such ledger, so it has none of its entries
        _field("failed", _I64),  # entries that it was asked for, and did not say whether it has them
    ]
)
"""What bookies that give no lists answered to reads of single entries."""

SEGMENTS: Final = pa.list_(
    pa.field("item", pa.struct([_field("first", _I64), _field("members", _TEXTS)]), nullable=False)
)
CUSTOM: Final = _list_of(key=_TEXT, value=_BYTES)

METADATA_FIELDS: Final = (
    _field("format", pa.int8(), null=True),
    _field("state", _TEXT, null=True),
    _field("ensemble_size", _I32, null=True),
    _field("write_quorum", _I32, null=True),
    _field("ack_quorum", _I32, null=True),
    _field("last_entry", _I64, null=True),
    _field("length", _I64, null=True),
    _field("digest", _TEXT, null=True),
    _field("ctime", _I64, null=True),
)

CATALOG_LEDGERS: Final = pa.schema(
    [
        *KEY,
        _field("raw", _BYTES),
        _field("version", _I64),  # the adapter's token
        _field("acl", _TEXT, null=True),
        _field("created_txn", _I64, null=True),
        _field("changed_txn", _I64, null=True),
        _field("created_at", _TIME, null=True),
        _field("changed_at", _TIME, null=True),
        _field("error", _TEXT, null=True),  # why raw cannot be parsed; then all columns below are null
        *METADATA_FIELDS,
        _field("password_hash", _BYTES, null=True),  # SHA-256 of the master key of the stored password
        _field("segments", SEGMENTS, null=True),
        _field("custom", CUSTOM, null=True),
    ]
)

CATALOG_NODES: Final = pa.schema(
    [
        _field("path", _TEXT),  # below the root, with its leading slash
        _field("kind", _TEXT),  # layout, instance_id, cookie, registration, generator, mark, lock, subtree, other
        _field("raw", _BYTES),
        _field("version", _I64),
        _field("acl", _TEXT, null=True),
        _field("created_txn", _I64, null=True),
        _field("changed_txn", _I64, null=True),
        _field("created_at", _TIME, null=True),
        _field("changed_at", _TIME, null=True),
        _field("owner", _I64, null=True),  # session of an ephemeral node
        _field("children_created", _I64, null=True),  # what a sequential child would be numbered next
    ]
)

CATALOG_SOURCES: Final = pa.schema(
    [
        _field("kind", _TEXT),  # zookeeper, …
        _field("uri", _TEXT),
        _field("instance_id", _TEXT, null=True),
        _field("layout", _TEXT, null=True),
        _field("txn", _I64, null=True),
        _field("since_txn", _I64, null=True),  # of a live store: what happened from here to txn is in it or not
        _field("at", _TIME),  # when the source was as the catalog shows it; read then where it does not say
        _field("complete", _BOOL),
        _field("root", _TEXT),  # present, missing
        _field("gaps", _TEXTS),
        _field("notes", _TEXTS, null=True),  # what a person should know of how the point in time was chosen
    ]
)

CATALOG_HISTORY: Final = pa.schema(
    [
        *KEY,
        _field("txn", _I64),
        _field("at", _TIME, null=True),
        _field("session", _I64, null=True),
        _field("op", _TEXT),  # created, changed, deleted
        _field("before", _BYTES, null=True),  # null: absent, or not known any more
        _field("after", _BYTES, null=True),
    ]
)

BACKUP_CHANGES: Final = pa.schema(
    [
        _field("seal", _I64),  # number of the seal that the change was sealed with
        _field("path", _TEXT),  # key of the store, absolute
        _field("txn", _I64),  # transaction, or revision of etcd
        _field("at", _TIME, null=True),  # when it was made; null where the store keeps no times
        _field("received_at", _TIME),
        _field("session", _I64, null=True),  # who made it; on etcd the lease that the key lives or lived with
        _field("op", _TEXT),  # created, changed, deleted; rights, children: the value stays
        _field("before", _BYTES, null=True),  # the whole value until then; null: absent, or not known
        _field("after", _BYTES, null=True),  # the whole value from then on; null: deleted, or it stays
        # The key from then on. Null where it was deleted; else null says: as it was before this change.
        _field("version", _I64, null=True),
        _field("acl", _TEXT, null=True),
        _field("created_txn", _I64, null=True),
        _field("created_at", _TIME, null=True),
        _field("owner", _I64, null=True),  # session or lease that the key lives with: never restored; 0: permanent
        _field("children_created", _I64, null=True),
    ]
)
"""Changes of a backup, in the order in which they happened; what a feed gives is `backends.protocols.FOLLOWED`."""

GRADED: Final = (
    "ensemble_size",
    "write_quorum",
    "ack_quorum",
    "state",
    "last_entry",
    "length",
    "segments",
    "digest",
    "password",
    "ctime",
    "custom",
)
"""The fields that have a grade: observed, verified, snapshot, reference, inferred, assumed, unknown."""

RECONSTRUCTION: Final = pa.schema(
    [
        *KEY,
        _field("class", _TEXT),  # clean, re-replicated, solved, undecided, excluded
        _field("outcome", _TEXT),  # restored, guarded, held, accepted_loss, deleted, waiting
        # One of Refusal's: why it is not restored; what may hide more of a guarded one; what is lost of a restored one.
        _field("reason", _TEXT, null=True),
        # Of what a record is written: proved; likeliest: it serves all that is seen; universal: all who have any.
        _field("reading", _TEXT, null=True),
        *METADATA_FIELDS,
        _field("key", _BYTES, null=True),  # SHA-256 of the ledger's master key; the password itself is never here
        _field(
            "segments",
            pa.list_(
                pa.field(
                    "item",
                    pa.struct(
                        [
                            _field("first", _I64),
                            _field("first_low", _I64),  # the takeover's true start lies in [first_low, first]
                            _field("members", _TEXTS),
                            _field("assumed", pa.list_(_field("item", _BOOL))),  # a position that nothing shows
                        ]
                    ),
                    nullable=False,
                )
            ),
            null=True,
        ),
        _field("custom", CUSTOM, null=True),
        _field("grades", pa.struct([_field(name, _TEXT) for name in GRADED])),
        _field("lac_low", _I64, null=True),  # the largest LAC that anything shows
        _field("acked_high", _I64, null=True),  # no entry above was acknowledged
        _field("missing", _I64),  # copies that the metadata promises and no bookie shows
        _field("extra", _I64),  # copies that the metadata does not explain
        # Entries up to the end that no bookie is seen to serve; null: not looked for, or in too many pieces.
        _field("holes", GROUPS, null=True),
        _field("holders", _TEXTS),  # bookies that hold anything of it in index or journal; else in logs
        _field("highest", _I64, null=True),  # the highest entry on a bookie, in logs too; null: none has any
        _field("alternatives", _list_of(field=_TEXT, value=_TEXT, reads_as=_TEXT, weight=pa.float64())),
        _field("raw", _BYTES, null=True),  # the exact record, where an earlier one is its base
        # What a snapshot's record says and bookies do not show; null: nothing, or there is no such record.
        _field("contradictions", _list_of(field=_TEXT, earlier=_TEXT, bookies=_TEXT), null=True),
    ]
)

FINDINGS: Final = pa.schema(
    [
        _field("id", _BYTES),
        _field("bucket", pa.int16(), null=True),
        _field("scope", _I64, null=True),
        _field("ledger", _I64, null=True),
        _field("segment", _I32, null=True),
        _field("category", _TEXT),
        _field("severity", _TEXT),  # info, warning, critical
        _field("entries", GROUPS),
        _field("bookies", _TEXTS),
        _field("evidence", _list_of(side=_TEXT, field=_TEXT, value=_TEXT, source=_TEXT)),
        _field("unknowns", _TEXTS),
        _field("action_id", _BYTES, null=True),
        _field("run", _TEXT),
        _field("first_seen", _TIME),
        _field("last_seen", _TIME),
        _field("status", _TEXT),
        _field("suppressed_by", _TEXT, null=True),
        _field("subject", _TEXT, null=True),  # of a finding that is of no ledger: a path, a bookie
        _field("suggested", _TEXT, null=True),  # what to do about it
    ]
)

SIDES: Final = pa.schema(
    [
        *KEY,
        _field("on_bookies", _BOOL),
        _field("in_store", _BOOL),
        _field("in_earlier", _BOOL),
        _field("relation", _TEXT),  # one of reconcile.rules.sides.Relation
        _field("right", _TEXT),  # store, earlier, history, bookies, nobody
        _field("deleted_txn", _I64, null=True),
        _field("deleted_at", _TIME, null=True),
        _field("deleted_session", _I64, null=True),
        _field("referenced", _BOOL, null=True),  # an upper layer names it; null: none was asked
        _field("owner", _TEXT, null=True),  # as the upper layer has it
        _field("tombstone", _TEXT, null=True),  # when and by whom bkmeta purged it; null: no tombstone says that
        _field("verdict", _TEXT),  # clean, skipped, undecided, or the category of its gravest finding
    ]
)

ACTIONS: Final = pa.schema(
    [
        _field("bucket", pa.int16()),  # -1: not of one ledger; behind all buckets: a place of `reconcile.plan.actions`
        _field("scope", _I64, null=True),
        _field("ledger", _I64, null=True),
        _field("id", _BYTES),  # SHA-256 of the canonical fields
        _field("seq", _I64),  # order of a restore (docs/operations/safety.md); unique in a plan
        _field("wave", _I32),
        _field("op", _TEXT),  # create, hold, replace, remove, raise; leave: nothing, unless an alternative is chosen
        _field("kind", _TEXT),  # ledger, subtree, node (empty), layout, instance_id, cookie, generator
        _field("key", _TEXT),  # below the root, with its leading slash; with two: anywhere in the store
        _field("value", _BYTES, null=True),
        _field("acl", _TEXT, null=True),
        _field("expects", _I64, null=True),  # version that the write replaces; null: the key is absent
        _field("before", _BYTES, null=True),
        _field("before_hash", _BYTES, null=True),
        _field("finding_id", _BYTES, null=True),
        _field("choice", _I32),
        _field("alternatives", _list_of(label=_TEXT, value=_BYTES, reads_as=_TEXT)),
        # lock: the record is written under a lock that keeps all copies; named: it names all who may have any, and
        # replication stays disabled; release: the lock goes after the record is written; null: nothing of these.
        _field("guard", _TEXT, null=True),
    ]
)

CANDIDATES: Final = pa.schema(
    [
        *KEY,  # of a ledger on bookies that came after the snapshot, and that nothing there names
        _field("topic", _TEXT, null=True),  # tenant/namespace/persistent/topic; null: nothing tells which
        _field("use", _TEXT),  # topic; or what else it is for: cursor NAME, schema, compacted, delayed index, other
        _field("evidence", _TEXT),  # record: its own record says it; entry, producers: its entries; order: its id; none
        _field("source", _TEXT, null=True),  # where that stands; null: nowhere
        _field("detail", _TEXT),  # for people; nothing that a payload says
        _field("node", _BYTES, null=True),  # record of the node that names it; null: it is appended to the topic's
    ]
)

IMPACTS: Final = pa.schema(
    [
        *KEY,
        _field("segment", _I32),
        _field("first", _I64),
        _field("last", _I64, null=True),  # null: it may still grow
        _field("impact", _TEXT),  # one of reconcile.check.impact.names.Impact
        _field("already", _BOOL),  # whatever is taken
        _field("target", _TEXT, null=True),  # the bookies or the domain that are taken; null: nothing is
    ]
)

VERDICTS: Final = pa.schema(
    [
        *KEY,
        _field("verdict", _TEXT),  # clean, skipped, undecided, or the category of its gravest finding
        _field("reason", _TEXT, null=True),  # why skipped or undecided
    ]
)

MISSING: Final = pa.schema(
    [
        *KEY,
        _field("bookie", _TEXT),  # its id; the ledger's record names it
        _field("entries", _I64),
        _field("groups", GROUPS),  # entries that the record asks of the bookie, and that it was seen to lack
        _field("record_txn", _I64, null=True),  # the store's transaction that last changed the record; null: unknown
        _field("seen", _TIME),  # begin of the run that saw it
    ]
)

WIPED: Final = pa.schema(
    [
        _field("bookie", _TEXT),
        _field("before_txn", _I64),  # what records ask of it that have not changed since this transaction it had lost
        _field("cookie_txn", _I64, null=True),  # the transaction that made its cookie
        _field("earlier_cookie_txn", _I64, null=True),  # likewise of the cookie that an earlier run saw
        _field("evidence", _TEXT),  # cookie: newer than records whose entries it lacks; empty: it has nothing at all
        _field("since", _TIME),  # begin of the first run that saw it
        _field("ledgers", _I64),  # of the run's share: closed ledgers with such records, of which it lacks entries
    ]
)

DRILLS: Final = pa.schema(
    [
        *KEY,
        _field("class", _TEXT),  # one of reconcile.check.records.drill.Class
        _field("reason", _TEXT, null=True),
        _field("entries_lost", _I64),  # that are readable now, and would not be
        _field("differs", _TEXTS),  # fields in which the record would be another one
    ]
)

BOOKIE_LEDGERS: Final = pa.schema(
    [
        *KEY,
        _field("listed", _BOOL),  # the store has a record
        _field("state", _TEXT, null=True),  # of it
        _field("segments", pa.list_(_field("item", _I32))),  # numbers of those whose ensembles name the bookie
        _field("due", _I64, null=True),  # entries that the record asks of it; null: open, or it cannot be read
        _field("held", _I64),  # entries that it would serve
        _field("only", _I64),  # of these, those that no other bookie that was collected would serve
    ]
)

INVENTORY: Final = {"copies": COPIES, "bookies": BOOKIES, "damage": DAMAGE}
CATALOG: Final = {
    "ledgers": CATALOG_LEDGERS,
    "nodes": CATALOG_NODES,
    "sources": CATALOG_SOURCES,
    "history": CATALOG_HISTORY,
    "own_root": CATALOG_NODES,  # of bkmeta's own root beside the ledgers root; paths begin with its suffix
    "subtrees": CATALOG_NODES,  # of upper layers, where they were asked for; paths are the store's
}
PLAN: Final = {
    "actions": ACTIONS,
    "findings": FINDINGS,
    "reconstruction": RECONSTRUCTION,
    "sides": SIDES,
    "candidates": CANDIDATES,  # of ledgers that no topic names, where nodes of Pulsar's are brought back
}
SCRUTINY: Final = {"findings": FINDINGS, "verdicts": VERDICTS, "missing": MISSING, "wiped": WIPED}


def _numbers(*names: str) -> pa.Schema:
    return pa.schema([*KEY, *(_field(name, _I64) for name in names)])


_GROUP: Final = ("first", "last", "size", "period")
_HEAD: Final = ("entry", "lac", "length", "size", "digest")  # digest: number of the type that verified; -1: none

AGAIN: Final = {
    "files": pa.schema(
        [
            _field("number", _I64),
            _field("path", _TEXT),
            _field("kind", _TEXT),  # log, journal, database
            _field("id", _I64),  # of a log; of a database's file the number of the index
            _field("mark", _I64),  # of a journal: replay starts here; -1: nowhere in it
            _field("newest", _BOOL),  # of the journals of its folder
            _field("listed", _BOOL),  # a log has a ledgers map
            _field("read", _BOOL),  # it was gone through
            _field("sound", _BOOL),  # no damage
            _field("largest", _I64),  # ledger id of the map
            _field("met", _I64),  # largest ledger id of a record
            _field("inode", _I64),  # all four -1: the file was written too late to tell whether it changes again
            _field("size", _I64),
            _field("mtime", _I64),  # ns
            _field("ctime", _I64),  # ns
        ]
    ),
    # Of a database inode is the hash of the ledger's slots, size their number, and the times are 0.
    "ledgers": _numbers("source", "inode", "size", "mtime", "ctime"),
    "groups": _numbers(*_GROUP),
    "heads": _numbers(*_HEAD),
    "slots": _numbers("log"),  # the logs that a ledger's slots name
    "facts": pa.schema(
        [
            *_numbers("source", "fenced", "limbo"),
            _field("key", _BYTES, null=True),  # SHA-256; zero and empty keys as one zero byte, as none
            _field("lac", _BYTES, null=True),
        ]
    ),
    "held": _numbers("file", "ahead", *_GROUP),  # by logs and journals; ahead: behind the mark
    "listed": _numbers("file"),  # in the ledgers map of a log
    "file_heads": _numbers("file", *_HEAD, "position"),  # of the entry's first byte
    "specials": pa.schema([*_numbers("file", "kind"), _field("raw", _BYTES, null=True), _field("lac", _I64)]),
}
"""What `recovery.collect.incremental` keeps beside an inventory."""
IMPACT: Final = {"impacts": IMPACTS}
ORPHANS: Final = {"findings": FINDINGS}
BOOKIE_LISTS: Final = ("named", "held", "only", "lacking", "strays", "unlisted")
"""Files of ledger ids beside BOOKIE_LEDGERS."""
KINDS: Final = {
    "inventory": INVENTORY,
    "catalog": CATALOG,
    "plan": PLAN,
    "again": AGAIN,
    "impact": IMPACT,
    "scrutiny": SCRUTINY,
    "samples": {"samples": SAMPLES},
    "orphans": ORPHANS,
    "drill": {"drills": DRILLS},
    "bookie": {"ledgers": BOOKIE_LEDGERS},
    "backup": {"changes": BACKUP_CHANGES},
}
"""Tables of each kind of dataset."""
