"""Contradictions between a snapshot's record of a ledger and the bytes on bookies, field by field.

    field                        contradicted where                                            then
    key                          bookies know another master key                               held
    digest                       entries were made with another type                           held
    ensemble_size/write_quorum   two bookies repeat the pattern of others                      held
    last_entry, closed           a LAC, or entries before a later segment, are above it        held
                                 it is above all entries, and nobody lost any, or others       held
                                 wrote than its members
                                 it is above all entries, and bookies were wiped or not seen   itself, copies missing
    last_entry, open             a segment begins behind the end: an entry before it was told  held
    length                       an earlier header, or that of the last entry, has a larger    held
                                 one, or a later one a smaller one
                                 all have smaller ones, and nothing is behind the end          guarded
    segments                     others wrote than its members, and no copy's mark explains it the bookies'

The other fields (A, creation time, custom metadata, the password beside its key) are on no bookie. A length above
that of the last entry is right where an entry behind the end has it (DEFERRED_SYNC counts what was never forced), and
so is 0 where the last segment is empty (a recovery that no member of it answered). Where headers show that ids were
sent out of order (LedgerHandleAdv), the largest length of a header up to the end is right: its entry was sent last.
Not all headers are read: where the largest one that was is below the record's, the entry sent last may be another.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from recovery.infer.copies import Ints
from recovery.infer.facts import DIGESTS, LedgerFacts
from recovery.infer.ledger_row import ContradictionRow, LedgerRow
from recovery.infer.refusal import Refusal
from recovery.infer.search import read_length
from recovery.infer.segment_cases import NOBODY
from recovery.infer.solve import PlacedCopies
from recovery.infer.wiped_bookies import Kept, has_kept
from recovery.model.groups import run_counts
from recovery.model.metadata import NO_ENTRY, LedgerMetadata, LedgerState

_DIGITS: Final = 12
SHAPE: Final = "ensemble_size/write_quorum"
_REPEATS: Final = 3
"""Fewest runs of one group that make a pattern."""


class SnapshotDoubts(NamedTuple):
    """Possible gaps of an inventory.

    Attributes:
        hidden: of each ledger, how many bookies may hide entries of it.
        kept: from which id on bookies are seen to have kept their ledgers.
        may_stay_open: an open ledger may be left to the recovery of its next reader.
    """

    hidden: Ints
    kept: Kept
    may_stay_open: bool


class Contradiction(NamedTuple):
    """One field of a snapshot's record, with the text of both sides.

    Attributes:
        refusal: the reason to hold the ledger; None: the record or the bookies are right.
    """

    field: str
    snapshot: str
    bookies: str
    refusal: Refusal | None

    def row(self) -> ContradictionRow:
        """Return it as RECONSTRUCTION has it."""
        return ContradictionRow(self.field, self.snapshot, self.bookies)


def find_contradictions(
    known: LedgerFacts, ledger: int, row: LedgerRow, stored: LedgerMetadata, key: bytes | None
) -> list[Contradiction]:
    """Return the fields that bookies' bytes contradict, for any members.

    Args:
        known: the facts of bookies.
        ledger: its number there.
        row: of RECONSTRUCTION, as bookies alone have it.
        stored: the snapshot's record.
        key: SHA-256 of the master key of its password; None: it has none.
    """
    results = list(_check_identity(known, ledger, row, stored, key))
    if stored.state is LedgerState.CLOSED:
        return [
            *results,
            *_check_end(known, ledger, stored),
            *_check_length(known, ledger, stored),
        ]
    implied = stored.segments[-1].first - 1
    if row.last_entry is not None and row.last_entry < implied:
        earlier = f"above {implied}: a segment begins there, so what is before it was acknowledged"
        results.append(Contradiction("last_entry", earlier, str(row.last_entry), Refusal.LAC_BEYOND_END))
    return results


def read_end(stored: LedgerMetadata) -> int:
    """Return the last entry of a closed record."""
    return NO_ENTRY if stored.last_entry is None else stored.last_entry


def find_end_above_all(
    known: LedgerFacts,
    ledger: int,
    stored: LedgerMetadata,
    first: Sequence[int],
    placed: PlacedCopies,
    members: Ints,
    doubts: SnapshotDoubts,
    *,
    is_written_elsewhere: bool,
) -> Contradiction | None:
    """Return the contradiction of a closed record that ends above all entries; None where it does not.

    Where nothing is hidden and no bookie can have lost anything, no bookie ever had those entries. Where one can, an
    entry is lost, and the record still right, if each member of its write set lacks other copies, too, or has none of
    the ledger, and nothing shows of it that it kept its ledgers. But where others wrote what there is, two things speak
    against the record, which no one loss explains: it is of another ledger.

    Args:
        known: as `find_contradictions` takes it.
        ledger: the same.
        stored: the same.
        first: of the record's segments.
        placed: entries up to the highest one, on the segments of the record that begin no later.
        members: rows of the ledger, or NOBODY: (segments, E).
        doubts: possibly hidden or lost entries.
        is_written_elsewhere: some entry is on no member of its write set, and a bookie has it that wrote it.
    """
    highest, end = int(known.copies.end[ledger]), read_end(stored)
    if end <= highest:
        return None
    lacks = placed.due != placed.in_place
    scope, number = int(known.scope[ledger]), int(known.ledger[ledger])
    names = [segment.members for segment in stored.segments]
    lossy = (members == NOBODY) | np.isin(members, members[: len(lacks)][lacks])
    lossy[lossy] = [
        not has_kept(doubts.kept, scope, number, names[segment][position])
        for segment, position in np.argwhere(lossy).tolist()
    ]
    bounds = [*first[1:], end + 1]
    explained = not is_written_elsewhere and (
        doubts.hidden[ledger] > 0
        or all(
            all(may_lack[(entry + i) % stored.ensemble_size] for i in range(stored.write_quorum))
            for may_lack, begin, behind in zip(lossy.tolist(), first, bounds, strict=True)
            for entry in range(max(begin, highest + 1), min(behind, max(begin, highest + 1) + stored.ensemble_size))
        )
    )
    shown = "no entry" if highest < 0 else f"no entry above {highest}"
    if is_written_elsewhere:
        shown += ", and others than its members wrote what there is"
    return Contradiction("last_entry", str(end), shown, None if explained else Refusal.LAC_BEYOND_END)


def _check_identity(
    known: LedgerFacts, ledger: int, row: LedgerRow, stored: LedgerMetadata, key: bytes | None
) -> Iterator[Contradiction]:
    if row.key is not None and key is not None and row.key != key:
        earlier, shown = (f"key {part.hex()[:_DIGITS]}…" for part in (key, row.key))
        yield Contradiction("key", earlier, shown, Refusal.TWO_KEYS)
    digest = DIGESTS[known.digest[ledger]] if known.digest[ledger] >= 0 else None
    if digest is not None and stored.digest is not None and digest is not stored.digest:
        yield Contradiction("digest", str(stored.digest), str(digest), Refusal.DIGESTS_DIFFER)
    shape, shown_shape = (stored.ensemble_size, stored.write_quorum), _read_repeated_shape(known, ledger)
    if shown_shape not in (None, shape) and not (shown_shape[1] == 1 and shape == (1, 1)):
        earlier, shown = ("/".join(map(str, part)) for part in (shape, shown_shape))
        yield Contradiction(SHAPE, earlier, shown, Refusal.TWO_HISTORIES)


def _read_repeated_shape(known: LedgerFacts, ledger: int) -> tuple[int, int] | None:
    """Return the (E, W) of a pattern that two or more bookies repeat, if no bookie that wrote repeats another.

    A copy that was made of the closed ledger has what it is a copy of: it agrees, and does not differ.
    """
    row, _, size, period, runs = _read_groups(known, ledger)
    repeats = runs >= _REPEATS
    written = repeats & ~known.row_copied[row]
    shapes = set(zip(period[written].tolist(), size[written].tolist(), strict=True))
    if len(shapes) != 1:
        return None
    shape = shapes.pop()
    agree = repeats & (period == shape[0]) & (size == shape[1])
    return shape if len(np.unique(row[agree])) > 1 else None


def _read_groups(known: LedgerFacts, ledger: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Return row, first entry, size, period and number of runs of each group of a ledger."""
    copies = known.copies
    low, high = np.searchsorted(copies.row_ledger, [ledger, ledger + 1])
    groups = slice(*np.searchsorted(copies.group_row, [low, high]))
    first, period = copies.first[groups], copies.period[groups]
    runs = run_counts(first, copies.last[groups], period)
    return copies.group_row[groups], first, copies.size[groups], period, runs


