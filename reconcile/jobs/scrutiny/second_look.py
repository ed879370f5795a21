"""The second look at suspects: record, mark and lists again, until each is confirmed, clean, skipped or undecided."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from backends.registry import OpenStore
from reconcile.check.scrutiny.earlier_reads import add_earlier
from reconcile.check.scrutiny.judge import SKIPPED, UNDECIDED, LookJudgement, give_verdicts, judge_range
from reconcile.check.scrutiny.looks import LEFT, LedgerLook, Suspect, SuspectKind, SuspectOutcome, look_again
from reconcile.check.scrutiny.replication import StoredReplication
from reconcile.check.scrutiny.striping import find_other_stripes
from reconcile.findings.categories import TRAITS, Category
from reconcile.jobs.context import Context, WireOptions
from reconcile.jobs.scrutiny.entry_reads import EntryReads, read_lacking
from reconcile.jobs.scrutiny.range_task import SUSPECT_COVERAGE, SUSPECT_FINDINGS, SUSPECT_VERDICTS, RangeTask, read_all
from reconcile.jobs.scrutiny.sampled_look import SampledBookies, find_registered, read_missing
from reconcile.rules.segments.copies import Sight
from reconcile.rules.segments.copy_findings import see_bookies
from reconcile.rules.segments.member_names import rename_members
from reconcile.rules.segments.sampled_copies import list_held, merge_samples
from recovery.bookies.addresses import BookieNames, read_members
from recovery.bookies.sampled_reads import Sampler, find_cells
from recovery.bookies.wire_inventory import WireRequest, collect_wire
from recovery.bookies.wire_probe import probe_bookies
from recovery.bookies.wire_reader import RunningCluster
from recovery.bookies.wire_results import CATALOG
from recovery.bookies.wire_results import AskedKind as Answered
from recovery.capture.records import read_marks, read_records
from recovery.codecs.store import Layout
from recovery.codecs.store_kind import kind_of
from recovery.dataset import SPILL, Dataset, DatasetWriter, open_dataset, read_part, sort_by_key
from recovery.model import tables
from recovery.place import DatasetPlace, remove_tree, to_place

_NO_READS: Final = tables.READS.empty_table()
_BATCH: Final = 8_192
"""Suspects that are looked at again together."""
_COVERAGE: Final = ("positions", "judged")
Key = tuple[int, int]


def name_kind(category: str) -> str:
    """Return what is confirmed by being seen again: how far copies are from what a record asks for may change."""
    return "copies" if TRAITS[Category(category)].of_copies else category


def is_doubtful(row: Mapping[str, Any]) -> bool:
    """Whether a finding needs a second look: it is more than a note."""
    return bool(row["severity"] != "info")


def is_of_record(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all that is doubtful of a ledger is said by its record alone, so that no bookie is asked again."""
    doubtful = [row for row in rows if is_doubtful(row)]
    return bool(doubtful) and all(TRAITS[row["category"]].of_records_alone for row in doubtful)


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """What became of some suspects.

    Attributes:
        findings: FINDINGS.
        verdicts: VERDICTS.
        missing: MISSING, as the last look saw it.
        reads: READS of what bookies without lists were asked for again.
        more_judged: copies that the first look did not judge, and a later one did.
    """

    findings: pa.Table
    verdicts: pa.Table
    missing: pa.Table = field(default_factory=tables.MISSING.empty_table)
    reads: pa.Table = field(default_factory=tables.READS.empty_table)
    more_judged: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """What one look saw of a suspect: the look, its rows of FINDINGS and of MISSING, and copies that were judged."""

    look: LedgerLook
    findings: Sequence[dict[str, Any]] = ()
    missing: Sequence[dict[str, Any]] = ()
    judged: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """What one look goes by.

    Attributes:
        records: CATALOG_LEDGERS, as the store has them.
        listed: COPIES of inventories and lists.
        sight: of the bookies.
        replication: of the store.
        part: buckets of the records.
    """

    records: pa.Table
    listed: pa.Table
    sight: Sight
    replication: StoredReplication
    part: range

    @property
    def copies(self) -> pa.Table:
        """COPIES of all that was seen."""
        return pa.concat_tables([self.listed, list_held(self.sight.samples)])

    def add_samples(self, samples: pa.Table, earlier_reads: pa.Table = _NO_READS) -> "_View":
        """Return it with what was answered to reads of single entries, now and earlier; SAMPLES and READS in."""
        together, _ = add_earlier(merge_samples(pa.concat_tables([self.sight.samples, samples])), earlier_reads)
        return replace(self, sight=replace(self.sight, samples=together))

    def add_reads(self, reads: EntryReads) -> "_View":
        """Return it with what was read of bookies whose inventories were given."""
        hidden = pa.concat_tables([self.sight.hidden.cast(reads.hidden.schema), reads.hidden])
        listed = pa.concat_tables([self.listed, reads.copies])
        return replace(self, listed=listed, sight=replace(self.sight, hidden=hidden))


