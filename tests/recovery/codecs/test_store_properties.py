"""Keys of ledgers, for any id in any layout."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recovery.codecs import store
from recovery.codecs.keys import ledger_keys
from recovery.codecs.store import Layout
from recovery.errors import FormatError
from recovery.model.ids import LedgerId

HALVES = st.integers(-(1 << 63), (1 << 63) - 1)
EDGES = st.sampled_from([0, 9999, 10000, 2147483646, 2147483647, 2147483648, 10**10 - 1, 10**10, 10**18, (1 << 63) - 1])
PLAIN = st.builds(LedgerId, st.just(0), EDGES | st.integers(0, (1 << 63) - 1) | st.integers(0, 10**10))
SCOPED = st.builds(LedgerId, HALVES.filter(bool), HALVES)
LAYOUTS = st.sampled_from(Layout)


def has_place(layout: Layout, ledger: LedgerId) -> bool:
    """Whether a layout keeps this id."""
    return ledger.scope != 0 or layout is not Layout.LEGACY or ledger.ledger < store.LEGACY_IDS


@given(LAYOUTS, PLAIN | SCOPED)
def test_a_key_names_its_ledger(layout: Layout, ledger: LedgerId) -> None:
    """Wherever an id has a key, the key gives the id back."""
    if has_place(layout, ledger):
        assert store.ledger_of(layout, store.ledger_key(layout, ledger)) == ledger


@given(LAYOUTS, st.lists(PLAIN | SCOPED, max_size=8))
def test_keys_of_a_column_are_those_of_its_ids(layout: Layout, ledgers: list[LedgerId]) -> None:
    """Many keys at once, trees and scopes mixed, are the same as one by one, in the same order."""
    kept = [ledger for ledger in ledgers if has_place(layout, ledger)]
    scope = np.array([ledger.scope for ledger in kept], np.int64)
    half = np.array([ledger.ledger for ledger in kept], np.int64)
    assert ledger_keys(layout, scope, half).to_pylist() == [store.ledger_key(layout, one) for one in kept]


NAMES = st.one_of(
    st.text("0123456789", min_size=1, max_size=5),
    st.text("0123456789abcdefL", min_size=3, max_size=6),
    st.sampled_from(["scoped", "L0000", "0000", "LAYOUT", "", "ID-0000000001"]),
    st.text(max_size=4),
)


@given(LAYOUTS, st.lists(NAMES, max_size=10))
def test_a_name_is_exactly_a_ledgers_or_no_ledgers(layout: Layout, names: list[str]) -> None:
    """No two keys name one ledger: what parses is the very key that the ledger is read at."""
    key = "/" + "/".join(names)
    ledger = store.ledger_of(layout, key)
    assert ledger is None or store.ledger_key(layout, ledger) == key
    assert store.kind_of(key)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_layout_or_a_named_error(raw: bytes) -> None:
    """Nothing else comes out of a damaged LAYOUT or INSTANCEID."""
    for decode in (store.layout_of, store.decode_instance_id):
        try:
            decode(raw)
        except FormatError as error:
            assert error.reason  # noqa: PT017 - most bytes are refused, some are taken
