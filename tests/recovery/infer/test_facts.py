"""What rows of inventories say of a ledger: which are copies, which are leftovers, and what headers show."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from recovery.infer.facts import DIGESTS, MAX_ENTRY, NO_LAC, LedgerFacts, read
from recovery.model import tables
from recovery.model.ids import buckets
from recovery.model.metadata import DIGEST_SIZES, Digest
from tests.simulation import simulator
from tests.simulation.simulator import copy_row

A, B, C = "a:1", "b:1", "c:1"
PLAIN: Final = copy_row(2, C, [0, 1])
"""A second ledger, of which nothing is odd."""


def gather(*rows: dict[str, Any], bookies: dict[str, dict[str, Any]] | None = None, **how: Any) -> "Seen":
    """Read rows of ledger 1 beside a plain ledger; `bookies`: what is other than usual of bookies."""
    made = pa.Table.from_pylist([PLAIN, *rows], schema=tables.COPIES)
    listed = simulator.bookies([A, B, C]).to_pylist()
    changed = [row | (bookies or {}).get(row["bookie"], {}) for row in listed]
    return Seen(read(made, pa.Table.from_pylist(changed, schema=tables.BOOKIES), **how))


class Seen:
    """The facts of ledger 1; the plain ledger has to have none of them."""

    def __init__(self, facts: LedgerFacts) -> None:
        """Keep them."""
        self.all = facts
        self.number = facts.ledger.tolist().index(1)

    def __getattr__(self, name: str) -> Any:
        """Return the ledger's own value of a column."""
        return getattr(self.all, name)[self.number].item()

    @property
    def flags(self) -> set[str]:
        """Return which flags it has; ledger 2 has none but that it is indexed."""
        names = (
            *("broken", "fragmented", "indexed", "leftover", "unindexed", "unserved", "leftover_copied", "unlisted"),
            *("limbo", "incomplete", "reincarnated", "copied", "lengths_differ", "crossed", "overlapped", "verified"),
            *("digests_differ",),
        )
        of = {n: {name for name in names if getattr(self.all, name)[n]} for n in range(self.all.count)}
        assert of[1 - self.number] == {"indexed"}
        return of[self.number]

    @property
    def end(self) -> int:
        """Return the highest entry of its copies."""
        return int(self.all.copies.end[self.number])

    def names(self, column: str) -> list[str]:
        """Return its bookies in a pair of columns: idle, holder or whole."""
        owners, codes = (getattr(self.all, f"{column}_{part}") for part in ("ledger", "bookie"))
        return list(self.all.bookies.take(pa.array(codes[owners == self.number])).to_pylist())


PARTLY: Final = {"complete": False}


def log(bookie: str, entries: Sequence[int], **columns: Any) -> dict[str, Any]:
    """Return what a bookie has of ledger 1 in logs."""
    return copy_row(1, bookie, entries, source="log", **columns)


def header(entry: int, lac: int = -1, length: int = 100, size: int = 0, digest: str | None = None) -> dict[str, Any]:
    """Return a header."""
    return {"entry": entry, "lac": lac, "length": length, "size": size, "digest": digest}


@pytest.mark.parametrize(
    ("dirty", "end", "flags"),
    [(True, 4, {"indexed"}), (None, 4, {"indexed"}), (False, 3, {"indexed", "unlisted"})],
)
def test_a_journal_is_a_copy_unless_the_bookie_stopped_cleanly(dirty: bool | None, end: int, flags: set[str]) -> None:
    """Then the index has all of it; what only its journal has is a leftover."""
    rows = (copy_row(1, A, range(4)), copy_row(1, A, [4], source="journal"))
    seen = gather(*rows, bookies={A: {"dirty": dirty}})
    assert (seen.end, seen.flags, seen.weak_end) == (end, flags, -1 if end == 4 else 4)
    seen = gather(copy_row(1, A, [4], source="wire"), bookies={A: {"dirty": dirty}})
    assert (seen.end, seen.flags) == (4, {"indexed"})
    # A bookie that no list of bookies has was not stopped cleanly.
    assert gather(copy_row(1, "x:1", [4], source="journal")).end == 4


