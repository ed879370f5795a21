"""The Arrow schemas of everything that crosses a boundary: the one source of every dataset's columns.

Ids are signed 64-bit patterns (Spark has no unsigned integers). `KEY` columns come first wherever rows belong to a
ledger; such tables are sorted by (bucket, scope, ledger) in their datasets. What a field `says` is in
the footer of each file.
"""

from typing import Final

import pyarrow as pa

SCHEMA_VERSION: Final = (1, 13)
"""Major, minor: readers take any minor of the same major."""

COMMENT: Final = b"comment"
"""Key of a field's metadata in the footer of each file: the description of the column."""


def _field(name: str, kind: pa.DataType, *, null: bool = False, says: str = "") -> pa.Field:
    return pa.field(name, kind, nullable=null, metadata={COMMENT: says.encode()} if says else None)


def _list_of(**fields: pa.DataType) -> pa.ListType:
    return pa.list_(pa.field("item", pa.struct([_field(k, v) for k, v in fields.items()]), nullable=False))


_I32: Final = pa.int32()
_I64: Final = pa.int64()
_TEXT: Final = pa.string()
_BYTES: Final = pa.binary()
_BOOL: Final = pa.bool_()
_TIME: Final = pa.timestamp("us", tz="UTC")
_TEXTS: Final = pa.list_(_field("item", _TEXT))

KEY: Final = (
    _field("bucket", pa.int16(), says="0 to 4095, from a hash of the id: what rows are sorted and cut by"),
    _field("scope", _I64, says="upper half of the 128-bit id; 0 today"),
    _field("ledger", _I64, says="lower half of the 128-bit id, signed"),
)
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
                _field("length", _I64, says="cumulative payload bytes, this entry included"),
                _field("size", _I64, says="bytes of the whole entry, header and digest included"),
                _field("digest", _TEXT, null=True, says="the type that verified; null: none did"),
            ]
        ),
        nullable=False,
    )
)

COPIES: Final = pa.schema(
    [
        *KEY,
        _field("bookie", _TEXT, says="id of the bookie"),
        _field("incarnation", _I64, says="number of the bookie's cookie: another one after its disks were wiped"),
        _field("source", _TEXT, says="index, log, journal, wire; each lists only what stronger ones lack"),
        _field("part", _I32, says="at most GROUPS_PER_ROW groups a row; facts of the ledger are in part 0"),
        _field("groups", GROUPS, says="regrouped by us, disjoint, ascending; empty is evidence too"),
        _field("entries", _I64, says="how many the groups have"),
        _field("first", _I64, null=True, says="lowest entry; null: none"),
        _field("last", _I64, null=True, says="highest entry; null: none"),
        _field(
            "g_first",
            _I64,
            null=True,
            says="first entry of the largest group: most entries, then the lower first; flat, and fast to read",
        ),
        _field("g_last", _I64, null=True, says="its last run's first entry"),
        _field("g_size", _I64, null=True, says="entries of each run"),
        _field("g_period", _I64, null=True, says="entries from one run's begin to the next"),
        _field("g_count", _I64, says="how many groups there are, in all parts"),
        _field("complete", _BOOL, says="absence of other entries on this bookie may be believed"),
        _field("fenced", _BOOL, says="false says nothing"),
        _field("limbo", _BOOL, says="the bookie does not know what it lacks: it was not stopped cleanly"),
        _field("key_kind", _TEXT, says="absent, empty, zero, set"),
        _field("key", _BYTES, null=True, says="SHA-256 of the stored master key, where key_kind = set"),
        _field("explicit_lac", _I64, null=True, says="last add confirmed that a client stored by itself"),
        _field("lac_record", _BYTES, null=True, says="as stored, at most 36 bytes"),
        _field("headers", HEADERS, says="confirmed reads; at least of the last entry held"),
    ]
)
GROUPS_PER_ROW: Final = 65_536

