"""A range of keys read page by page at one revision, several pages under way.

etcd counts the whole requested range for every page of it, so the pages of a long range cost its square. Keys below
`<root>/ledgers/` are 128-bit ids, so that range is cut into windows of ids: as wide as the last page was where it was
full, and all that is left where ids are thin.

    <root>/ledgers/hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh

Source: docs/formats/etcd.md; etcd-io/etcd v3.5, server/mvcc/index.go (counting), run against 3.5.1.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backends.etcd import rpc
from backends.etcd.columns import Events, PageKeys
from backends.protocols import CHANGES, KEYS, Versioned

PAGE: Final = 10_000
"""Keys of the first page of ledgers: 3 MB of records."""
PAGE_BYTES: Final = 8 << 20
"""Pages after a page, as its keys predict: each costs the server some time, whatever its content."""
LARGER: Final = 4
"""Times that these may have more keys than the first, or fewer."""
FEW: Final = 32
"""Keys of a page outside the ledgers. Their values may be large: half a MiB each where deletes are recorded."""
FLIGHT: Final = 4
"""Pages under way."""
_PART_BYTES: Final = 32 << 20
_BUCKET: Final = 1 << 56
_BUCKETS: Final = 128
"""Clients count ids up inside so many stretches of that length."""
_IDS: Final = 1 << 128
_LEDGERS: Final = b"/ledgers/"
_ID: Final = re.compile(rb"([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class Page:
    """Keys from `start` to `end`, exclusive; if `stop` is not 0, ids from `at` to `stop`, in windows."""

    start: bytes
    end: bytes
    at: int = 0
    stop: int = 0
    width: int = 0

    @property
    def bound(self) -> bytes:
        """The end of one request."""
        return self.end if self.at + self.width >= self.stop else _prefix(self.start) + _digits(self.at + self.width)


def _prefix(key: bytes) -> bytes:
    return key[: key.rindex(b"/") + 1]


def _digits(number: int) -> bytes:
    digits = f"{number:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])).encode()


def end_of(prefix: bytes) -> bytes:
    """Return the end of the range of all keys with a prefix; the last byte of the prefix is not 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def ranges(root: bytes) -> list[Page]:
    """Return the ranges that cover the keys below a root."""
    below, ledgers = root + b"/", root + _LEDGERS
    return [
        Page(below, ledgers),
        Page(ledgers, end_of(ledgers), 0, _IDS, _IDS),
        Page(end_of(ledgers), end_of(below)),
    ]


