"""etcd's database file, a snapshot or a copy of a stopped member's: every revision that it holds, read without etcd.

Pages of one size. Little-endian. A page has 16 bytes in front: uint64 page id, uint16 flags, uint16 count, uint32
overflow (pages that follow it and belong to it).

    flags  page   after the front
    1      inner  elements: uint32 place (from this element), uint32 key size, int64 page below
    2      leaf   elements: uint32 flags (1: a bucket), uint32 place, uint32 key size, uint32 value size
    4      meta   int32 magic 0xed0cdaed, int32 version 2, int32 page size, int32 flags, bucket of buckets, int64 free
                  pages, int64 pages, int64 transaction, uint64 FNV-1a of the bytes from the magic on

The page of free pages (flags 16) lists int64 page ids, ascending; where its count is 65,535, the first of these is
their number. A meta that names page -1 for it has none: etcd finds the free pages itself, when it opens the file.

A bucket is int64 page (0: a page follows in the value itself), int64 sequence. Pages 0 and 1 are metas; of the metas
with a right sum, the one with the later transaction counts.

    bucket  key                                              value
    key     int64 revision, "_", int64 number in it, "t"     KeyValue (rpc.proto); with "t" the key was deleted
    meta    scheduledCompactRev, finishedCompactRev          17 bytes of such a key: the past before it may be gone

(These are big-endian, so their order is that of time.) `etcdctl snapshot save` adds the SHA-256 of the file after the
last page: 32 bytes, which distinguish a snapshot from a copied file.

Source: etcd-io/bbolt v1.3, page.go, bucket.go, db.go; etcd-io/etcd v3.5, server/mvcc/revision.go, etcdutl/snapshot.
Proven against `etcdutl snapshot restore` and a server on what it restores.
"""

import hashlib
import mmap
import os
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError

from backends.errors import (
    CorruptStoreError,
    NoSuchStoreError,
    ReadOnlyStoreError,
    UnavailableError,
    UnsupportedStoreError,
)
from backends.etcd import columns, pages
from backends.etcd._pb.rpc_pb2 import KeyValue
from backends.files import open_regular
from backends.protocols import StorePoint, Versioned, Write

_PAGE: Final = struct.Struct("<QHHI")
_INNER: Final = struct.Struct("<IIQ")
_LEAF: Final = struct.Struct("<IIII")
_META: Final = struct.Struct("<IIIIQQQQQQ")
_SUMMED: Final = _META.size - 8
_BUCKET: Final = struct.Struct("<QQ")
_REVISION: Final = struct.Struct(">qcq")
_IS_INNER: Final = 1
_IS_LEAF: Final = 2
_IS_FREE: Final = 16
_MANY_FREE: Final = 0xFFFF
_NO_PAGE: Final = (1 << 64) - 1
_IS_BUCKET: Final = 1
_MAGIC: Final = 0xED0CDAED
_VERSION: Final = 2
BROKEN_FREE_LIST: Final = (
    "etcd ends when it opens this file, or later writes over records in use. Every record is read here all the same. "
    "To start etcd, take another member's file, or let `bbolt surgery freelist abandon` make a copy without the list"
)
_SIZES: Final = tuple(1 << n for n in range(9, 17))
"""Page sizes: that of the machine that made the file, mostly 4,096."""
_SUM: Final = 32
_SECTOR: Final = 512
_BATCH: Final = 8_192
_LAYOUT: Final = b"/layout"
_MANAGER: Final = b"EtcdLedgerManagerFactory"
_NAMED: Final = 100
"""Damages that are named one by one; further ones are counted."""