BOOKIES: Final = pa.schema(
    [
        _field("bookie", _TEXT, says="id of the bookie"),
        _field("incarnation", _I64, says="number of the bookie's cookie: another one after its disks were wiped"),
        _field(
            "incarnation_evidence", _list_of(kind=_TEXT, value=_TEXT), says="what tells the incarnation, and its value"
        ),
        _field("instance_id", _TEXT, null=True, says="of its cluster, as its cookie has it"),
        _field("cookie", _BYTES, null=True, says="VERSION, byte for byte"),
        _field(
            "version_files",
            pa.list_(
                pa.field(
                    "item",
                    pa.struct(
                        [
                            _field("path", _TEXT),
                            _field("inode", _I64),
                            _field("born", _TIME, null=True, says="null: the file system does not keep it"),
                            _field("mtime", _TIME),
                        ]
                    ),
                    nullable=False,
                )
            ),
            says="copies of its cookie that were found",
        ),
        _field("storage", _TEXT, says="interleaved (Sorted writes the same files), db, mixed, none"),
        _field("mode", _TEXT, says="disks, wire, table"),
        _field("dirty", _BOOL, null=True, says="a DIRTY file exists: no clean stop; null: not known"),
        _field("started", _TIME, says="when the collection began"),
        _field("ended", _TIME, says="when the collection ended"),
        _field(
            "as_of",
            _I64,
            null=True,
            says="the store's last transaction or revision before anything was read; null: only `started` tells",
        ),
        _field(
            "complete", _BOOL, says="every folder of the cookie was seen and read to its end, and nothing hides entries"
        ),
        _field(
            "dirs",
            _list_of(path=_TEXT, role=_TEXT, complete=_BOOL, bytes=_I64, unread=_I64),
            says="its folders, each with bytes read and files not read",
        ),
        _field("journals", _list_of(id=_I64, mark=_I64), says="replay starts here; -1: nowhere in it"),
        _field("max_ids", _list_of(scope=_I64, ledger=_I64), says="per scope, unsigned maximum"),
        _field("ledgers", _I64, says="how many it has in any source"),
        _field("entries", _I64, says="how many it has in index or journal"),
        _field("damaged", _I64, says="rows of its damage"),
        _field("expands_storage", _BOOL, null=True, says="allowStorageExpansion; null: its configuration was not read"),
        _field("stamps_cookies", _BOOL, null=True, says="starts whatever its cookie in the store is; null: the same"),
        _field(
            "gaps_named",
            _BOOL,
            null=True,
            says="every folder was read to its end, and whatever hides entries names the ledger; null: as `complete`",
        ),
    ]
)

DAMAGE: Final = pa.schema(
    [
        _field("bookie", _TEXT, says="id of the bookie"),
        _field("incarnation", _I64, says="number of the bookie's cookie: another one after its disks were wiped"),
        _field("file", _TEXT, says="path on the bookie"),
        _field("offset", _I64, null=True, says="of the damage, in bytes; null: the whole file"),
        _field("length", _I64, null=True, says="of the damage, in bytes; null: to the end"),
        _field("reason", _TEXT, says="kind of damage: one of recovery.errors.Reason"),
        _field("scope", _I64, null=True, says="of the ledger it is about; null: no one ledger"),
        _field("ledger", _I64, null=True, says="that it is about; null: no one ledger"),
        _field("hides_entries", _BOOL, says="there may be an entry that nothing else lists"),
        _field("detail", _TEXT, null=True, says="for people"),
        _field(
            "hides", _TEXT, null=True, says="nothing, ledger, unlisted, everything; null: as much as hides_entries says"
        ),
        _field("entries", GROUPS, null=True, says="all that it hides of its ledger; null: more may be hidden"),
    ]
)

SAMPLES: Final = pa.schema(
    [
        *KEY,
        _field("bookie", _TEXT, says="id of the bookie"),
        _field("held", GROUPS, says="entries that it gave when it was asked for them"),
        _field("entries", _I64, says="how many it gave"),
        _field("lacks", GROUPS, says="entries that it said it does not have"),
        _field("lacking", _I64, says="how many it lacks"),
        _field("no_ledger", _BOOL, says="it said that it knows no such ledger, so it has none of its entries"),
        _field("failed", _I64, says="entries that it was asked for, and did not say whether it has them"),
    ]
)
"""Answers to reads of single entries, from bookies without lists."""

SEGMENTS: Final = pa.list_(
    pa.field("item", pa.struct([_field("first", _I64), _field("members", _TEXTS)]), nullable=False)
)
CUSTOM: Final = _list_of(key=_TEXT, value=_BYTES)