def read(
    pages: Sequence[Page], revision: int, ask: Callable[[Any], Any], answer: Callable[[Any, Any], Any]
) -> Iterator[Any]:
    """Yield the answers for the pages, in no particular order.

    Args:
        pages: disjoint.
        revision: at which all are read.
        ask: sends a request, and returns its future.
        answer: waits for it; is given the request too, to send it again.
    """
    todo = deque(pages)
    flying: deque[tuple[Page, Any, Any]] = deque()
    keys = PAGE
    while todo or flying:
        while todo and len(flying) < FLIGHT:
            page = todo.popleft()
            limit = keys if page.stop else min(keys, FEW)
            request = rpc.RangeRequest(key=page.start, range_end=page.bound, limit=limit, revision=revision)
            flying.append((page, request, ask(request)))
        page, request, asked = flying.popleft()
        response = answer(request, asked)
        if page.width == _IDS and response.more:
            size = sum(map(len, response.kvs)) // len(response.kvs)
            keys = min(max(PAGE_BYTES // size, PAGE // LARGER, 1), PAGE * LARGER)
        # The front: what follows a page is asked for before other ranges, so that little is open at once.
        todo.extendleft(reversed(_rest(page, response, keys)))
        if response.kvs:
            yield response


def cut(raws: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield messages in lists of some bytes each: an answer about the past may have a thousand large values, twice."""
    part: list[bytes] = []
    size = 0
    for raw in raws:
        part.append(raw)
        size += len(raw)
        if size >= _PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _rest(page: Page, response: Any, keys: int) -> list[Page]:  # noqa: ANN401 - a message
    """Return the remaining ranges, in pages."""
    count = len(response.kvs)
    following = page.at + page.width
    if not response.more:
        if following >= page.stop:
            return []
        if count >= keys // 2:
            return _cut(page.bound, page, following, page.width)
        # Ids are thin or have ended here: a page at most comes of all that is left.
        return [Page(page.bound, page.end, following, page.stop, page.stop - following)]
    last = rpc.KeyValue.FromString(response.kvs[-1]).key
    number = _number(last[len(_prefix(page.start)) :]) if page.stop else None
    if number is None:
        rest = [Page(last + b"\0", page.bound)]
        return rest if following >= page.stop else [*rest, Page(page.bound, page.end, following, page.stop, page.width)]
    if page.width == _IDS:
        # As many buckets at once as a page holds where ids are spread evenly.
        together = max(1, _BUCKETS * keys // (2 * response.count))
        return _cut(last + b"\0", page, number + 1, together * _BUCKET, at_buckets=True)
    return _cut(last + b"\0", page, number + 1, number + 1 - page.at)


def _cut(start: bytes, page: Page, position: int, width: int, *, at_buckets: bool = False) -> list[Page]:
    """Cut what is left of a page's ids, from `start` on, where counting begins again, or into windows."""
    if position >= page.stop:
        return [Page(start, page.end)]  # no id, but a name that is none may follow the last one
    if at_buckets:
        cuts = range((position // _BUCKET + 1) * _BUCKET, _BUCKETS * _BUCKET + 1, width)
    else:
        cuts = range(position + width, min(page.stop, position + FLIGHT * width), width)
    prefix = _prefix(start)
    bounds = [(position, start), *((cut, prefix + _digits(cut)) for cut in cuts), (page.stop, page.end)]
    return [Page(low_key, high_key, low, high, width) for (low, low_key), (high, high_key) in pairwise(bounds)]


def _number(name: bytes) -> int | None:
    match = _ID.fullmatch(name)
    return int(b"".join(match.groups()), 16) if match else None


def batch(keys: PageKeys) -> pa.RecordBatch:
    """Return keys as `KEYS`."""
    count = len(keys.key)
    version = pa.array(keys.modified)
    times = pa.nulls(count, pa.int64())
    columns = {
        "key": _names(keys.key),
        "value": keys.value,
        "version": version,
        "acl": pa.nulls(count, pa.string()),
        "created_txn": pa.array(keys.created),
        "changed_txn": version,
        "created_ms": times,
        "changed_ms": times,
        "owner": pa.array(keys.lease),
        "children_created": pa.array(keys.version + 1),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in KEYS.names], schema=KEYS)


def _names(keys: pa.Array) -> pa.Array:
    """Return keys as text; bytes that are not UTF-8 are written with backslashes."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="backslashreplace") for key in keys.to_pylist()], pa.string())


def make_versioned(kv: Any) -> Versioned:  # noqa: ANN401 - a message
    """Return a key of an answer."""
    return Versioned(
        value=kv.value,
        version=kv.mod_revision,
        created_txn=kv.create_revision,
        changed_txn=kv.mod_revision,
        owner=kv.lease,
        children_created=kv.version + 1,
    )


def changes(events: Events) -> pa.RecordBatch:
    """Return writes as `CHANGES`."""
    keys = events.keys
    made = np.where(keys.version == 1, "created", "changed")
    columns = {
        "key": _names(keys.key),
        "txn": pa.array(keys.modified),
        "op": pa.array(np.where(events.deleted, "deleted", made), pa.string()),
        "before": events.before,
        "after": pc.if_else(pa.array(events.deleted), pa.scalar(None, pa.binary()), keys.value),
    }
    return pa.RecordBatch.from_arrays(
        [columns.get(field.name, pa.nulls(len(keys.key), field.type)) for field in CHANGES], schema=CHANGES
    )


def below(rows: pa.RecordBatch, root: str) -> pa.RecordBatch:
    """Return the rows with a key at or below the root."""
    above = "" if root == "/" else root
    key = rows["key"]
    return rows.filter(pc.or_(pc.equal(key, above), pc.starts_with(key, f"{above}/")))
