"""Where things stand in a metadata store: keys of ledgers in each layout, LAYOUT, generators, names of other nodes.

All keys are below the ledgers root and begin with a slash; the root itself is "/". ``D10`` and ``D19`` are the ledger
id with ten and nineteen decimal digits.

    layout              key of scope 0                                 ids
    flat                /L + D10                                       0 … 2^63 - 1 (longer ids are simply longer)
    legacy              D10 as /dd/dddd/Ldddd                          0 … 10^10 - 1
    longhierarchical    D19 as /ddd/dddd/dddd/dddd/Ldddd               0 … 2^63 - 1
    hierarchical        below 2147483647 as legacy, else as longhierarchical
    longlonghierarchical  as longhierarchical
    etcd                /ledgers/ and a UUID: scope, then ledger       in scope 0: 0 … 2^63 - 1

    scope other than 0, on ZooKeeper: /scoped, then scope and ledger as hex, /hhhh eight times, L before the last

LAYOUT is ``<1 or 2> LF <manager> : <manager version>``; the manager is a type name (1) or a factory class (2).

Source: apache/bookkeeper 9590a97, org.apache.bookkeeper.meta: LedgerLayout, *LedgerManager, AbstractZkLedgerManager,
LongZkLedgerIdGenerator; scoped keys: bookkeeper-metadata §3 (no released BookKeeper has them).
"""

import re
import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs.packing import Field, constant, pack
from recovery.errors import FormatError, Reason
from recovery.model.ids import LedgerId, signed


class Layout(StrEnum):
    """How a cluster arranges its ledgers; values are stored, so never renamed."""

    FLAT = "flat"
    LEGACY = "legacy"
    HIERARCHICAL = "hierarchical"
    LONGHIERARCHICAL = "longhierarchical"
    LONGLONGHIERARCHICAL = "longlonghierarchical"
    ETCD = "etcd"

    @classmethod
    def _missing_(cls, value: object) -> "Layout | None":
        """Take the longer name that store URIs have for `LEGACY`."""
        return cls.LEGACY if value == "legacyhierarchical" else None


ROOT: Final = "/"
LAYOUT: Final = "/LAYOUT"
INSTANCE_ID: Final = "/INSTANCEID"
COOKIES: Final = "/cookies"
AVAILABLE: Final = "/available"
READ_ONLY: Final = "/available/readonly"
UNDERREPLICATION: Final = "/underreplication"
MARKS: Final = "/underreplication/ledgers"
SCOPED_MARKS: Final = "/underreplication/scoped-ledgers"
LOCKS: Final = "/underreplication/locks"
REPLICATION_DISABLED: Final = "/underreplication/disable"
ETCD_LEDGERS: Final = "/ledgers"
ETCD_BUCKETS: Final = "/buckets"
SHORT_GENERATOR: Final = "/idgen"
LONG_GENERATOR: Final = "/idgen-long"
SCOPED: Final = "/scoped"
SCOPED_MARKER: Final = b"1\nlonglonghierarchical:hex4x8"
"""What the node `SCOPED` holds; LAYOUT itself never names scopes, since an unknown class there stops every bookie."""

FIRST_LONG_ID: Final = 2147483647
"""The smallest id that `Layout.HIERARCHICAL` keeps in the long tree, and the first that no short generator gives."""
LEGACY_IDS: Final = 10**10
BUCKET_BITS: Final = 56
"""On etcd an id has its bucket above so many bits, and below them the number of writes of the bucket's key."""

_SPECIAL: Final = frozenset(
    {
        "available",
        "cookies",
        "LAYOUT",
        "INSTANCEID",
        "underreplication",
        "idgen",
        "idgen-long",
        "disableHealthCheck",
        "scoped",
    }
)
_TEMPORARY_ID: Final = "ID-"

