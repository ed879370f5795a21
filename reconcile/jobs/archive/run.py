"""Closed ledgers copied into an archive, then marked: `archive run`.

in this order                                     killed there
objects, then the index of each few               no reader sees objects without an index
marks of the ledgers that an index has            the next run marks what the archive has, and does not copy it again
the list of the run's indexes                     the archive is whole without it; `archive verify` says that it lacks
"""

import json
import secrets
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from backends.bookie.client import BookieOptions
from reconcile.deletes.own_root import read_instance_id
from reconcile.errors import GuardRefusedError
from reconcile.jobs.archive.copy_marks import CopyMarks, list_ids
from reconcile.jobs.capture import capture_store
from reconcile.jobs.context import Context, WireOptions, now_ms, start_spark, throttle
from reconcile.jobs.deletes.clusters import DeleteTarget, OpenDeletes, open_deletes
from reconcile.jobs.undelete.topics import parse_pattern
from recovery import __version__
from recovery.archive import choice as choices
from recovery.archive.bookies import DiskSource, RunningSource, Source
from recovery.archive.choice import KNOWN, ArchiveChoice, choose, measure_frames
from recovery.archive.objects import (
    ARCHIVE_FILE,
    RUN_FILE,
    RUNS,
    ArchiveIndex,
    list_indexes,
    list_names,
    list_unfinished,
)
from recovery.archive.reader import About, read_about, read_index, read_known, unreadable
from recovery.archive.task import CopyTask
from recovery.bookies.addresses import read_members
from recovery.bookies.recorded_members import cut_batches
from recovery.dataset import Dataset, open_dataset
from recovery.errors import DatasetError, InputError
from recovery.model.ids import BUCKETS, LedgerId
from recovery.out_folder import lock_folder, sync_folder, write_whole
from recovery.place import DatasetPlace, remove_tree
from recovery.spark import has_executors, over_buckets, require_spark

Ints = npt.NDArray[np.int64]

