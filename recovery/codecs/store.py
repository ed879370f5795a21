"""Where things are in a metadata store: keys of ledgers in each layout, LAYOUT, generators, names of other nodes.

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
LongZkLedgerIdGenerator; scoped keys: docs/formats/store-keys.md (no released BookKeeper has them).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from recovery.codecs import store_kind
from recovery.codecs.store_kind import KINDS, ZOOKEEPER, ClusterKeys, StoreKind
from recovery.errors import FormatError, Reason
from recovery.model.ids import LedgerId, to_signed


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
        """Accept the longer name of `LEGACY` in store URIs."""
        return cls.LEGACY if value == "legacyhierarchical" else None


ROOT: Final = "/"
LAYOUT: Final = ZOOKEEPER.places.layout
INSTANCE_ID: Final = ZOOKEEPER.places.instance_id
COOKIES: Final = ZOOKEEPER.places.cookies
AVAILABLE, READ_ONLY = ZOOKEEPER.places.registrations
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
"""Value of the node `SCOPED`; LAYOUT itself never names scopes, since an unknown class there stops every bookie."""

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

SHORT_FORM: Final = "/00/0000/L0000"
LONG_FORM: Final = "/000/0000/0000/0000/L0000"
SCOPED_FORM: Final = SCOPED + "/####" * 7 + "/L####"
ETCD_FORM: Final = ETCD_LEDGERS + "/########-####-####-####-############"
MARK_FORM: Final = MARKS + "/####" * 4 + "/urL"
"""Here 10 to 19 decimal digits follow."""
SCOPED_MARK_FORM: Final = SCOPED_MARKS + "/####" * 8 + "/urS" + "#" * 32
FLAT_PATTERN: Final = "/L([0-9]{10}|[1-9][0-9]{10,18})"
"""Keys of the flat layout have no form: their length varies."""
_PACKAGE: Final = "org.apache.bookkeeper.meta."


@dataclass(frozen=True, slots=True)
class LayoutForms:
    """The keys of ledgers in a layout, and how LAYOUT names it.

    Attributes:
        unscoped: forms of the keys of scope 0: 0 stands for a decimal digit, # for a hex digit.
        qualified: form of the keys of other scopes, of the whole id in hex digits.
        holds_all: keys of scope 0 have the form `qualified`, too.
        factory: class name in LAYOUT.
        version: of the manager, there.
    """

    unscoped: tuple[str, ...]
    factory: str
    qualified: str = SCOPED_FORM
    holds_all: bool = False
    version: int = 1


FORMS: Final[Mapping[Layout, LayoutForms]] = {
    Layout.FLAT: LayoutForms((), f"{_PACKAGE}FlatLedgerManagerFactory"),
    Layout.LEGACY: LayoutForms((SHORT_FORM,), f"{_PACKAGE}LegacyHierarchicalLedgerManagerFactory"),
    Layout.HIERARCHICAL: LayoutForms((SHORT_FORM, LONG_FORM), f"{_PACKAGE}HierarchicalLedgerManagerFactory"),
    Layout.LONGHIERARCHICAL: LayoutForms((LONG_FORM,), f"{_PACKAGE}LongHierarchicalLedgerManagerFactory"),
    Layout.LONGLONGHIERARCHICAL: LayoutForms((LONG_FORM,), f"{_PACKAGE}LongHierarchicalLedgerManagerFactory"),
    Layout.ETCD: LayoutForms(
        (), "org.apache.bookkeeper.metadata.etcd.EtcdLedgerManagerFactory", ETCD_FORM, holds_all=True, version=0
    ),
}
OWN_ROOT: Final = "-bkmeta"
"""Suffix of our own root after the key of the ledgers root; it has tombstones and archive marks."""
KIND_PATTERNS: Final = (
    ("layout", "/(LAYOUT|layout)"),
    ("instance_id", "/(INSTANCEID|instanceid)"),
    ("cookie", "/cookies/[^/]*"),
    ("other", READ_ONLY),
    ("registration", "/available/(readonly/)?[^/]*"),
    ("registration", "/bookies/(writable|readonly)/[^/]*"),
    ("generator", "/buckets/[^/]*"),
    ("generator", "/(idgen|idgen-long)(/.*)?"),
    ("generator", f"/{_TEMPORARY_ID}[^/]*"),
    ("mark", f"{MARKS}/(.*/)?urL[^/]*"),
    ("mark", f"{SCOPED_MARKS}/(.*/)?urS[^/]*"),
    ("lock", f"{LOCKS}/[^/]*"),
)
"""Kinds of keys without a ledger. The first pattern that fits the whole key gives the kind; else it is "other"."""


def _key_pattern(form: str) -> re.Pattern[str]:
    """Return the pattern of a form, with a group for each run of digits."""
    return re.compile(re.sub("0+|#+", lambda run: f"({_digits_pattern(run[0])})", form))


def _digits_pattern(run: str) -> str:
    return f"[0-9{'a-f' if run[0] == '#' else ''}]{{{len(run)}}}"


_FLAT_KEY: Final = re.compile(FLAT_PATTERN)
_SHORT_KEY: Final = _key_pattern(SHORT_FORM)
_LONG_KEY: Final = _key_pattern(LONG_FORM)
_QUALIFIED_KEYS: Final = {layout: _key_pattern(forms.qualified) for layout, forms in FORMS.items()}
_KIND_KEYS: Final = tuple((kind, re.compile(pattern, re.DOTALL)) for kind, pattern in KIND_PATTERNS)
_BUCKET_KEY: Final = re.compile(r"/buckets/([0-9]{3})")
_BUCKETS: Final = 128
_MAX: Final = (1 << 63) - 1


REGISTRATIONS: Final = tuple(folder for kind in KINDS for folder in kind.places.registrations)
"""Of any store: without such a folder, no bookie is registered in it."""


def places(layout: "Layout | str | None") -> ClusterKeys:
    """Return the keys of a cluster with a layout; None is any layout of ZooKeeper."""
    return store_kind.kind_of(layout).places


# Ledgers


def ledger_key(layout: Layout, ledger: LedgerId) -> str:
    """Return the key of a ledger.

    Raises:
        ValueError: the layout has no place for the id.
    """
    forms = FORMS[layout]
    if ledger.scope != 0 or (forms.holds_all and ledger.ledger >= 0):
        return _fill(forms.qualified, ledger.qualified_name)
    number = ledger.ledger
    if number < 0 or (layout is Layout.LEGACY and number >= LEGACY_IDS):
        raise ValueError(f"layout {layout} has no place for ledger {ledger}")
    if layout is Layout.FLAT:
        return f"/L{number:010d}"
    form = SHORT_FORM if _is_short(layout, number) else LONG_FORM
    return _fill(form, f"{number:0{form.count('0')}d}")


def mark_key(ledger: LedgerId) -> str:
    """Return the key of a ledger's mark for replication.

    Raises:
        ValueError: a negative id of scope 0; no layout has a place for one.
    """
    if ledger.scope:
        return _fill(SCOPED_MARK_FORM, ledger.qualified_name * 2)
    if ledger.ledger < 0:
        raise ValueError(f"no mark is of ledger {ledger}")
    return _fill(MARK_FORM, f"{ledger.ledger:016x}") + f"{ledger.ledger:010d}"


def _fill(form: str, digits: str) -> str:
    """Put digits in the places of a form."""
    left = iter(digits)
    return "".join(next(left) if character in "0#" else character for character in form)


def _is_short(layout: Layout, number: int) -> bool:
    forms = FORMS[layout].unscoped
    return SHORT_FORM in forms and (LONG_FORM not in forms or number < FIRST_LONG_ID)


def ledger_of(layout: Layout, key: str) -> LedgerId | None:
    """Return the ledger with its record at a key; None if it is not exactly the key of a record.

    BookKeeper's own listings take more (any name with digits in a leaf folder, an id in the wrong tree); what is found
    there would be read at another key.
    """
    holds_all = FORMS[layout].holds_all
    if holds_all or key.startswith(SCOPED + "/"):
        match = _QUALIFIED_KEYS[layout].fullmatch(key)
        if match is None:
            return None
        digits = "".join(match.groups())
        scope, ledger = (to_signed(int(half, 16)) for half in (digits[:16], digits[16:]))
        return LedgerId(scope, ledger) if scope or (holds_all and ledger >= 0) else None
    is_short = key.count("/") == SHORT_FORM.count("/")
    pattern = _FLAT_KEY if layout is Layout.FLAT else _SHORT_KEY if is_short else _LONG_KEY
    match = pattern.fullmatch(key)
    number = int("".join(match.groups())) if match else -1
    if not 0 <= number <= _MAX or _is_short(layout, number) != (pattern is _SHORT_KEY):
        return None
    return LedgerId(0, number)


def store_kind_of(key: str) -> StoreKind:
    """Return the kind of store that has a ledger's key."""
    qualified = (layout for layout, forms in FORMS.items() if forms.holds_all)
    return store_kind.kind_of(next((layout for layout in qualified if ledger_of(layout, key) is not None), None))