_FLAT_KEY: Final = re.compile(r"/L([0-9]{10}|[1-9][0-9]{10,18})")
_SHORT_KEY: Final = re.compile(r"/([0-9]{2})/([0-9]{4})/L([0-9]{4})")
_LONG_KEY: Final = re.compile(r"/([0-9]{3})/([0-9]{4})/([0-9]{4})/([0-9]{4})/L([0-9]{4})")
_ETCD_KEY: Final = re.compile(r"/ledgers/([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})")
_SCOPED_KEY: Final = re.compile(r"/scoped((?:/[0-9a-f]{4}){4})((?:/[0-9a-f]{4}){3}/L[0-9a-f]{4})")
_BUCKET_KEY: Final = re.compile(r"/buckets/([0-9]{3})")
_BUCKETS: Final = 128
_HIGH_ORDER: Final = re.compile(r"HOB-([0-9]{10})")
_SHORT_WIDTHS: Final = (2, 4, 4)
_LONG_WIDTHS: Final = (3, 4, 4, 4, 4)
_UUID_WIDTHS: Final = (8, 4, 4, 4, 12)
_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Places:
    """Keys of what a cluster has besides its ledgers.

    Attributes:
        layout, instance_id: keys.
        cookies: folder.
        registrations: folders of writable and of read-only bookies; the second may stand inside the first.
        folders: what a new cluster has, empty; the keys above them are made with them.
    """

    layout: str
    instance_id: str
    cookies: str
    registrations: tuple[str, str]
    folders: tuple[str, ...]


ON_ZOOKEEPER: Final = Places(LAYOUT, INSTANCE_ID, COOKIES, (AVAILABLE, READ_ONLY), (AVAILABLE, READ_ONLY, COOKIES))
ON_ETCD: Final = Places(
    "/layout",
    "/instanceid",
    COOKIES,
    ("/bookies/writable", "/bookies/readonly"),
    ("/bookies/writable", "/bookies/readonly", COOKIES, ETCD_LEDGERS, ETCD_BUCKETS, UNDERREPLICATION),
)


REGISTRATIONS: Final = (*ON_ZOOKEEPER.registrations, *ON_ETCD.registrations)
"""Of any store: what has no such folder has nobody registered in it."""


def places(layout: "Layout | str | None") -> Places:
    """Return where a cluster of a layout keeps what; None is any layout of ZooKeeper."""
    return ON_ETCD if layout == Layout.ETCD else ON_ZOOKEEPER


# Ledgers


def ledger_key(layout: Layout, ledger: LedgerId) -> str:
    """Return the key of a ledger.

    Raises:
        ValueError: the layout has no place for the id.
    """
    if layout is Layout.ETCD and (ledger.scope != 0 or ledger.ledger >= 0):
        return f"{ETCD_LEDGERS}/{uuid.UUID(ledger.qualified_name)}"
    if ledger.scope != 0:
        digits = ledger.qualified_name
        parts = [digits[at : at + 4] for at in range(0, 32, 4)]
        return "/".join((SCOPED, *parts[:-1], "L" + parts[-1]))
    number = ledger.ledger
    if number < 0 or (layout is Layout.LEGACY and number >= LEGACY_IDS):
        raise ValueError(f"layout {layout} has no place for ledger {ledger}")
    if layout is Layout.FLAT:
        return f"/L{number:010d}"
    short = _is_short(layout, number)
    widths = _SHORT_WIDTHS if short else _LONG_WIDTHS
    digits = f"{number:0{sum(widths)}d}"
    key, at = "", 0
    for width in widths:
        at += width
        key += ("/L" if at == len(digits) else "/") + digits[at - width : at]
    return key


def _is_short(layout: Layout, number: int) -> bool:
    return layout is Layout.LEGACY or (layout is Layout.HIERARCHICAL and number < FIRST_LONG_ID)


