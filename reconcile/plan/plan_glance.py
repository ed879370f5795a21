"""Large plans without reading every row: what is shown of them is hashed, and the rest by its files.

    manifest     agrees with its own digest (`open_dataset`)
    plan's hash  made again of the manifest, and of the hashes of the buckets that are there
    files        compared with the manifest by who asks (`Dataset.verify`)
    rows         counted, all of them; those of a bucket of which one is shown or changed are hashed

That the other rows are those that the hash was made of, `apply` sees before it writes, and who reads the plan whole.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.errors import PlanError
from reconcile.plan.actions import LEAVE, SUBTREE
from reconcile.plan.plan_hash import Hashes, bucket_hashes, ledger_hashes, plan_hash, read_hashes, with_ids
from reconcile.plan.plan_reader import ActionLine, ActionTally, Hold, Overview, overview, require_version, require_whole
from reconcile.topics import topics
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId

MOST_ROWS: Final = 1_000_000
"""Actions and ledgers up to which every row is hashed, which takes some 4 µs each."""
_COUNTED: Final = ["bucket", "scope", "ledger", "seq", "wave", "op", "kind"]
_ALTERED: Final = "rows of bucket {} are not what the plan's hash was made of"


def survey_plan(dataset: Dataset, *, shown: int, every_row: bool = False) -> Overview:
    """Return what a plan says; of a large one only the rows that are given one by one are hashed.

    Args:
        dataset: of kind plan, whose files were compared with its manifest.
        shown: how many writes and how many holds are given one by one.
        every_row: whether every row is hashed, however many they are.

    Raises:
        DatasetError: a file is gone or damaged.
        PlanError: an action of a phase that is not known, or the plan was made by another version.
    """
    stored = None if every_row else _read_large(dataset)
    return overview(dataset, shown=shown) if stored is None else _glance(dataset, stored, shown)


def require_hashes(dataset: Dataset) -> Hashes:
    """Return the hashes of a plan's buckets, after seeing that the plan's own hash was made of them.

    Args:
        dataset: of kind plan, whose files were compared with its manifest. Of a large one who reads a bucket's rows has
            to hash them (`require_rows`).

    Raises:
        DatasetError: a file is gone or damaged.
        PlanError: it contradicts itself, or was made by another version.
    """
    stored = _read_large(dataset)
    if stored is None:
        return require_whole(dataset).hashes
    for problem in _compare_hash(dataset, plan_hash(dataset.manifest, stored)):
        raise PlanError(dataset.path, problem, "make the plan again: it is not the one that was reviewed")
    return stored


def require_rows(path: str, found: Mapping[int, str], stored: Mapping[int, str], buckets: Iterable[int]) -> None:
    """See that the rows of some buckets are those that a plan's hash was made of.

    Args:
        path: of the plan.
        found: hash of each bucket that has rows, made of these.
        stored: those that the plan's hash was made of.
        buckets: the buckets that were read.

    Raises:
        PlanError: one has other rows.
    """
    for bucket in buckets:
        if found.get(bucket) != stored.get(bucket):
            raise PlanError(path, _ALTERED.format(bucket), "make the plan again: it is not the one that was reviewed")


def _read_large(dataset: Dataset) -> Hashes | None:
    """Return the hashes of the buckets that the manifest of a large plan has; None: it is small, or has none."""
    is_large = dataset.rows("actions") + dataset.rows("reconstruction") > MOST_ROWS
    return read_hashes(dataset.manifest) if is_large else None


def _compare_hash(dataset: Dataset, hash_now: str) -> Iterator[str]:
    manifest = require_version(dataset)
    if hash_now != manifest.hash:
        yield f"the buckets give the hash {hash_now}, the manifest says {manifest.hash}"


def _glance(dataset: Dataset, stored: Hashes, shown: int) -> Overview:
    manifest = require_version(dataset)
    hash_now = plan_hash(dataset.manifest, stored)
    tally, first, held = ActionTally(dataset.path), _Smallest(shown, 5), _Smallest(shown, 3)
    for rows in dataset.batches("actions", _COUNTED):
        tally.count(rows)
        written = rows.filter(pc.not_equal(rows["op"], LEAVE))
        behind = pc.equal(written["kind"], SUBTREE).to_numpy()
        first.add(
            (written["seq"].to_numpy() >> 48) * 2 + behind, *_numbers(written, "scope", "ledger", "seq", "bucket")
        )
    for rows in dataset.batches("reconstruction", ["bucket", "scope", "ledger", "outcome"]):
        held.add(*_numbers(rows.filter(pc.equal(rows["outcome"], "held")), "scope", "ledger", "bucket"))
    problems = [*_compare_hash(dataset, hash_now), *tally.compare(manifest)]
    actions = _read_rows(dataset, "actions", first.rows, stored.actions, _hash_actions, problems)
    ledgers = _read_rows(dataset, "reconstruction", held.rows, stored.settled, ledger_hashes, problems)
    lines = {row["seq"]: ActionLine(**{name: row[name] for name in ActionLine.__slots__}) for row in actions}
    holds = {LedgerId(row["scope"], row["ledger"]): row for row in ledgers}
    wanted = [LedgerId(int(row[0]), int(row[1])) for row in held.rows]
    named = topics(dataset, wanted)
    return Overview(
        hash=hash_now,
        hashes=stored,
        altered=sum(problem.startswith("rows") for problem in problems),
        phases=tally.list_phases(),
        waves=dict(sorted(tally.waves.items())),
        first=tuple(lines[seq] for seq in first.rows[:, -2].tolist()),
        holds=tuple(
            Hold(ledger, holds[ledger]["reason"] or "", tuple(holds[ledger]["holders"]), named.get(ledger))
            for ledger in wanted
        ),
        problems=tuple(problems),
        is_whole=False,
    )


def _numbers(rows: pa.Table, *names: str) -> list[npt.NDArray[np.int64]]:
    return [pc.fill_null(rows[name], 0).to_numpy().astype(np.int64) for name in names]


def _hash_actions(rows: pa.Table) -> dict[int, str]:
    return bucket_hashes(with_ids(rows))


def _read_rows(
    dataset: Dataset,
    table: str,
    wanted: npt.NDArray[np.int64],
    stored: Mapping[int, str],
    hash_of: Callable[[pa.Table], Mapping[int, str]],
    problems: list[str],
) -> list[dict[str, Any]]:
    """Return the rows of the buckets that the last column names, and say which of them have other hashes."""
    listed: list[dict[str, Any]] = []
    for bucket in np.unique(wanted[:, -1]).tolist():
        rows = dataset.read(table, buckets=range(bucket, bucket + 1))
        if hash_of(rows).get(bucket) != stored.get(bucket):
            problems.append(_ALTERED.format(bucket))
        listed += rows.to_pylist()
    return listed


class _Smallest:
    """The smallest of many rows of numbers, batch by batch, in the order of their columns.

    Attributes:
        rows: in ascending order; a column each.
    """

    def __init__(self, kept: int, columns: int) -> None:
        self._kept = kept
        self.rows: npt.NDArray[np.int64] = np.zeros((0, columns), np.int64)

    def add(self, *columns: npt.NDArray[np.int64]) -> None:
        rows = np.column_stack(columns)
        if len(self.rows) == self._kept:
            rows = rows[self._may_be_smaller(rows)]
        rows = np.concatenate([self.rows, rows])
        self.rows = rows[np.lexsort(rows.T[::-1])[: self._kept]]

    def _may_be_smaller(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Say of which rows the first three columns do not come behind those of the last one that is kept."""
        smaller = np.zeros(len(rows), bool)
        if not self._kept:
            return smaller
        alike = np.ones(len(rows), bool)
        for column, bound in zip(rows.T[:3], self.rows[-1].tolist(), strict=False):
            smaller |= alike & (column < bound)
            alike &= column == bound
        return smaller | alike
