"""Columns of store keys say what the codec of single keys says, for any key."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from recovery.codecs import keys, store
from recovery.codecs.store import Layout
from recovery.model.ids import LedgerId

HALVES = st.integers(-(1 << 63), (1 << 63) - 1)
EDGES = st.sampled_from([0, 9999, 10000, 2147483646, 2147483647, 2147483648, 10**10 - 1, 10**10, (1 << 63) - 1])
LEDGERS = st.builds(LedgerId, st.just(0), EDGES | st.integers(0, (1 << 63) - 1)) | st.builds(
    LedgerId, HALVES.filter(bool), HALVES
)
LAYOUTS = st.sampled_from(Layout)
_WORDS = (
    "scoped L0000 0000 00 000 0123 abcd LAYOUT INSTANCEID cookies available x readonly idgen idgen-long ID-0000000001 "
    "underreplication ledgers scoped-ledgers locks urL0000000001 urS L9999999999 L9223372036854775808 L0123456789 "
    "L01234567890 b1:3181 layout instanceid bookies writable buckets 007 00000000-0000-0000-0000-00000000270f"
)
PARTS = st.one_of(
    st.sampled_from(["", *_WORDS.split()]),
    st.text("0123456789", min_size=1, max_size=20),
    st.text("0123456789abcdefL", min_size=3, max_size=6),
    st.text(max_size=4),
)


@st.composite
def any_keys(draw: st.DrawFn) -> list[str]:
    """Keys of ledgers in any layout, with a character changed, and keys of all else."""
    found = []
    for ledger in draw(st.lists(LEDGERS, max_size=6)):
        layout = draw(LAYOUTS)
        if layout is Layout.LEGACY and ledger.scope == 0 and ledger.ledger >= store.LEGACY_IDS:
            continue
        key = store.ledger_key(layout, ledger)
        found.append(key)
        at = draw(st.integers(0, len(key) - 1))
        found.append(key[:at] + draw(st.sampled_from("/0a9Lé")) + key[at + 1 :])
    names = draw(st.lists(st.lists(PARTS, max_size=9), max_size=6))
    return found + ["/" + "/".join(parts) for parts in names]


@given(LAYOUTS, any_keys())
def test_columns_find_the_ledgers_that_single_keys_name(layout: Layout, found: list[str]) -> None:
    """The same keys are ledgers', with the same ids, in the order of the keys; slices too."""
    padded = pa.array(["/L0000000001", *found], pa.string()).slice(1)
    columns = keys.ledgers_of(layout, padded)
    alone = [(row, store.ledger_of(layout, key)) for row, key in enumerate(found)]
    expected = [(row, ledger.scope, ledger.ledger) for row, ledger in alone if ledger is not None]
    assert [*zip(columns.rows.tolist(), columns.scope.tolist(), columns.ledger.tolist(), strict=True)] == expected


@given(any_keys())
def test_columns_give_the_kinds_that_single_keys_give(found: list[str]) -> None:
    """Every key has one kind, the same both ways."""
    assert keys.kinds_of(pa.array(found, pa.string())).to_pylist() == [store.kind_of(key) for key in found]


@given(LAYOUTS, LEDGERS)
def test_every_folder_above_a_ledger_is_known_as_one(layout: Layout, ledger: LedgerId) -> None:
    """All nodes between the root and a ledger, but for `/scoped` and etcd's `/ledgers`, are folders."""
    if layout is Layout.LEGACY and ledger.scope == 0 and ledger.ledger >= store.LEGACY_IDS:
        return
    parts = store.ledger_key(layout, ledger).split("/")
    above = ["/".join(parts[:depth]) for depth in range(2, len(parts) + 1)]
    said = keys.are_folders(layout, pa.array(above, pa.string())).to_pylist()
    assert said == [key not in (store.SCOPED, store.ETCD_LEDGERS) for key in above[:-1]] + [False]


@given(st.lists(LEDGERS, max_size=5))
def test_marks_name_their_ledgers(ledgers: list[LedgerId]) -> None:
    """A mark's key gives its ledger; one whose folders and name disagree gives none."""
    marks = []
    for ledger in ledgers:
        digits = ledger.qualified_name
        if ledger.scope:
            folders = "/".join(digits[at : at + 4] for at in range(0, 32, 4))
            marks.append(f"{store.SCOPED_MARKS}/{folders}/urS{digits}")
        else:
            folders = "/".join(digits[16 + at : 20 + at] for at in range(0, 16, 4))
            marks.append(f"{store.MARKS}/{folders}/urL{ledger.ledger:010d}")
    wrong = [f"{store.MARKS}/0000/0000/0000/0001/urL0000000002", f"{store.MARKS}/0000/0000/0000/0001/urL00000000001"]
    halves = [np.array(column, np.int64) for column in zip(*((one.scope, one.ledger) for one in ledgers), strict=True)]
    assert not ledgers or keys.mark_keys(*halves) == marks
    found = keys.read_marks(pa.array(wrong + marks, pa.string()))
    assert found.rows.tolist() == list(range(2, 2 + len(marks)))
    assert [LedgerId(*pair) for pair in zip(found.scope.tolist(), found.ledger.tolist(), strict=True)] == ledgers
