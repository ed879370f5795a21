"""The last state of each key, for any history: what the store itself shows."""

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.backup.last_states import compare_states, fold_states
from recovery.model.tables import BACKUP_CHANGES
from tests.support.backups import FollowedMemory, name_ledger

Step = tuple[str, int, bytes]
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "rights"]), st.integers(0, 8), st.binary(max_size=3)), max_size=40
)


def take_steps(store: FollowedMemory, steps: Sequence[Step]) -> None:
    """Do something to ledgers; what is not there is neither removed nor given rights."""
    for what, number, value in steps:
        key = name_ledger(number)
        if what == "put":
            store.put(key, value)
        elif store.get(key) is not None and what == "remove":
            store.put(key, None)
        elif store.get(key) is not None:
            store.set_rights(key, f"world:anyone:{'cdrwa'[: 1 + number % 5]}")


def number(rows: pa.Table) -> pa.Table:
    """Return changes as they are sealed."""
    seal = pa.array([1] * rows.num_rows, pa.int64())
    return rows.add_column(0, BACKUP_CHANGES.field("seal"), seal).cast(BACKUP_CHANGES)


def scan(store: FollowedMemory) -> list[pa.RecordBatch]:
    """All that a store shows."""
    return list(store.scan("/"))


@given(first=STEPS, then=STEPS, pieces=st.integers(1, 7))
def test_the_states_are_those_of_the_store(first: list[Step], then: list[Step], pieces: int) -> None:
    """A base at any moment, and any changes behind it in any pieces, give what is there."""
    check_states(1 << 18, first, then, pieces)


@settings(max_examples=8)
@given(first=STEPS, then=STEPS, pieces=st.integers(1, 7))
def test_the_states_are_those_of_the_store_by_files(first: list[Step], then: list[Step], pieces: int) -> None:
    """The same where keys are parted into files, as those of many are."""
    check_states(5, first, then, pieces)


def check_states(few: int, first: list[Step], then: list[Step], pieces: int) -> None:
    """Fold a base and what came behind it, and hold that against the store."""
    store = FollowedMemory()
    take_steps(store, first)
    base, begun = scan(store), store.txn
    take_steps(store, then)
    changes = number(store.take(begun))
    step = -(-changes.num_rows // pieces) or 1
    parts = [changes.slice(at, step) for at in range(0, changes.num_rows, step)]
    rows = [row for batch in fold_states(base, parts, at_once=few) for row in batch.to_pylist()]
    made = pa.Table.from_pylist(rows, base[0].schema).to_batches()
    differing = pa.concat_tables(compare_states(made, scan(store)))
    wanted = [row for batch in scan(store) for row in batch.to_pylist()]
    assert sorted(rows, key=lambda row: row["key"]) == sorted(wanted, key=lambda row: row["key"])
    assert differing.num_rows == 0


@given(steps=STEPS, then=STEPS)
def test_a_comparison_names_every_key_that_differs(steps: list[Step], then: list[Step]) -> None:
    """And no other; with the side that has it, where one has."""
    store = FollowedMemory()
    take_steps(store, steps)
    earlier = scan(store)
    take_steps(store, then)
    later = scan(store)
    left = {row["key"]: row for batch in earlier for row in batch.to_pylist()}
    right = {row["key"]: row for batch in later for row in batch.to_pylist()}
    found = pa.concat_tables(compare_states(earlier, later)).to_pylist()
    wanted = dict.fromkeys(left.keys() - right.keys(), "left") | dict.fromkeys(right.keys() - left.keys(), "right")
    wanted |= {key: "both" for key in left.keys() & right.keys() if left[key] != right[key]}
    assert {row["key"]: row["side"] for row in found} == wanted
    assert len(found) == len(wanted)
