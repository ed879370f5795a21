"""Plans written again: files in which nothing changes are taken over, the others read, hashed and written again.

A file that is taken over is a second name of the same one where the file system gives it, else a copy: plans are never
changed in place.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.plan.plan_glance import require_rows
from reconcile.plan.plan_hash import Hashes, bucket_hashes, ledger_hashes, with_ids
from reconcile.plan.views.candidates import count_best, sum_counts
from recovery.dataset import Dataset, take_over_part, write_part
from recovery.manifest import Part
from recovery.model import tables
from recovery.model.ids import BUCKETS, ROWS_PER_TASK, LedgerId
from recovery.place import DatasetPlace

_CANDIDATES: Final = "candidates"
Edit = Callable[[pa.Table, range], pa.Table]


class Rewriting:
    """One plan that is written again.

    Attributes:
        parts: files of each table that were written so far.
        hashes: of the buckets of the new plan.
    """

    def __init__(self, dataset: Dataset, out: DatasetPlace, hashes: Hashes) -> None:
        self._dataset = dataset
        self._out = out
        self.hashes = Hashes(dict(hashes.actions), dict(hashes.settled))
        self.parts: dict[str, list[Part]] = {"actions": [], "reconstruction": []}

    def write(self, table: str, name: str, rows: pa.Table) -> None:
        """Write a file of a table."""
        self.parts[table].append(write_part(self._out, table, name, [rows], secret=True))

    def take_over(self, table: str) -> None:
        """Take over all files of a table."""
        self.parts[table] = [self._take(part) for part in self._dataset.parts(table)]

    def drop_candidates(self, ledgers: Collection[LedgerId]) -> dict[str, int]:
        """Take over the candidates but for ledgers that have a node now; return the counts of the others."""
        named = pa.array(sorted(ledger.ledger for ledger in ledgers), pa.int64())
        counts = Counter[str]()
        self.parts[_CANDIDATES] = []
        for part in self._dataset.parts(_CANDIDATES):
            batches = self._dataset.batches(_CANDIDATES, parts=[part])
            rows = pa.concat_tables([tables.CANDIDATES.empty_table(), *batches])
            rest = rows.filter(pc.invert(pc.is_in(rows["ledger"], value_set=named)))
            counts += count_best(rest)
            if rest.num_rows == rows.num_rows:
                self.parts[_CANDIDATES].append(self._take(part))
            else:
                self.write(_CANDIDATES, part.file.rpartition("/")[2].removesuffix(".parquet"), rest)
        return sum_counts(counts)

    def edit_actions(self, is_touched: Callable[[range], bool], edit: Edit) -> None:
        """Write the actions of ledgers, in the order of their buckets.

        Args:
            is_touched: whether anything changes in a bucket range.
            edit: the actions of a bucket range as they were → as they must be.

        Raises:
            PlanError: rows that are read are not what the plan's hash was made of.
            DatasetError: a file is damaged, or cannot be written.
        """
        self._edit("actions", self.hashes.actions, lambda rows: bucket_hashes(with_ids(rows)), is_touched, edit)

    def edit_ledgers(self, is_touched: Callable[[range], bool], edit: Edit) -> None:
        """Write what is said about ledgers, likewise."""
        self._edit("reconstruction", self.hashes.settled, ledger_hashes, is_touched, edit)

    def _edit(
        self,
        table: str,
        hashes: dict[int, str],
        hash_of: Callable[[pa.Table], Mapping[int, str]],
        is_touched: Callable[[range], bool],
        edit: Edit,
    ) -> None:
        for stretch, part in _list_stretches(self._dataset, table):
            if part is not None and not is_touched(stretch):
                self.parts[table].append(self._take(part))
                continue
            rows_in = self._dataset.rows(table) if part is None else part.rows
            for buckets in _cut(stretch, rows_in):
                rows = self._dataset.read(table, buckets=buckets)
                require_rows(self._dataset.path, hash_of(rows), hashes, buckets)
                edited = edit(rows, buckets)
                for bucket in buckets:
                    hashes.pop(bucket, None)
                hashes.update(hash_of(edited))
                self.write(table, f"buckets-{buckets.start:04d}-{buckets.stop - 1:04d}", edited)

    def _take(self, part: Part) -> Part:
        return take_over_part(self._dataset, part, self._out, secret=True)


def _list_stretches(dataset: Dataset, table: str) -> list[tuple[range, Part | None]]:
    """Cover all buckets of ledgers by stretches that have the rows of one file each; one without a file: of any."""
    stretches = [
        (part.first_bucket, part.last_bucket, part)
        for part in dataset.parts(table)
        if part.rows and part.first_bucket is not None and part.last_bucket is not None
    ]
    of_ledgers = [stretch for stretch in stretches if 0 <= stretch[0] < BUCKETS]
    if not of_ledgers or any(last >= first for (_, last, _), (first, _, _) in pairwise(of_ledgers)):
        return [(range(BUCKETS), None)]
    edges = [0, *(first for first, _, _ in of_ledgers[1:]), BUCKETS]
    return [(range(low, high), part) for (low, high), (_, _, part) in zip(pairwise(edges), of_ledgers, strict=True)]


def _cut(stretch: range, rows: int) -> Iterator[range]:
    """Cut a stretch of buckets into ranges of about equal size, of no more rows than a task has."""
    count = max(1, min(len(stretch), -(-rows // ROWS_PER_TASK)))
    edges = [stretch.start + len(stretch) * number // count for number in range(count + 1)]
    yield from (range(low, high) for low, high in pairwise(edges))