def find_other_stripes(known: LedgerFacts, ledger: int, stored: LedgerMetadata) -> Contradiction | None:
    """Return the contradiction of a closed record's E and W by stripes on bookies with copies; None without one.

    A copy has holes where a batch ends, so its own runs may show neither E nor W. But it has the whole share of its
    position. Where two bookies or more repeat one pattern, more often than the record's ensemble changed, and its holes
    are in the share of every position, the record is of another shape.
    """
    row, first, size, period, runs = _read_groups(known, ledger)
    repeats = runs > max(_REPEATS - 1, len(stored.segments))
    patterns = set(zip(period[repeats].tolist(), size[repeats].tolist(), strict=True))
    rows = np.unique(row[repeats])
    if len(patterns) != 1 or len(rows) < 2:
        return None
    ensemble, write = stored.ensemble_size, stored.write_quorum
    position = np.arange(ensemble)[:, None]
    for place in np.flatnonzero(repeats).tolist():
        hole = first[place] + np.arange(size[place], min(period[place], size[place] + ensemble))
        holes = hole + np.arange(min(runs[place] - 1, ensemble))[:, None] * period[place]
        if ((position - holes.ravel()) % ensemble >= write).all(axis=1).any():
            return None
    shown = "/".join(map(str, patterns.pop()))
    return Contradiction(SHAPE, f"{ensemble}/{write}", shown, Refusal.TWO_HISTORIES)


