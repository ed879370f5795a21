"""Which ids are used: every source that names one counts, so that no generator gives it again."""

import numpy as np
import pyarrow as pa
import pytest

from reconcile.rules import nodes as beside
from reconcile.rules import used_ids
from reconcile.rules.nodes import Bookies, Side
from recovery.codecs.store import Layout
from recovery.model import tables


def rows(*ids: tuple[int, int]) -> pa.Table:
    """Scope and ledger of each."""
    made = [{"scope": scope, "ledger": ledger} for scope, ledger in ids]
    return pa.Table.from_pylist(made, schema=pa.schema([("scope", pa.int64()), ("ledger", pa.int64())]))


def nodes(**counters: int | None) -> pa.Table:
    """CATALOG_NODES of keys, with the number that each gives next."""
    made = [{"path": path, "kind": "generator", "raw": b"", "version": 0, "children_created": next_id}
            for path, next_id in counters.items()]  # fmt: skip
    return pa.Table.from_pylist(made, schema=tables.CATALOG_NODES)


def test_ids_of_every_side_of_history_and_of_references_count_once() -> None:
    """What was deleted counts, and so does what only an upper layer names; other scopes have no generator."""
    references = rows((0, 70_000), (3, 9))
    ids = used_ids.of_ledgers(rows((0, 1), (0, 2), (1, 5)), rows((0, 2), (0, 900)), references)
    assert sorted(ids.tolist()) == [1, 2, 900, 70_000]
    assert used_ids.of_ledgers(rows(), rows(), None).tolist() == []


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
    assert used_ids.of_counters([(nodes(**counters), layout)]).tolist() == ids


def test_the_largest_id_that_files_of_bookies_name() -> None:
    """Of scope 0, of every bookie."""
    column = pa.array(
        [[{"scope": 0, "ledger": 8}, {"scope": 2, "ledger": 99}], []], tables.BOOKIES.field("max_ids").type
    )
    assert used_ids.of_bookies(pa.table({"max_ids": column})).tolist() == [8]


def test_numbers_of_a_layout() -> None:
    """The counter is raised past the largest below the limit; larger ones are counted, apart from long ids."""
    ids = np.array([5, used_ids.RAISE_LIMIT, used_ids.RAISE_LIMIT + 1, 1 << 40])
    assert used_ids.numbers(Layout.HIERARCHICAL, ids) == used_ids.UsedNumbers({"/idgen": used_ids.RAISE_LIMIT}, 1, 2)
    on_etcd = used_ids.numbers(Layout.ETCD, np.array([3 << 56 | 8, (3 << 56) + used_ids.RAISE_LIMIT + 1]))
    assert on_etcd == used_ids.UsedNumbers({"/buckets/003": 8}, 1, 1)


@pytest.mark.parametrize(
    ("next_id", "largest", "behind"), [(None, 0, True), (0, 0, True), (5, 6, True), (5, 5, True), (5, 4, False)]
)
def test_a_counter_that_gives_a_used_id_next_is_behind(next_id: int | None, largest: int, *, behind: bool) -> None:
    """Equal is behind: the number is the one that it gives next. What the plan raises is only a warning."""
    assert used_ids.is_behind(next_id, largest) == behind
    now = Side.of("store", "zk", nodes(**{"/idgen": next_id}), 1, complete=True)
    for raised in (False, True):
        found = list(
            beside.findings(
                now,
                None,
                Bookies(),
                layout=Layout.HIERARCHICAL,
                taken={"/idgen": largest},
                raised=frozenset({"/idgen"} if raised else ()),
            )
        )
        # Where the store does not say how far it is, nothing is said of it.
        expected = [("/idgen", "warning" if raised else "critical")] if behind and next_id is not None else []
        assert [(row.subject, row.severity) for row in found] == expected
