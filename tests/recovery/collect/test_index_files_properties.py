"""Blocks of slots that are taken by their pattern give what the same slots give one by one."""

import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.codecs import entry_log, index_file
from recovery.codecs.framing import SIZE_FIELD
from recovery.codecs.index_file import IndexHeader
from recovery.collect.disk.file_reader import Meter
from recovery.collect.rows.damage import DamageList
from recovery.collect.rows.entry_headers import HEAD_WIDTH
from recovery.collect.rows.index_slots import Block, IndexPiece, IndexRows, make_block
from recovery.collect.rows.ledger_facts import FACT_WIDTH, Interned
from recovery.collect.rows.scoped_ids import Scopes
from recovery.collect.rows.source_copies import GROUP_WIDTH, Ints
from recovery.collect.sources.entry_records import RecordFile, RecordFiles
from recovery.collect.sources.index import IndexTaker
from recovery.collect.sources.index_files import IndexReader
from recovery.collect.sources.index_folders import find_files, find_first_level
from tests.simulation.bookie_dir import record

METER = Meter(None, lambda _: None)
WIDTHS = (GROUP_WIDTH, HEAD_WIDTH, FACT_WIDTH, GROUP_WIDTH)
LOGS = (7, 9)
BEYOND = (3 << 32 | 2000, 9 << 32 | 1 << 31, 7 << 32 | 2, -5, 11 << 32 | 2000)
"""Locations in no log: of a missing one, behind the end, before the first record, of no log at all."""
HELD = st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(0, 60)).map(
    lambda quorum: np.arange(quorum[2]) % quorum[0] < quorum[1]
)


class Rows:
    """Keeps what is found."""

    def __init__(self, width: int) -> None:
        self._rows = [np.empty((0, width), np.int64)]

    def add(self, rows: Ints) -> None:
        """Take rows."""
        self._rows.append(rows)

    def all(self) -> list[list[int]]:
        """Return every row once, sorted: ledgers come in any order, headers may be read twice."""
        return [list(row) for row in sorted({tuple(row) for row in np.concatenate(self._rows).tolist()})]


class Ledger(NamedTuple):
    """The slots of one ledger, and where they are cut into pieces; those marked are handed over as blocks."""

    slots: Ints
    edges: Sequence[int]
    as_block: Sequence[bool]

    def pieces(self, ledger: int) -> list[IndexPiece | Block]:
        """Return them."""
        blocks = [make_block(ledger, low, self.slots[low:high].astype(">i8")) for low, high in pairwise(self.edges)]
        return [block if whole else block.to_piece() for block, whole in zip(blocks, self.as_block, strict=True)]


@st.composite
def bookies(draw: st.DrawFn) -> tuple[dict[int, bytes], list[Ledger]]:
    """Two entry logs, and ledgers whose slots name places in them: mostly the right ones."""
    logs = {log: bytearray(entry_log.encode([], with_map=False)) for log in LOGS}
    ledgers = []
    for ledger in range(draw(st.integers(1, 4))):
        slots = draw(HELD).astype(np.int64)
        for number in np.flatnonzero(slots).tolist():
            log, entry = draw(st.sampled_from(LOGS)), record(ledger, number)
            logs[log] += len(entry).to_bytes(SIZE_FIELD) + entry
            slots[number] = entry_log.location(log, len(logs[log]) - len(entry))
        for number in draw(st.sets(st.integers(0, max(0, len(slots) - 1)), max_size=3)) if len(slots) else ():
            slots[number] = draw(st.sampled_from([*BEYOND, 7 << 32 | 1028, 0]))
        cuts = draw(st.lists(st.integers(0, len(slots)), max_size=3))
        edges = [0, *sorted(cuts), len(slots)]
        as_block = draw(st.lists(st.booleans(), min_size=len(edges) - 1, max_size=len(edges) - 1))
        ledgers.append(Ledger(slots, edges, as_block))
    return {log: bytes(data) for log, data in logs.items()}, ledgers


def taken(logs: RecordFiles, pieces: Sequence[IndexPiece | Block], *, every: bool, batch: int) -> list[list[list[int]]]:
    """All that a taker makes of pieces."""
    found = IndexRows(*(Rows(width) for width in WIDTHS))
    taker = IndexTaker(logs, found, confirms_all=every, batch=batch)
    for piece in pieces:
        taker.take(piece)
    taker.end()
    known = [[ledger] for ledger in taker.list_ledgers().tolist()]
    return [found.groups.all(), found.heads.all(), found.facts.all(), found.dangling.all(), known]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(bookies(), st.booleans(), st.integers(61, 300))
def test_blocks_are_confirmed_like_rows(bookie: tuple[dict[int, bytes], list[Ledger]], every: bool, batch: int) -> None:
    """Whatever dangles, however a ledger is cut, blocks and rows mixed: the same groups, headers and dangling slots."""
    contents, ledgers = bookie
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for log, data in contents.items():
            path = Path(folder, f"{log:x}.log")
            path.write_bytes(data)
            files[log] = [RecordFile(str(path), len(data))]
        logs = RecordFiles(files, METER, DamageList(), (), scopes=Scopes())
        pieces = [piece for number, ledger in enumerate(ledgers) for piece in ledger.pieces(number)]
        by_rows = taken(logs, [piece.to_piece() for piece in pieces], every=every, batch=batch)
        assert taken(logs, pieces, every=every, batch=batch) == by_rows


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(HELD, st.integers(0, 400)), min_size=1, max_size=4), st.integers(0, 7), st.data())
def test_large_files_are_read_as_the_codec_reads_them(
    parts: list[tuple[Ints, int]], more: int, data: st.DataObject
) -> None:
    """Patterns, noise, holes of a sparse file, an end inside a slot: every slot of a large file, and nothing else."""
    noise = data.draw(st.lists(st.tuples(st.integers(0, 40_000), st.integers(-3, 1 << 62)), max_size=5))
    pattern = np.concatenate([np.tile(held, times) for held, times in parts]).astype(np.int64) * (5 << 32 | 1028)
    slots = np.concatenate([pattern, np.zeros(max(0, 9000 - len(pattern)), np.int64)])
    for at, value in noise:
        slots[at % len(slots)] = value
    whole = index_file.encode(IndexHeader(1, b"k" * 20, fenced=False, explicit_lac=None), slots) + b"\1" * more
    hole = data.draw(st.integers(0, len(slots)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, index_file.path_of(1))
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            file.write(whole[: index_file.HEADER_SIZE + hole * index_file.SLOT])
            file.seek(100_000 * index_file.SLOT, 1)
            file.write(whole[index_file.HEADER_SIZE + hole * index_file.SLOT :])
        slots = np.concatenate([slots[:hole], np.zeros(100_000, np.int64), slots[hole:]])
        damage, secrets = DamageList(), Interned()
        reader = IndexReader(METER, damage, secrets)
        pieces = [
            piece.to_piece()
            for piece in reader.read(find_files(find_first_level([Path(folder)], damage), damage, secrets.scopes))
        ]
    entry, location = (np.concatenate([getattr(one, name) for one in pieces]) for name in ("entry", "location"))
    assert {int(one) for piece in pieces for one in piece.ledger} <= {1}
    assert np.array_equal(entry, np.flatnonzero(slots))
    assert np.array_equal(location, slots[slots != 0])
