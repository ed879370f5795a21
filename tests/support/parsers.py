"""Every parser of bytes that others wrote, with real bytes to begin from."""

import base64
import functools
import gzip
import hashlib
import json
import os
import shutil
import socket
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Final

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.message import DecodeError

from backends.bookie import frames
from backends.bookie.frames import Conversation
from backends.errors import BackendError
from backends.etcd import columns as etcd_columns
from backends.etcd.etcdfile import EtcdFile
from backends.protocols import Write
from backends.registry import parse_store_uri
from backends.rocks import open_read_only
from backends.zkfiles import txnlog
from backends.zkfiles.committed import parse_voters
from backends.zkfiles.records import MalformedError, decode
from backends.zkfiles.store import ZooKeeperFiles, parse_at
from backends.zkfiles.tail import LogTail
from backends.zookeeper.acl_stream import AclStream
from reconcile import references
from reconcile.check import placement_files
from reconcile.check.impact.segments import copies
from reconcile.check.preflight import gc_settings
from reconcile.check.scrutiny.lifecycle import read_suppressions
from reconcile.cli.commands.check_impact import read_weights
from reconcile.cli.options import read_aliases, read_names, read_passwords
from reconcile.errors import ReconcileError
from reconcile.jobs.diagnose.audit import read_journal
from reconcile.plan import plan_reader
from reconcile.plan.waves import parse_waves
from reconcile.write import audit_journal, rehearse, undo
from reconcile.write.freezing import freeze
from recovery.archive.objects import ARCHIVE_FILE
from recovery.archive.reader import About, read_about
from recovery.codecs import (
    cookie,
    entry,
    entry_log,
    index_file,
    journal,
    keys,
    ledger_db,
    ledger_metadata,
    ledger_record,
    log_records,
    managed_ledger,
    pulsar_message,
    pulsar_schema,
    registration,
    replication_lock,
    store,
)
from recovery.codecs._pb.pulsar_message_pb2 import MessageMetadata, SingleMessageMetadata
from recovery.codecs.entry_frames import join_frames, read_headers, split_frames
from recovery.collect.disk.bookie_conf import read_conf
from recovery.dataset import MANIFEST, open_dataset
from recovery.errors import DatasetError, InputError, RecoveryError
from recovery.infer.references import SCHEMA
from recovery.inspect.bookie_file import look
from recovery.inspect.byte_account import account_for
from recovery.manifest import digest_of
from recovery.model import groups, ids
from recovery.model.metadata import Digest
from tests.simulation.bookie_dir_scoped import Held
from tests.support import paths
from tests.support.bookie_files import cookies, entry_logs, index_files, journals, last_marks
from tests.support.cases import NAMES, case_dir
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger, write_plan

DATA: Final = paths.DATA
NAMED: Final = (RecoveryError, BackendError, ReconcileError)
"""What any parser may raise: errors with a name, for people."""
_LOGS: Final = 3
_SEED_BYTES: Final = 6000
"""What is kept of a larger file: enough for some records of every kind."""
_RECORD_BYTES: Final = 2000
"""The same of files of records, which come one by one."""


@dataclass(frozen=True, slots=True)
class Parser:
    """A parser.

    Attributes:
        parse: reads all that the bytes give, and throws it away; raises named errors only.
        seeds: gives real bytes.
        times: slower than the quickest by so much; it gets as many inputs fewer in the suite.
        refuses: errors that its docstring names, beside the `NAMED` ones.
        together: reads many inputs at once, as the program does; `parse` then finds the one that is meant.
    """

    parse: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    times: int = 1
    refuses: tuple[type[Exception], ...] = ()
    together: Callable[[list[bytes]], object] | None = None

    @property
    def may_raise(self) -> tuple[type[Exception], ...]:
        """All that it may raise."""
        return *NAMED, *self.refuses


def _all(parts: Iterable[object]) -> None:
    for _ in parts:
        pass


@functools.cache
def _scratch() -> Path:
    """Return a folder for files that are read at once, in memory where the system has such a place."""
    memory = Path("/dev/shm")
    folder = tempfile.TemporaryDirectory(prefix="bkmeta-fuzz-", dir=memory if os.access(memory, os.W_OK) else None)
    _KEPT.append(folder)
    return Path(folder.name)