def _check_end(known: LedgerFacts, ledger: int, stored: LedgerMetadata) -> Iterator[Contradiction]:
    end, lac = read_end(stored), int(known.lac[ledger])
    seen, implied = int(known.copies.end[ledger]), stored.segments[-1].first - 1
    if lac > end:
        yield Contradiction("last_entry", str(end), f"at least {lac}: a LAC has it", Refusal.TWO_HISTORIES)
    elif min(seen, implied) > end:
        shown = f"up to {seen}, and a segment begins at {implied + 1}: what is before it was acknowledged"
        yield Contradiction("last_entry", str(end), shown, Refusal.TWO_HISTORIES)


def _check_length(known: LedgerFacts, ledger: int, stored: LedgerMetadata) -> Iterator[Contradiction]:
    end, length = read_end(stored), stored.length or 0
    low, high = np.searchsorted(known.headers.ledger, [ledger, ledger + 1])
    entries, lengths = known.headers.entry[low:high], known.headers.length[low:high]
    is_before = entries <= end
    # What was answered and never forced counts; where no member of an empty segment answered a recovery, nothing does.
    if length in lengths[~is_before] or (length == 0 and stored.segments[-1].first == end + 1):
        return
    # Who sends ids out of order counts up to the entry sent last, whichever that is; but no two have the same bytes.
    is_unordered = known.crossed[ledger] and not known.overlapped[ledger]
    if is_unordered and is_before.any() and length == lengths[is_before].max():
        return
    shown = read_length(known, ledger, end) if end >= 0 else 0
    # Running lengths never fall: not before the end, and not behind it.
    falls = (is_before & (lengths > length)) | (~is_before & (lengths < length))
    # Only the writer's order explains a larger one; with entries behind the end it may as well be another ledger's.
    is_larger = length > lengths.max(initial=0) and not known.overlapped[ledger]
    is_unseen = is_larger and end == int(known.copies.end[ledger])
    if shown not in (-1, length):
        text = f"{shown}, as a header of entry {end} or of the one behind it has it" if end >= 0 else "0: no entry"
        refusal = Refusal.TWO_HISTORIES if is_unseen else Refusal.LENGTHS_DIFFER
        yield Contradiction("length", str(length), text, refusal)
    elif falls.any():
        place = int(falls.argmax())
        yield Contradiction(
            "length", str(length), f"{lengths[place]} at entry {entries[place]}", Refusal.LENGTHS_DIFFER
        )
