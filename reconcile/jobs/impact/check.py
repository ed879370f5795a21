"""`check-impact`: the question put to every bucket range, and the answers put together.

    catalog ──> bookies, marks ──> sets ──> every bucket range ──> sums ──> verdicts

This process answers for what it goes through in seconds; where there is more, or a master is named, Spark carries the
same function over the same ranges.
"""

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backends.errors import AccessDeniedError
from reconcile.check.evidence import CopyEvidence, open_runs
from reconcile.check.impact.answer import (
    CacheState,
    Capacity,
    EvidenceState,
    ImpactAnswer,
    Largest,
    LossStatement,
    Quorum,
    ReplicationState,
    RunState,
    SetAnswer,
)
from reconcile.check.impact.bookies import BookieColumns, Sets, match_domains, read_bookies
from reconcile.check.impact.destinations import Destinations, demands_places
from reconcile.check.impact.hits import NOW, ImpactCluster
from reconcile.check.impact.largest_set import Limits
from reconcile.check.impact.names import CopyHealth, DomainLevel, Impact, ImpactTarget, ImpactVerdict
from reconcile.check.impact.ranges import HitTally, ImpactQuestion, RangeAnswer, Tallies, gather_limits
from reconcile.check.impact.segments.columns import Shape
from reconcile.check.impact.segments.copies import find_incomplete, read_marked_copies
from reconcile.check.impact.segments.judgement import States
from reconcile.check.impact.system_ledgers import name_kind
from reconcile.check.placement_files import read_rack_info
from reconcile.clusters import require_of_cluster
from reconcile.estimates import EstimatedStep
from reconcile.id_files import write_keys
from reconcile.jobs.context import Context, choose_spark, connect, throttle
from reconcile.jobs.impact.cache import (
    VOTES,
    Captured,
    provide_catalog,
    read_present_nodes,
    read_statements,
    record_statements,
)
from reconcile.jobs.impact.question import ImpactRequest
from reconcile.references import References
from reconcile.rules.segments.placement import find_location
from reconcile.stores import catalog_path, is_live
from reconcile.words import count_noun, list_names
from recovery.codecs.registration import address_in, decode_registration
from recovery.codecs.store import REPLICATION_DISABLED
from recovery.dataset import prepare, read_part, write_manifest
from recovery.errors import FormatError, InputError
from recovery.manifest import Part
from recovery.model.ids import bucket_ranges
from recovery.place import DatasetPlace
from recovery.spark import over_buckets

ROWS_PER_RANGE: Final = 250_000
_VOTE: Final = re.compile(r'bookieId:\s*"([^"]*)"')
_SOME: Final = 5
IDS: Final = "ledgers.txt"
"""Beside the dataset: the ids of the ledgers that are hit, one a line."""


def check_impact(request: ImpactRequest, context: Context) -> ImpactAnswer:
    """Say what becomes of a cluster when bookies are taken away.

    Raises:
        UnsupportedStoreError: the URI is malformed, or of a store that is not read.
        UnavailableError: the store does not answer.
        DatasetError: a catalog or an inventory is damaged, or a folder cannot be written.
        InputError: a bookie or a domain is named that is not there, or something is asked that needs what is missing.
    """
    if request.stable_for > 1 and not is_live(request.uri):
        problem = "is a copy of a store: it is the same each time that it is read"
        remedy = "name the store itself, or leave it out"
        raise InputError("the time that is looked back", f"{request.uri} {problem}", remedy)
    if request.out is not None:
        prepare(request.out, "impact", secret=False)
    if request.unrecoverable:
        record_statements(request.uri, request.cache, request.unrecoverable)
    turn = 1
    while True:
        is_last = turn == request.stable_for
        max_age = request.max_age if request.stable_for == 1 else timedelta(0)
        captured = provide_catalog(request.uri, request.cache, max_age, context)
        require_of_cluster(
            captured.catalog, request.uri, request.inventories, getattr(request.references, "stores", ())
        )
        check = _Check(request if is_last else replace(request, out=None), captured, context)
        answer = check.answer()
        is_safe = answer.verdict is ImpactVerdict.SAFE
        if is_last or not is_safe:
            break
        turn += 1
    if not is_last and request.out is not None:
        # What is written is about the capture that was not safe.
        answer = _Check(request, captured, context).answer()
    return replace(answer, stable=turn if is_safe else turn - 1)