def test_logs_are_leftovers_of_bookies_that_were_read_completely() -> None:
    """The highest of their lowest entries; of another bookie the logs may be its copies."""
    served = copy_row(1, C, [0])
    seen = gather(log(A, [3, 4]), log(B, [5, 6]), served)
    assert (seen.flags, seen.leftover_first, seen.weak_end, seen.end) == ({"indexed", "leftover"}, 5, 6, 0)
    assert seen.names("holder") == [C]
    seen = gather(log(A, [3]), served, bookies={A: PARTLY})
    assert (seen.flags, seen.leftover_first, seen.weak_end) == ({"indexed", "unindexed"}, -1, 3)
    # It may know the ledger, and no place of an entry: whoever has entries in an index is served.
    seen = gather(log(A, [3]), copy_row(1, A, []), served, bookies={A: PARTLY})
    assert seen.flags == {"indexed", "unindexed", "unlisted"}
    seen = gather(log(A, [3]), copy_row(1, A, [0]), served, bookies={A: PARTLY})
    assert seen.flags == {"indexed", "unlisted"}
    assert gather(log(A, [])).flags == set()


def test_what_nobody_serves_is_taken_from_logs_where_no_index_was_seen() -> None:
    """Or where somebody wants what is left; not where a bookie whose index was seen has such a row, too."""
    assert gather(log(A, [3]), log(B, [4])).flags == {"leftover"}
    seen = gather(log(A, [3]), log(B, [4]), bookies={A: PARTLY, B: PARTLY})
    assert (seen.flags, seen.end, seen.weak_end, seen.names("holder")) == ({"unserved"}, 4, -1, [A, B])
    seen = gather(log(A, [3]), log(B, [4]), bookies={A: PARTLY})
    assert (seen.flags, seen.end) == ({"leftover", "unindexed"}, -1)
    seen = gather(log(A, [3]), log(B, [4]), are_leftovers_wanted=True)
    assert (seen.flags, seen.end) == ({"unserved"}, 4)
    seen = gather(log(A, [3]), copy_row(1, B, [0]), are_leftovers_wanted=True)
    assert (seen.flags, seen.end) == ({"indexed", "leftover"}, 0)


def group(first: int, last: int, size: int, period: int) -> dict[str, int]:
    """Return a group of runs."""
    return {"first": first, "last": last, "size": size, "period": period}


@pytest.mark.parametrize(
    ("one", "is_possible"),
    [
        (group(0, 0, 1, 0), True),
        (group(MAX_ENTRY, MAX_ENTRY, 1, 0), True),
        (group(0, 0, MAX_ENTRY, 0), True),
        (group(0, 4, 1, 2), True),
        (group(-1, -1, 1, 0), False),
        (group(-2, 4, 1, 2), False),
        (group(4, 0, 1, 0), False),
        (group(MAX_ENTRY + 1, MAX_ENTRY + 1, 1, 0), False),
        (group(0, MAX_ENTRY + 2, 1, 2), False),
        (group(0, 0, 0, 0), False),
        (group(0, 4, 0, 2), False),
        (group(0, 0, MAX_ENTRY + 1, 0), False),
        (group(0, 0, 1, 2), False),
        (group(0, 4, 2, 2), False),
        (group(0, 5, 1, 2), False),
        (group(0, 4, 1, 0), False),
    ],
)
def test_impossible_groups_are_not_used(one: dict[str, int], *, is_possible: bool) -> None:
    """Their ledger is broken, and what is beside them counts; in logs they are no highest entry."""
    seen = gather(copy_row(1, A, [], groups=[one]), copy_row(1, B, [2]))
    assert (seen.flags == {"indexed"}) == is_possible
    assert seen.flags <= {"indexed", "broken"}
    assert (seen.end == 2) or is_possible
    weak = gather(log(A, [], groups=[one]), copy_row(1, B, [2]))
    assert (weak.weak_end >= 0) == is_possible
    assert weak.end == 2


def test_too_many_groups_make_a_ledger_fragmented() -> None:
    """Those of all its rows, taken for copies or not; such a ledger has no copies."""
    parts = ([0, 5], [0, 3, 9])
    groups = [[group(first, first, 1, 0) for first in own] for own in parts]
    rows = [copy_row(1, name, own, groups=some) for name, own, some in zip((A, B), parts, groups, strict=True)]
    assert gather(*rows, max_groups=5).flags == {"indexed"}
    seen = gather(*rows, max_groups=4)
    assert (seen.flags, seen.end) == ({"indexed", "fragmented"}, -1)