_KEPT: Final[list[tempfile.TemporaryDirectory[str]]] = []
"""Removed when the process ends."""


def _as_file(parse: Callable[[Path], object], name: str = "given") -> Callable[[bytes], object]:
    def read(raw: bytes) -> object:
        path = _scratch() / name
        path.write_bytes(raw)
        path.chmod(0o600)
        return parse(path)

    return read


def _as_text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda raw: parse(raw.decode(errors="surrogateescape"))


def _texts(*given: str) -> Callable[[], list[bytes]]:
    return lambda: [text.encode() for text in given]


# A bookie's files


def _files(
    listed: Callable[[str], Iterable[Path]], each: int = 2, size: int = _SEED_BYTES
) -> Callable[[], list[bytes]]:
    def read() -> list[bytes]:
        found = [path for name in NAMES for path in islice(listed(name), each)]
        return [raw for path in found if (raw := path.read_bytes()[:size])]

    return read


def _records() -> list[bytes]:
    logs = _files(entry_logs)()
    at = [(log, part) for log in logs for part in entry_log.scan(log) if isinstance(part, entry_log.EntryAt)]
    scoped = entry.encode(entry.EntryHeader(5, 3, 2, 11, scope=7), b"hello world", Digest.CRC32C)
    return [*(log[part.position : part.position + part.size] for log, part in at[::7]), scoped]


def _lacs() -> list[bytes]:
    kinds = [entry.encode_lac_record(5, 3, digest, scope=scope) for digest in Digest for scope in (0, 7)]
    held = [
        part.raw for raw in _files(journals)() for part in journal.scan(raw) if isinstance(part, journal.LacRecordAt)
    ]
    return [*kinds, *held]


@functools.cache
def _rows(database: str) -> list[bytes]:
    """Return rows of real databases: two bytes of the key's length, key, value."""
    found = []
    for name in NAMES:
        for folder in islice(sorted((case_dir(name) / "bookies").rglob(f"current/{database}")), 1):
            with open_read_only(folder) as reader:
                for names, values in islice(reader.items(), 1):
                    pairs = list(zip(names, values, strict=True))[:8]
                    found += [len(key).to_bytes(2, "big") + key + value for key, value in pairs]
    return found


def _row(raw: bytes) -> tuple[bytes, bytes]:
    end = 2 + int.from_bytes(raw[:2], "big")
    return raw[2:end], raw[end:]


def _ledgers_row(raw: bytes) -> None:
    ledger_db.decode_ledgers_row(*_row(raw))


def _locations(raws: list[bytes]) -> None:
    rows = [_row(raw) for raw in raws]
    ledger_db.decode_locations([key for key, _ in rows], [value for _, value in rows])


def _scoped_logs() -> list[bytes]:
    held = [Held(ids.LedgerId(scope, 5), digest=digest) for scope in (0, 7, -7) for digest in Digest]
    return [entry_log.encode([one.record(number) for number in range(3) for one in held], with_map=True)]


def _scoped_journals() -> list[bytes]:
    bodies = [
        body
        for scope in (0, 7, -7)
        for body in (
            journal.encode_master_key(5, bytes(range(20)), scope=scope),
            *(Held(ids.LedgerId(scope, 5)).record(number) for number in range(3)),
            journal.encode_fence(5, scope=scope),
            journal.encode_lac(5, Held(ids.LedgerId(scope, 5)).lac_record(1), scope=scope),
        )
    ]
    return [journal.encode(bodies) + bytes(512)]


def _scoped_rows() -> tuple[bytes, bytes]:
    """Return rows of scopes as `_rows` does: one of ledgers, one of locations."""
    pairs = (
        ledger_db.encode_ledgers_row(ledger_db.BookieLedgerRow(-5, fenced=True, master_key=bytes(20), scope=7)),
        ledger_db.encode_location(-5, 3, 1028, scope=7),
    )
    ledgers, locations = (len(key).to_bytes(2, "big") + key + value for key, value in pairs)
    return ledgers, locations


def _scoped_ledgers_row(raw: bytes) -> None:
    ledger_db.decode_scoped_ledgers_row(*_row(raw))


