"""Grids of a report page: one ledger's entries on each bookie, by segments, with the shares by the record.

A page shows some ledgers of each list: of every reason, of those with few copies, of those that come back.
"""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.single_ledger import is_of, read_only_ledger
from reconcile.findings.refusal_texts import describe_reason, describe_remedy
from reconcile.plan.views.ledger_lists import few_copies
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId

LEDGERS_SHOWN: Final = 60
"""Ledgers with a grid of their own; each costs the reading of a bucket of every inventory."""
GROUPS_DRAWN: Final = 400
"""Groups drawn for one copy: more cannot be distinguished on a page."""
COPIES_DRAWN: Final = 40
"""Bookies drawn for one ledger."""
SEGMENTS_SHOWN: Final = 60
"""Segments of one ledger: their ensembles in words, and their lines in the grid."""
WIDTH: Final = 1000
"""Units from a ledger's first entry to its last; the page stretches them."""

_NAMED: Final = 6
"""Groups that the text of a drawing names, for readers who cannot see it."""
BACK: Final = "restored"
FEW: Final = "few copies"


@dataclass(slots=True)
class LedgerList:
    """The shown ledgers of one list, as rows of RECONSTRUCTION, and the length of the list.

    Attributes:
        outcome: of these ledgers.
        reason: why they are not restored; `FEW` for those that come back with few copies; None for other restored ones.
        total: length of the list.
        rows: the shown ledgers.
    """

    outcome: str
    reason: str | None
    total: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def target(self) -> str:
        """The id of its heading on the page."""
        if self.reason == FEW:
            return "few-copies"
        return "sample" if self.outcome == BACK else f"list-{self.outcome}-{self.reason or 'none'}"

    @property
    def words(self) -> str:
        """Why its ledgers are not restored."""
        return describe_reason(self.reason) if self.reason else "no reason was given"

    @property
    def settled_by(self) -> str:
        """The evidence that would settle it."""
        return describe_remedy(self.reason or "")

    @property
    def option(self) -> str:
        """The list's option of `bkmeta plan ledgers`."""
        if self.reason == FEW:
            return "--few-copies"
        return f"--outcome {self.outcome}" + (f" --reason {self.reason}" if self.reason else "")