def test_rows_of_one_bookie_are_united() -> None:
    """In any order; a bookie that has the ledger, and no entry, is idle; who says so has nothing else."""
    seen = gather(copy_row(1, B, []), copy_row(1, A, [4], source="journal"), copy_row(1, A, range(4)), log(C, [9]))
    assert (seen.names("idle"), seen.end, seen.flags) == ([B], 4, {"indexed", "leftover"})
    assert seen.names("holder") == [A]
    assert seen.all.copies.row_ledger.tolist().count(seen.number) == 1
    seen = gather(copy_row(1, A, [0]), copy_row(1, B, [0], complete=False, limbo=True))
    assert (seen.flags, seen.names("whole")) == ({"indexed", "incomplete", "limbo"}, [A])


def test_what_is_not_complete_may_hide_more() -> None:
    """Not of a bookie that is lost, nor logs of one that was read completely."""
    rows = [copy_row(1, A, [0]), log(B, [0], complete=False)]
    assert gather(*rows).flags == {"indexed", "leftover"}
    assert gather(*rows, bookies={B: PARTLY}).flags == {"indexed", "unindexed", "incomplete"}
    assert gather(*rows, bookies={B: PARTLY}, lost=[B]).flags == {"indexed", "unindexed"}
    assert gather(copy_row(1, B, [0], complete=False)).flags == {"indexed", "incomplete"}


def test_two_incarnations_of_one_bookie_are_seen() -> None:
    """Two bookies may differ."""
    assert gather(copy_row(1, A, [0]), copy_row(1, B, [0], incarnation=2)).flags == {"indexed"}
    several = (copy_row(1, A, [0]), copy_row(1, A, [1], source="journal", incarnation=2))
    assert gather(*several).flags == {"indexed", "reincarnated"}


@pytest.mark.parametrize(
    ("known", "same", "count", "key"),
    [
        ([b"x"], {}, 1, b"x"),
        ([b"x", b"y"], {}, 2, None),
        ([b"x", b"y"], {b"y": b"x"}, 1, b"x"),
        ([b"x", b"y"], {b"x": b"z", b"y": b"z"}, 1, b"z"),
        ([b"x"], {b"w": b"z"}, 1, b"x"),
        ([None], {}, 0, None),
        ([None, b"y"], {b"y": b"x"}, 1, b"x"),
    ],
)
def test_master_keys_are_counted(
    known: list[bytes | None], same: dict[bytes, bytes], count: int, key: bytes | None
) -> None:
    """Those that stand for one are one; only keys that are set count."""
    rows = [copy_row(1, f"{n}:1", [0]) | {"key": one} for n, one in enumerate(known)]
    rows.append(copy_row(1, C, [0]) | {"key": b"v", "key_kind": "zero"})
    for given in (same, None) if not same else (same,):
        seen = gather(*rows, same_keys=given)
        assert seen.keys == count
        if key is not None:
            assert seen.all.key_values[seen.key].as_py() == key
        elif not count:
            assert seen.key == -1
    nothing = gather(*({**row, "key": None} for row in rows), same_keys=same)
    assert (nothing.keys, nothing.key) == (0, -1)


@pytest.mark.parametrize(
    ("headers", "explicit", "lac", "newest", "is_copied"),
    [
        ([header(3, 2)], None, 2, -1, False),
        ([header(3, 2)], 5, 5, -1, False),
        ([header(3, 3)], None, 3, 3, True),
        ([header(3, 7)], 7, 7, 3, True),
        ([header(3, 7)], 8, 8, -1, True),
        ([header(2, 7), header(3, 7)], None, 7, 3, True),
        ([header(2, 7), header(3, 5)], 1, 7, 2, True),
        ([], 4, 4, -1, False),
        ([], None, NO_LAC, -1, False),
    ],
)
def test_the_largest_lac_counts_and_who_copied_shows_it(
    headers: list[dict[str, Any]], explicit: int | None, lac: int, newest: int, *, is_copied: bool
) -> None:
    """A header whose LAC is not below its entry is a copy's."""
    seen = gather(copy_row(1, A, range(4), headers=headers, explicit_lac=explicit), copy_row(1, B, range(4)))
    assert (seen.lac, seen.explicit, seen.newest_copy) == (lac, NO_LAC if explicit is None else explicit, newest)
    assert ("copied" in seen.flags) == is_copied
    own = seen.all.copies.row_ledger == seen.number
    assert seen.all.row_copied[own].tolist() == [is_copied, False]
    largest = max((one["lac"] for one in headers), default=NO_LAC)
    assert seen.all.row_lac[own].tolist() == [largest, NO_LAC]
    acked = max((min(one["lac"], one["entry"]) for one in headers), default=NO_LAC)
    assert seen.all.row_acked[own].tolist() == [acked, NO_LAC]