METADATA_FIELDS: Final = (
    _field("format", pa.int8(), null=True, says="of the record: 1 lines, 2 protobuf as text, 3 protobuf"),
    _field("state", _TEXT, null=True, says="OPEN, IN_RECOVERY or CLOSED"),
    _field("ensemble_size", _I32, null=True, says="E: bookies of a segment"),
    _field("write_quorum", _I32, null=True, says="W: copies of an entry"),
    _field("ack_quorum", _I32, null=True, says="A: copies that acknowledge an entry"),
    _field("last_entry", _I64, null=True, says="of a closed ledger; -1: it has none"),
    _field("length", _I64, null=True, says="bytes of all payloads of a closed ledger"),
    _field("digest", _TEXT, null=True, says="how entries are checked: CRC32, CRC32C, HMAC or DUMMY"),
    _field("ctime", _I64, null=True, says="when the ledger was made, in ms since 1970"),
)

CATALOG_LEDGERS: Final = pa.schema(
    [
        *KEY,
        _field("raw", _BYTES, says="the record, byte for byte"),
        _field("version", _I64, says="the adapter's token"),
        _field("acl", _TEXT, null=True, says="rights of the node, as JSON; null: not read"),
        _field("created_txn", _I64, null=True, says="transaction or revision that made it"),
        _field("changed_txn", _I64, null=True, says="transaction or revision that changed it last"),
        _field("created_at", _TIME, null=True, says="when it was made, by the store's clock"),
        _field("changed_at", _TIME, null=True, says="when it was changed last, by the store's clock"),
        _field("error", _TEXT, null=True, says="why raw cannot be parsed; then all columns below are null"),
        *METADATA_FIELDS,
        _field("password_hash", _BYTES, null=True, says="SHA-256 of the master key of the stored password"),
        _field("segments", SEGMENTS, null=True, says="first entry and members of each segment"),
        _field("custom", CUSTOM, null=True, says="custom metadata"),
    ]
)

ARCHIVED: Final = pa.schema(
    [
        *KEY,
        _field("record", _BYTES),  # as the store had it: with its password
        _field("last_entry", _I64),
        _field("length", _I64),  # payload bytes, as its record says
        _field("digest", _TEXT, null=True),
        _field("ctime", _I64, null=True),
        _field("password_hash", _BYTES, null=True),  # as in CATALOG_LEDGERS
        _field("topic", _TEXT, null=True),  # tenant/namespace/persistent/topic whose messages it has
        _field("size", _I64),  # bytes of its entries, each behind its size: `recovery/codecs/entry_frames.py`
        _field("sha256", _TEXT),  # of these bytes
        # Where they are, in their order: the bytes of an object, the entries in them, the SHA-256 of these bytes.
        _field("pieces", _list_of(object=_TEXT, offset=_I64, size=_I64, first=_I64, last=_I64, sha256=_TEXT)),
    ]
)
"""The index of an archive: a ledger is in it once all its entries are in objects."""

UNUSED_COPIES: Final = pa.schema(
    [
        *KEY,
        _field("bookie", _TEXT),  # as the record names it
        _field("first", _I64),
        _field("last", _I64),
        _field("entries", _I64),  # between both, asked of that bookie with this result
        _field("problem", _TEXT),  # damaged, absent, unanswered, unproven
        _field("detail", _TEXT, null=True),
    ]
)
"""Copies that an archive left out, with the reason."""

CATALOG_NODES: Final = pa.schema(
    [
        _field("path", _TEXT, says="below the root, with its leading slash"),
        _field("kind", _TEXT, says="layout, instance_id, cookie, registration, generator, mark, lock, subtree, other"),
        _field("raw", _BYTES, says="its value, byte for byte"),
        _field("version", _I64, says="token for a compare-and-set"),
        _field("acl", _TEXT, null=True, says="rights of the node, as JSON; null: not read"),
        _field("created_txn", _I64, null=True, says="transaction or revision that made it"),
        _field("changed_txn", _I64, null=True, says="transaction or revision that changed it last"),
        _field("created_at", _TIME, null=True, says="when it was made, by the store's clock"),
        _field("changed_at", _TIME, null=True, says="when it was changed last, by the store's clock"),
        _field("owner", _I64, null=True, says="session of an ephemeral node"),
        _field("children_created", _I64, null=True, says="what a sequential child would be numbered next"),
    ]
)