def _scoped_locations(raws: list[bytes]) -> None:
    rows = [_row(raw) for raw in raws]
    ledger_db.decode_locations([key for key, _ in rows], [value for _, value in rows], scoped=True)


def _cached_maps() -> list[bytes]:
    row = struct.pack(">hqqqq", 0, 31, 51, 51, 1) + struct.pack(">qq", 5, 51)
    return [b"\0\x08" + struct.pack(">q", 31) + row]


def _log(raw: bytes) -> None:
    _all(entry_log.scan_columns(raw))
    entry_log.read_map(raw, entry_log.decode_header(raw))


def _index(raw: bytes) -> None:
    index_file.slots(memoryview(raw)[index_file.HEADER_SIZE :])
    index_file.decode_header(raw)


def _entry(raw: bytes) -> None:
    entry.find_digest(raw, (b"hunter2",))
    entry.decode_header(raw)


_NAMES: Final = ("0.log", "1a.txn", "5.idx", "lastMark", "lastId", "VERSION", "BOOKIE_STATUS", "DIRTY")


def _bookie_files() -> list[bytes]:
    """Return real files, each behind one byte that says which name it has."""
    listed = (entry_logs, journals, index_files, last_marks, None, cookies)
    small = [bytes([4]) + b"1f\n", bytes([6]) + b"1,READ_ONLY,1700000000000,true\n"]
    return small + [bytes([place]) + raw for place, of in enumerate(listed) if of for raw in _files(of, 1, 3000)()[::3]]


def _bookie_file(raw: bytes) -> None:
    path = _scratch() / _NAMES[raw[0] % len(_NAMES) if raw else 0]
    path.write_bytes(raw[1:])
    with suppress(InputError):
        look(path)
    [found] = account_for([path]).named
    assert sum(found.parts.values()) == found.size == len(raw[1:])


# What a store holds


def _nodes(wanted: Callable[[str], bool]) -> Callable[[], list[bytes]]:
    """Return a function that gives the values of a real store's nodes whose path is wanted."""

    def read() -> list[bytes]:
        rows = [json.loads(line) for line in (DATA / "zk-tree" / "final.jsonl").read_text().splitlines()]
        return [base64.b64decode(row["data"]) for row in rows if row["data"] and wanted(row["path"])]

    return read


def _paths() -> list[bytes]:
    rows = [json.loads(line)["path"] for line in (DATA / "zk-tree" / "final.jsonl").read_text().splitlines()]
    below = [path.removeprefix("/ledgers") for path in rows if path.startswith("/ledgers/")]
    made = [store.ledger_key(layout, ids.LedgerId(scope, 77)) for layout in store.Layout for scope in (0, 7)]
    return [key.encode() for key in (*below, *made)]


def _keys(raws: list[bytes]) -> None:
    found = [raw.decode(errors="replace") for raw in raws]
    column = pa.array(found, pa.string())
    keys.kinds_of(column)
    keys.read_marks(column)
    for layout in store.Layout:
        keys.ledgers_of(layout, column)
        keys.are_folders(layout, column)
        for key in found:
            store.ledger_of(layout, key)
            store.kind_of(key)


def _marks(raws: list[bytes]) -> None:
    path = store.MARKS + "/0000/0000/0000/0001/urL0000000001"
    columns = {"path": [path] * len(raws), "kind": ["mark"] * len(raws), "raw": pa.array(raws, pa.binary())}
    columns["changed_txn"] = pa.nulls(len(raws), pa.int64())
    copies.read_marked_copies(pa.table(columns), {})


def _records_of_java() -> list[bytes]:
    lines = (DATA / "ledger-metadata" / "java-4.17.2.jsonl").read_text().splitlines()
    return [base64.b64decode(json.loads(line)["raw"]) for line in lines[::5]]


def _columns(raws: list[bytes]) -> None:
    ledger_metadata.decode_columns(pa.array([*raws, b"", raws[0]], pa.binary()))


def _of_pulsar(folder: str) -> Callable[[], list[bytes]]:
    def read() -> list[bytes]:
        lines = [json.loads(line) for line in (DATA / "pulsar" / "records.jsonl").read_text().splitlines()]
        return [base64.b64decode(line["raw"]) for line in lines if line["path"].startswith(folder)]

    return read


