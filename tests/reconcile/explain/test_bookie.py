"""What a bookie holds, and what only it holds: as counting entry by entry in plain Python has it."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.explain import bookie as rule
from reconcile.explain.bookie import see_range
from recovery.dataset import sort_by_key
from recovery.model.ids import buckets
from tests.reconcile.rules.test_copies_properties import BOOKIES, Ledger, make_copies, make_stored


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    """A closed ledger of up to three segments, and any copies."""
    size = draw(st.integers(1, 4))
    write = draw(st.integers(1, size))
    last = draw(st.integers(-1, 40))
    starts = sorted({0, *draw(st.lists(st.integers(1, 40), max_size=2))})
    segments = [(first, draw(st.permutations(BOOKIES))[:size]) for first in starts]
    entries = st.sets(st.integers(0, 45), max_size=30)
    whole = st.just(set(range(last + 1)))
    held = draw(st.dictionaries(st.sampled_from(BOOKIES), st.one_of(entries, whole), max_size=4))
    return Ledger(write, 1, last, segments, held)


@given(st.lists(ledgers(), min_size=1, max_size=4), st.sampled_from([1, 7, 1 << 21]))
def test_any_cluster(made: list[Ledger], runs: int) -> None:
    """Segments, entries due, held and held alone, of every ledger that has to do with the bookie; of no other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule, "_RUNS", runs)
        copies = make_copies(made)
        rows = see_range("bk0", sort_by_key(make_stored(made)), with_counts(copies)).to_pylist()
    seen = {row["ledger"]: row for row in rows}
    for number, ledger in enumerate(made):
        ends = [*(first for first, _ in ledger.segments[1:]), ledger.last + 1]
        named = [place for place, (_, members) in enumerate(ledger.segments) if "bk0" in members]
        mine = ledger.held.get("bk0")
        if not named and mine is None:
            assert number not in seen
            continue
        others = set().union(*(held for name, held in ledger.held.items() if name != "bk0"))
        due = [
            entry
            for (first, members), end in zip(ledger.segments, ends, strict=True)
            for entry in range(first, min(end, ledger.last + 1))
            if "bk0" in [members[(entry + n) % len(members)] for n in range(ledger.write)]
        ]
        row = seen[number]
        assert row["segments"] == named
        assert (row["due"], row["held"], row["only"]) == (len(due), len(mine or ()), len((mine or set()) - others))
        assert row["listed"]


def count(group: dict[str, int]) -> int:
    """Entries of a group."""
    return ((group["last"] - group["first"]) // (group["period"] or 1) + 1) * group["size"]


def with_counts(copies: pa.Table) -> pa.Table:
    """COPIES with what inventories say of their groups beside them."""
    groups = copies["groups"].to_pylist()
    largest: list[dict[str, int]] = [max(of, key=count, default={}) for of in groups]
    put = {f"g_{name}": [one.get(name) for one in largest] for name in ("first", "last", "size", "period")}
    ids = copies["ledger"].to_numpy()
    put["bucket"] = buckets(np.zeros_like(ids), ids).tolist()
    put["g_count"] = [len(of) for of in groups]
    put["entries"] = [sum(map(count, of)) for of in groups]
    for name, values in put.items():
        field = copies.schema.field(name)
        copies = copies.set_column(copies.schema.get_field_index(name), field, pa.array(values, field.type))
    return copies


def test_a_ledger_that_no_record_names_is_there() -> None:
    """What a bookie holds and the store does not list has no state, and nothing is due of it."""
    copies = with_counts(make_copies([Ledger(1, 1, 3, [], {"bk0": {0, 1, 2}})]))
    (row,) = see_range("bk0", make_stored([]), copies).to_pylist()
    assert (row["listed"], row["state"], row["segments"], row["due"]) == (False, None, [], 0)
    assert (row["held"], row["only"]) == (3, 3)