CATALOG_SOURCES: Final = pa.schema(
    [
        _field("kind", _TEXT, says="zookeeper, …"),
        _field("uri", _TEXT, says="of the store or its files"),
        _field("instance_id", _TEXT, null=True, says="of the cluster"),
        _field("layout", _TEXT, null=True, says="of the ledgers"),
        _field("txn", _I64, null=True, says="last transaction or revision that is in it"),
        _field("since_txn", _I64, null=True, says="of a live store: what happened from here to txn is in it or not"),
        _field("at", _TIME, says="when the source was as the catalog shows it; read then where it does not say"),
        _field("complete", _BOOL, says="nothing is missing"),
        _field("root", _TEXT, says="present, missing"),
        _field("gaps", _TEXTS, says="what could not be read"),
        _field("notes", _TEXTS, null=True, says="what a person should know of how the point in time was chosen"),
    ]
)

CATALOG_HISTORY: Final = pa.schema(
    [
        *KEY,
        _field("txn", _I64, says="transaction or revision of the change"),
        _field("at", _TIME, null=True, says="when, by the store's clock"),
        _field("session", _I64, null=True, says="that made it"),
        _field("op", _TEXT, says="created, changed, deleted"),
        _field("before", _BYTES, null=True, says="null: absent, or not known any more"),
        _field("after", _BYTES, null=True, says="record then; null: absent"),
    ]
)

BACKUP_CHANGES: Final = pa.schema(
    [
        _field("seal", _I64, says="number of the seal that the change was sealed with"),
        _field("path", _TEXT, says="key of the store, absolute"),
        _field("txn", _I64, says="transaction, or revision of etcd"),
        _field("at", _TIME, null=True, says="when it was made; null where the store keeps no times"),
        _field("received_at", _TIME, says="when the backup had it"),
        _field("session", _I64, null=True, says="who made it; on etcd the lease that the key lives or lived with"),
        _field("op", _TEXT, says="created, changed, deleted; rights, children: the value stays"),
        _field("before", _BYTES, null=True, says="the whole value until then; null: absent, or not known"),
        _field("after", _BYTES, null=True, says="the whole value from then on; null: deleted, or it stays"),
        _field(
            "version",
            _I64,
            null=True,
            says="of the key from then on; null: deleted, or as before; the same of the columns below",
        ),
        _field("acl", _TEXT, null=True, says="rights of the key, as JSON"),
        _field("created_txn", _I64, null=True, says="transaction that made the key"),
        _field("created_at", _TIME, null=True, says="when the key was made"),
        _field("owner", _I64, null=True, says="session or lease that the key lives with: never restored; 0: permanent"),
        _field("children_created", _I64, null=True, says="what a sequential child would be numbered next"),
    ]
)
"""Changes of a backup, in their order in time; a feed returns `backends.protocols.FOLLOWED`.

From `version` on, the key as it is then: null where it was deleted; else null says that it is as it was before.
"""

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
        _field("class", _TEXT, says="clean, re-replicated, solved, undecided, excluded"),
        _field("outcome", _TEXT, says="restored, guarded, held, accepted_loss, deleted, waiting"),
        _field(
            "reason",
            _TEXT,
            null=True,
            says="why it is not restored; what may hide more of a guarded ledger; what is lost of a restored one",
        ),
        _field(
            "reading",
            _TEXT,
            null=True,
            says="proved; likeliest: it serves all that is seen; universal: it names all bookies that have any",
        ),
        *METADATA_FIELDS,
        _field("key", _BYTES, null=True, says="SHA-256 of the ledger's master key; the password itself is never here"),
        _field(
            "segments",
            pa.list_(
                pa.field(
                    "item",
                    pa.struct(
                        [
                            _field("first", _I64),
                            _field("first_low", _I64, says="the takeover's true start lies in [first_low, first]"),
                            _field("members", _TEXTS),
                            _field("assumed", pa.list_(_field("item", _BOOL)), says="a position that nothing shows"),
                        ]
                    ),
                    nullable=False,
                )
            ),
            null=True,
            says="ensembles, each with its first entry",
        ),
        _field("custom", CUSTOM, null=True, says="custom metadata"),
        _field("grades", pa.struct([_field(name, _TEXT) for name in GRADED]), says="how sure each field is"),
        _field("lac_low", _I64, null=True, says="the largest LAC that anything shows"),
        _field("acked_high", _I64, null=True, says="no entry above was acknowledged"),
        _field("missing", _I64, says="copies that the metadata promises and no bookie shows"),
        _field("extra", _I64, says="copies that the metadata does not explain"),
        _field(
            "holes",
            GROUPS,
            null=True,
            says="entries up to the end that no bookie is seen to serve; null: not looked for, or in too many pieces.",
        ),
        _field("holders", _TEXTS, says="bookies that hold anything of it in index or journal; else in logs"),
        _field("highest", _I64, null=True, says="the highest entry on a bookie, in logs too; null: none has any"),
        _field(
            "alternatives",
            _list_of(field=_TEXT, value=_TEXT, reads_as=_TEXT, weight=pa.float64()),
            says="other values that a field may have",
        ),
        _field("raw", _BYTES, null=True, says="the exact record, where an earlier one is its base"),
        _field(
            "contradictions",
            _list_of(field=_TEXT, earlier=_TEXT, bookies=_TEXT),
            null=True,
            says="what a snapshot's record says and bookies do not show; null: nothing, or there is no such record.",
        ),
    ]
)

