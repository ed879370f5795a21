"""Collecting: groups made of pieces, comparisons against sets, headers by columns, folders with anything in them."""

import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.codecs import index_file
from recovery.codecs.index_file import IndexHeader
from recovery.collect.disk.file_reader import Meter
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.collect.rows.damage import DamageLog
from recovery.collect.rows.ledger_facts import NONE, Interned, make_stamp
from recovery.collect.rows.source_copies import (
    PATTERNS,
    Grouper,
    Ints,
    Mask,
    are_members,
    find_patterns,
    join_groups,
    list_entries,
    make_runs,
    sort_groups,
    subtract_groups,
    to_groups,
)
from recovery.collect.rows.spool import SHARES, Spool
from recovery.collect.sources.index_files import IndexReader
from recovery.collect.sources.index_folders import find_files, find_first_level
from recovery.dataset import DatasetWriter, open_dataset
from recovery.errors import FormatError
from recovery.model.groups import KeyedGroups, expand, from_arrow
from tests.simulation.bookie_dir import make_bookie, record, write_journal, write_mark
from tests.support.mangling import mangled

LEDGERS = st.integers(0, 3)
ENTRIES = st.one_of(st.integers(0, 40), st.integers(0, 5).map(lambda n: n * 7), st.integers(0, (1 << 63) - 2))
PAIRS = st.sets(st.tuples(LEDGERS, ENTRIES), max_size=60)


