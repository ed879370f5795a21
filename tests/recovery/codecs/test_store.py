"""Keys of ledgers in every layout, LAYOUT, generators, and the names of other nodes."""

import numpy as np
import pyarrow as pa
import pytest

from recovery.codecs import store
from recovery.codecs.keys import ledger_keys
from recovery.codecs.store import Layout
from recovery.errors import FormatError, Reason
from recovery.model.ids import LedgerId

MAX = (1 << 63) - 1
HIERARCHICAL = "2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"

KEYS = [
    # ledger, flat, legacy, long, hierarchical
    (0, "/L0000000000", "/00/0000/L0000", "/000/0000/0000/0000/L0000", "/00/0000/L0000"),
    (1, "/L0000000001", "/00/0000/L0001", "/000/0000/0000/0000/L0001", "/00/0000/L0001"),
    (9999, "/L0000009999", "/00/0000/L9999", "/000/0000/0000/0000/L9999", "/00/0000/L9999"),
    (10000, "/L0000010000", "/00/0001/L0000", "/000/0000/0000/0001/L0000", "/00/0001/L0000"),
    (2147483646, "/L2147483646", "/21/4748/L3646", "/000/0000/0021/4748/L3646", "/21/4748/L3646"),
    (2147483647, "/L2147483647", "/21/4748/L3647", "/000/0000/0021/4748/L3647", "/000/0000/0021/4748/L3647"),
    (2147483648, "/L2147483648", "/21/4748/L3648", "/000/0000/0021/4748/L3648", "/000/0000/0021/4748/L3648"),
    (9999999999, "/L9999999999", "/99/9999/L9999", "/000/0000/0099/9999/L9999", "/000/0000/0099/9999/L9999"),
    (12345678901, "/L12345678901", None, "/000/0000/0123/4567/L8901", "/000/0000/0123/4567/L8901"),
    (MAX, "/L9223372036854775807", None, "/922/3372/0368/5477/L5807", "/922/3372/0368/5477/L5807"),
]
ORDER = (Layout.FLAT, Layout.LEGACY, Layout.LONGHIERARCHICAL, Layout.HIERARCHICAL)
CASES = [(layout, row[0], key) for row in KEYS for layout, key in zip(ORDER, row[1:], strict=True)]

SCOPED = [
    (1, 0, "/scoped/0000/0000/0000/0001/0000/0000/0000/L0000"),
    (1, 9999, "/scoped/0000/0000/0000/0001/0000/0000/0000/L270f"),
    (1, MAX, "/scoped/0000/0000/0000/0001/7fff/ffff/ffff/Lffff"),
    (0x0123456789ABCDEF, 42, "/scoped/0123/4567/89ab/cdef/0000/0000/0000/L002a"),
    (-1, -1, "/scoped/ffff/ffff/ffff/ffff/ffff/ffff/ffff/Lffff"),
]


@pytest.mark.parametrize(("layout", "ledger", "key"), CASES)
def test_keys_are_bookkeepers(layout: Layout, ledger: int, key: str | None) -> None:
    """The keys that BookKeeper's own helpers give, both ways; where those cut an id short, there is no key."""
    if key is None:
        with pytest.raises(ValueError, match="no place"):
            store.ledger_key(layout, LedgerId(0, ledger))
    else:
        assert store.ledger_key(layout, LedgerId(0, ledger)) == key
        assert store.ledger_of(layout, key) == LedgerId(0, ledger)