FINDINGS: Final = pa.schema(
    [
        _field("id", _BYTES, says="the same in each run that finds it"),
        _field("bucket", pa.int16(), null=True, says="of its ledger; null: of no ledger"),
        _field("scope", _I64, null=True, says="of its ledger; null: of no ledger"),
        _field("ledger", _I64, null=True, says="its ledger; null: of no ledger"),
        _field("segment", _I32, null=True, says="number of the segment, from 0; null: of no segment"),
        _field("category", _TEXT, says="one of reconcile.findings.categories.Category"),
        _field("severity", _TEXT, says="info, warning, critical"),
        _field("entries", GROUPS, says="that it is about"),
        _field("bookies", _TEXTS, says="that it is about"),
        _field(
            "evidence",
            _list_of(side=_TEXT, field=_TEXT, value=_TEXT, source=_TEXT),
            says="what was seen, by side and field",
        ),
        _field("unknowns", _TEXTS, says="what could not be seen"),
        _field("action_id", _BYTES, null=True, says="action of the plan that settles it"),
        _field("run", _TEXT, says="that made it"),
        _field("first_seen", _TIME, says="begin of the first run that found it"),
        _field("last_seen", _TIME, says="begin of the last run that found it"),
        _field("status", _TEXT, says="new, open or suppressed"),
        _field("suppressed_by", _TEXT, null=True, says="entry of the list of suppressions"),
        _field("subject", _TEXT, null=True, says="of a finding that is of no ledger: a path, a bookie"),
        _field("suggested", _TEXT, null=True, says="what to do about it"),
    ]
)

SIDES: Final = pa.schema(
    [
        *KEY,
        _field("on_bookies", _BOOL, says="a bookie has something of it"),
        _field("in_store", _BOOL, says="the store has a record"),
        _field("in_earlier", _BOOL, says="a snapshot has a record"),
        _field("relation", _TEXT, says="one of reconcile.rules.sides.Relation"),
        _field("right", _TEXT, says="store, earlier, history, bookies, nobody"),
        _field("deleted_txn", _I64, null=True, says="transaction of its last deletion"),
        _field("deleted_at", _TIME, null=True, says="time of its last deletion"),
        _field("deleted_session", _I64, null=True, says="session of its last deletion"),
        _field("referenced", _BOOL, null=True, says="an upper layer names it; null: none was asked"),
        _field("owner", _TEXT, null=True, says="as the upper layer has it"),
        _field("tombstone", _TEXT, null=True, says="when and by whom bkmeta purged it; null: no tombstone says that"),
        _field("verdict", _TEXT, says="clean, skipped, undecided, or the category of its gravest finding"),
    ]
)