class _Check:
    """One question about one capture."""

    def __init__(self, request: ImpactRequest, captured: Captured, context: Context) -> None:
        self._request = request
        self._captured = captured
        self._context = context
        self._undecided: list[str] = []
        nodes = captured.catalog.read("nodes", columns=["path", "kind", "raw", "created_txn", "changed_txn"])
        if captured.alive and not captured.is_fresh:
            nodes = read_present_nodes(request.uri, nodes, context)
        self._nodes = nodes
        self._marks = read_marked_copies(nodes, request.aliases)
        self._bookies = self._read_bookies(nodes)
        self._evidence = self._gather_evidence(nodes)
        self._target = request.taken.target

    def _read_bookies(self, nodes: pa.Table) -> BookieColumns:
        request = self._request
        named = {name for names in request.taken.sets for name in names} | {s.bookie for s in request.unrecoverable}
        bookies = read_bookies(
            nodes,
            alive=self._captured.alive,
            unrecoverable=frozenset(statement.bookie for statement in request.unrecoverable),
            named=named,
            weights=request.weights,
        )
        strangers = sorted(set(request.weights) - set(bookies.names))
        if strangers:
            problem = f"{strangers[0]} has a weight, and is not a bookie of the store"
            raise InputError("the weights", problem, f"the bookies are {', '.join(bookies.names[:_SOME])}, …")
        topology = request.topology if request.topology is not None else self._read_rack_info()
        locations = {name: place for name in bookies.names if (place := find_location(topology, name)) is not None}
        return replace(bookies, locations=tuple(locations.get(name) for name in bookies.names))

    def _gather_evidence(self, nodes: pa.Table) -> CopyEvidence:
        request, catalog = self._request, self._captured.catalog
        running = frozenset(
            name
            for name, state in zip(self._bookies.names, self._bookies.states.tolist(), strict=False)
            if state <= CopyHealth.READ_ONLY
        )
        runs = open_runs(request.evidence, catalog, request.uri)
        return CopyEvidence.gather(request.inventories, runs, catalog, nodes, running)

    def _read_rack_info(self) -> dict[str, str]:
        """Return Pulsar's rack information, which stands beside the ledgers root, where locations are needed."""
        uri = self._request.uri
        if catalog_path(uri) is not None or not _needs_places(self._request):
            return {}
        with connect(uri, self._context) as opened:
            try:
                return read_rack_info(opened)
            except (FormatError, AccessDeniedError):
                self._undecided.append("the rack information in the store cannot be read: give a topology")
                return {}

    def answer(self) -> ImpactAnswer:
        """Answer."""
        request, bookies = self._request, self._bookies
        named = self._find_sets()
        clusters = [self._make_cluster(sets) for sets in named]
        if len(named) > 1:
            everyone = {name for sets in named for name in sets.list_members(bookies, 0)}
            clusters.append(self._make_cluster(Sets.from_bookies(bookies, "all together", everyone, self._target)))
        if not clusters and request.drill is None:
            clusters.append(self._make_cluster(Sets((), np.full(len(bookies.names) + 1, NOW, np.int32), self._target)))
        if request.drill is not None:
            self._require_places(f"the drill by {request.drill}", request.drill)
            clusters.append(self._make_cluster(Sets.from_domains(bookies, request.drill, self._target)))
        ranges = self._choose_ranges()
        question = self._make_question(clusters)
        total, spread = self._ask(question, ranges)
        self._require_known(total)
        self._look_for_doubt(total)
        shapes = self._choose_shapes(total)
        now = self._judge_set(clusters[0], NOW, total, shapes)
        answers = [self._judge_set(cluster, 0, total, shapes) for cluster in clusters[: len(named)]]
        together = self._judge_set(clusters[len(named)], 0, total, shapes) if len(named) > 1 else None
        drilled = clusters[-1] if request.drill is not None else None
        drill = (
            [self._judge_set(drilled, number, total, shapes) for number in range(len(drilled.sets.labels))]
            if drilled is not None
            else []
        )
        largest = None if request.most is None else self._find_largest(question, ranges, shapes)
        deciding = [*answers, *drill] or [now]
        answer = ImpactAnswer(
            verdict=_choose_verdict([outcome.verdict for outcome in deciding]),
            undecided=tuple(self._undecided),
            now=now,
            sets=tuple(answers),
            together=together,
            drill=tuple(drill),
            largest=largest,
            sample=tuple(total.sample),
            ledgers=total.ledgers,
            segments=total.segments,
            unreadable=total.unreadable,
            unreadable_sample=tuple(total.unreadable_sample),
            shapes=tuple(map(str, shapes)),
            undated=0 if request.default_quorum is not None else total.undated,
            states={state.label: int((bookies.states[:-1] == state).sum()) for state in CopyHealth},
            unplaced=tuple(name for name, place in zip(bookies.names, bookies.locations, strict=True) if place is None),
            replication=self._read_replication(),
            cache=self._describe_cache(),
            stable=1,
            declared=self._list_declared(),
            spread=spread,
            evidence=self._describe_evidence(total),
        )
        if request.out is not None:
            self._write_manifest(request.out, answer, total)
        return answer

    # What is asked

    def _find_sets(self) -> list[Sets]:
        """Return the sets that were named, each as one of its own: they may share bookies."""
        taken, bookies = self._request.taken, self._bookies
        chosen = {", ".join(names): names for names in taken.sets}
        if taken.domains:
            self._require_places("the domains", DomainLevel.RACK)
            matches = match_domains(bookies, taken.domains)
            for name, members in matches.items():
                if not members:
                    places = ", ".join(sorted({place for place in bookies.locations if place}))
                    raise InputError(
                        f"the domain {name}", "has no bookie", f"the locations are {places or 'not known'}"
                    )
            chosen[", ".join(taken.domains)] = tuple(sorted({name for members in matches.values() for name in members}))
        if taken.hosts:
            hosts = self._hosts
            on_hosts = [name for name in bookies.names if any(fnmatchcase(hosts[name], glob) for glob in taken.hosts)]
            if not on_hosts:
                remedy = f"hosts are {', '.join(sorted(set(hosts.values()))[:_SOME])}"
                raise InputError(f"the hosts {' '.join(taken.hosts)}", "fits no bookie's host", remedy)
            chosen[", ".join(taken.hosts)] = tuple(on_hosts)
        return [Sets.from_bookies(bookies, label, names, taken.target) for label, names in chosen.items()]

    @cached_property
    def _hosts(self) -> dict[str, str]:
        """The host of each bookie: as it registered, else as its id says, else the id."""
        hosts = {}
        rows = self._nodes.filter(pc.equal(self._nodes["kind"], "registration"))
        raws = {path.rpartition("/")[2]: raw for path, raw in zip(*_columns(rows, "path", "raw"), strict=True)}
        for name in self._bookies.names:
            endpoint = address_in(name)
            try:
                endpoint = decode_registration(raws.get(name, b"")) or endpoint
            except FormatError:
                self._undecided.append(f"the registration of {name} cannot be read: its host is taken from its id")
            hosts[name] = name if endpoint is None else endpoint.host
        return hosts

    def _require_places(self, option: str, level: DomainLevel) -> None:
        """Check that locations are known where something needs them; single ones that are not are said."""
        if level is not DomainLevel.BOOKIE and not any(self._bookies.locations):
            remedy = "give a topology, a file with a line for each bookie: its id or host, a space, its location"
            raise InputError(option, "needs the bookies' locations, and none is known", remedy)

    def _require_known(self, total: RangeAnswer) -> None:
        """Refuse names that nothing in the store has."""
        kinds = pc.is_in(self._nodes["kind"], value_set=pa.array(["cookie", "registration"]))
        members = {path.rpartition("/")[2] for path in self._nodes.filter(kinds)["path"].to_pylist()}
        asked = {name for names in self._request.taken.sets for name in names}
        asked |= {statement.bookie for statement in self._request.unrecoverable}
        unknown = sorted(asked - members - set(total.named))
        if unknown:
            problem = "has no cookie, is not registered, and no record that was read names it"
            remedy = f"the bookies are {', '.join(sorted(members)[:_SOME])}{', …' if len(members) > _SOME else ''}"
            raise InputError(f"bookie {unknown[0]}", problem, remedy)

    def _make_cluster(self, sets: Sets) -> ImpactCluster:
        margin = self._request.margin
        if margin is not None:
            self._require_places(f"the margin by {margin}", margin)
        return ImpactCluster(
            self._bookies,
            sets,
            Destinations(self._bookies, sets, self._request.placement),
            None if margin is None else self._bookies.code_domains(margin)[1],
        )

    def _make_question(self, clusters: Sequence[ImpactCluster]) -> ImpactQuestion:
        request = self._request
        drill = request.drill if request.drill not in (None, DomainLevel.BOOKIE) else DomainLevel.RACK
        return ImpactQuestion(
            catalog=self._captured.catalog,
            clusters=tuple(clusters),
            level=drill or DomainLevel.RACK,
            marked=self._marks.rows,
            at=self._captured.at,
            since_txn=self._captured.since_txn,
            evidence=self._evidence,
            ledgers=request.ledgers,
            aliases=request.aliases,
            owned=None if request.references is None else _select_owned(request.references),
            out=None if request.out is None else str(request.out),
        )

    def _choose_ranges(self) -> list[range]:
        if self._request.ledgers is not None:
            return [range(bucket, bucket + 1) for bucket in sorted({ledger.bucket for ledger in self._request.ledgers})]
        return bucket_ranges(self._captured.catalog.rows("ledgers"), rows_per_task=ROWS_PER_RANGE)

    def _ask(self, question: ImpactQuestion, ranges: Sequence[range]) -> tuple[RangeAnswer, bool]:
        """Return the sum of all ranges' answers, and whether Spark carried the question."""
        total, request = RangeAnswer(), self._request
        rows = self._captured.catalog.rows("ledgers") if request.ledgers is None else len(request.ledgers)
        with (
            choose_spark(EstimatedStep.CHECK_IMPACT, rows, request.master, None, self._context) as spark,
            self._context.reporter.progress("judging segments", "parts") as progress,
        ):
            for answer in over_buckets(spark, question.answer, ranges, done=throttle(progress)):
                total.add(msgspec.convert(answer, RangeAnswer))
        return total, spark is not None

    # What follows

    def _look_for_doubt(self, total: RangeAnswer) -> None:
        """Say what could not be looked at."""
        source = self._captured.catalog.read("sources").to_pylist()[0]
        if source["root"] != "present":
            self._undecided.append("the ledgers root does not exist")
        elif not source["complete"]:
            self._undecided.append(f"the capture has gaps: {'; '.join(source['gaps'][:_SOME])}")
        if self._leaves_doubt(total):
            names = ", ".join(total.unreadable_sample[:_SOME])
            self._undecided.append(f"{count_noun(total.unreadable, 'record')} cannot be read: {names}")
        if self._marks.unreadable:
            self._undecided.append(f"{count_noun(self._marks.unreadable, 'under-replication mark')} cannot be read")
        request = self._request
        if total.absent:
            self._undecided.append(f"the store has no record of ledger {list_names(total.absent)}")
        unplaced = [n for n, place in zip(self._bookies.names, self._bookies.locations, strict=True) if place is None]
        if _needs_places(request) and unplaced:
            names = ", ".join(unplaced[:_SOME])
            self._undecided.append(f"{count_noun(len(unplaced), 'bookie')} without a location: {names}")
        partial = sorted(name for name, complete in find_incomplete(request.inventories).items() if not complete)
        if partial:
            self._undecided.append(f"the inventory of {', '.join(partial[:_SOME])} is not complete")

    def _leaves_doubt(self, total: RangeAnswer) -> bool:
        """Whether records that cannot be read leave the answer open, and not themselves alone.

        No client can open such a ledger, so nothing more of it is lost while its bookies are away. That is not so where
        a later version may know the form, where bookies are removed for good, or where nothing else was asked for.
        """
        if not total.unreadable:
            return False
        is_all = self._request.ledgers is not None or total.unreadable == total.ledgers
        return is_all or total.unknown_form > 0 or self._target is ImpactTarget.GONE

    def _choose_shapes(self, total: RangeAnswer) -> list[Shape]:
        quorum = self._request.default_quorum
        return [quorum] if quorum is not None else [Shape(*shape) for shape in total.shapes]

    def _judge_set(self, cluster: ImpactCluster, number: int, total: RangeAnswer, shapes: Sequence[Shape]) -> SetAnswer:
        """Return what becomes of the cluster when a set is taken; `NOW`: nothing is."""
        sets, bookies = cluster.sets, self._bookies
        label = "" if number == NOW else sets.labels[number]
        members = () if number == NOW else sets.list_members(bookies, number)
        states = bookies.states if number == NOW else sets.change(bookies.states, number)
        impacts: Tallies = deepcopy(total.now)
        caused = set(impacts) if number == NOW else set[str]()
        for impact, tally in total.changes.get(label, {}).items() if number != NOW else ():
            impacts.setdefault(impact, HitTally()).add(tally)
            if tally.worse:
                caused.add(impact)
        impacts = {impact: tally for impact, tally in impacts.items() if tally.segments}
        lost_now, lost_then = (self._weigh(column) for column in (bookies.states, states))
        capacity = Capacity(lost_now, lost_then, self._request.most_unavailable)
        if lost_then > capacity.most:
            impacts.setdefault(str(Impact.STORAGE_CAPACITY_LOSS), HitTally())
            if lost_then > lost_now or number == NOW:
                caused.add(str(Impact.STORAGE_CAPACITY_LOSS))
        lacking = [shape for shape in shapes if not cluster.destinations.finds_ensemble(shape, number)]
        if lacking:
            impacts.setdefault(str(Impact.WRITE_AVAILABILITY_LOSS), HitTally())
            if number == NOW or any(cluster.destinations.finds_ensemble(shape, NOW) for shape in lacking):
                caused.add(str(Impact.WRITE_AVAILABILITY_LOSS))
        quorum = self._count_servers(members)
        if quorum is not None and quorum.left < quorum.needs:
            impacts[str(Impact.METADATA_QUORUM)] = HitTally()
            caused.add(str(Impact.METADATA_QUORUM))
        caused &= set(impacts)
        verdict = ImpactVerdict.UNSAFE if caused else ImpactVerdict.UNDECIDED if self._undecided else ImpactVerdict.SAFE
        ordered = {str(impact): impacts[str(impact)] for impact in Impact if str(impact) in impacts}
        return SetAnswer(
            label,
            members,
            verdict,
            ordered,
            tuple(impact for impact in ordered if impact in caused),
            capacity,
            tuple(map(str, lacking)),
            quorum,
        )

    def _weigh(self, states: States) -> float:
        """Return the per cent of the weight that cannot be written to."""
        weights = self._bookies.weights
        whole = float(weights.sum())
        return 100 * float(weights[states != CopyHealth.READ_WRITE].sum()) / whole if whole else 0.0

    def _count_servers(self, members: Sequence[str]) -> Quorum | None:
        servers = self._request.zookeeper
        if not servers or self._target is ImpactTarget.READ_ONLY:
            return None
        hosts = self._hosts
        lost = len({hosts[name] for name in members} & set(servers))
        return Quorum(len(servers), len(servers) - lost, len(servers) // 2 + 1) if lost else None

    def _find_largest(self, question: ImpactQuestion, ranges: Sequence[range], shapes: Sequence[Shape]) -> Largest:
        """Look for the largest set that may be taken, and see that the whole check calls it safe."""
        most = self._request.most or 0
        bookies = self._bookies
        limits = Limits(bookies.states, self._target)
        with self._context.reporter.progress("looking for the largest set", "parts") as progress:
            for number, buckets in enumerate(ranges):
                gather_limits(question, buckets, limits)
                progress(number + 1, len(ranges))
        candidates = np.flatnonzero(bookies.states[:-1] < self._target.state)
        chosen, is_exact = limits.search(candidates.tolist(), min(most, self._bound_largest(candidates, shapes)))
        while chosen:
            names = [bookies.names[number] for number in chosen]
            cluster = self._make_cluster(Sets.from_bookies(bookies, "largest", names, self._target))
            total, _ = self._ask(replace(question, clusters=(cluster,), out=None), ranges)
            if not self._judge_set(cluster, 0, total, shapes).caused:
                break
            # Something else than copies forbids it: unequal weights, or the placement policy.
            chosen.pop()
            is_exact = False
        return Largest(most, tuple(bookies.names[number] for number in chosen), is_exact)

    def _bound_largest(self, candidates: npt.NDArray[np.int64], shapes: Sequence[Shape]) -> int:
        """Return how many bookies may go at most, for capacity and for new ledgers."""
        bookies, whole = self._bookies, float(self._bookies.weights.sum())
        lost = float(bookies.weights[bookies.states != CopyHealth.READ_WRITE].sum())
        free = bookies.states[candidates] == CopyHealth.READ_WRITE
        weights = np.sort(bookies.weights[candidates] * free)
        most = 100 * (lost + np.cumsum(weights)) <= self._request.most_unavailable * whole
        pool = bookies.writable()
        room = [pool - shape.ensemble for shape in shapes if pool >= shape.ensemble]
        return min([int(most.sum()), *room])

    def _read_replication(self) -> ReplicationState:
        paths = self._nodes["path"]
        votes = self._nodes.filter(pc.starts_with(paths, f"{VOTES}/")).sort_by("path")
        raws = votes["raw"].to_pylist() if self._captured.alive else []
        matches = [_VOTE.search(raw.decode(errors="replace")) for raw in raws]
        candidates = [match[1] if match else "unknown" for match in matches]
        auditor = candidates[0] if candidates else None
        disabled = bool(pc.any(pc.equal(paths, REPLICATION_DISABLED)).as_py())
        return ReplicationState(disabled, auditor, self._marks.ledgers, tuple(candidates))

    def _describe_cache(self) -> CacheState:
        captured = self._captured
        txn = captured.catalog.read("sources", columns=["txn"])["txn"][0].as_py()
        age = (self._context.now() - captured.at).total_seconds()
        return CacheState(captured.catalog.path, captured.at, age, txn, captured.is_fresh, captured.alive)

    def _describe_evidence(self, total: RangeAnswer) -> EvidenceState | None:
        if self._evidence.is_empty:
            return None
        now = self._context.now()
        runs = tuple(
            RunState(
                run.dataset.path,
                run.at,
                (now - run.at).total_seconds(),
                run.number,
                tuple(sorted(wiped.bookie for wiped in run.wiped)),
            )
            for run in self._evidence.runs
        )
        return EvidenceState(runs, len(find_incomplete(self._request.inventories)), total.covered)

    def _list_declared(self) -> tuple[LossStatement, ...]:
        repeated = {statement.bookie for statement in self._request.unrecoverable}
        return tuple(s for s in read_statements(self._request.uri, self._request.cache) if s.bookie not in repeated)

    def _write_manifest(self, out: DatasetPlace, answer: ImpactAnswer, total: RangeAnswer) -> None:
        files = [str(part["file"]) for part in total.parts if part["rows"]]
        write_keys(out / IDS, [read_part(out, file, columns=["scope", "ledger"]) for file in files])
        write_manifest(
            out,
            "impact",
            {"impacts": [Part(**part) for part in total.parts]},
            binding={
                "uri": self._request.uri,
                "catalog": self._captured.catalog.digest,
                "target": str(self._target),
                "unrecoverable": [statement.bookie for statement in self._request.unrecoverable],
            },
            coverage={"undecided": list(answer.undecided), "ledgers": answer.ledgers, "unreadable": answer.unreadable},
            secret=False,
            extra={"answer": str(answer.verdict)},
        )


def _needs_places(request: ImpactRequest) -> bool:
    """Whether an answer depends on where bookies stand."""
    levels = {request.drill, request.margin} - {None, DomainLevel.BOOKIE}
    return bool(levels or request.taken.domains) or demands_places(request.placement)


def _columns(rows: pa.Table, *names: str) -> Iterator[list[object]]:
    return (rows[name].to_pylist() for name in names)


def _select_owned(references: References) -> pa.Table:
    """Return the ledgers that an upper layer keeps for its own bookkeeping."""
    rows = references.rows.select(["scope", "ledger", "owner"])
    owners = rows["owner"].dictionary_encode().combine_chunks()
    kinds = pa.array([None if name is None else name_kind(name) for name in owners.dictionary.to_pylist()], pa.string())
    rows = rows.append_column("kind", kinds.take(owners.indices))
    return rows.filter(pc.is_valid(rows["kind"]))


def _choose_verdict(verdicts: Sequence[ImpactVerdict]) -> ImpactVerdict:
    return next(
        (verdict for verdict in (ImpactVerdict.UNSAFE, ImpactVerdict.UNDECIDED) if verdict in verdicts),
        ImpactVerdict.SAFE,
    )