@pytest.mark.parametrize(
    ("scope", "ledger", "name"),
    [
        (0, 0, "00000000-0000-0000-0000-000000000000"),
        (0, 9999, "00000000-0000-0000-0000-00000000270f"),
        (0, 2147483648, "00000000-0000-0000-0000-000080000000"),
        (0, 119 << 56 | 1, "00000000-0000-0000-7700-000000000001"),
        (0, (1 << 63) - 1, "00000000-0000-0000-7fff-ffffffffffff"),
        (1, 5, "00000000-0000-0001-0000-000000000005"),
        (0x0123456789ABCDEF, 42, "01234567-89ab-cdef-0000-00000000002a"),
        (-1, -1, "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    ],
)
def test_on_etcd_both_halves_are_one_key(scope: int, ledger: int, name: str) -> None:
    """The keys of BookKeeper's driver, which has scope 0 only, and those of other scopes, both ways."""
    assert store.ledger_key(Layout.ETCD, LedgerId(scope, ledger)) == f"/ledgers/{name}"
    assert store.ledger_of(Layout.ETCD, f"/ledgers/{name}") == LedgerId(scope, ledger)


@pytest.mark.parametrize(
    "key",
    [
        "/ledgers",
        "/ledgers/zzz",
        "/ledgers/00000000-0000-0000-8000-000000000000",
        "/ledgers/00000000-0000-0000-0000-00000000270F",
        "/ledgers/0000000000000000000000000000270f",
        "/ledgers/00000000-0000-0000-0000-00000000270f/x",
        "/cookies/00000000-0000-0000-0000-00000000270f",
    ],
)
def test_other_keys_on_etcd_are_no_ledgers(key: str) -> None:
    """What BookKeeper could not have written, and ids below 0, are never taken for a ledger."""
    assert store.ledger_of(Layout.ETCD, key) is None


@pytest.mark.parametrize("layout", [layout for layout in Layout if layout is not Layout.ETCD])
@pytest.mark.parametrize(("scope", "ledger", "key"), SCOPED)
def test_scoped_keys_are_the_same_in_every_layout(layout: Layout, scope: int, ledger: int, key: str) -> None:
    """A scope other than 0 has its own tree of hex digits beside the cluster's."""
    assert store.ledger_key(layout, LedgerId(scope, ledger)) == key
    assert store.ledger_of(layout, key) == LedgerId(scope, ledger)


def test_scope_0_of_the_scoped_layout_is_the_long_tree() -> None:
    """Today's clients find the ledgers of scope 0 where they always were."""
    assert store.ledger_key(Layout.LONGLONGHIERARCHICAL, LedgerId(0, 9999)) == "/000/0000/0000/0000/L9999"


@pytest.mark.parametrize(
    ("layout", "key"),
    [
        (Layout.HIERARCHICAL, "/21/4748/L3647"),
        (Layout.HIERARCHICAL, "/000/0000/0021/4748/L3646"),
        (Layout.HIERARCHICAL, "/00/0000/tmp7"),
        (Layout.HIERARCHICAL, "/00/0000/L00001"),
        (Layout.HIERARCHICAL, "/00/0000/l0001"),
        (Layout.HIERARCHICAL, "/00/0000/L0001/x"),
        (Layout.HIERARCHICAL, "/00/0000"),
        (Layout.HIERARCHICAL, "/LAYOUT"),
        (Layout.HIERARCHICAL, "00/0000/L0001"),
        (Layout.HIERARCHICAL, "/\u0660\u0660/0000/L0001"),
        (Layout.LEGACY, "/000/0000/0021/4748/L3647"),
        (Layout.LONGHIERARCHICAL, "/00/0000/L0001"),
        (Layout.LONGHIERARCHICAL, "/999/9999/9999/9999/L9999"),
        (Layout.FLAT, "/L1"),
        (Layout.FLAT, "/L01234567890"),
        (Layout.FLAT, "/L9223372036854775808"),
        (Layout.FLAT, "/00/0000/L0001"),
        (Layout.HIERARCHICAL, "/scoped/0000/0000/0000/0000/0000/0000/0000/L0001"),
        (Layout.HIERARCHICAL, "/scoped/0000/0000/0000/0001/0000/0000/0000/L270F"),
        (Layout.HIERARCHICAL, "/scoped/0000/0000/0000/0001/0000/0000/0000/270f"),
        (Layout.HIERARCHICAL, "/scoped"),
        (Layout.HIERARCHICAL, ""),
    ],
)
def test_only_the_exact_key_is_a_ledgers(layout: Layout, key: str) -> None:
    """A name that BookKeeper's listing would take, but whose ledger is read elsewhere, is no ledger's key."""
    assert store.ledger_of(layout, key) is None


@pytest.mark.parametrize("layout", Layout)
def test_negative_ids_of_scope_0_have_no_key(layout: Layout) -> None:
    """They are not valid in BookKeeper: the caller's mistake, one by one and in columns."""
    with pytest.raises(ValueError, match="no place"):
        store.ledger_key(layout, LedgerId(0, -1))
    with pytest.raises(ValueError, match="no place"):
        ledger_keys(layout, np.zeros(2, np.int64), np.array([1, -1]))


def test_columns_without_ids_have_no_keys() -> None:
    """An empty column of strings, not of nulls."""
    found = ledger_keys(Layout.FLAT, np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert (len(found), found.type) == (0, pa.string())


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        (HIERARCHICAL, Layout.HIERARCHICAL),
        (HIERARCHICAL.replace("Hier", "LegacyHier"), Layout.LEGACY),
        (HIERARCHICAL.replace("Hier", "LongHier"), Layout.LONGHIERARCHICAL),
        (HIERARCHICAL.replace("Hierarchical", "Flat"), Layout.FLAT),
        (HIERARCHICAL.replace("org.", "dlshade.org."), Layout.HIERARCHICAL),
        (HIERARCHICAL.replace("org.", "shaded.by.us.org."), Layout.HIERARCHICAL),
        (HIERARCHICAL + "\nand more\n", Layout.HIERARCHICAL),
        ("1\nflat:1", Layout.FLAT),
        ("1\nhierarchical:1\n", Layout.HIERARCHICAL),
    ],
)
def test_layouts_are_read(text: str, layout: Layout) -> None:
    """Both formats, a shaded class, and lines after the second."""
    assert store.layout_of(text.encode()) is layout


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", Reason.BAD_VALUE),
        (b"2\n", Reason.BAD_VALUE),
        (b"2", Reason.BAD_VALUE),
        (b"\xff\xfe\n", Reason.BAD_VALUE),
        (HIERARCHICAL.encode() + b":1", Reason.BAD_VALUE),
        (HIERARCHICAL.encode().replace(b":1", b""), Reason.BAD_VALUE),
        (HIERARCHICAL.encode().replace(b":1", b":2"), Reason.BAD_VERSION),
        (HIERARCHICAL.encode().replace(b"2\n", b"3\n"), Reason.BAD_VERSION),
        (HIERARCHICAL.encode().replace(b"org.", b"notorg."), Reason.BAD_VALUE),
        (HIERARCHICAL.encode().replace(b"Hierarchical", b"MS"), Reason.BAD_VALUE),
        (b"2\nhierarchical:1", Reason.BAD_VALUE),
        (b"2\nHierarchicalLedgerManagerFactory:1", Reason.BAD_VALUE),
        (b"2\nEtcdLedgerManagerFactory:0", Reason.BAD_VALUE),
        (b"1\nlonghierarchical:1", Reason.BAD_VALUE),
        (b"2\norg.apache.bookkeeper.metadata.etcd.EtcdLedgerManagerFactory:1", Reason.BAD_VERSION),
        (b"2\nnotorg.apache.bookkeeper.metadata.etcd.EtcdLedgerManagerFactory:0", Reason.BAD_VALUE),
        (store.SCOPED_MARKER, Reason.BAD_VALUE),
    ],
)
def test_layouts_that_are_not_ours_are_refused_by_name(raw: bytes, reason: Reason) -> None:
    """An unknown manager must never pass for a known one: a wrong layout reads as an empty store."""
    with pytest.raises(FormatError) as refusal:
        store.layout_of(raw)
    assert refusal.value.reason is reason
    assert refusal.value.source == "/LAYOUT"