class ListSelection:
    """Counts the ledgers of each list, and keeps the first of each."""

    def __init__(self) -> None:
        self._lists: dict[tuple[str, str | None], LedgerList] = {}

    def add(self, batch: pa.Table) -> None:
        """Build from some rows of a reconstruction."""
        outcome, reason = (batch[name].combine_chunks().dictionary_encode() for name in ("outcome", "reason"))
        outcomes, reasons = outcome.dictionary.to_pylist(), [*reason.dictionary.to_pylist(), None]
        keys = [*itertools.product(outcomes, reasons), (BACK, FEW)]
        codes = pc.fill_null(reason.indices, len(reasons) - 1).to_numpy() + outcome.indices.to_numpy() * len(reasons)
        codes[pc.fill_null(few_copies(batch), fill_value=False).to_numpy()] = len(keys) - 1
        counts = np.bincount(codes, minlength=len(keys))
        for code in np.flatnonzero(counts).tolist():
            kept = self._lists.setdefault(keys[code], LedgerList(*keys[code]))
            kept.total += int(counts[code])
            if left := LEDGERS_SHOWN - len(kept.rows):
                kept.rows += batch.take(pa.array(np.flatnonzero(codes == code)[:left])).to_pylist()

    def lists(self) -> list[LedgerList]:
        """Return the lists, the longest first and restored ledgers last; all together show LEDGERS_SHOWN at most."""
        ordered = sorted(
            self._lists.values(),
            key=lambda selected: (selected.outcome == BACK, selected.reason != FEW, -selected.total),
        )
        left = LEDGERS_SHOWN
        for number, selected in enumerate(sorted(ordered, key=lambda selected: len(selected.rows))):
            # What short lists leave over is for the longer ones.
            del selected.rows[left // (len(ordered) - number) :]
            left -= len(selected.rows)
            selected.rows.sort(key=lambda row: LedgerId(row["scope"], row["ledger"]))
        return ordered


@dataclass(frozen=True, slots=True)
class GridStretch:
    """One drawn stretch of a row: units from the left, density in (0, 1], and its title."""

    x: float
    width: float
    density: float
    title: str


@dataclass(frozen=True, slots=True)
class GridCopy:
    """One bookie's row of a grid.

    Attributes:
        bookie: its id.
        source: of its entries.
        held: its entries.
        sent: segments with it in their ensemble.
        text: the row in words.
    """

    bookie: str
    source: str
    held: Sequence[GridStretch]
    sent: Sequence[GridStretch]
    text: str


@dataclass(frozen=True, slots=True)
class Grid:
    """One ledger: the proposal, and the holders of its entries.

    Attributes:
        name: its id.
        topic: of the ledger.
        row: of RECONSTRUCTION.
        segments: as many as are shown.
        copies: rows, members of the record's ensembles first.
        hidden_copies: bookies that are not drawn.
        cuts: upright lines where segments begin, but the first, as one path: else they would be most of the page.
        last: the last entry of the drawing; None: there is none.
    """

    name: str
    topic: str | None
    row: Mapping[str, Any]
    segments: Sequence[Mapping[str, Any]]
    copies: Sequence[GridCopy]
    hidden_copies: int
    cuts: str
    last: int | None

    @property
    def target(self) -> str:
        """The id of its place on the page."""
        return f"ledger-{self.name.replace(':', '-')}"


class LedgerReader:
    """Rows of some ledgers, read bucket by bucket and each bucket once: those of one list are neighbours mostly."""

    def __init__(self, datasets: Sequence[Dataset], table: str, columns: list[str] | None = None) -> None:
        self._datasets = datasets
        self._table = table
        self._columns = columns
        self._buckets: dict[int, list[pa.Table]] = {}

    def read(self, ledger: LedgerId) -> list[dict[str, Any]]:
        """Return a ledger's rows of all datasets.

        Raises:
            DatasetError: a file is gone or damaged.
        """
        if ledger.bucket not in self._buckets:
            span = range(ledger.bucket, ledger.bucket + 1)
            self._buckets[ledger.bucket] = [
                dataset.read(self._table, buckets=span, columns=self._columns) for dataset in self._datasets
            ]
        return [row for rows in self._buckets[ledger.bucket] for row in rows.filter(is_of(rows, ledger)).to_pylist()]


def read_copies(inventories: Sequence[Dataset]) -> LedgerReader:
    """Return a reader of the columns of inventories that grids draw."""
    return LedgerReader(inventories, "copies", ["scope", "ledger", "bookie", "source", "groups", "last"])


def grid_of(row: Mapping[str, Any], topic: str | None, copies: LedgerReader) -> Grid:
    """Return the grid of one ledger, a row of RECONSTRUCTION."""
    ledger = LedgerId(row["scope"], row["ledger"])
    held_copies = copies.read(ledger)
    segments = list(row["segments"] or ())
    lasts = [copy["last"] for copy in held_copies if copy["last"] is not None]
    last = max([*lasts, *([] if row["last_entry"] is None else [row["last_entry"]])], default=None)
    # A ledger without entries ends at -1.
    scale = WIDTH / max(1, 0 if last is None else last + 1)
    members = Counter(member for segment in segments for member in segment["members"])
    held_copies += [
        {"bookie": member, "source": "nothing", "groups": []}
        for member in members
        if member not in {copy["bookie"] for copy in held_copies}
    ]
    held_copies.sort(key=lambda copy: (copy["bookie"] not in members, copy["bookie"], copy["source"]))
    drawn = [_copy(copy, segments[:SEGMENTS_SHOWN], last, scale) for copy in held_copies[:COPIES_DRAWN]]
    cuts = "".join(f"M{segment['first'] * scale:.1f} 0V14" for segment in segments[:SEGMENTS_SHOWN] if segment["first"])
    return Grid(
        str(ledger), topic, row, segments[:SEGMENTS_SHOWN], drawn, max(0, len(held_copies) - COPIES_DRAWN), cuts, last
    )


def draw_ledger(ledger: LedgerId, catalog: Dataset, inventories: Sequence[Dataset]) -> Grid:
    """Return the grid of a ledger by the store's record; without a record, by the entries on bookies."""
    rows = read_only_ledger(catalog, "ledgers", ledger).to_pylist()
    blank = {"bucket": ledger.bucket, "scope": ledger.scope, "ledger": ledger.ledger}
    row = {"state": None, "segments": None, "last_entry": None, **blank, **(rows[0] if rows else {})}
    return grid_of(row, None, read_copies(inventories))


def _copy(copy: Mapping[str, Any], segments: Sequence[Mapping[str, Any]], last: int | None, scale: float) -> GridCopy:
    stretches = [_stretch(group, scale) for group in copy["groups"][:GROUPS_DRAWN]]
    ends = [*(segment["first"] for segment in segments[1:]), (-1 if last is None else last) + 1]
    sent = [
        GridStretch(segment["first"] * scale, (end - segment["first"]) * scale, 1, f"{segment['first']} to {end - 1}")
        for segment, end in zip(segments, ends, strict=False)
        if copy["bookie"] in segment["members"] and end > segment["first"]
    ]
    named = "; ".join(stretch.title for stretch in stretches[:_NAMED]) or "no entry"
    more = ", and more" if len(copy["groups"]) > _NAMED else ""
    text = f"holds {named}{more}" + ("" if sent or not segments else ", and is in no ensemble")
    return GridCopy(copy["bookie"], copy["source"], stretches, sent, text)


def _stretch(group: Mapping[str, int], scale: float) -> GridStretch:
    first, last, size, period = (group[name] for name in ("first", "last", "size", "period"))
    end = last + size
    title = f"{first} to {end - 1}" + (f", {size} of every {period}" if period else "")
    density = size / period if period else 1.0
    return GridStretch(first * scale, max(2.0, (end - first) * scale), max(0.25, math.sqrt(density)), title)