def _messages() -> list[bytes]:
    lines = (DATA / "pulsar" / "messages.jsonl").read_text().splitlines()
    return [base64.b64decode(json.loads(line)["raw"]) for line in lines]


def _compressed_messages() -> list[bytes]:
    """Batches, compressed in each way: made here, for no file has them all."""
    single = SingleMessageMetadata(payload_size=4, partition_key="k").SerializeToString()
    body = (struct.pack(">i", len(single)) + single + b"text") * 3
    packed = [body, pa.compress(body, "lz4_raw", asbytes=True), zlib.compress(body)]
    packed += [pa.compress(body, kind, asbytes=True) for kind in ("zstd", "snappy")]
    made = []
    for kind, raw in enumerate(packed):
        head = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, num_messages_in_batch=3)
        head.compression, head.uncompressed_size = kind, len(body)
        front = head.SerializeToString()
        checked = struct.pack(">i", len(front)) + front + raw
        made.append(struct.pack(">HI", 0x0E01, google_crc32c.value(checked)) + checked)
    return made


def _frames(raw: bytes) -> None:
    records, _ = split_frames(raw)
    read_headers(records, ids.LedgerId(0, 1))


def _about(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / ARCHIVE_FILE).write_bytes(raw)
        read_about(Path(folder))


def _versions_of_schemas() -> list[bytes]:
    lines = (DATA / "pulsar" / "schemas.jsonl").read_text().splitlines()
    return [base64.b64decode(raw) for line in lines for raw in json.loads(line)["entries"].values()]


def _replication_locks() -> list[bytes]:
    return [b'bookieId: "worker-1.example.org"\n', replication_lock.encode_guard("0123456789abcdef")]


def _replication_lock(raw: bytes) -> None:
    replication_lock.decode_holder(raw)
    replication_lock.is_guard(raw, 0)
    replication_lock.ledger_of_lock(raw.decode(errors="replace"))


def _registrations() -> list[bytes]:
    return [
        *_nodes(lambda path: "/available/" in path and not path.endswith("readonly"))(),
        bytes.fromhex(
            "32210a0a68747470736572766572108dc4011a093132372e302e302e3122046874747032230a06626f6f6b696510a9c3011a09"
            "3132372e302e302e31220a626f6f6b69652d727063"
        ),
        b"bk1.example.org:3181",
    ]


def _registration(raw: bytes) -> None:
    registration.address_in(raw.decode(errors="replace"))
    registration.decode_registration(raw)


def _zookeeper_files() -> list[bytes]:
    files = sorted((DATA / "zookeeper").glob("*/version-2/*.*"))
    plain = [path.read_bytes() for path in files if path.stat().st_size < _SEED_BYTES]
    return [*plain, gzip.compress(plain[0])]


def _zookeeper(raw: bytes) -> None:
    folder = _scratch() / "zookeeper"
    folder.mkdir(exist_ok=True)
    for name in ("snapshot.5", "log.1"):
        (folder / name).write_bytes(raw)
    parse_voters(raw)
    tail = LogTail([folder], 0)
    for _ in range(4):  # damage is believed at the third look
        _all(tail.read())
    tail.close()
    files = ZooKeeperFiles(folder)
    files.point()
    _all(files.scan("/"))
    _all(files.history("/"))


def _transactions() -> list[bytes]:
    found = []
    for path in sorted((DATA / "zookeeper").glob("v3[49]*/version-2/log.*")):
        raw = path.read_bytes()
        entries = txnlog.survey(path).entries[["at", "size"]].tolist()
        found += [raw[at + 12 : at + 12 + size] for at, size in entries[:40] if size < _SEED_BYTES]
    return found


def _transaction(raw: bytes) -> None:
    with suppress(MalformedError):
        decode(raw)


def _rights_answers() -> list[bytes]:
    def text(raw: bytes) -> bytes:
        return struct.pack(">i", len(raw)) + raw

    body = struct.pack(">iqii", 1, 77, 0, 1) + struct.pack(">i", 31) + text(b"world") + text(b"anyone") + bytes(68)
    return [text(body), text(body) + text(struct.pack(">iqi", 2, 78, -101))]