def folder_patterns(layout: Layout) -> tuple[tuple[str, ...], ...]:
    """Return, for each tree of ledgers below the root, patterns of the names of its inner nodes, level by level."""
    forms = (*FORMS[layout].unscoped, FORMS[layout].qualified)
    return tuple(
        tuple(re.sub("0+|#+", lambda run: _digits_pattern(run[0]), name) for name in form.split("/")[1:-1])
        for form in forms
    )


def find_placeless(
    layout: Layout, scope: npt.NDArray[np.int64], ledger: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return which ids a layout has no key for, as a mask."""
    bad: npt.NDArray[np.bool_] = (scope == 0) & ((ledger < 0) | ((layout is Layout.LEGACY) & (ledger >= LEGACY_IDS)))
    return bad


# LAYOUT and INSTANCEID

_TYPES: Final = {"flat": Layout.FLAT, "hierarchical": Layout.HIERARCHICAL}


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
    if lines[0] == "2":
        layout = next(
            (layout_named for layout_named, forms in FORMS.items() if f".{manager}".endswith(f".{forms.factory}")), None
        )
    else:
        layout = _TYPES.get(manager)
    if layout is None:
        raise FormatError(Reason.BAD_VALUE, LAYOUT, len(lines[0]) + 1, f"ledger manager {manager[:120]!r}")
    if number != str(FORMS[layout].version):
        raise FormatError(Reason.BAD_VERSION, LAYOUT, len(lines[0]) + 1, f"{manager[:120]} of version {number[:40]!r}")
    return layout


def layout_bytes(layout: Layout) -> bytes:
    """Return the LAYOUT that BookKeeper writes for a layout, in format 2."""
    return f"2\n{FORMS[layout].factory}:{FORMS[layout].version}".encode()


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


# Keys anywhere in a store


def name_outside(key: str) -> str:
    """Return the form of a store's key outside of the ledgers root in plans: with two slashes."""
    return f"/{key}"


def is_outside(key: str) -> bool:
    """Whether a key of a plan is not below the ledgers root."""
    return key.startswith("//")


def place_key(base: str, key: str, outside: str = "") -> str:
    """Return the store's key for a key of a plan or a journal.

    Args:
        base: key of the ledgers root, without a slash at its end.
        key: below it; or anywhere, as `name_outside` names it.
        outside: what the latter are put below; empty: they are where they say.
    """
    if is_outside(key):
        return outside + key[1:]
    return base + key if key != ROOT else base or ROOT


# Generators


def generator_key(layout: Layout) -> str:
    """Return the key with the counter of children that gives short ids; in the flat layout that is the root."""
    return ROOT if layout is Layout.FLAT else SHORT_GENERATOR


def bucket_key(bucket: int) -> str:
    """Return the key that is written to give the ids of a bucket, 0 to 127, on etcd."""
    return f"{ETCD_BUCKETS}/{bucket:03d}"


def bucket_of(key: str) -> int | None:
    """Return the bucket of ids that writes of a key give, on etcd; None if it is no such key."""
    match = _BUCKET_KEY.fullmatch(key)
    return int(match[1]) if match and int(match[1]) < _BUCKETS else None


def numbers_taken(layout: Layout, ledger: npt.NDArray[np.int64], limit: int) -> dict[str, int]:
    """Return, for each counting key, the largest number up to a limit that an id shows as used."""
    return {key: numbers[0] for key, numbers in list_largest_numbers(layout, ledger, limit, 1).items()}


def list_largest_numbers(layout: Layout, ledger: npt.NDArray[np.int64], limit: int, count: int) -> dict[str, list[int]]:
    """Return, for each counting key, the largest numbers that ids show as used, descending.

    Args:
        layout: on etcd each bucket has a key of its own, elsewhere one key serves all.
        ledger: ids of scope 0.
        limit: larger numbers are of ids that clients chose.
        count: numbers of a key, at most.
    """
    has_buckets = store_kind.kind_of(layout).has_bucket_counters
    bits = BUCKET_BITS if has_buckets else 63
    number = ledger & ((1 << bits) - 1)
    given = (ledger >= 0) & (number <= limit) & (number > 0 if has_buckets else number >= 0)
    number = number[given]
    if not has_buckets:
        return {generator_key(layout): _pick_largest(number, count)} if len(number) else {}
    bucket = ledger[given] >> bits
    return {bucket_key(b): _pick_largest(number[bucket == b], count) for b in np.unique(bucket).tolist()}


def _pick_largest(numbers: npt.NDArray[np.int64], count: int) -> list[int]:
    largest: list[int] = []
    while len(numbers) and len(largest) < count:
        largest.append(int(numbers.max()))
        numbers = numbers[numbers < largest[-1]]
    return largest


# Other nodes


def is_special(name: str) -> bool:
    """Whether a child of the root is known to be something else than ledgers."""
    return name in _SPECIAL or name.startswith(_TEMPORARY_ID)


def kind_of(key: str) -> str:
    """Return the kind of a key without a ledger, as CATALOG_NODES names it."""
    return next((kind for kind, pattern in _KIND_KEYS if pattern.fullmatch(key)), "other")
