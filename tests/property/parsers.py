"""Every parser of bytes that others wrote, with real bytes to begin from."""

import base64
import functools
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from backends.rocks import open_read_only
from backends.zkfiles import txnlog
from backends.zkfiles.records import MalformedError, decode
from backends.zkfiles.store import ZooKeeperFiles
from recovery.codecs import (
    cookie,
    entry,
    entry_log,
    index_file,
    journal,
    ledger_db,
    ledger_metadata,
    ledger_record,
    store,
)
from recovery.model import groups
from recovery.model.metadata import Digest
from tests.golden.bookie_files import cookies, entry_logs, index_files, journals, last_marks
from tests.golden.cases import NAMES, case_dir

DATA: Final = Path(__file__).parents[1] / "golden" / "data"
_LOGS: Final = 3
_SEED_BYTES: Final = 6000
"""What is kept of a larger file: enough for some records of every kind."""


@dataclass(frozen=True, slots=True)
class Parser:
    """A parser.

    Attributes:
        parse: reads all that the bytes give, and throws it away; raises named errors only.
        seeds: gives real bytes.
        times: slower than the quickest by so much; it gets as many inputs fewer in the suite.
    """

    parse: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    times: int = 1


def _all(parts: Iterable[object]) -> None:
    for _ in parts:
        pass


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
                for keys, values in islice(reader.items(), 1):
                    pairs = list(zip(keys, values, strict=True))[:8]
                    found += [len(key).to_bytes(2, "big") + key + value for key, value in pairs]
    return found


def _row(raw: bytes) -> tuple[bytes, bytes]:
    end = 2 + int.from_bytes(raw[:2], "big")
    return raw[2:end], raw[end:]


def _ledgers_row(raw: bytes) -> None:
    ledger_db.decode_ledgers_row(*_row(raw))


def _locations(raw: bytes) -> None:
    key, value = _row(raw)
    ledger_db.decode_locations([key], [value])


def _log(raw: bytes) -> None:
    _all(entry_log.scan_columns(raw))
    entry_log.read_map(raw, entry_log.decode_header(raw))


def _index(raw: bytes) -> None:
    index_file.slots(memoryview(raw)[index_file.HEADER_SIZE :])
    index_file.decode_header(raw)


def _entry(raw: bytes) -> None:
    entry.find_digest(raw)
    entry.decode_header(raw)


def _nodes(wanted: Callable[[str], bool]) -> Callable[[], list[bytes]]:
    """Return a function that gives the values of a real store's nodes whose path is wanted."""

    def read() -> list[bytes]:
        rows = [json.loads(line) for line in (DATA / "zk-tree" / "final.jsonl").read_text().splitlines()]
        return [base64.b64decode(row["data"]) for row in rows if row["data"] and wanted(row["path"])]

    return read


def _records_of_java() -> list[bytes]:
    lines = (DATA / "ledger-metadata" / "java-4.17.2.jsonl").read_text().splitlines()
    return [base64.b64decode(json.loads(line)["raw"]) for line in lines[::5]]


def _column(raw: bytes) -> None:
    ledger_metadata.decode_columns(pa.array([raw, b"", raw], pa.binary()))


def _availability_seeds() -> list[bytes]:
    some = groups.KeyedGroups(*(np.array(column) for column in ([0, 0], [0, 90], [30, 90], [2, 5], [3, 0])))
    return [groups.encode_availability(some), *_wire_lists()]


def _wire_lists() -> list[bytes]:
    exchanges = json.loads((DATA / "wire" / "list.json").read_text())["exchanges"]
    lists = [(one.get("decoded") or {}).get("list") or {} for one in exchanges]
    # Long ones are cut short by an ellipsis in the file.
    return [bytes.fromhex(text) for found in lists if (text := found.get("availability", "")).isalnum()]


def _zookeeper_files() -> list[bytes]:
    files = sorted((DATA / "zookeeper").glob("*/version-2/*.*"))
    return [path.read_bytes() for path in files if path.stat().st_size < _SEED_BYTES]


def _zookeeper(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("snapshot.5", "log.1"):
            Path(folder, name).write_bytes(raw)
        files = ZooKeeperFiles(Path(folder))
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


PARSERS: Final = {
    "entry": Parser(_entry, _records),
    "explicit LAC": Parser(entry.decode_lac_record, _lacs),
    "entry log": Parser(_log, _files(entry_logs, _LOGS), 4),
    "journal": Parser(lambda raw: _all(journal.scan_columns(raw)), _files(journals, _LOGS), 4),
    "lastMark": Parser(journal.decode_last_mark, _files(last_marks)),
    "index file": Parser(_index, _files(index_files, 2, 2048)),
    "ledgers row": Parser(_ledgers_row, lambda: _rows("ledgers")),
    "locations row": Parser(_locations, lambda: _rows("locations"), 2),
    "cookie": Parser(cookie.decode, _files(cookies, 1)),
    "ledger metadata": Parser(ledger_record.decode, _records_of_java),
    "ledger metadata, by columns": Parser(_column, _records_of_java, 4),
    "LAYOUT": Parser(store.layout_of, _nodes(lambda path: path == "/ledgers/LAYOUT")),
    "instance id": Parser(store.decode_instance_id, _nodes(lambda path: path.endswith("/INSTANCEID"))),
    "availability": Parser(groups.decode_availability, _availability_seeds, 2),
    "ZooKeeper's files": Parser(_zookeeper, _zookeeper_files, 40),
    "ZooKeeper's transactions": Parser(_transaction, _transactions),
}