ACTIONS: Final = pa.schema(
    [
        _field(
            "bucket", pa.int16(), says="-1: not of one ledger; behind all buckets: a place of `reconcile.plan.actions`"
        ),
        _field("scope", _I64, null=True, says="of its ledger; null: of no ledger"),
        _field("ledger", _I64, null=True, says="its ledger; null: of no ledger"),
        _field("id", _BYTES, says="SHA-256 of the canonical fields"),
        _field("seq", _I64, says="order of a restore (docs/operations/safety.md); unique in a plan"),
        _field("wave", _I32, says="in which it is written; 0 before `plan split`"),
        _field(
            "op", _TEXT, says="create, hold, replace, remove, raise; leave: nothing, unless an alternative is chosen"
        ),
        _field("kind", _TEXT, says="ledger, subtree, node (empty), layout, instance_id, cookie, generator"),
        _field("key", _TEXT, says="below the root, with its leading slash; with two: anywhere in the store"),
        _field("value", _BYTES, null=True, says="bytes to write"),
        _field("acl", _TEXT, null=True, says="rights to set, as JSON"),
        _field("expects", _I64, null=True, says="version that the write replaces; null: the key is absent"),
        _field("before", _BYTES, null=True, says="bytes that the write replaces"),
        _field("before_hash", _BYTES, null=True, says="SHA-256 of these"),
        _field("finding_id", _BYTES, null=True, says="that it settles"),
        _field("choice", _I32, says="number of the alternative that was chosen; -1: none"),
        _field(
            "alternatives", _list_of(label=_TEXT, value=_BYTES, reads_as=_TEXT), says="what a person may choose instead"
        ),
        _field(
            "guard",
            _TEXT,
            null=True,
            says="lock: a lock keeps all copies; named: the record names all who may have any; release: a lock goes",
        ),
    ]
)

CANDIDATES: Final = pa.schema(
    [
        *KEY,  # of a ledger on bookies that came after the snapshot, and that nothing there names
        _field("topic", _TEXT, null=True, says="tenant/namespace/persistent/topic; null: nothing tells which"),
        _field(
            "use", _TEXT, says="topic; or what else it is for: cursor NAME, schema, compacted, delayed index, other"
        ),
        _field(
            "evidence", _TEXT, says="record: its own record says it; entry, producers: its entries; order: its id; none"
        ),
        _field("source", _TEXT, null=True, says="where that is; null: nowhere"),
        _field("detail", _TEXT, says="for people; nothing that a payload says"),
        _field("node", _BYTES, null=True, says="record of the node that names it; null: it is appended to the topic's"),
    ]
)

IMPACTS: Final = pa.schema(
    [
        *KEY,
        _field("segment", _I32, says="number of the segment, from 0"),
        _field("first", _I64, says="entry of the segment"),
        _field("last", _I64, null=True, says="null: it may still grow"),
        _field("impact", _TEXT, says="one of reconcile.check.impact.names.Impact"),
        _field("already", _BOOL, says="whatever is taken"),
        _field("target", _TEXT, null=True, says="the bookies or the domain that are taken; null: nothing is"),
    ]
)

VERDICTS: Final = pa.schema(
    [
        *KEY,
        _field("verdict", _TEXT, says="clean, skipped, undecided, or the category of its gravest finding"),
        _field("reason", _TEXT, null=True, says="why skipped or undecided"),
    ]
)

MISSING: Final = pa.schema(
    [
        *KEY,
        _field("bookie", _TEXT, says="its id; the ledger's record names it"),
        _field("entries", _I64, says="how many it lacks"),
        _field("groups", GROUPS, says="entries that the record asks of the bookie, and that it was seen to lack"),
        _field(
            "record_txn", _I64, null=True, says="the store's transaction that last changed the record; null: unknown"
        ),
        _field("seen", _TIME, says="begin of the run that saw it"),
    ]
)