def ledger_of(layout: Layout, key: str) -> LedgerId | None:
    """Return the ledger whose record stands at a key; None if it is not exactly the key of one.

    BookKeeper's own listings take more (any name with digits in a leaf folder, an id in the wrong tree); what is found
    there would be read at another key.
    """
    if layout is Layout.ETCD:
        found = _ETCD_KEY.fullmatch(key)
        digits = "".join(found.groups()) if found else "f" * 32
        scope, ledger = (signed(int(half, 16)) for half in (digits[:16], digits[16:]))
        return LedgerId(scope, ledger) if found and (scope or ledger >= 0) else None
    if key.startswith(SCOPED + "/"):
        scoped = _SCOPED_KEY.fullmatch(key)
        if scoped is None:
            return None
        scope, ledger = (signed(int(half.replace("/", "").replace("L", ""), 16)) for half in scoped.groups())
        return LedgerId(scope, ledger) if scope else None
    pattern = _FLAT_KEY if layout is Layout.FLAT else _SHORT_KEY if key.count("/") == len(_SHORT_WIDTHS) else _LONG_KEY
    match = pattern.fullmatch(key)
    number = int("".join(match.groups())) if match else -1
    if not 0 <= number <= _MAX or _is_short(layout, number) != (pattern is _SHORT_KEY):
        return None
    return LedgerId(0, number)


