"""Which ids are used: every source that names one counts, so that no generator gives it again."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from reconcile.rules import nodes as beside
from reconcile.rules import used_ids
from reconcile.rules.nodes import InventoriedBookies, Side
from reconcile.rules.used_ids import NamedIds, UsedNumbers
from recovery.codecs import store
from recovery.codecs.store import Layout
from recovery.model import tables


def rows(*ids: tuple[int, int]) -> pa.Table:
    """Scope and ledger of each."""
    return sides(*ids).select(["scope", "ledger"])


def sides(*ids: tuple[int, int], stored: Sequence[int] = ()) -> pa.Table:
    """SIDES of ledgers, some of which a store has."""
    made = [{"scope": scope, "ledger": ledger, "in_store": ledger in stored, "in_earlier": False}
            for scope, ledger in ids]  # fmt: skip
    columns = [("scope", pa.int64()), ("ledger", pa.int64()), ("in_store", pa.bool_()), ("in_earlier", pa.bool_())]
    return pa.Table.from_pylist(made, schema=pa.schema(columns))


def nodes(**counters: int | None) -> pa.Table:
    """CATALOG_NODES of keys, with the number that each gives next."""
    made = [{"path": path, "kind": "generator", "raw": b"", "version": 0, "children_created": next_id}
            for path, next_id in counters.items()]  # fmt: skip
    return pa.Table.from_pylist(made, schema=tables.CATALOG_NODES)


def test_ids_of_every_side_of_history_and_of_references_count_once() -> None:
    """What was deleted counts, and so does what only an upper layer names; other scopes have no generator."""
    references = rows((0, 70_000), (3, 9))
    ids = used_ids.gather_ids_of_ledgers(
        sides((0, 1), (0, 2), (0, 3), (1, 5), stored=[3]), rows((0, 2), (0, 900)), references
    )
    assert sorted(ids.recorded.tolist()) == [2, 3, 900, 70_000]
    assert ids.on_bookies.tolist() == [1]
    nothing = used_ids.gather_ids_of_ledgers(sides(), rows(), None)
    assert (nothing.recorded.tolist(), nothing.on_bookies.tolist()) == ([], [])


@pytest.mark.parametrize(
    ("layout", "counters", "ids"),
    [
        (Layout.HIERARCHICAL, {"/idgen": 60_000, "/": 7}, [59_999]),
        (Layout.LEGACY, {"/idgen": 1}, [0]),
        (Layout.FLAT, {"/idgen": 60_000, "/": 7}, [6]),
        (Layout.LONGHIERARCHICAL, {"/idgen": 0}, []),
        (Layout.HIERARCHICAL, {"/idgen": None}, []),
        (Layout.ETCD, {"/buckets/003": 9, "/buckets/127": 2, "/idgen": 5}, [3 << 56 | 8, 127 << 56 | 1]),
        (Layout.ETCD, {"/buckets/128": 2, "/buckets": 2}, []),
    ],
)  # fmt: skip
def test_the_last_id_that_a_counter_gave(layout: Layout, counters: dict[str, int | None], ids: list[int]) -> None:
    """A counter says the number that it gives next; each layout has its own counters."""
    assert used_ids.of_counters([(nodes(**counters), layout)]).recorded.tolist() == ids


def test_the_largest_id_that_files_of_bookies_name() -> None:
    """Of scope 0, of every bookie."""
    column = pa.array(
        [[{"scope": 0, "ledger": 8}, {"scope": 2, "ledger": 99}], []], tables.BOOKIES.field("max_ids").type
    )
    assert used_ids.gather_ids_of_bookies(pa.table({"max_ids": column})).on_bookies.tolist() == [8]


def test_numbers_of_a_layout() -> None:
    """The counter is raised past the largest below the limit; larger ones are counted, apart from long ids."""
    ids = np.array([5, used_ids.RAISE_LIMIT, used_ids.RAISE_LIMIT + 1, 1 << 40])
    found = used_ids.numbers(Layout.HIERARCHICAL, NamedIds(ids, ids))
    assert found == UsedNumbers({"/idgen": used_ids.RAISE_LIMIT}, {"/idgen": [used_ids.RAISE_LIMIT, 5]}, 2, 4)
    on_etcd = used_ids.numbers(Layout.ETCD, NamedIds(np.array([3 << 56 | 8, (3 << 56) + used_ids.RAISE_LIMIT + 1])))
    assert on_etcd == UsedNumbers({"/buckets/003": 8}, {}, 1, 1)


def part(on_bookies: Sequence[int], recorded: int | None = None) -> UsedNumbers:
    """What one bucket range says."""
    ids = NamedIds(np.array([] if recorded is None else [recorded], np.int64), np.array(on_bookies, np.int64))
    return used_ids.numbers(Layout.HIERARCHICAL, ids)


WRONG = 67_108_886
"""22, with one bit wrong."""


@pytest.mark.parametrize(
    ("parts", "raise_past", "taken", "far"),
    [
        ([part([22, 1_029]), part([WRONG, 7])], None, 1_029, [WRONG]),
        ([part([22, WRONG // 2]), part([WRONG, 7])], None, 22, [WRONG, WRONG // 2]),
        ([part([22, 1_029]), part([WRONG, 7])], WRONG, WRONG, []),
        ([part([22, 1_029]), part([WRONG, 7])], 5_000, 1_029, [WRONG]),
        ([part([WRONG, 7], recorded=60_000)], None, 60_000, [WRONG]),
        # A store, a snapshot or an upper layer that knows such an id is believed, and what stands near it, too.
        ([part([WRONG, 7], recorded=WRONG - 5)], None, WRONG, []),
        ([part([7], recorded=WRONG)], None, WRONG, []),
        # Many of them are no damage; one that is alone stands above nothing.
        ([part(range(9)), part(range(WRONG, WRONG + 9))], None, WRONG + 8, []),
        ([part(range(9)), part(range(WRONG, WRONG + 8))], None, 8, list(range(WRONG + 7, WRONG - 1, -1))),
        ([part([WRONG])], None, WRONG, []),
        ([part([900_000, 7])], None, 900_000, []),
        ([part([2_000_000, 1_500_000])], None, 2_000_000, []),
        # More than a million above, and more than twice: just not, and just.
        ([part([1_000_007, 7])], None, 1_000_007, []),
        ([part([1_000_008, 7])], None, 7, [1_000_008]),
        ([part([4_000_000, 2_000_000])], None, 4_000_000, []),
        ([part([4_000_001, 2_000_000])], None, 2_000_000, [4_000_001]),
    ],
)
def test_ids_far_above_all_others_raise_nothing_without_a_person(
    parts: list[UsedNumbers], raise_past: int | None, taken: int, far: list[int]
) -> None:
    """Whatever range of buckets they are in; what is left out is named, each with the largest other id."""
    raises = used_ids.decide_raises(parts, raise_past)
    assert raises.taken == {"/idgen": taken}
    assert [number for _, number in raises.far_above] == far
    named = list(beside.list_far_ids(raises))
    assert [(row.category, row.subject) for row in named] == [("ID_FAR_ABOVE", f"/idgen {n}") for n in far]


def test_on_etcd_counters_are_weighed_together() -> None:
    """Buckets take turns, so their numbers are alike: an id far above those of other buckets is far above."""
    ids = NamedIds(on_bookies=np.array([3 << 56 | 8, 4 << 56 | 9, 5 << 56 | WRONG]))
    raises = used_ids.decide_raises([used_ids.numbers(Layout.ETCD, ids)])
    assert raises.taken == {"/buckets/003": 8, "/buckets/004": 9}
    assert raises.far_above == (("/buckets/005", WRONG),)


@pytest.mark.parametrize(
    ("next_id", "largest", "behind"), [(None, 0, True), (0, 0, True), (5, 6, True), (5, 5, True), (5, 4, False)]
)
def test_a_counter_that_gives_a_used_id_next_is_behind(next_id: int | None, largest: int, *, behind: bool) -> None:
    """Equal is behind: the number is the one that it gives next. What the plan raises is only a warning."""
    assert used_ids.is_behind(next_id, largest) == behind
    now = Side.from_catalog("store", "zk", nodes(**{"/idgen": next_id}), 1, complete=True)
    for raised in (False, True):
        found = list(
            beside.findings(
                now,
                None,
                InventoriedBookies(),
                layout=Layout.HIERARCHICAL,
                taken={"/idgen": largest},
                raised=frozenset({"/idgen"} if raised else ()),
                now=datetime(2030, 1, 1, tzinfo=UTC),
            )
        )
        # Where the store does not say how far it is, nothing is said of it.
        expected = [("/idgen", "warning" if raised else "critical")] if behind and next_id is not None else []
        assert [(row.subject, row.severity) for row in found] == expected


def test_of_nothing_nothing_is_used() -> None:
    """Records that say nothing count nothing, and no number stands below; the bounds are those that the page names."""
    assert UsedNumbers() == UsedNumbers({}, {}, 0, 0)
    assert used_ids.RaiseTargets({}) == used_ids.RaiseTargets({}, (), -1) == used_ids.decide_raises([])
    assert (used_ids.RAISE_LIMIT, used_ids.FEW_IDS, used_ids.FAR_ABOVE) == (100_000_000, 8, 1_000_000)


def test_the_next_number_below_is_of_any_counter_and_of_who_says_how_far() -> None:
    """A person's word counts as a number that is used."""
    assert used_ids.decide_raises([part([WRONG, 7])], 5_000).next_below == 5_000
    assert used_ids.decide_raises([part([WRONG, 7])]).next_below == 7


def test_ids_just_inside_and_just_outside_of_what_generators_give() -> None:
    """Short ids end where long ones begin; no counter is raised past its limit, on etcd within each bucket."""
    first, limit, bucket = store.FIRST_LONG_ID, used_ids.RAISE_LIMIT, 3 << store.BUCKET_BITS
    for layout, ids, above in (
        (Layout.HIERARCHICAL, [first - 1], (0, 1)),
        (Layout.HIERARCHICAL, [first], (1, 1)),
        (Layout.HIERARCHICAL, [limit], (0, 0)),
        (Layout.HIERARCHICAL, [limit + 1], (0, 1)),
        (Layout.ETCD, [bucket | limit], (0, 0)),
        (Layout.ETCD, [bucket | (limit + 1)], (1, 1)),
        (Layout.ETCD, [bucket | (limit + 1), bucket | 7, limit + 2], (2, 2)),
    ):
        for named in (NamedIds(recorded=np.array(ids)), NamedIds(on_bookies=np.array(ids))):
            used = used_ids.numbers(layout, named)
            assert (used.above_short, used.above_raise) == above
