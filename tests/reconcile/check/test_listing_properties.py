"""Listing names finds exactly the ledgers whose keys these are, in every layout, whatever stands beside them."""

from hypothesis import given
from hypothesis import strategies as st

from backends.protocols import Write
from reconcile.check.listing import list_ledgers
from recovery.codecs.store import LEGACY_IDS, Layout, ledger_key
from recovery.model.ids import LedgerId
from tests.support.memory_store import MemoryStore

NUMBERS = st.one_of(
    st.integers(0, 30_000), st.integers(2_147_479_990, 2_147_490_010), st.integers((1 << 63) - 5, (1 << 63) - 1)
)
SCOPED = st.builds(LedgerId, st.integers(1, 3), st.integers(-2, 2))


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