def test_layouts_are_written_as_bookkeeper_writes_them() -> None:
    """Format 2 without a line end; scopes never appear there, since an unknown class would stop every bookie."""
    assert store.layout_bytes(Layout.HIERARCHICAL) == HIERARCHICAL.encode()
    assert store.layout_of(store.layout_bytes(Layout.LONGLONGHIERARCHICAL)) is Layout.LONGHIERARCHICAL
    for layout in ORDER:
        assert store.layout_of(store.layout_bytes(layout)) is layout


def test_a_store_uris_longer_name_is_a_layout() -> None:
    """The scheme zk+legacyhierarchical names the layout that is stored as legacy; anything else is none."""
    assert Layout("legacyhierarchical") is Layout.LEGACY
    with pytest.raises(ValueError, match="ms"):
        Layout("ms")


def test_instance_ids_are_text() -> None:
    """Any text goes both ways; nothing and bytes that are no text are refused."""
    name = "d1a6f3b2-0c6e-4a57-9a5b-5d0d1c2e3f40"
    assert store.decode_instance_id(store.encode_instance_id(name)) == name
    for raw, reason in ((b"", Reason.EMPTY), (b"ab\xff", Reason.BAD_VALUE)):
        with pytest.raises(FormatError) as refusal:
            store.decode_instance_id(raw)
        assert refusal.value.reason is reason