@pytest.mark.parametrize(("lac", "is_copied"), [(2, False), (3, True), (4, True)])
def test_a_copys_header_in_logs_is_a_leftover(lac: int, *, is_copied: bool) -> None:
    """Of a bookie that was read completely, and does not serve the ledger; its LAC counts anyhow."""
    rows = [log(A, [3], headers=[header(3, lac)]), copy_row(1, B, range(4))]
    seen = gather(*rows)
    assert seen.lac == lac
    assert seen.flags == {"indexed", "leftover"} | ({"leftover_copied"} if is_copied else set())
    assert gather(*rows, bookies={A: PARTLY}).flags == {"indexed", "unindexed"}
    assert gather(*rows, copy_row(1, A, [0])).flags == {"indexed", "unlisted"}
    assert seen.all.headers.ledger.tolist() == []


def test_whose_first_entry_was_read_is_known() -> None:
    """By the header of the first entry that it has."""
    seen = gather(copy_row(1, A, [2, 3], headers=[header(2)]), copy_row(1, B, [2, 3], headers=[header(3)]))
    own = seen.all.copies.row_ledger == seen.number
    assert seen.all.row_first[own].tolist() == [True, False]


def test_a_record_of_a_lac_is_the_ledgers() -> None:
    """The last one that any row has."""
    seen = gather(copy_row(1, A, [0], lac_record=b"one"), copy_row(1, B, [0]))
    assert seen.all.lac_records[seen.lac_record].as_py() == b"one"
    assert gather(copy_row(1, B, [0])).lac_record == -1


SIZE: Final = 32 + DIGEST_SIZES[Digest.CRC32C]


@pytest.mark.parametrize(
    ("headers", "flags", "last"),
    [
        ([header(3, length=100)], set(), 100),
        ([header(2, length=100)], set(), -1),
        ([header(3, length=0)], set(), 0),
        ([header(0, length=0)], set(), -1),
        ([header(4, length=100)], {"broken"}, -1),
        ([header(-1, length=100)], {"broken"}, -1),
        ([header(3, length=-1)], {"broken"}, -1),
        ([header(3, length=100), header(3, length=101)], {"lengths_differ"}, 101),
        ([header(2, length=100), header(3, length=100)], set(), 100),
        ([header(2, length=100), header(3, length=99)], {"crossed"}, 99),
    ],
)
def test_headers_have_to_fit_each_other(headers: list[dict[str, Any]], flags: set[str], last: int) -> None:
    """Of entries that the ledger has, of one length each, and lengths that do not fall."""
    seen = gather(copy_row(1, A, range(4), headers=headers))
    assert seen.flags - {"copied"} == flags | {"indexed"}
    assert seen.last_length == last


@pytest.mark.parametrize("scope", [0, 5])
@pytest.mark.parametrize(
    ("payloads", "flags"),
    [
        ([(2, 90, 10), (3, 100, 10)], set()),
        ([(2, 90, 10), (3, 100, 11)], {"crossed", "overlapped"}),
        ([(2, 90, 10), (3, 100, 9)], set()),
        ([(2, 90, 10), (3, 95, 0)], set()),
        ([(1, 120, 10), (2, 90, 10), (3, 115, 10)], {"crossed", "overlapped"}),
    ],
)
def test_entries_share_no_bytes_of_the_ledger(
    payloads: list[tuple[int, int, int]], flags: set[str], scope: int
) -> None:
    """By what a verified header says of its own payload; a ledger of a scope has longer ones."""
    more = 9 if scope else 0
    headers = [header(entry, length=end, size=SIZE + more + own, digest="CRC32C") for entry, end, own in payloads]
    bucket = int(buckets(np.array([scope]), np.array([1]))[0])
    seen = gather(copy_row(1, A, range(4), headers=headers, scope=scope, bucket=bucket))
    assert seen.flags == flags | {"indexed", "verified"}
    own = seen.all.headers.ledger == seen.number
    assert seen.all.headers.payload[own].tolist() == [size for _, _, size in sorted(payloads)]