def columns(pairs: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Pairs as two arrays."""
    array = np.array(pairs, np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def as_set(groups: KeyedGroups) -> set[tuple[int, int]]:
    """The pairs that groups stand for."""
    ledger, entry = expand(groups)
    return set(zip(ledger.tolist(), entry.tolist(), strict=True))


def same(one: KeyedGroups, other: KeyedGroups) -> bool:
    """Whether two lists of groups are equal, element by element."""
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@given(PAIRS, st.lists(st.integers(0, 60), max_size=8))
def test_pieces_give_the_groups_of_the_whole(pairs: set[tuple[int, int]], cuts: list[int]) -> None:
    """However a stream of runs is cut, also inside a run, the groups are those of all runs at once."""
    ledger, entry = columns(sorted(pairs))
    grouper = Grouper()
    edges = [0, *sorted(min(cut, len(ledger)) for cut in cuts), len(ledger)]
    found = [grouper.feed(make_runs(ledger[low:high], entry[low:high])) for low, high in pairwise(edges)]
    assert same(join_groups([*found, grouper.end()]), to_groups(ledger, entry))


HOLES = st.tuples(st.integers(1, 7), st.integers(0, 7), st.integers(0, 40)).map(
    lambda quorum: np.arange(quorum[2]) % quorum[0] < quorum[1]
)
"""Which slots a bookie fills that holds W of every E entries."""
SLOTS = st.lists(
    st.one_of(
        HOLES,
        st.tuples(st.booleans(), st.integers(0, 1500)).map(lambda same: np.full(same[1], same[0])),
        st.lists(st.booleans(), max_size=20).map(lambda flags: np.array(flags, np.bool_)),
    ),
    max_size=6,
).map(lambda parts: np.concatenate([np.empty(0, np.bool_), *parts]))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(SLOTS, max_size=3), st.integers(0, 1 << 62), st.lists(st.integers(0, 3000), max_size=5))
def test_patterns_give_the_groups_of_all_slots(ledgers: list[Mask], first: int, cuts: list[int]) -> None:
    """However the slots of ledgers are cut into blocks: few patterns, taken as such, give the groups of all entries."""
    grouper, found = Grouper(), []
    every: list[tuple[Ints, Ints]] = [columns([])]
    for ledger, held in enumerate(ledgers):
        edges = [0, *sorted(min(cut, len(held)) for cut in cuts), len(held)]
        for low, high in pairwise(edges):
            entry = first + low + np.flatnonzero(held[low:high])
            every.append((np.full(len(entry), ledger), entry))
            patterns = find_patterns(held[low:high], ledger, first + low)
            if patterns is None:
                found.append(grouper.feed(make_runs(*every[-1])))
            else:
                assert len(patterns.key) <= PATTERNS
                assert all(np.array_equal(a, b) for a, b in zip(expand(patterns), every[-1], strict=True))
                found.append(grouper.feed_groups(patterns))
    ledger_column, entries = (np.concatenate(column) for column in zip(*every, strict=True))
    assert same(join_groups([*found, grouper.end()]), to_groups(ledger_column, entries))


@given(st.lists(PAIRS, min_size=1, max_size=4))
def test_overlapping_lists_become_one(parts: list[set[tuple[int, int]]]) -> None:
    """The canonical groups of several lists are the groups of the union of their entries."""
    lists = [to_groups(*columns(sorted(part))) for part in parts]
    assert same(sort_groups(join_groups(lists)), to_groups(*columns(sorted(set().union(*parts)))))


@given(PAIRS, PAIRS)
def test_less_is_the_difference_of_sets(one: set[tuple[int, int]], other: set[tuple[int, int]]) -> None:
    """What the first has and the second has not, grouped as if it had been all there was."""
    left = subtract_groups(to_groups(*columns(sorted(one))), to_groups(*columns(sorted(other))))
    assert same(left, to_groups(*columns(sorted(one - other))))


@given(PAIRS, PAIRS)
def test_members_are_members(held: set[tuple[int, int]], asked: set[tuple[int, int]]) -> None:
    """Pairs that are held are found, others are not."""
    pairs = sorted(asked | set(list(held)[:10]))
    assert are_members(to_groups(*columns(sorted(held))), *columns(pairs)).tolist() == [pair in held for pair in pairs]


@given(PAIRS, st.integers(1, 7))
def test_entries_come_in_slices(pairs: set[tuple[int, int]], limit: int) -> None:
    """Slices of any size together are all entries in order, and none is larger than asked for."""
    slices = list(list_entries(to_groups(*columns(sorted(pairs))), limit))
    assert all(len(ledger) <= limit for ledger, _ in slices)
    found = [pair for ledger, entry in slices for pair in zip(ledger.tolist(), entry.tolist(), strict=True)]
    assert found == sorted(pairs)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.tuples(st.integers(-5, 300), st.integers().map(lambda n: n % 1000)), max_size=30), max_size=6)
)
def test_what_is_set_aside_comes_back(tmp_path: Path, batches: list[list[tuple[int, int]]]) -> None:
    """Every row once, in one share by its ledger, a ledger's rows in their order; no file is left in the folder."""
    spool = Spool(2, tmp_path, memory=100)
    for batch in batches:
        spool.add(np.array(batch, np.int64).reshape(-1, 2))
    every = [row for batch in batches for row in batch]
    shares = [list(map(tuple, spool.share(number).tolist())) for number in range(SHARES)]
    assert sorted(row for share in shares for row in share) == sorted(every)
    assert sorted(map(tuple, spool.read_all().tolist())) == sorted(every)
    for ledger in {ledger for ledger, _ in every}:
        (share,) = [s for s in shares if any(row[0] == ledger for row in s)]
        assert [row for row in share if row[0] == ledger] == [row for row in every if row[0] == ledger]
    assert list(tmp_path.iterdir()) == []
    spool.close()


KEYS = st.one_of(st.just(b"k" * 20), st.binary(max_size=24))
LACS = st.one_of(st.none(), st.binary(min_size=16, max_size=36))
HEADS = st.one_of(
    st.builds(IndexHeader, st.just(1), KEYS, st.booleans(), LACS).map(index_file.encode_header),
    st.builds(IndexHeader, st.just(0), KEYS, st.booleans(), st.none()).map(index_file.encode_header),
    st.binary(max_size=60),
)


@given(
    st.lists(
        st.tuples(
            HEADS.flatmap(lambda head: st.one_of(st.just(head), mangled(head)) if head else st.just(head)),
            st.integers(0, 3),
            st.integers(0, 7),
        ),
        max_size=12,
    )
)
def test_headers_read_by_columns_are_those_of_the_codec(files: list[tuple[bytes, int, int]]) -> None:
    """Whatever the headers hold: the same facts, and damage exactly where the codec refuses or the file is cut."""
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder) / "index"
        for ledger, (head, slots, more) in enumerate(files):
            path = top / index_file.path_of(ledger)
            path.parent.mkdir(parents=True)
            path.write_bytes(head + np.arange(1, slots + 1, dtype=">i8").tobytes() + b"\1" * more)
        with DatasetWriter(Path(folder) / "out", "inventory", binding={}) as writer:
            damage, secrets = DamageLog(writer, "b", 1), Interned()
            reader = IndexReader(Meter(None, lambda _: None), damage, secrets)
            files_found = find_files(find_first_level([top], damage), damage, secrets.scopes)
            pieces = [piece.to_piece() for piece in reader.read(files_found)]
            bad = damage.ledgers
    facts = {int(row[0]): row for piece in pieces for row in piece.facts}
    slots_of: dict[int, list[tuple[int, int]]] = {ledger: [] for ledger in range(len(files))}
    for piece in pieces:
        for ledger, entry, location in zip(piece.ledger, piece.entry, piece.location, strict=True):
            slots_of[int(ledger)].append((int(entry), int(location)))
    for ledger, (head, slots, more) in enumerate(files):
        whole = head + np.arange(1, slots + 1, dtype=">i8").tobytes() + b"\1" * more
        try:
            header = index_file.decode_header(whole)
        except FormatError:
            assert ledger not in facts
            assert ledger in bad
            assert slots_of[ledger] == []
            continue
        fact = facts[ledger]
        assert (bool(fact[2]), secrets.keys[fact[4]]) == (header.fenced, make_stamp(header.master_key))
        assert (None if fact[5] == NONE else secrets.lacs[fact[5]]) == header.explicit_lac
        assert (len(whole) < index_file.HEADER_SIZE) <= (ledger in bad)
        read = index_file.slots(whole[index_file.HEADER_SIZE :])
        assert slots_of[ledger] == [(entry, int(read[entry])) for entry in np.flatnonzero(read).tolist()]