def test_generators_have_their_keys() -> None:
    """Short ids come from the children of one node, the root itself in the flat layout."""
    assert store.generator_key(Layout.FLAT) == "/"
    assert {store.generator_key(layout) for layout in Layout if layout is not Layout.FLAT} == {"/idgen"}


@pytest.mark.parametrize(
    "name",
    [
        *("available", "cookies", "LAYOUT", "INSTANCEID", "underreplication", "idgen", "idgen-long", "ID-0000000001"),
        *("disableHealthCheck", "scoped"),
    ],
)
def test_special_names_are_no_ledgers(name: str) -> None:
    """The names that BookKeeper passes over, the one that it forgets, and ours."""
    assert store.is_special(name)
    assert store.ledger_of(Layout.FLAT, f"/{name}") is None


def test_other_names_are_not_special() -> None:
    """Neither ledgers nor strangers are passed over."""
    assert not any(map(store.is_special, ("00", "000", "L0000000001", "layout", "Available", "scopes")))


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("/", "other"),
        ("/LAYOUT", "layout"),
        ("/INSTANCEID", "instance_id"),
        ("/cookies", "other"),
        ("/cookies/10.0.0.1:3181", "cookie"),
        ("/available", "other"),
        ("/available/10.0.0.1:3181", "registration"),
        ("/available/readonly", "other"),
        ("/available/readonly/10.0.0.1:3181", "registration"),
        ("/idgen", "generator"),
        ("/idgen/ID-0000000001", "generator"),
        ("/ID-0000000001", "generator"),
        ("/idgen-long/HOB-0000000001", "generator"),
        ("/underreplication", "other"),
        ("/underreplication/LAYOUT", "other"),
        ("/underreplication/ledgers", "other"),
        ("/underreplication/ledgers/0000/0000/0000/0001", "other"),
        ("/underreplication/ledgers/0000/0000/0000/0001/urL0000000001", "mark"),
        ("/underreplication/scoped-ledgers/0000/0000/0000/0007/0000/0000/0000/0001/urS" + "0" * 32, "mark"),
        ("/underreplication/locks", "other"),
        ("/underreplication/locks/urL0000000001", "lock"),
        ("/underreplication/disable", "other"),
        ("/disableHealthCheck", "other"),
        ("/00/0000/tmp7", "other"),
        ("/scoped", "other"),
    ],
)
def test_every_node_has_its_kind(key: str, kind: str) -> None:
    """What a node holds, as the catalog names it."""
    assert store.kind_of(key) == kind


def test_numbers_taken_are_those_that_a_generator_can_have_given() -> None:
    """On ZooKeeper one counter, on etcd one for each bucket; ids of clients, and a bucket's number 0, are left out."""
    ids = np.array([0, 7, 99, 5_000, 3 << 56, 3 << 56 | 4, 3 << 56 | 2, 119 << 56 | 1, 4 << 56 | 101, (1 << 63) - 1])
    assert store.numbers_taken(Layout.HIERARCHICAL, ids, 100) == {"/idgen": 99}
    assert store.numbers_taken(Layout.FLAT, ids, 10_000) == {"/": 5_000}
    assert store.numbers_taken(Layout.ETCD, ids, 100) == {"/buckets/000": 99, "/buckets/003": 4, "/buckets/119": 1}
    assert store.numbers_taken(Layout.ETCD, ids[:0], 100) == {}