_CATALOG: Final = "catalog"
_LEAST_OBJECT: Final = 64 << 20
"""Bytes that a task copies at least, where there are so many."""
_OF_TASK: Final = 1 << 30
"""About how many bytes a task copies. After a kill only the tasks that had begun are copied again."""
_WAVES: Final = 4
"""Tasks of each core between two times that marks are written."""
_MARKED: Final = ("scope", "ledger", "sha256", "pieces")
_IN_FLIGHT_BYTES: Final = 32 << 20
"""Of one bookie, about, that are asked for and not here yet."""
_IN_FLIGHT: Final = (8, 1000)
_NAMED: Final = 20
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What is archived, from where, and where to.

    Attributes:
        target: the store.
        place: of the archive: a new one, or one of the same cluster.
        source: folders of bookies by their ids, or how running bookies are asked.
        master: Spark's; None: that of Spark's own settings, else this host.
        python: what executors run as their Python; None: what they have.
        aliases: other names of bookies in records → ids.
        ledgers: these only; empty: all.
        older_than: only those whose record has not changed for so long.
        topics: only those that have messages of a topic that fits: persistent://tenant/namespace/topic, with * and ?.
        max_mb_s: MiB that are read in a second, at most, of all bookies together.
    """

    target: DeleteTarget
    place: DatasetPlace
    source: Mapping[str, Sequence[Path]] | WireOptions
    master: str | None = None
    python: Path | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    ledgers: tuple[LedgerId, ...] = ()
    older_than: timedelta | None = None
    topics: str | None = None
    max_mb_s: float | None = None


@dataclass(frozen=True, slots=True)
class Archived:
    """What came of a run.

    Attributes:
        run: its name.
        ledgers: that the store lists.
        counts: of ledgers by what became of them, of entries and bytes.
        failed: the first ledgers that could not be copied, each with the first entry that no copy gives, and why.
        damaged: the first copies whose digest does not agree.
        unused: bookie → what was wrong with copies of it → how many.
        others: ledgers that the archive has with another history, the first ones.
        lacking: ledgers that the archive's index has, and whose objects are gone or too short, likewise.
        gaps: parts of the store that could not be read.
        removed: objects that earlier runs had left unfinished, and that are gone now.
    """

    run: str
    ledgers: int
    counts: Mapping[str, int]
    failed: tuple[Mapping[str, Any], ...]
    damaged: tuple[Mapping[str, Any], ...]
    unused: Mapping[str, Mapping[str, int]]
    others: tuple[str, ...]
    lacking: tuple[str, ...]
    gaps: tuple[str, ...]
    removed: int


def archive(request: RunRequest, context: Context) -> Archived:
    """Copy the chosen ledgers that the archive does not have yet, and mark those that it has.

    Raises:
        DatasetError: the place is no archive and not empty, or cannot be read or written.
        GuardRefusedError: the archive is of another cluster, or bkmeta's own root is not ours.
        InputError: no ledgers root, no Spark, or folders that are no bookie's.
        UnavailableError: the store does not answer.
        SparkError: Spark failed.
    """
    require_spark(request.master, request.python)
    place = request.place.absolute()
    run = f"{context.now():%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    with ExitStack() as stack:
        stack.enter_context(lock_folder(place) if isinstance(place, Path) else nullcontext())
        target = stack.enter_context(open_deletes(request.target, context))
        _claim_place(place, About(read_instance_id(target.opened.store, target.opened.root), target.cluster.root))
        removed = _remove_unfinished(place) if isinstance(place, Path) else 0
        folder = stack.enter_context(_scratch(place, run, request.master))
        captured = capture_store(
            target.opened, folder / _CATALOG, context, with_rights=False, with_own_root=False, with_history=False
        )
        if captured.root != "present":
            raise InputError(request.target.uri, "has no ledgers root", "name the store and the root of the cluster")
        run_of = _Run(request, context, place, run, target, open_dataset(folder / _CATALOG, "catalog"))
        run_of.plan()
        if run_of.sizes.any():
            with start_spark(request.master, request.python, context) as spark:
                run_of.copy(spark)
        target.log.end(
            {name: count for name, count in run_of.counts.items() if name in ("marked", "unmarked", "copied")}, 0
        )
        return run_of.make_result(tuple(captured.gaps), removed)


def _claim_place(place: DatasetPlace, about: About) -> None:
    """Make a place an archive, or see that it is one of this cluster."""
    stands = read_about(place)
    if stands is None:
        try:
            names = [name for name in list_names(place) if name != f"{ARCHIVE_FILE}.tmp"]
        except OSError as error:
            raise unreadable(str(place), error) from error
        if names:
            problem = f"is not empty ({names[0]}, …), and no archive of ours"
            raise DatasetError(str(place), problem, "name an archive, or an empty or a new folder")
        with write_whole(place / ARCHIVE_FILE, secret=True) as file:
            file.sink.write(about.encode())
        if isinstance(place, Path):
            sync_folder(place)
    elif stands != about:
        problem = f"is of cluster {stands.instance_id or 'without an id'}, root {stands.root}"
        of_store = f"{about.instance_id or 'without an id'}, root {about.root}"
        problem = f"{problem}; the store is of {of_store}"
        raise GuardRefusedError(str(place), problem, "name another place for this cluster")


def _remove_unfinished(place: Path) -> int:
    """Remove what killed runs left; no other run writes there, for the place is locked."""
    try:
        left = list_unfinished(place)
        for name in left:
            (place / name).unlink()
        for run in list_names(place / RUNS):
            remove_tree(place / RUNS / run / _CATALOG)
    except OSError as error:
        raise unreadable(str(place), error) from error
    return len(left)


@contextmanager
def _scratch(place: DatasetPlace, run: str, master: str | None) -> Iterator[DatasetPlace]:
    """Give a folder for the catalog that tasks read: of this machine, or where executors would reach it."""
    if master is not None and not has_executors(master):
        with tempfile.TemporaryDirectory(prefix="bkmeta-archive-") as name:
            yield Path(name)
        return
    folder = place / RUNS / run
    try:
        yield folder
    finally:
        remove_tree(folder / _CATALOG)


class _Run:
    """One run: what it copies, and what came of it."""

    def __init__(
        self,
        request: RunRequest,
        context: Context,
        place: DatasetPlace,
        run: str,
        target: OpenDeletes,
        catalog: Dataset,
    ) -> None:
        self._request = request
        self._context = context
        self._place = place
        self._run = run
        self._target = target
        self._catalog = catalog
        at_ms = now_ms(context)
        older_ms = None if request.older_than is None else int(request.older_than.total_seconds() * 1000)
        topics = None if request.topics is None else parse_pattern(request.topics)
        self._choice = ArchiveChoice(at_ms, request.ledgers, older_ms, topics)
        try:
            self._known = tuple(list_indexes(place))
        except OSError as error:
            raise unreadable(str(place), error) from error
        self.counts: Counter[str] = Counter()
        self.sizes = np.zeros(BUCKETS, np.int64)
        """Bytes to be copied of each bucket, and one for each ledger, so that none counts as nothing."""
        self._largest = 1.0
        self._marks = CopyMarks(target.own, target.log, target.by, place)
        self._others: list[str] = []
        self._lacking: list[str] = []
        self._failed: list[Mapping[str, Any]] = []
        self._damaged: list[Mapping[str, Any]] = []
        self._unused: dict[str, Counter[str]] = {}
        self._written: list[str] = []

    def plan(self) -> None:
        """See what is to be copied, and mark what the archive has."""
        batches = cut_batches(self._catalog)
        with self._context.reporter.progress("choosing ledgers", "parts") as progress:
            for done, batch in enumerate(batches, 1):
                stored = self._catalog.read("ledgers", buckets=batch, columns=list(choices.COLUMNS))
                known = read_known(self._place, self._known, batch, (*KNOWN, "pieces"))
                chosen = choose(stored, known, self._choice)
                self.counts.update(chosen.counts)
                rows = stored.take(pa.array(chosen.rows))
                sizes = measure_frames(rows)
                np.add.at(self.sizes, rows["bucket"].to_numpy(), sizes + 1)
                means = sizes / np.maximum(rows["last_entry"].to_numpy() + 1, 1)
                self._largest = max(self._largest, float(means.max(initial=1.0)))
                other_histories = list_ids(stored.take(pa.array(chosen.others)))
                self._others += map(str, other_histories[: _NAMED - len(self._others)])
                # What the archive has is another ledger: a mark of it would let this one be deleted.
                self.counts["unmarked"] += self._marks.remove(other_histories)
                self._mark(known.take(pa.array(chosen.known_rows)))
                progress(done, len(batches))
        missing = len(self._request.ledgers) - sum(self.counts[name] for name in _OF_STORE)
        self.counts["not_in_store"] = missing if self._request.ledgers else 0

    def copy(self, spark: Any) -> None:  # noqa: ANN401 - a session, which only recovery.spark knows
        """Copy it, task by task, and mark what was copied."""
        cores = max(1, spark.sparkContext.defaultParallelism)
        ranges = _cut_ranges(self.sizes, cores)
        at_once = min(cores, len(ranges))
        task = CopyTask(
            self._catalog,
            str(self._place),
            self._run,
            self._known,
            self._choice,
            self._open_source(at_once),
            None if self._request.max_mb_s is None else self._request.max_mb_s * _MIB / at_once,
        )
        step = at_once * _WAVES
        with self._context.reporter.progress("copying", "parts") as progress:
            show = throttle(progress)
            for low in range(0, len(ranges), step):
                wave = ranges[low : low + step]

                def count(done: int, _all: int, ended: int = low) -> None:
                    show(ended + done, len(ranges))

                for answer in over_buckets(spark, task, wave, done=count):
                    self._take(answer)
        self._write_run()

    def _open_source(self, at_once: int) -> Source:
        source = self._request.source
        if not isinstance(source, WireOptions):
            folders = {bookie: tuple(path.absolute() for path in paths) for bookie, paths in source.items()}
            return DiskSource(folders, self._request.aliases)
        opened = self._target.opened
        members = read_members(opened.store, opened.root, opened.layout_hint, self._request.aliases)
        names = {*members.bookies, *self._request.aliases}
        members_by_name = {name: members.find(name) for name in names}
        addresses = {name: member.address for name, member in members_by_name.items() if member.address is not None}
        unresolved = {name: member.why for name, member in members_by_name.items() if member.address is None}
        return RunningSource(addresses, unresolved, _share_out(source.options, at_once, self._largest))

    def _take(self, answer: Mapping[str, Any]) -> None:
        self.counts.update(answer["counts"])
        self._failed += answer["failed"][: _NAMED - len(self._failed)]
        self._damaged += answer["damaged"][: _NAMED - len(self._damaged)]
        for bookie, problems in answer["unused"].items():
            self._unused.setdefault(bookie, Counter()).update(problems)
        for file in answer["indexes"]:
            self._written.append(file)
            self._mark(read_index(self._place, ArchiveIndex(file, 0, BUCKETS - 1), _MARKED))

    def _mark(self, rows: pa.Table) -> None:
        done = self._marks.write(rows, now_ms(self._context))
        self.counts.update(
            marked=done.marked, marked_elsewhere=done.elsewhere, unmarked=done.unmarked, lacking=len(done.lacking)
        )
        self._lacking += map(str, done.lacking[: _NAMED - len(self._lacking)])

    def _write_run(self) -> None:
        body = {
            "version": 1,
            "tool_version": __version__,
            "ended": self._context.now().isoformat(timespec="seconds"),
            "indexes": sorted(self._written),
        }
        if self._written:
            with write_whole(self._place / RUNS / self._run / RUN_FILE, secret=True) as file:
                file.sink.write(json.dumps(body, indent=1).encode())

    def make_result(self, gaps: tuple[str, ...], removed: int) -> Archived:
        """Return what came of it."""
        return Archived(
            self._run,
            self._catalog.rows("ledgers"),
            self.counts,
            tuple(self._failed),
            tuple(self._damaged),
            {bookie: dict(problems) for bookie, problems in sorted(self._unused.items())},
            tuple(self._others),
            tuple(self._lacking),
            gaps,
            removed,
        )


_OF_STORE: Final = ("unreadable", "open", "other_topics", "unknown_age", "young", "archived", "other_history", "taken")
"""What becomes of a ledger that the store lists and a person asks for."""


def _cut_ranges(sizes: Ints, cores: int) -> list[range]:
    """Cut buckets so that each range has about as many bytes: few enough for a task, enough for an object."""
    total = int(sizes.sum())
    count = max(total // _OF_TASK, min(cores, total // _LEAST_OBJECT), 1)
    ends = np.cumsum(sizes)
    edges = np.searchsorted(ends, np.arange(1, count) * total / count) + 1
    stops = np.unique([*edges.tolist(), BUCKETS])
    return [range(low, high) for low, high in zip([0, *stops.tolist()], stops.tolist(), strict=False)]


def _share_out(options: BookieOptions, tasks: int, entry_bytes: float) -> BookieOptions:
    """Return a task's share of how bookies are asked; fewer of large entries are asked for together."""
    least, most = _IN_FLIGHT
    return replace(
        options,
        in_flight=min(options.in_flight, max(least, min(most, int(_IN_FLIGHT_BYTES / entry_bytes)))),
        per_bookie=None if options.per_bookie is None else options.per_bookie / tasks,
        in_total=None if options.in_total is None else options.in_total / tasks,
    )