HELD: Mapping[int, Sequence[int]] = {5: [0, 1, 2, 3], 6: [1, 3, 5], 300: [0]}
UNFLUSHED = (5, 4)


@given(st.data())
def test_no_bytes_stop_a_collection_and_nothing_is_lost_in_silence(data: st.DataObject) -> None:
    """Any file of a bookie changed in any way: the run ends, index rows invent nothing, a loss has its damage.

    But for the last record of a journal: cut, it looks as if it had never been acknowledged.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        made = make_bookie(root / "bookie", HELD)
        write_journal(made, 0x100, [record(*UNFLUSHED)])
        write_mark(made, 0x100, 512)
        files = sorted(
            path for top in made.all_dirs for path in top.rglob("*") if path.is_file() and path.name != "VERSION"
        )
        target = data.draw(st.sampled_from(files))
        target.write_bytes(data.draw(st.one_of(mangled(target.read_bytes()), st.binary(max_size=100))))
        options = CollectOptions(made.ledger_dirs, (), made.journal_dirs)
        collect(options, root / "out", now=lambda: datetime.now(UTC), progress=lambda _: None)
        dataset = open_dataset(root / "out", "inventory")
        damage, copies = dataset.rows("damage"), dataset.read("copies")
    pairs = {(ledger, entry) for ledger, entries in HELD.items() for entry in entries}
    assert listed(copies, "index") <= pairs
    if target.suffix != ".txn":
        pairs.add(UNFLUSHED)
    found = listed(copies, "index") | listed(copies, "journal") | listed(copies, "log")
    assert pairs <= found or damage


def listed(copies: pa.Table, source: str) -> set[tuple[int, int]]:
    """The pairs that rows of a source list."""
    rows = copies.filter(pc.equal(copies["source"], source))
    row, entry = expand(from_arrow(rows["groups"]))
    return set(zip(rows["ledger"].to_numpy()[row].tolist(), entry.tolist(), strict=True))