WIPED: Final = pa.schema(
    [
        _field("bookie", _TEXT, says="id of the bookie"),
        _field(
            "before_txn", _I64, says="what records ask of it that have not changed since this transaction it had lost"
        ),
        _field("cookie_txn", _I64, null=True, says="the transaction that made its cookie"),
        _field("earlier_cookie_txn", _I64, null=True, says="likewise of the cookie that an earlier run saw"),
        _field(
            "evidence", _TEXT, says="cookie: newer than records whose entries it lacks; empty: it has nothing at all"
        ),
        _field("since", _TIME, says="begin of the first run that saw it"),
        _field("ledgers", _I64, says="of the run's share: closed ledgers with such records, of which it lacks entries"),
    ]
)

READS: Final = pa.schema(
    [
        *KEY,
        _field("bookie", _TEXT, says="its id"),
        _field("held", GROUPS, says="entries that it gave when it was asked for them"),
        _field("entries", _I64, says="how many these are"),
        _field("record_txn", _I64, says="the store's transaction that last changed the ledger's record"),
        _field("run", _I64, says="number of the run that read them, of those of its share"),
        _field("read", _TIME, says="begin of that run"),
    ]
)
"""Answers of bookies without lists in the last N runs of sampled reads, for the next run."""

DRILLS: Final = pa.schema(
    [
        *KEY,
        _field("class", _TEXT, says="one of reconcile.check.records.drill.Class"),
        _field("reason", _TEXT, null=True, says="why it is in that class"),
        _field("entries_lost", _I64, says="that are readable now, and would not be"),
        _field("differs", _TEXTS, says="fields in which the record would be another one"),
    ]
)

BOOKIE_LEDGERS: Final = pa.schema(
    [
        *KEY,
        _field("listed", _BOOL, says="the store has a record"),
        _field("state", _TEXT, null=True, says="of the record"),
        _field("segments", pa.list_(_field("item", _I32)), says="numbers of those whose ensembles name the bookie"),
        _field("due", _I64, null=True, says="entries that the record asks of it; null: open, or it cannot be read"),
        _field("held", _I64, says="entries that it would serve"),
        _field("only", _I64, says="of these, those that no other bookie that was collected would serve"),
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
SCRUTINY: Final = {"findings": FINDINGS, "verdicts": VERDICTS, "missing": MISSING, "wiped": WIPED, "reads": READS}


def _numbers(*names: str) -> pa.Schema:
    return pa.schema([*KEY, *(_field(name, _I64) for name in names)])


_GROUP: Final = ("first", "last", "size", "period")
_HEAD: Final = ("entry", "lac", "length", "size", "digest")  # digest: number of the type that verified; -1: none

AGAIN: Final = {
    "files": pa.schema(
        [
            _field("number", _I64),
            _field("path", _TEXT),
            _field("kind", _TEXT, says="log, journal, database"),
            _field("id", _I64, says="of a log; of a database's file the number of the index"),
            _field("mark", _I64, says="of a journal: replay starts here; -1: nowhere in it"),
            _field("newest", _BOOL, says="of the journals of its folder"),
            _field("listed", _BOOL, says="a log has a ledgers map"),
            _field("read", _BOOL, says="it was gone through"),
            _field("sound", _BOOL, says="no damage"),
            _field("largest", _I64, says="ledger id of the map"),
            _field("met", _I64, says="largest ledger id of a record"),
            _field("inode", _I64, says="all four -1: the file was written too late to tell whether it changes again"),
            _field("size", _I64),
            _field("mtime", _I64, says="ns"),
            _field("ctime", _I64, says="ns"),
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
            _field("key", _BYTES, null=True, says="SHA-256; zero and empty keys as one zero byte, as none"),
            _field("lac", _BYTES, null=True),
        ]
    ),
    "held": _numbers("file", "ahead", *_GROUP),  # by logs and journals; ahead: behind the mark
    "listed": _numbers("file"),  # in the ledgers map of a log
    "file_heads": _numbers("file", *_HEAD, "position"),  # of the entry's first byte
    "specials": pa.schema([*_numbers("file", "kind"), _field("raw", _BYTES, null=True), _field("lac", _I64)]),
}
"""The results that `recovery.collect.incremental` keeps beside an inventory."""
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


def add_comments(table_name: str, schema: pa.Schema) -> pa.Schema:
    """Return the schema of a table with its columns' descriptions; unchanged if no dataset has such a table."""
    known = (named[table_name] for named in KINDS.values() if table_name in named)
    return next((one for one in known if one.equals(schema)), schema)