class EtcdFile:
    """A database file as a store that shows one revision; nothing is written, and no lock is taken.

    A record costs 40 bytes of memory; values stay in the file.

    Args:
        path: the file.
        revision: the revision to be shown; None: the last one.

    Raises:
        NoSuchStoreError: there is no such file.
        CorruptStoreError: it is not a database file of etcd, or nothing of it can be followed.
        UnsupportedStoreError: the revision is not one that it can show.
    """

    def __init__(self, path: str | Path, *, revision: int | None = None) -> None:
        self._uri = f"etcdfile://{Path(path).absolute()}"
        self._closed = False
        self._damage: list[str] = []
        self._more_damage = 0
        try:
            with os.fdopen(open_regular(path), "rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise NoSuchStoreError(self._uri, error.strerror or "") from error
        except ValueError as error:
            raise CorruptStoreError(self._uri, "it is empty") from error
        except OSError as error:
            raise CorruptStoreError(self._uri, f"it cannot be opened ({error.strerror})") from error
        with ExitStack() as broken_off:
            broken_off.callback(self._bytes.close)
            self._open(revision)
            broken_off.pop_all()

    def _open(self, revision: int | None) -> None:
        is_snapshot = len(self._bytes) % _SECTOR == _SUM
        self._end = len(self._bytes) - (_SUM if is_snapshot else 0)
        self._notes = self._check_sum(is_snapshot=is_snapshot)
        self._page_size, root, self._free, self._high = self._meta()
        self._used: set[int] = set()
        buckets = dict(self._buckets(root))
        if b"key" not in buckets:
            raise CorruptStoreError(self._uri, self._damage[0] if self._damage else "it has no bucket of keys")
        self._compacted = self._read_compaction(buckets.get(b"meta"))
        self._index(buckets[b"key"])
        last = max(int(self._main[-1]) if len(self._main) else 1, self._compacted)
        if revision is not None and not max(self._compacted, 1) <= revision <= last:
            raise UnsupportedStoreError(
                self._uri, f"revision {revision} cannot be shown: it holds {max(self._compacted, 1)} to {last}"
            )
        self._shown = last if revision is None else revision
        self._live = self._select_live()

    @property
    def uri(self) -> str:
        return self._uri

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._bytes.close()

    # Pages

    def _hurt(self, where: str, problem: str) -> None:
        if len(self._damage) < _NAMED:
            self._damage.append(f"{where}: {problem}")
        else:
            self._more_damage += 1

    def _check_sum(self, *, is_snapshot: bool) -> tuple[str, ...]:
        if not is_snapshot:
            return ("a copied file: it lacks changes that a member had only in its write-ahead log",)
        digest = hashlib.sha256()
        for start in range(0, self._end, 1 << 20):
            digest.update(self._bytes[start : min(start + (1 << 20), self._end)])
        if digest.digest() != self._bytes[self._end :]:
            self._hurt("the whole file", "SHA-256 is not that of its bytes: it was cut or changed after it was made")
        return ()

    def _meta(self) -> tuple[int, int, int, int]:
        """Return the size of pages, the pages of the bucket of buckets and of free pages, and the number of pages."""
        metas = []
        for position in (0, *_SIZES):
            if position + _PAGE.size + _META.size > self._end:
                break
            start = position + _PAGE.size
            magic, version, size, _, root, _, free, high, transaction, text = _META.unpack_from(self._bytes, start)
            if magic != _MAGIC or size not in _SIZES or position not in (0, size):
                continue
            if version != _VERSION:
                raise CorruptStoreError(self._uri, f"its format is {version}, not {_VERSION}")
            if _fnv(self._bytes[start : start + _SUMMED]) == text:
                metas.append((transaction, size, root, free, high))
        if not metas:
            raise CorruptStoreError(self._uri, "it does not begin as a database of etcd does")
        return max(metas)[1:]

    def _buckets(self, root: int) -> Iterator[tuple[bytes, tuple[int, int]]]:
        """Yield name of each bucket, and the place of its first page and where that must end."""
        for name, start, size, flags in self._leaves(*self._page(root)):
            if flags & _IS_BUCKET and size >= _BUCKET.size:
                page, _ = _BUCKET.unpack_from(self._bytes, start)
                yield name, self._page(page) if page else (start + _BUCKET.size, start + size)

    def _page(self, number: int) -> tuple[int, int]:
        """Return the begin and end of a page; at the end of the file if it is missing."""
        start = number * self._page_size
        if number < 2 or start + _PAGE.size > self._end:
            self._hurt(f"page {number}", "it is not in the file")
            return self._end, self._end
        text, _, _, overflow = _PAGE.unpack_from(self._bytes, start)
        end = start + (overflow + 1) * self._page_size
        if text != number or end > self._end:
            self._hurt(f"page {number}", "it says that it is another, or is cut")
            return self._end, self._end
        self._used.update(range(number, number + overflow + 1))
        return start, end

    def find_free_list_fault(self) -> str | None:
        """Return the damage of the list of free pages; None: it is right, or the file has none.

        etcd ends when it opens a file with such a list, or writes over records later. No record that is read here
        depends on it.
        """
        if self._free == _NO_PAGE:
            return None
        start = self._free * self._page_size
        if self._free < 2 or start + _PAGE.size > self._end:
            return f"page {self._free} is not in the file"
        number, flags, count, overflow = _PAGE.unpack_from(self._bytes, start)
        if (number, flags & _IS_FREE) != (self._free, _IS_FREE):
            return f"page {self._free} is not a list of free pages"
        place, end = start + _PAGE.size, min(start + (overflow + 1) * self._page_size, self._end)
        if count == _MANY_FREE and place + 8 <= end:
            count, place = int.from_bytes(self._bytes[place : place + 8], "little"), place + 8
        if place + count * 8 > end:
            return f"it says {count} pages, and ends before them"
        pages_free = np.frombuffer(self._bytes[place : place + count * 8], "<u8")
        if (pages_free[1:] <= pages_free[:-1]).any() or ((pages_free < 2) | (pages_free >= self._high)).any():
            return "it names pages twice, out of order or beyond the file"
        used = np.isin(pages_free, np.array([*self._used, self._free], np.uint64))
        return f"page {int(pages_free[used][0])}, which it calls free, is in use" if used.any() else None

    def _leaves(self, start: int, end: int) -> Iterator[tuple[bytes, int, int, int]]:
        """Yield key, place and size of the value, and flags, of a tree in order; a broken link is damage."""
        stack = [(start, end)]
        left = self._end // self._page_size + 1
        while stack:
            start, end = stack.pop()
            left -= 1
            if start + _PAGE.size > end:
                continue
            if left < 0:
                self._hurt(f"byte {start}", "pages name each other in a circle")
                return
            _, flags, count, _ = _PAGE.unpack_from(self._bytes, start)
            below = []
            element = _LEAF if flags & _IS_LEAF else _INNER
            if not flags & (_IS_LEAF | _IS_INNER) or start + _PAGE.size + count * element.size > end:
                self._hurt(f"byte {start}", "it is not a page of a tree")
                continue
            for low in range(start + _PAGE.size, start + _PAGE.size + count * element.size, element.size):
                if element is _INNER:
                    below.append(self._page(_INNER.unpack_from(self._bytes, low)[2]))
                    continue
                kind, place, key_size, size = _LEAF.unpack_from(self._bytes, low)
                key = low + place
                if key + key_size + size > end:
                    self._hurt(f"byte {low}", "a record reaches beyond its page")
                    continue
                yield self._bytes[key : key + key_size], key + key_size, size, kind
            stack += reversed(below)

    # Records

    def _read_compaction(self, bucket: tuple[int, int] | None) -> int:
        """Return the revision before which the history may be gone; 0: it is complete."""
        revisions = [0]
        for name, start, size, _ in self._leaves(*bucket) if bucket else ():
            if name in (b"scheduledCompactRev", b"finishedCompactRev") and size == _REVISION.size:
                revisions.append(_REVISION.unpack_from(self._bytes, start)[0])
        return max(revisions)

    def _index(self, bucket: tuple[int, int]) -> None:
        """Note revision, place and key of every record, in their order."""
        main, place, size, dead, digests = array("q"), array("Q"), array("L"), bytearray(), bytearray()
        for name, start, length, _ in self._leaves(*bucket):
            if len(name) not in (_REVISION.size, _REVISION.size + 1):
                self._hurt(f"byte {start}", "its key is not a revision")
                continue
            revision, _, _ = _REVISION.unpack_from(name)
            kv = self._parse(start, length)
            if kv is None or revision < (main[-1] if main else 1):
                self._hurt(f"revision {revision}", "its record cannot be read, or is out of order")
                continue
            main.append(revision)
            place.append(start)
            size.append(length)
            dead.append(len(name) > _REVISION.size)
            digests += hashlib.blake2b(kv.key, digest_size=16).digest()
        self._main = np.array(main, np.int64)
        self._place = np.array(place, np.int64)
        self._size = np.array(size, np.int64)
        self._dead = np.frombuffer(bytes(dead), np.bool_)
        self._before = _previous(np.frombuffer(bytes(digests), np.dtype([("high", "<u8"), ("low", "<u8")])))

    def _parse(self, start: int, length: int) -> Any:  # noqa: ANN401 - a message
        try:
            return KeyValue.FromString(self._bytes[start : start + length])
        except DecodeError:
            return None

    def _read(self, rows: npt.NDArray[np.int64]) -> columns.PageKeys:
        """Return records; the record of a deleted key has no revision, so each gets its own."""
        places = zip(self._place[rows].tolist(), self._size[rows].tolist(), strict=True)
        keys = columns.read_keys([self._bytes[start : start + size] for start, size in places])
        return replace(keys, modified=self._main[rows])

    def _select_live(self) -> npt.NDArray[np.int64]:
        """Return the records of the keys that exist at the shown revision."""
        until = int(np.searchsorted(self._main, self._shown, "right"))
        newest = np.ones(until, np.bool_)
        older = self._before[:until]
        newest[older[older >= 0]] = False
        return np.flatnonzero(newest & ~self._dead[:until])

    def _require_open(self) -> None:
        if self._closed:
            raise UnavailableError(self._uri, "it was closed")

    def _keys(self) -> Iterator[Any]:
        self._require_open()
        for row in self._live.tolist():
            yield self._parse(int(self._place[row]), int(self._size[row]))

    # The store

    def get(self, key: str) -> Versioned | None:
        [(_, nodes)] = self.get_many([key])
        return nodes

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        asked = list(keys)
        wanted = {key.encode() for key in asked}
        nodes = {kv.key: pages.make_versioned(kv) for kv in self._keys() if kv.key in wanted}
        for key in asked:
            yield key, nodes.get(key.encode())

    def children(self, key: str) -> list[str] | None:
        prefix = b"/" if key == "/" else key.encode() + b"/"
        names: set[bytes] = set()
        present = key == "/"
        for kv in self._keys():
            present = present or kv.key == key.encode()
            if kv.key.startswith(prefix):
                names.add(kv.key[len(prefix) :].partition(b"/")[0])
        names.discard(b"")
        return sorted(name.decode(errors="backslashreplace") for name in names) if names or present else None

    def write(self, changes: Sequence[Write]) -> list[int]:
        raise ReadOnlyStoreError(self._uri, f"{len(changes)} changes were asked for")

    def raise_counter(self, key: str, beyond: int) -> int:
        raise ReadOnlyStoreError(self._uri, f"{key} was to be raised beyond {beyond}")

    def count_keys(self) -> int:
        """Return how many keys there are at the revision that is shown."""
        return len(self._live)

    def count_records(self) -> int:
        """Return how many records the file has, of all its revisions."""
        return len(self._main)

    def roots(self) -> list[str]:
        """Return the roots of BookKeeper clusters, as their layout keys show them."""
        keys = [kv.key for kv in self._keys() if kv.key.endswith(_LAYOUT) and _MANAGER in kv.value]
        return [key[: -len(_LAYOUT)].decode(errors="backslashreplace") for key in keys]

    def point(self) -> StorePoint:
        since = f"history begins after revision {self._compacted}: earlier changes are compacted"
        notes = (since if self._compacted else "history is whole: nothing was compacted", *self._notes)
        rest = (f"and {self._more_damage} more",) if self._more_damage else ()
        fault = self.find_free_list_fault()
        broken = () if fault is None else (f"the list of free pages is broken ({fault}): {BROKEN_FREE_LIST}",)
        return StorePoint(self._shown, None, gaps=(*self._damage, *rest), notes=(*notes, *broken))

    def scan(self, root: str) -> Iterator[pa.RecordBatch]:
        self._require_open()
        for start in range(0, len(self._live), _BATCH):
            rows = pages.below(pages.batch(self._read(self._live[start : start + _BATCH])), root)
            if rows.num_rows:
                yield rows

    def history(self, root: str) -> Iterator[pa.RecordBatch]:
        self._require_open()
        first, until = np.searchsorted(self._main, [self._compacted, self._shown], "right").tolist()
        for start in range(first, until, _BATCH):
            chosen = np.arange(start, min(start + _BATCH, until))
            older = self._before[chosen]
            known = (older >= 0) & ~self._dead[older]
            values = self._read(older[known]).value
            # Where it is not known, the row that is taken is none.
            taken = pa.array(np.cumsum(known) - 1, mask=~known)
            no_leases = np.zeros(len(chosen), np.int64)
            events = columns.Events(self._read(chosen), self._dead[chosen], values.take(taken), no_leases)
            rows = pages.below(pages.changes(events), root)
            if rows.num_rows:
                yield rows


def _previous(keys: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Return, for each record, the previous record of its key; -1 without one."""
    order = np.lexsort((np.arange(len(keys)), keys["low"], keys["high"]))
    previous = np.full(len(keys), -1, np.int64)
    ordered = keys[order]
    equal = ordered[1:] == ordered[:-1]
    previous[order[1:][equal]] = order[:-1][equal]
    return previous


def _fnv(data: bytes) -> int:
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return digest
