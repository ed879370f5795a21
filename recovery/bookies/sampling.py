"""One run of reads of single entries: what it will cost, said before it begins, and what came of it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from backends.bookie.client import BookieOptions
from recovery.bookies.addresses import BookieNames
from recovery.bookies.entry_choice import Rotation, count_chosen, find_stretches
from recovery.bookies.recorded_members import sample_ledgers
from recovery.bookies.sampled_reads import TABLE, BookieSample, SampleTask, read_cells
from recovery.bookies.wire_task import WireTarget
from recovery.dataset import Dataset, open_dataset, prepare, write_manifest, write_part
from recovery.manifest import Part
from recovery.model.tables import SAMPLES
from recovery.place import DatasetPlace

_LOG: Final = logging.getLogger(__name__)
_MB: Final = 1_000_000
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400

Carry = Callable[["SampleTask", Sequence[range]], Sequence[Mapping[str, Any]]]
"""Runs a task for each of the bucket ranges, at the same time if it can, and returns what each said."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How single entries are asked for.

    Attributes:
        rotation: which entries.
        bytes_s: that a bookie reads for it in a second, at most.
    """

    rotation: Rotation
    bytes_s: float


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """What a run asks for.

    Attributes:
        bookies: that are asked.
        copies: of entries on these bookies, as records have it.
        asked: of these, those that this run asks for.
        bytes: of all these copies, about.
        run_bytes: that bookies read for this run, about, with what they read ahead.
        run_s: seconds that it takes at the budget, about: those of the bookie that has most.
        longer: ledgers that take more runs than all others until each entry was asked for.
    """

    bookies: int
    copies: int
    asked: int
    bytes: int
    run_bytes: int
    run_s: float
    longer: int

    def describe(self, sampling: Sampling) -> str:
        """Return it in words."""
        rotation = sampling.rotation
        pace = f"with one run a day each copy was read after {rotation.runs} days"
        if self.run_s > _DAY_S:
            pace = f"with one run after the other each copy was read after {_describe_time(self.run_s * rotation.runs)}"
        text = (
            f"run {rotation.number} of {rotation.runs} reads {self.asked:,} of {self.copies:,} copies of entries from "
            f"{self.bookies:,} bookies that give no lists; "
            f"they read about {_describe_bytes(self.run_bytes)} of {_describe_bytes(self.bytes)} for it; at "
            f"{sampling.bytes_s / _MB:g} MB a second and a bookie this takes about {_describe_time(self.run_s)}; "
            f"all {rotation.runs} runs take about {_describe_time(self.run_s * rotation.runs)} of reading; {pace}"
        )
        more = f"; ledgers that are so long that they take more runs: {self.longer:,}" if self.longer else ""
        return text + more


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """What is asked, and of whom.

    Attributes:
        catalog: the store, captured just now.
        members: the bookies.
        wanted: ids of those that give no lists.
        options: with the caps of the whole run.
        sampling: which entries, and at which pace.
        tasks: run at the same time; each gets its share of the caps.
        buckets: of the ledgers whose entries are asked for.
    """

    catalog: Dataset
    members: BookieNames
    wanted: tuple[str, ...]
    options: BookieOptions
    sampling: Sampling
    tasks: int
    buckets: range


@dataclass(frozen=True, slots=True)
class Sampled:
    """What came of a run of reads.

    Attributes:
        folder: of the dataset of SAMPLES.
        plan: what was to be asked for.
        bookies: one for each that was asked.
    """

    folder: str
    plan: SamplePlan
    bookies: tuple[BookieSample, ...]

    def open(self) -> Dataset:
        """Return the dataset.

        Raises:
            DatasetError: it is gone, or damaged.
        """
        return open_dataset(self.folder, TABLE)


def find_targets(catalog: Dataset, members: BookieNames, wanted: Sequence[str]) -> tuple[WireTarget, ...]:
    """Return some bookies as they are asked, with all names that records have for them."""
    names: dict[str, list[str]] = {}
    for name in sample_ledgers(catalog):
        names.setdefault(members.find(name).bookie, []).append(name)
    found = [members.find(bookie) for bookie in wanted]
    return tuple(
        WireTarget(m.bookie, m.address, 0, tuple(names.get(m.bookie, ()))) for m in found if m.address is not None
    )


def make_plan(catalog: Dataset, buckets: range, targets: Sequence[WireTarget], sampling: Sampling) -> SamplePlan:
    """Return what a run will cost; it holds one batch of records, and nothing of an entry."""
    copies = asked = longer = 0
    all_bytes = 0.0
    cost_bytes = np.zeros(len(targets))
    for _, own in read_cells(catalog, buckets, targets):
        stretches = find_stretches(own.cells, own.ledgers, sampling.rotation)
        chosen, cost = count_chosen(own.cells, stretches)
        copies += int(own.cells.due.sum())
        asked += int(chosen.sum())
        all_bytes += float((own.cells.due * own.size).sum())
        cost_bytes += np.bincount(own.cells.bookie, cost * own.size, len(targets))
        longer += len(np.unique(own.ledgers[stretches.runs > sampling.rotation.runs]))
    slowest = float(cost_bytes.max(initial=0.0)) / sampling.bytes_s
    return SamplePlan(len(targets), copies, asked, int(all_bytes), int(cost_bytes.sum()), slowest, longer)


def sample_bookies(request: SampleRequest, out: DatasetPlace, carry: Carry) -> Sampled:
    """Ask bookies for the entries that a run takes; what that will cost is logged before.

    Args:
        request: what is asked.
        out: the folder of the dataset of SAMPLES.
        carry: see there.

    Raises:
        DatasetError: the catalog is damaged, or the dataset cannot be written.
        SparkError: what carries the tasks failed.
    """
    targets = find_targets(request.catalog, request.members, request.wanted)
    plan = make_plan(request.catalog, request.buckets, targets, request.sampling)
    _LOG.warning("%s", plan.describe(request.sampling))
    prepare(out, TABLE, secret=True)
    rates = (request.options.per_bookie, request.options.in_total)
    per_bookie, in_total = (None if rate is None else rate / request.tasks for rate in rates)
    share = replace(request.options, per_bookie=per_bookie, in_total=in_total)
    bytes_s = request.sampling.bytes_s / request.tasks
    task = SampleTask(request.catalog, str(out), targets, share, request.sampling.rotation, bytes_s)
    low, count = request.buckets.start, len(request.buckets)
    edges = [low + count * n // request.tasks for n in range(request.tasks + 1)]
    parts: list[Part] = []
    samples = {target.bookie: BookieSample(target.bookie) for target in targets}
    for answer in carry(task, [range(*edge) for edge in pairwise(edges)]):
        parts += [Part(**part) for part in answer["parts"]]
        for fields in answer["bookies"]:
            samples[fields["bookie"]] = samples[fields["bookie"]].add(BookieSample(**fields))
    parts = parts or [write_part(out, TABLE, "part-0000", [SAMPLES.empty_table()], secret=True)]
    write_manifest(out, TABLE, {TABLE: parts}, binding={}, coverage={}, secret=True)
    return Sampled(str(out), plan, tuple(samples.values()))


def _describe_bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"


def _describe_time(seconds: float) -> str:
    if seconds < _HOUR_S:
        return f"{seconds / 60:.1f} minutes"
    if seconds < 2 * _DAY_S:
        return f"{seconds / _HOUR_S:.1f} hours"
    return f"{seconds / _DAY_S:.1f} days"
