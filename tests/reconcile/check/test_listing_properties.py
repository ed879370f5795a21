"""Listing names finds exactly the ledgers whose keys these are, in every layout, whatever stands beside them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.memory import MemoryStore
from backends.protocols import Write
from reconcile.check.listing import ledgers_of_leaf, list_ledgers
from recovery.codecs.store import LEGACY_IDS, Layout, ledger_key, ledger_of
from recovery.model.ids import LedgerId

NUMBERS = st.one_of(
    st.integers(0, 30_000), st.integers(2_147_479_990, 2_147_490_010), st.integers((1 << 63) - 5, (1 << 63) - 1)
)
SCOPED = st.builds(LedgerId, st.integers(1, 3), st.integers(-2, 2))
LEAVES = [
    "/00/0000",
    "/21/4748",
    "/000/0000/0000/0000",
    "/000/0000/0021/4748",
    "/922/3372/0368/5477",
    "/999/9999/9999/9999",
]


@settings(max_examples=40)  # each opens its own threads
@given(st.sampled_from(list(Layout)), st.sets(NUMBERS, max_size=12), st.sets(SCOPED, max_size=3), st.booleans())
def test_what_was_put_is_listed(layout: Layout, numbers: set[int], scoped: set[LedgerId], strays: bool) -> None:
    """Every ledger that has a key is listed once; special nodes and names that are no ledger's never are."""
    wanted = {LedgerId(0, n) for n in numbers if layout is not Layout.LEGACY or n < LEGACY_IDS} | scoped
    store = MemoryStore()
    nodes = {"/available/readonly/b1", "/cookies/b1", "/idgen", "/underreplication/locks"}
    if strays:
        nodes |= {"/00/0000/tmp7", "/00/0000/L007", "/000/0000/0000/0000/L0x00", "/00/zzzz/L0001", "/0٣/0000/L0001"}
    nodes |= {ledger_key(layout, ledger) for ledger in wanted}
    store.write([Write("/ledgers" + key, b"") for key in sorted(nodes)])
    found = list_ledgers(store, "/ledgers", layout)
    listed = [LedgerId(row["scope"], row["ledger"]) for row in found.ids.to_pylist()]
    assert found.complete
    assert sorted(listed) == sorted(wanted)


@given(
    st.sampled_from([Layout.LEGACY, Layout.HIERARCHICAL, Layout.LONGHIERARCHICAL]),
    st.sampled_from(LEAVES),
    st.lists(st.one_of(st.from_regex(r"L[0-9]{4}", fullmatch=True), st.text("L0123456789٣x²", max_size=6)), max_size=8),
)
def test_a_leaf_at_once_is_a_leaf_name_by_name(layout: Layout, folder: str, names: list[str]) -> None:
    """The quick reading of a leaf takes what the codec takes, and nothing else."""
    short = folder.count("/") == 2
    if (layout is Layout.LEGACY and not short) or (layout is Layout.LONGHIERARCHICAL and short):
        return
    one_by_one = [ledger_of(layout, f"{folder}/{name}") for name in names]
    assert ledgers_of_leaf(layout, folder, names).tolist() == [found.ledger for found in one_by_one if found]