@dataclass
class SecondLook:
    """Looks again at suspects of one run.

    Attributes:
        task: of the first look.
        opened: the store.
        layout: of it.
        replication: as it was captured.
        wire: how bookies are asked; None: their inventories are all there is.
        given: inventories that were given to the run: what they are of is not asked.
        context: of the job.
        recheck_after_s: seconds until bookies that did not answer are asked again.
        rechecks: how often.
        wait: waits so many seconds.
        sampled: bookies that give no lists, and are asked for single entries, with those that turn out to be such;
            None: they are not asked.
    """

    task: RangeTask
    opened: OpenStore
    layout: Layout
    replication: StoredReplication
    wire: WireOptions | None
    given: tuple[Dataset, ...]
    context: Context
    recheck_after_s: float
    rechecks: int
    wait: Callable[[float], None]
    sampled: SampledBookies | None = None
    looks: int = 0
    looked_at: int = 0
    waited_s: float = 0.0
    _reads: list[pa.Table] = field(default_factory=list)

    def settle(self, files: Sequence[Mapping[str, str]], done: Callable[[int], None]) -> Iterator[Settled]:
        """Yield what becomes of suspects, some at a time; those that wait for a bookie come last.

        Args:
            files: of suspects, those of each range.
            done: called with how many of these were looked at.

        Raises:
            BackendError: the store stopped answering.
        """
        waiting: list[pa.Table] = []
        for number, of_range in enumerate(files):
            done(number)
            findings, verdicts, coverage = (
                read_part(to_place(self.task.out), of_range[kind])
                for kind in (SUSPECT_FINDINGS, SUSPECT_VERDICTS, SUSPECT_COVERAGE)
            )
            verdicts = _add_coverage(verdicts, coverage)
            first, versions = _group(findings), self._read_versions(verdicts)
            self.looked_at += verdicts.num_rows
            for begin in range(0, verdicts.num_rows, _BATCH):
                batch = verdicts.slice(begin, _BATCH)
                standing = self._find_standing(batch, first, versions)
                if standing.any():
                    confirmed = {
                        key: (
                            SuspectOutcome(SuspectKind.CONFIRMED, findings=_kinds(first[key])),
                            _Seen(LedgerLook(None), first[key]),
                        )
                        for key in _keys_of(batch.filter(pa.array(standing)))
                    }
                    yield self._write_up(batch.filter(pa.array(standing)), confirmed)
                    batch = batch.filter(pa.array(~standing))
                suspects = {
                    key: Suspect(
                        LedgerLook(versions[key], findings=_kinds(first.get(key, ())), unseen=key not in first)
                    )
                    for key in _keys_of(batch)
                }
                yield self._settle_batch(batch, suspects, waiting)
        for turn in range(1, self.rechecks + 1):
            if waiting:
                self.wait(self.recheck_after_s)
                self.waited_s += self.recheck_after_s
            now, waiting = waiting, []
            for batch in now:
                # Anybody who waits has shown no finding yet: its version and its keys are all that is kept of it.
                pairs = zip(_keys_of(batch), batch["version"].to_pylist(), strict=True)
                suspects = {key: Suspect(LedgerLook(version, unseen=True), waits=turn) for key, version in pairs}
                yield self._settle_batch(batch, suspects, waiting)
        done(len(files))

    def _find_standing(
        self, batch: pa.Table, first: Mapping[Key, Sequence[Mapping[str, Any]]], versions: Mapping[Key, int]
    ) -> npt.NDArray[np.bool_]:
        """Return which suspects their records alone confirm: that is all, it is the same, and there is no mark."""
        keys = _keys_of(batch)
        asked = [key for key in keys if is_of_record(first.get(key, ()))]
        if not asked:
            return np.zeros(len(keys), np.bool_)
        scope, ledger = (np.array(half, np.int64) for half in zip(*asked, strict=True))
        store, root = self.opened.store, self.opened.root
        records = read_records(store, root, self.layout, scope, ledger)
        now = dict(zip(_keys_of(records), records["version"].to_pylist(), strict=True))
        marks = StoredReplication.from_nodes(read_marks(store, root, scope, ledger), kind_of(self.layout)).marks
        marked, of_record = set(_keys_of(marks)), set(asked)
        standing = [key in of_record and key not in marked and now.get(key) == versions[key] for key in keys]
        return np.array(standing, np.bool_)

    def _settle_batch(self, verdicts: pa.Table, suspects: Mapping[Key, Suspect], waiting: list[pa.Table]) -> Settled:
        """Look at some suspects until each is settled, or waits: these are added to `waiting`."""
        settled: dict[Key, tuple[SuspectOutcome, _Seen]] = {}
        later: dict[Key, int] = {}
        now = dict(suspects)
        while now:
            seen = self._look(now)
            suspects_left: dict[Key, Suspect] = {}
            for key, suspect in now.items():
                last = seen.get(key, _Seen(LedgerLook(None)))
                outcome = look_again(suspect, last.look, rechecks=self.rechecks)
                if outcome.suspect is None:
                    settled[key] = (outcome, last)
                elif outcome.kind is SuspectKind.WAITS:
                    later[key] = outcome.suspect.last.version or 0
                else:
                    suspects_left[key] = outcome.suspect
            now = suspects_left
        keys = _keys_of(verdicts)
        waits = np.array([key in later for key in keys], np.bool_)
        if later:
            versions = pa.array([later[key] for key in keys if key in later], pa.int64())
            rows_of = verdicts.filter(pa.array(waits)).select([*tables.VERDICTS.names, *_COVERAGE])
            waiting.append(rows_of.append_column("version", versions))
        return self._write_up(verdicts.filter(pa.array(~waits)), settled)

    def _read_versions(self, verdicts: pa.Table) -> dict[Key, int]:
        """Return the version of each record as it was captured."""
        buckets = verdicts["bucket"].to_numpy()
        rows = self.task.catalog.read(
            "ledgers",
            buckets=range(int(buckets.min()), int(buckets.max()) + 1),
            columns=["bucket", "scope", "ledger", "version"],
        )
        return dict(zip(_keys_of(rows), rows["version"].to_pylist(), strict=True))

    def _look(self, suspects: Mapping[Key, Suspect]) -> dict[Key, _Seen]:
        """Look at suspects once, and return what is seen of each that is still there."""
        scope, ledger = (np.array(half, np.int64) for half in zip(*suspects, strict=True))
        store, root = self.opened.store, self.opened.root
        records = sort_by_key(read_records(store, root, self.layout, scope, ledger))
        marks = StoredReplication.from_nodes(read_marks(store, root, scope, ledger), kind_of(self.layout)).marks
        judged = self._judge(records, replace(self.replication, marks=marks))
        groups, missing = _group(judged.findings), _group(judged.missing)
        counts = dict(zip(_keys_of(judged.coverage), judged.coverage["judged"].to_pylist(), strict=True))
        looks: dict[Key, _Seen] = {}
        words = judged.verdicts.select(["verdict", "reason"]).to_pylist()
        for key, version, word in zip(_keys_of(records), records["version"].to_pylist(), words, strict=True):
            rows = groups.get(key, [])
            kinds = _kinds(rows)
            skipped = word["reason"] if word["verdict"] == SKIPPED and not kinds else None
            left = word["reason"] if word["verdict"] == UNDECIDED and word["reason"] in LEFT else None
            unseen = word["verdict"] == UNDECIDED and left is None
            is_fresh = self.wire is not None
            look = LedgerLook(version, skipped, kinds, unseen, is_fresh=is_fresh, left=left)
            looks[key] = _Seen(look, rows, missing.get(key, []), counts.get(key, 0))
        return looks

    def _judge(self, records: pa.Table, replication: StoredReplication) -> LookJudgement:
        """Judge records by what bookies have now, as far as they are asked."""
        self.looks += 1
        folder = to_place(self.task.out) / SPILL / f"look-{self.looks}"
        inventories, everywhere = self.given, self.task.everywhere
        if self.wire is not None and records.num_rows:
            asked, everywhere = self._ask(records, folder, self.wire)
            inventories = (*self.given, *asked)
        buckets = records["bucket"].to_numpy()
        part = range(int(buckets.min()), int(buckets.max()) + 1) if len(buckets) else range(0)
        copies = [tables.COPIES.empty_table(), *(inventory.read("copies", buckets=part) for inventory in inventories)]
        sight = see_bookies(read_all(inventories, "bookies"), read_all(inventories, "damage"), self.task.ages)
        view = _View(records, pa.concat_tables(copies), sight, replication, part)
        with self._open_sampler() as sampler:
            if sampler is not None and self.sampled is not None and records.num_rows:
                cells = find_cells(records, sampler.targets)
                samples = sampler.read_chosen(cells, self.sampled.sampling.rotation)[0]
                earlier_reads = self.task.read_earlier_reads(part, records)
                view = view.add_samples(samples, earlier_reads)
                self._reads.append(self.task.note_reads(samples, records, _NO_READS))
            judged = self._judge_view(view, everywhere=everywhere and sampler is None)
            silent = self.given_bookies.intersection(replication.registered)
            if self.wire is not None and silent and judged.findings.num_rows:
                with RunningCluster(self.read_members(self.wire), self.wire.options) as cluster:
                    reads = read_lacking(
                        cluster,
                        rename_members(records, self.task.renames).to_pylist(),
                        judged.findings.to_pylist(),
                        silent,
                    )
                if reads.copies.num_rows or reads.hidden.num_rows:
                    view = view.add_reads(reads)
                    judged = self._judge_view(view, everywhere=everywhere and sampler is None)
            if sampler is not None and judged.findings.num_rows:
                renamed = rename_members(records, self.task.renames).to_pylist()
                samples, whole = read_missing(sampler, renamed, judged.findings.to_pylist())
                judged = self._judge_parts(view.add_samples(samples), whole if everywhere else frozenset())
        other = find_other_stripes(
            rename_members(records, self.task.renames),
            view.listed,
            read_all(inventories, "bookies"),
            read_all(inventories, "damage"),
            judged.findings,
            self.task.run,
        )
        remove_tree(folder)
        return replace(judged, findings=pa.concat_tables([judged.findings, other]))

    def _judge_parts(self, view: _View, whole: Collection[Key]) -> LookJudgement:
        """Judge ledgers, those apart of which every bookie was asked for what is missing."""
        is_whole = np.array([key in whole for key in _keys_of(view.records)], np.bool_)
        parts = [
            self._judge_view(replace(view, records=view.records.filter(pa.array(mask))), everywhere=everywhere)
            for mask, everywhere in ((is_whole, True), (~is_whole, False))
        ]
        return replace(
            parts[0],
            findings=pa.concat_tables([part.findings for part in parts]),
            verdicts=sort_by_key(pa.concat_tables([part.verdicts for part in parts])),
            missing=pa.concat_tables([part.missing for part in parts]),
            coverage=pa.concat_tables([part.coverage for part in parts]),
        )

    @contextmanager
    def _open_sampler(self) -> Iterator[Sampler | None]:
        """Give what asks for single entries; None where there is nothing to ask."""
        if self.sampled is None or self.wire is None:
            yield None
            return
        members = self.read_members(self.wire)
        names = [name for name in sorted(self._without_lists) if name not in self.given_bookies]
        targets = find_registered(members, names, self.task.renames)
        if not targets:
            yield None
            return
        with Sampler(targets, self.wire.options, self.sampled.sampling.bytes_s) as sampler:
            yield sampler

    def _judge_view(self, view: _View, *, everywhere: bool) -> LookJudgement:
        return judge_range(
            rename_members(view.records, self.task.renames),
            view.copies,
            view.sight,
            view.replication,
            self.task.demands,
            self.task.run,
            everywhere=everywhere,
            earlier_records=self.task.read_earlier_records(view.part),
            earlier_missing=self.task.read_earlier_missing(view.part),
            heights=self.task.read_heights(view.part),
        )

    @cached_property
    def _without_lists(self) -> set[str]:
        """Bookies that give no lists, as far as that is known, where they are asked for single entries."""
        return set() if self.sampled is None else set(self.sampled.names)

    @cached_property
    def given_bookies(self) -> frozenset[str]:
        """Bookies whose inventories were given to the run: they are not asked for lists."""
        rows = (inventory.read("bookies", columns=["bookie"])["bookie"].to_pylist() for inventory in self.given)
        return frozenset(chain.from_iterable(rows))

    def _ask(self, records: pa.Table, folder: DatasetPlace, wire: WireOptions) -> tuple[tuple[Dataset, ...], bool]:
        """Ask every bookie for these ledgers; return inventories, and whether all bookies of the cluster are seen."""
        members = self.read_members(wire)
        with DatasetWriter(folder / CATALOG, "catalog", binding={}, secret=True) as writer:
            writer.append("ledgers", records)
            writer.close(coverage={})
        registered = [name for name in members.bookies if members.find(name).registered_txn is not None]
        read = self.given_bookies | self._without_lists
        wanted = tuple(bookie for bookie in registered if bookie not in read)
        summary = collect_wire(
            WireRequest(
                catalog=open_dataset(folder / CATALOG, "catalog"), members=members, wanted=wanted, options=wire.options
            ),
            folder,
            lambda task, ranges: [task(part) for part in ranges],
            now=self.context.now,
        )
        inventories = tuple(open_dataset(result.folder, "inventory") for result in summary.bookies if result.folder)
        listing = summary.bookies
        if self.sampled is not None:
            # A bookie that did not answer the first look may turn out to give no lists: then it is read from.
            self._without_lists |= {result.bookie for result in listing if result.kind is Answered.NO_LISTS}
            listing = tuple(result for result in listing if result.kind is not Answered.NO_LISTS)
        answered = all(result.kind is Answered.COLLECTED and not result.unanswered for result in listing)
        return inventories, answered and self._is_whole(self.given)

    def read_members(self, wire: WireOptions) -> BookieNames:
        """Return who the bookies are now."""
        return read_members(self.opened.store, self.opened.root, self.opened.layout_hint, wire.aliases)

    @staticmethod
    def _is_whole(inventories: Sequence[Dataset]) -> bool:
        return all(
            all(inventory.read("bookies", columns=["complete"])["complete"].to_pylist()) for inventory in inventories
        )

    def recheck_bookies(self, silent: Sequence[str], absent: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return which bookies are registered and still do not answer, and which are still not registered.

        Args:
            silent: bookies that did not answer at the first look.
            absent: bookies that were not registered then.
        """
        if self.wire is None or not (silent or absent):
            return [], list(absent)
        if self.rechecks and not self.waited_s:
            of_all = round(self.recheck_after_s)
            with self.context.reporter.progress("waiting for bookies that do not answer", "seconds") as show:
                show(0, of_all)
                self.wait(self.recheck_after_s)
                show(of_all, of_all)
            self.waited_s += self.recheck_after_s
        members = self.read_members(self.wire)
        again = [members.find(bookie) for bookie in silent]
        results = asyncio.run(probe_bookies(again, {}, self.wire.options)) if again else {}
        still = [
            member.bookie
            for member in again
            if results[member.bookie].kind is Answered.NO_ANSWER and member.registered_txn is not None
        ]
        return still, [bookie for bookie in absent if members.find(bookie).registered_txn is None]

    def _write_up(self, verdicts: pa.Table, settled: Mapping[Key, tuple[SuspectOutcome, _Seen]]) -> Settled:
        """Return what became of suspects."""
        rows: list[dict[str, Any]] = []
        missing: list[dict[str, Any]] = []
        words, reasons = [], []
        more = 0
        covered = (verdicts[name].to_pylist() for name in _COVERAGE)
        for key, positions, judged in zip(_keys_of(verdicts), *covered, strict=True):
            outcome, seen = settled.get(key, (SuspectOutcome(SuspectKind.SKIPPED, "gone"), _Seen(LedgerLook(None))))
            rows += [
                row for row in seen.findings if not is_doubtful(row) or name_kind(row["category"]) in outcome.findings
            ]
            missing += seen.missing
            more += max(0, min(seen.judged, positions) - judged)
            words.append(str(outcome.kind))
            reasons.append(outcome.reason)
        findings = pa.Table.from_pylist(rows, schema=tables.FINDINGS)
        skipped, undecided = (
            np.array([word == kind for word in words], np.bool_)
            for kind in (SuspectKind.SKIPPED, SuspectKind.UNDECIDED)
        )
        return Settled(
            self.task.apply_lifecycle(findings),
            give_verdicts(verdicts, findings, skipped, undecided, reasons),
            pa.Table.from_pylist(missing, schema=tables.MISSING),
            self._take_reads(),
            more,
        )

    def _take_reads(self) -> pa.Table:
        """Return what was read since this was asked last; READS."""
        reads, self._reads = sort_by_key(pa.concat_tables([_NO_READS, *self._reads])), []
        return reads


def _add_coverage(verdicts: pa.Table, coverage: pa.Table) -> pa.Table:
    """Return verdicts with how many copies the record asks for, and how many of these were judged."""
    keys = _keys_of(verdicts)
    for name in _COVERAGE:
        counts = dict(zip(_keys_of(coverage), coverage[name].to_pylist(), strict=True))
        verdicts = verdicts.append_column(name, pa.array([counts.get(key, 0) for key in keys], pa.int64()))
    return verdicts


def _keys_of(rows: pa.Table) -> list[Key]:
    return list(zip(rows["scope"].to_pylist(), rows["ledger"].to_pylist(), strict=True))


def _group(table: pa.Table) -> dict[Key, list[dict[str, Any]]]:
    """Return the rows of each ledger."""
    grouped: dict[Key, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        grouped.setdefault((row["scope"], row["ledger"]), []).append(row)
    return grouped


def _kinds(rows: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(name_kind(row["category"]) for row in rows if is_doubtful(row))