def placeless(layout: Layout, scope: npt.NDArray[np.int64], ledger: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Say which ids a layout has no place for."""
    bad: npt.NDArray[np.bool_] = (scope == 0) & ((ledger < 0) | ((layout is Layout.LEGACY) & (ledger >= LEGACY_IDS)))
    return bad


def ledger_keys(layout: Layout, scope: npt.NDArray[np.int64], ledger: npt.NDArray[np.int64]) -> pa.Array:
    """Return the keys of many ledgers, as strings, in the given order.

    Raises:
        ValueError: the layout has no place for one of the ids.
    """
    scoped = scope != 0
    bad = placeless(layout, scope, ledger)
    if bad.any():
        raise ValueError(f"layout {layout} has no place for ledger {ledger[bad][0]}")
    if layout is Layout.ETCD:
        return _with_slashes(_hex_digits(scope, ledger), _UUID_WIDTHS, f"{ETCD_LEDGERS}/".encode(), b"-", b"")
    short = (
        np.zeros_like(scoped)
        if layout in (Layout.FLAT, Layout.LONGHIERARCHICAL, Layout.LONGLONGHIERARCHICAL)
        else ~scoped & ((layout is Layout.LEGACY) | (ledger < FIRST_LONG_ID))
    )
    parts, rows = [], []
    for where in map(np.flatnonzero, (short, ~scoped & ~short, scoped)):
        if len(where):
            rows.append(where)
            if scoped[where[0]]:
                parts.append(_scoped_keys(scope[where], ledger[where]))
            elif layout is Layout.FLAT:
                digits = pc.utf8_lpad(pa.array(ledger[where]).cast(pa.string()), 10, "0")
                parts.append(pc.binary_join_element_wise("/L", digits, ""))
            else:
                parts.append(_decimal_keys(ledger[where], _SHORT_WIDTHS if short[where[0]] else _LONG_WIDTHS))
    if len(parts) <= 1:
        return parts[0] if parts else pa.array([], pa.string())
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(rows))))


def _decimal_keys(ledger: npt.NDArray[np.int64], widths: tuple[int, ...]) -> pa.Array:
    digits = np.empty((len(ledger), sum(widths)), np.uint8)
    rest = ledger.copy()
    for column in range(digits.shape[1] - 1, -1, -1):
        rest, digit = np.divmod(rest, 10)
        digits[:, column] = digit + ord("0")
    return _with_slashes(digits, widths, b"/")


def _scoped_keys(scope: npt.NDArray[np.int64], ledger: npt.NDArray[np.int64]) -> pa.Array:
    return _with_slashes(_hex_digits(scope, ledger), (4,) * 8, SCOPED.encode() + b"/")


def _hex_digits(scope: npt.NDArray[np.int64], ledger: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    halves = np.stack([scope, ledger], axis=1).astype(">i8").view(np.uint8).reshape(len(scope), 16)
    nibbles = np.stack([halves >> 4, halves & 15], axis=2).reshape(len(scope), 32)
    return np.frombuffer(b"0123456789abcdef", np.uint8)[nibbles]


def _with_slashes(
    digits: npt.NDArray[np.uint8], widths: tuple[int, ...], start: bytes, between: bytes = b"/", leaf: bytes = b"L"
) -> pa.Array:
    fields, at = [], 0
    for index, width in enumerate(widths):
        lead = (start if index == 0 else between) + (leaf if index == len(widths) - 1 else b"")
        fields += [constant(lead), Field(digits[:, at : at + width])]
        at += width
    return pack(len(digits), *fields, kind=pa.string())


# LAYOUT and INSTANCEID

_PACKAGE: Final = "org.apache.bookkeeper.meta."
_FACTORIES: Final = {
    "FlatLedgerManagerFactory": Layout.FLAT,
    "LegacyHierarchicalLedgerManagerFactory": Layout.LEGACY,
    "HierarchicalLedgerManagerFactory": Layout.HIERARCHICAL,
    "LongHierarchicalLedgerManagerFactory": Layout.LONGHIERARCHICAL,
}
_FACTORY_NAMES: Final = {layout: name for name, layout in _FACTORIES.items()}
_ETCD_FACTORY: Final = "org.apache.bookkeeper.metadata.etcd.EtcdLedgerManagerFactory"
_ETCD_VERSION: Final = 0
_TYPES: Final = {"flat": Layout.FLAT, "hierarchical": Layout.HIERARCHICAL}
_MANAGER_VERSION: Final = 1


def layout_of(raw: bytes | memoryview) -> Layout:
    """Return the layout that the bytes of LAYOUT name; scopes are never named there.

    A factory class may have a shaded prefix in front of its package.

    Raises:
        FormatError: not the form of LAYOUT, or a manager or version that is not one of ours.
    """
    text = bytes(raw).decode(errors="replace")
    lines = text.split("\n")
    manager, colon, number = (lines[1] if len(lines) > 1 else "").partition(":")
    if not colon or ":" in number:
        raise FormatError(Reason.BAD_VALUE, LAYOUT, 0, f"not a layout: {text[:200]!r}")
    if lines[0] not in ("1", "2"):
        raise FormatError(Reason.BAD_VERSION, LAYOUT, 0, f"layout format {lines[0][:40]!r}")
    layout = _TYPES.get(manager)
    wanted = _MANAGER_VERSION
    if lines[0] == "2" and (manager == _ETCD_FACTORY or manager.endswith("." + _ETCD_FACTORY)):
        layout, wanted = Layout.ETCD, _ETCD_VERSION
    elif lines[0] == "2":
        shade, _, name = manager.rpartition(_PACKAGE)
        layout = _FACTORIES.get(name) if not shade or shade.endswith(".") else None
    if layout is None:
        raise FormatError(Reason.BAD_VALUE, LAYOUT, len(lines[0]) + 1, f"ledger manager {manager[:120]!r}")
    if number != str(wanted):
        raise FormatError(Reason.BAD_VERSION, LAYOUT, len(lines[0]) + 1, f"{manager[:120]} of version {number[:40]!r}")
    return layout


def layout_bytes(layout: Layout) -> bytes:
    """Return the LAYOUT that BookKeeper writes for a layout, in format 2."""
    if layout is Layout.ETCD:
        return f"2\n{_ETCD_FACTORY}:{_ETCD_VERSION}".encode()
    plain = Layout.LONGHIERARCHICAL if layout is Layout.LONGLONGHIERARCHICAL else layout
    return f"2\n{_PACKAGE}{_FACTORY_NAMES[plain]}:{_MANAGER_VERSION}".encode()


def decode_instance_id(raw: bytes | memoryview) -> str:
    """Return the instance id as cookies name it.

    Raises:
        FormatError: empty or not text.
    """
    try:
        text = bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise FormatError(Reason.BAD_VALUE, INSTANCE_ID, error.start, "not UTF-8") from None
    if not text:
        raise FormatError(Reason.EMPTY, INSTANCE_ID, 0)
    return text


def encode_instance_id(instance_id: str) -> bytes:
    """Return the bytes of INSTANCEID."""
    return instance_id.encode()


# Generators


def generator_key(layout: Layout) -> str:
    """Return the key whose counter of children gives short ids; in the flat layout that is the root."""
    return ROOT if layout is Layout.FLAT else SHORT_GENERATOR


def bucket_key(bucket: int) -> str:
    """Return the key whose writes give the ids of a bucket, 0 to 127, on etcd."""
    return f"{ETCD_BUCKETS}/{bucket:03d}"


def bucket_of(key: str) -> int | None:
    """Return the bucket whose ids a key's writes give, on etcd; None if it is no such key."""
    match = _BUCKET_KEY.fullmatch(key)
    return int(match[1]) if match and int(match[1]) < _BUCKETS else None


def numbers_taken(layout: Layout, ledger: npt.NDArray[np.int64], limit: int) -> dict[str, int]:
    """Return, for each key that gives numbers, the largest one up to a limit that some id shows to be given.

    Args:
        layout: on etcd each bucket has a key of its own, else there is one.
        ledger: ids of scope 0.
        limit: larger numbers are of ids that clients chose.
    """
    bits = BUCKET_BITS if layout is Layout.ETCD else 63
    number = ledger & ((1 << bits) - 1)
    given = (ledger >= 0) & (number <= limit) & ((layout is not Layout.ETCD) | (number > 0))
    found = {}
    for bucket in np.unique(ledger[given] >> bits).tolist():
        key = bucket_key(bucket) if layout is Layout.ETCD else generator_key(layout)
        found[key] = int(number[given & (ledger >> bits == bucket)].max())
    return found


def high_order_key(high: int) -> str:
    """Return the key whose counter of children gives the ids from ``high * 2**32`` on."""
    return f"{LONG_GENERATOR}/HOB-{high:010d}"


def high_order_of(name: str) -> int | None:
    """Return the upper half of the ids that a child of `LONG_GENERATOR` gives; None if it is no such child."""
    match = _HIGH_ORDER.fullmatch(name)
    return int(match[1]) if match else None


# Other nodes


def is_special(name: str) -> bool:
    """Whether a child of the root is known to be something else than ledgers."""
    return name in _SPECIAL or name.startswith(_TEMPORARY_ID)


def kind_of(key: str) -> str:
    """Return what a key that is no ledger's holds, as the table CATALOG_NODES names it."""
    parts = key.split("/")[1:]
    depth = len(parts)
    match parts:
        case ["LAYOUT" | "layout"]:
            return "layout"
        case ["INSTANCEID" | "instanceid"]:
            return "instance_id"
        case ["cookies", _]:
            return "cookie"
        case ["available", name] if name != "readonly":
            return "registration"
        case ["available", "readonly", _]:
            return "registration"
        case ["bookies", "writable" | "readonly", _]:
            return "registration"
        case ["buckets", _]:
            return "generator"
        case ["idgen" | "idgen-long", *_]:
            return "generator"
        case [name] if name.startswith(_TEMPORARY_ID):
            return "generator"
        case ["underreplication", "ledgers", *_, leaf] if depth > 2 and leaf.startswith("urL"):
            return "mark"
        case ["underreplication", "scoped-ledgers", *_, leaf] if depth > 2 and leaf.startswith("urS"):
            return "mark"
        case ["underreplication", "locks", _]:
            return "lock"
        case _:
            return "other"