@pytest.mark.parametrize(
    ("digests", "flags", "found"),
    [
        ([Digest.CRC32C, Digest.CRC32C], {"verified"}, Digest.CRC32C),
        ([DIGESTS[0], DIGESTS[0]], {"verified"}, DIGESTS[0]),
        ([Digest.CRC32C, None], set(), Digest.CRC32C),
        ([Digest.CRC32C, Digest.HMAC], {"digests_differ"}, None),
        ([None, None], set(), None),
    ],
)
def test_the_digest_is_what_verified(digests: list[Digest | None], flags: set[str], found: Digest | None) -> None:
    """It is sure where every header's bytes agreed."""
    headers = [header(n + 2, length=90 + 10 * n, size=99, digest=one) for n, one in enumerate(digests)]
    seen = gather(copy_row(1, A, range(4), headers=headers))
    assert seen.flags & {"verified", "digests_differ"} == flags
    assert seen.digest == (-1 if found is None else DIGESTS.index(found))


@pytest.mark.parametrize("scope", [0, 5])
@pytest.mark.parametrize(
    ("places", "record", "found"),
    [
        ([(0, 10, 10)], None, True),
        ([(0, 0, 0)], None, True),
        ([(2, 90, 0), (3, 100, 10)], None, True),
        ([(2, 100, 10)], None, False),
        ([(1, 90, 0), (3, 100, 10)], None, False),
        ([(0, 10, 10), (3, 100, 10)], None, True),
        ([(0, 10, 10), (1, 20, 11)], None, False),
        ([], 0, True),
        ([], 1, False),
        ([(0, 10, 10)], 0, True),
        ([(0, 10, 10)], 1, False),
        ([], None, False),
    ],
)
@pytest.mark.parametrize("digest", [Digest.HMAC, Digest.DUMMY])
def test_a_digest_that_did_not_verify_is_told_by_its_width(
    places: list[tuple[int, int, int]], record: int | None, *, found: bool, digest: Digest, scope: int
) -> None:
    """Of entries whose payload lengths show, and of a LAC's record; all have to agree."""
    more = DIGEST_SIZES[digest] + (9 if scope else 0)
    headers = [header(entry, length=end, size=32 + more + own) for entry, end, own in places]
    raw = None if record is None else bytes(16 + more + record)
    bucket = int(buckets(np.array([scope]), np.array([1]))[0])
    seen = gather(copy_row(1, A, range(4), headers=headers, lac_record=raw, scope=scope, bucket=bucket))
    assert seen.digest == (DIGESTS.index(digest) if found else -1)
    assert "verified" not in seen.flags


@pytest.mark.parametrize("digest", Digest)
def test_the_bytes_of_an_entry_are_what_its_digest_leaves(digest: Digest) -> None:
    """Of each type that was verified; of an entry whose type is not known it is not known."""
    size = {Digest.HMAC: 20, Digest.CRC32: 8, Digest.CRC32C: 4, Digest.DUMMY: 0}[digest]
    for told, payload in ((str(digest), 10), (None, -1)):
        head = {"entry": 8, "lac": 7, "length": 90, "size": 32 + size + 10, "digest": told}
        rows = [simulator.copy_row(7, "a:3181", range(9), headers=[head])]
        known = read(pa.Table.from_pylist(rows, schema=tables.COPIES), simulator.bookies(["a:3181"]))
        assert known.headers.payload.tolist() == [payload]


@pytest.mark.parametrize(("payload", "overlapped"), [(0, False), (1, True)])
def test_an_entry_without_bytes_shares_none(payload: int, *, overlapped: bool) -> None:
    """Entry 6 was sent first, and 5 after it: it has no bytes of its own, or one that 6 has, too."""
    heads = [
        {"entry": 5, "lac": 4, "length": 100, "size": 36 + payload, "digest": "CRC32C"},
        {"entry": 6, "lac": 4, "length": 100, "size": 46, "digest": "CRC32C"},
    ]
    rows = [simulator.copy_row(7, "a:3181", range(9), headers=heads)]
    known = read(pa.Table.from_pylist(rows, schema=tables.COPIES), simulator.bookies(["a:3181"]))
    assert known.overlapped.tolist() == [overlapped]


def test_what_only_logs_have_are_no_copies_unless_they_are_wanted() -> None:
    """A bookie serves what its index names."""
    table = pa.Table.from_pylist(
        [simulator.copy_row(7, "a:3181", range(9), source="log")], schema=tables.COPIES
    )  # fmt: skip
    bookies = simulator.bookies(["a:3181"])
    assert read(table, bookies).copies.end.tolist() == [-1]
    assert read(table, bookies, are_leftovers_wanted=True).copies.end.tolist() == [8]