def _rights(raw: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        stream = AclStream(ours)
        try:
            stream.ask(["/a", "/b"])
            theirs.sendall(raw)
            theirs.shutdown(socket.SHUT_WR)
            stream.answers(2)
        finally:
            stream.close()


def _etcd_database(raw: bytes) -> None:
    body = raw[: len(raw) // 512 * 512]
    path = _scratch() / "etcd.db"
    path.write_bytes(body + hashlib.sha256(body).digest())
    opened = EtcdFile(path)
    try:
        opened.roots()
        opened.children("/")
        _all(opened.scan("/"))
        _all(opened.history("/"))
    finally:
        opened.close()


def _etcd_messages() -> list[bytes]:
    """Return `KeyValue` messages as a real server wrote them."""
    raw = (DATA / "etcd" / "final.db").read_bytes()
    opened = EtcdFile(DATA / "etcd" / "final.db")
    places = list(zip(opened._place.tolist(), opened._size.tolist(), strict=True))
    opened.close()
    found = [raw[start : start + size] for start, size in places[::3] if size < 1000]
    return [*found, *(b"\x12" + bytes([len(kv)]) + kv for kv in found if len(kv) < 128)]


def _etcd(raws: list[bytes]) -> None:
    etcd_columns.read_keys(raws)
    etcd_columns.read_events(raws)


# What a bookie answers


def _exchanges(*names: str) -> list[dict[str, object]]:
    return [one for name in names for one in json.loads((DATA / "wire" / f"{name}.json").read_text())["exchanges"]]


def _answers() -> list[bytes]:
    found = _exchanges("read", "read_lac", "list", "info", "auth", "start_tls")
    return [bytes.fromhex(str(one["response"])) for one in found if one["outcome"] == "response"]


def _conversation(raw: bytes) -> None:
    talk: Conversation[int] = Conversation(1 << 16)
    asked = [
        frames.list_entries(2),
        frames.read_entry(2, 3),
        frames.read_lac(3),
        frames.bookie_info(),
        frames.authenticate("TLS", b""),
        frames.start_tls(),
    ]
    for number in range(60):
        talk.send(asked[number % len(asked)], number)
    for part in (raw[: len(raw) // 2], raw[len(raw) // 2 :]):
        for _, _, answer in talk.receive(part):
            assert answer.said


def _availability_seeds() -> list[bytes]:
    some = groups.KeyedGroups(*(np.array(column) for column in ([0, 0], [0, 90], [30, 90], [2, 5], [3, 0])))
    return [groups.encode_availability(some), *_wire_lists()]


def _wire_lists() -> list[bytes]:
    lists = [(one.get("decoded") or {}).get("list") or {} for one in _exchanges("list")]  # type: ignore[attr-defined]  # read from JSON
    # Long ones are cut short by an ellipsis in the file.
    return [bytes.fromhex(text) for found in lists if (text := found.get("availability", "")).isalnum()]


# What people and this program write


def _conf(path: Path) -> None:
    gc_settings.read_file(path)
    read_conf(path)


def _confs() -> list[bytes]:
    shipped = (paths.ROOT / "conf" / "bk_server.conf").read_bytes()
    return [shipped, b"a=1,2\\\n  ,3\nledgerDirectories=${a}/x,/d2\nbookieId = b:1\n! no\n\\u0041:b"]


def _http_answers() -> list[bytes]:
    requests = json.loads((DATA / "http" / "config.json").read_text())["requests"]
    return [one["body"].encode() for one in requests if one["status"] == 200]


def _references() -> list[bytes]:
    return [
        b'{"ledger": 5, "last_entry": 7, "length": 100, "deleted": false, "owner": "topic"}\n{"ledger": 9}\n',
        b'{"ledger": 5, "scope": 7, "deleted": true}\n',
    ]


def _parquet() -> list[bytes]:
    rows = [dict.fromkeys(SCHEMA.names) | {"bucket": 1, "scope": 0, "ledger": n} for n in (1, 2)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), sink)
    return [sink.getvalue().to_pybytes()]


@functools.cache
def _plan() -> Path:
    folder = _scratch() / "plan"
    segments = [(0, ["b1:3181", "b2:3181", "b3:3181"])]
    write_plan(folder, [Ledger(5, segments), Ledger(9, segments, reason="no_digest")])
    return folder


def _manifests() -> list[bytes]:
    return [(_plan() / MANIFEST).read_bytes()]


def _manifest(raw: bytes) -> None:
    copy = _scratch() / "manifest"
    if not copy.exists():
        shutil.copytree(_plan(), copy)
    (copy / MANIFEST).write_bytes(_sealed(raw))
    plan_reader.overview(open_dataset(copy, "plan"), shown=9)


def _sealed(raw: bytes) -> bytes:
    """Return a manifest with the digest that it should have, so that what else stands in it is read."""
    try:
        manifest = json.loads(raw)
        return json.dumps({**manifest, "digest": digest_of(manifest)}).encode() if "digest" in manifest else raw
    except (ValueError, TypeError, AttributeError, RecursionError):
        return raw


def _tables() -> list[bytes]:
    return [path.read_bytes() for path in sorted((_plan() / "reconstruction").iterdir())]


def _table(raw: bytes) -> None:
    """Read a table whose file has the size and the hash that its manifest says, and other bytes."""
    copy = _scratch() / "table"
    if not copy.exists():
        shutil.copytree(_plan(), copy)
    made = open_dataset(copy, "plan")
    [part] = made.parts("reconstruction")
    written = raw[: part.bytes].ljust(part.bytes, b"\0")
    (copy / part.file).write_bytes(written)
    listed = asdict(replace(part, sha256=hashlib.sha256(written).hexdigest()))
    made = replace(made, manifest={**made.manifest, "tables": {**made.manifest["tables"], "reconstruction": [listed]}})
    with suppress(DatasetError):
        made.read("reconstruction").validate(full=True)
    with suppress(DatasetError):
        _all(table.to_pylist() for table in made.batches("reconstruction"))
    made.bounds("reconstruction", "ledger")


def _bound(raw: bytes) -> bytes:
    """Return lines as a journal whose every hash is right, so that what stands in them is read."""
    previous, lines = "", []
    for number, line in enumerate(raw.split(b"\n")[:-1]):
        head = b'{"n":%d,"prev":"%s","at":"2026-01-01T00:00:00+00:00",' % (number, previous.encode())
        body = head + line
        previous = hashlib.sha256(body + b"}").hexdigest()
        lines.append(body + b',"hash":"' + previous.encode() + b'"}\n')
    return b"".join(lines)


def _journal_lines() -> list[bytes]:
    begin = b'"event":"begin","binding":{"plan":"ab","root":"/ledgers"},"by":{"user":"u","host":"h","version":"1"}\n'
    intent = b'"event":"intent","batch":0,"kind":"ledger","writes":[[0,"create","id","/ledgers/x",null,"00",null]]\n'
    done = b'"event":"done","batch":0,"versions":[0],"conflicts":[],"presumed":[]\n'
    ends = b'"event":"verified","checked":1,"changed":0\n"event":"end","counts":{}\n'
    undo_ = b'"event":"undo","hash":"00","removes":true\n"event":"undoing","batch":0,"writes":[[0,"/x",1,"create"]]\n'
    frozen = (
        b'"event":"begin","binding":{"journal":"freeze","root":"/ledgers"},"by":{}\n"event":"freeze","hash":"00",'
        b'"changes":[["/","world:anyone:cdrwa","world:anyone:a"]],"root_txn":1,"identity":"digest:a:b","former":""\n'
        b'"event":"intent","of":"freeze","op":"rights","key":"/","before":"world:anyone:cdrwa","after":"digest:a:b:a"\n'
        b'"event":"frozen","root_txn":1\n"event":"thawed","root_txn":1\n'
    )
    return [begin + intent + done + ends, begin + intent + done + undo_, frozen]


def _journal(raw: bytes) -> None:
    folder = _scratch() / "journal"
    folder.mkdir(exist_ok=True)
    path = folder / audit_journal.JOURNAL
    path.write_bytes(raw)
    with suppress(ReconcileError):
        _all(audit_journal.scan(path))
    path.write_bytes(_bound(raw))
    for read in (
        lambda: undo.propose(folder, _store(), "/ledgers"),
        lambda: freeze.read_history(folder, "/ledgers"),
        lambda: read_journal(path, ["00"]),
    ):
        with suppress(ReconcileError):
            read()


@functools.cache
def _store() -> MemoryStore:
    return MemoryStore(now_ms=lambda: 0)


def _mark(raw: bytes) -> None:
    held = MemoryStore(now_ms=lambda: 0)
    held.write([Write("/r" + rehearse.MARK, raw)])
    rehearse.read_mark(held, "/r")


PARSERS: Final = {
    "entry": Parser(_entry, _records),
    "explicit LAC": Parser(entry.decode_lac_record, _lacs),
    "entry log": Parser(_log, lambda: [*_files(entry_logs, _LOGS, _RECORD_BYTES)(), *_scoped_logs()], 4),
    "journal": Parser(
        lambda raw: _all(journal.scan_columns(raw)),
        lambda: [*_files(journals, _LOGS, _RECORD_BYTES)(), *_scoped_journals()],
        4,
    ),
    "lastMark": Parser(journal.decode_last_mark, _files(last_marks)),
    "index file": Parser(_index, _files(index_files, 2, 2048)),
    "ledgers row": Parser(_ledgers_row, lambda: _rows("ledgers")),
    "locations row": Parser(lambda raw: _locations([raw]), lambda: _rows("locations"), 2, together=_locations),
    "ledgers row of scopes": Parser(_scoped_ledgers_row, lambda: [_scoped_rows()[0]]),
    "locations row of scopes": Parser(
        lambda raw: _scoped_locations([raw]), lambda: [_scoped_rows()[1]], 2, together=_scoped_locations
    ),
    "index path": Parser(
        _as_text(index_file.parse_scoped_ledger),
        _texts(index_file.path_of(5), index_file.path_of(-5, 7), index_file.path_of(5, -7)),
    ),
    "any file of a bookie": Parser(_bookie_file, _bookie_files, 20),
    "cached map": Parser(lambda raw: ledger_db.decode_cached_map(*_row(raw)), _cached_maps),
    "cookie": Parser(cookie.decode, _files(cookies, 1)),
    "ledger metadata": Parser(ledger_record.decode, _records_of_java),
    "ledger metadata, by columns": Parser(lambda raw: _columns([raw]), _records_of_java, 2, together=_columns),
    "managed ledger": Parser(managed_ledger.decode, _of_pulsar("/managed-ledgers/")),
    "segment of a stream": Parser(
        log_records.decode_segment, lambda: [b"38654705669;3;1024;9223372036854775807;1795830114754;1;2;0;0;0;0"]
    ),
    "ledger of a stream": Parser(log_records.decode_allocation, lambda: [b"42"]),
    "log of Pravega": Parser(
        log_records.decode_log, lambda: [base64.b64decode("AAABAAAAABgBBMAAAAEAAAAEAwQDAQIEAgIFAwIGBAA=")]
    ),
    "message of a topic": Parser(pulsar_message.decode, _messages),
    "messages of an entry": Parser(pulsar_message.unpack, lambda: [*_messages(), *_compressed_messages()]),
    "entries of an archive": Parser(_frames, lambda: [join_frames(_records()), join_frames(_records()[:1])], 4),
    "what an archive is": Parser(_about, lambda: [About("an id", "/ledgers").encode()]),
    "version of a schema": Parser(lambda raw: pulsar_schema.decode_entry(raw, 1, 0), _versions_of_schemas),
    "position of a cursor": Parser(
        managed_ledger.decode_compacted,
        # Its properties as Pulsar's broker writes them.
        lambda: [bytes.fromhex("0803100b") + b"\x22\x18\x0a\x14CompactedTopicLedger\x10\x07"],
    ),
    "schema of a topic": Parser(managed_ledger.decode_schema, _of_pulsar("/schemas/")),
    "store keys": Parser(lambda raw: _keys([raw]), _paths, 20, together=_keys),
    "LAYOUT": Parser(store.layout_of, _nodes(lambda path: path == "/ledgers/LAYOUT")),
    "instance id": Parser(store.decode_instance_id, _nodes(lambda path: path.endswith("/INSTANCEID"))),
    "registration": Parser(_registration, _registrations),
    "replication_lock": Parser(_replication_lock, _replication_locks),
    "availability": Parser(groups.decode_availability, _availability_seeds, 2),
    "availability, many": Parser(
        lambda raw: groups.decode_availabilities([raw]), _availability_seeds, 2, together=groups.decode_availabilities
    ),
    "a bookie's answers": Parser(_conversation, _answers, 4),
    "ZooKeeper's files": Parser(_zookeeper, _zookeeper_files, 40),
    "ZooKeeper's transactions": Parser(_transaction, _transactions),
    "ZooKeeper's rights": Parser(_rights, _rights_answers, 4, (OSError,)),
    "etcd's messages": Parser(lambda raw: _etcd([raw]), _etcd_messages, 4, (DecodeError,)),
    "etcd's database": Parser(_etcd_database, lambda: [(DATA / "etcd" / "final.db").read_bytes()], 80),
    "bk_server.conf": Parser(_as_file(_conf), _confs, 8),
    "store URI": Parser(
        _as_text(parse_store_uri),
        _texts(
            "zk+hierarchical://h1:2181;h2:2181/ledgers",
            "zk://[::1]:2181/a/b",
            "metadata-store:zk:h1:2181,h2:2181/x",
            "etcd://host:2379/root",
            "zkfiles:///dir?root=/ledgers&layout=flat",
            "etcdfile:///a%20b/snapshot.db?root=/r",
        ),
    ),
    "under-replication marks": Parser(
        lambda raw: _marks([raw]),
        _texts('replica: "bk1:3181"\nreplica: "bk2:3181"\nctime: 1700000000000\n'),
        together=_marks,
    ),
    "ledger id": Parser(
        _as_text(ids.parse),
        _texts("12345", "7:12345", "0x7:0x3039", "00000000000000070000000000003039"),
        refuses=(ValueError,),
    ),
    "point in time": Parser(
        _as_text(parse_at), _texts("0x1f", "77", "2026-01-01T00:00:00+02:00", "2026-01-01"), refuses=(ValueError,)
    ),
    "waves": Parser(_as_text(parse_waves), _texts("canary,1%,rest", "50%,50%"), refuses=(ValueError,)),
    "passwords": Parser(_as_file(read_passwords), _texts("hunter2\nbase64:aGVsbG8=\n\n"), 4),
    "names": Parser(_as_file(read_names), _texts("# bookies\nb1:3181\nb2:3181\n"), 4),
    "weights": Parser(_as_file(read_weights), _texts("# of bookies\nbk1:3181 1.5\nbk2:3181 24\n"), 4),
    "aliases": Parser(_as_file(read_aliases), _texts("# aliases\na b1:3181\nb b2:3181\n"), 4),
    "rack information of Pulsar": Parser(
        placement_files.decode_rack_info, _texts('{"default": {"bk1:3181": {"rack": "/a/r1"}}}')
    ),
    "topology": Parser(_as_file(placement_files.read_topology), _texts("# racks\nbk1:3181 /a/r1\nhost2 /b/r2\n"), 4),
    "suppressions": Parser(
        _as_file(lambda path: read_suppressions(path, date(2026, 1, 1))),
        _texts('[[suppress]]\ncategory = "ONE_COPY"\nledger = "7"\nowner = "a"\nwhy = "b"\nuntil = 2026-01-01\n'),
        4,
    ),
    "placement settings": Parser(
        _as_file(placement_files.read_placement),
        _texts(
            "ensemblePlacementPolicy=a.RegionAwareEnsemblePlacementPolicy\nreppRegionsToWrite=a;b\nminNumRacksPerWriteQuorum=3\n"
        ),
        8,
    ),
    "references, JSON lines": Parser(_as_file(references.read), _references, 20),
    "references, Parquet": Parser(_as_file(references.read), _parquet, 20),
    "table of a dataset": Parser(_table, _tables, 80),
    "manifest": Parser(_manifest, _manifests, 80),
    "settings that a bookie answers": Parser(
        lambda raw: gc_settings.settings_of("", gc_settings.parse_answer("", raw)), _http_answers, refuses=(ValueError,)
    ),
    "journal of writes": Parser(_journal, _journal_lines, 20),
    "mark of a rehearsal": Parser(_mark, _texts('{"plan": "ab", "made": "2026-01-01", "journal": "/x"}')),
}
