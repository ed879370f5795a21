"""`recover`: inventories of bookies into a plan that brings the lost ledger metadata back.

pass 1   every bucket range: which (E, W) the cluster's own ledgers show → the prior; what was deleted on purpose
pass 2   every bucket range: reconstruct → compare with the store and earlier catalogs → actions and findings
driver   generators, LAYOUT, instance id, cookies, what stands beside the ledgers; the manifest with the plan's hash

Where a catalog has ids of other scopes, a pass before these looks for ledgers that share the lower half of their ids.
Without inventories the store and the earlier catalogs are compared; records are proposed where the store has none.

In one module because both passes and what the driver adds work on one record of the job, and on one sum of its ranges.
"""

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconcile import clusters
from reconcile.compare import decide, range_findings
from reconcile.compare.decide import Case
from reconcile.compare.evidence import Catalog, Evidence, find_collisions, has_scopes, sort_newest_first
from reconcile.findings.categories import Category
from reconcile.findings.table import Run, make_rows
from reconcile.plan import alternatives
from reconcile.plan.actions import (
    HOLD_PASSWORD_SIZE,
    LEAVE,
    Passwords,
    Phase,
    SystemWrite,
    make_ledger_actions,
    make_system_actions,
    phase_of,
    select_released,
)
from reconcile.plan.plan_hash import Hashes, bucket_hashes, ledger_hashes
from reconcile.references import References, beside_them
from reconcile.rules import diff, holds, reference_checks, used_ids
from reconcile.rules.nodes import list_far_ids
from reconcile.rules.sides import ABSENT, unite
from recovery.codecs import store
from recovery.dataset import SPILL, Dataset, only, open_dataset, sort_by_key, write_manifest, write_part
from recovery.errors import InputError
from recovery.infer.prior import Prior
from recovery.infer.reconstruct import Options
from recovery.infer.references import SCHEMA
from recovery.infer.search import Tail
from recovery.manifest import Part
from recovery.model import tables
from recovery.model.coverage import Coverage
from recovery.model.ids import is_bookie_id
from recovery.spark import over_buckets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_DISAGREEMENT: Final = (
    Category.HELD,
    Category.STALE_UR_MARK,
    Category.DELETED_OUTSIDE,
    Category.REFERENCE_DIFFERS,
    Category.REFERENCE_NOT_FOUND,
    Category.DELETED_BY_OWNER,
    Category.RECORD_CONTRADICTED,
)
_REFERENCES: Final = "references.parquet"
_SOME: Final = 100


@dataclass(frozen=True, slots=True)
class Request:
    """What `recover` is asked.

    Attributes:
        inventories: inventory folders; each bookie once.
        live: catalog of the store that is to be repaired; None: plan for an empty one.
        snapshots: earlier catalogs: sides of the comparison; their (E, W, A) count in the prior.
        layout: of the target.
        root: ledgers root key of the target, for the manifest.
        passwords: candidates.
        expected: bookies that the cluster has, as the operator says; None: not said.
        default_quorum: (E, W, A) where nothing else decides.
        tail: where ledgers are closed whose last entries may not have been acknowledged.
        references: what upper layers know of their ledgers.
        raise_past: ids up to this one are used, as the operator says, however far above all others they stand.
        settings: of the run, each with where it came from, for the manifest.
    """

    inventories: tuple[Dataset, ...]
    live: Dataset | None
    snapshots: tuple[Dataset, ...]
    layout: store.Layout
    root: str
    passwords: Passwords
    expected: tuple[str, ...] | None
    default_quorum: tuple[int, int, int] | None
    tail: Tail = Tail.INCLUSIVE
    references: References | None = None
    raise_past: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What came of it: the manifest as written, and what the sums are made of."""

    manifest: Mapping[str, Any]
    counts: Mapping[str, int]
    reasons: Mapping[str, int]
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class _Job:
    """Everything that a task needs; small, and picklable."""

    request: Request
    out: str
    case: Case
    prior: Prior | None
    run: str
    at: datetime

    def references(self, buckets: range) -> pa.Table | None:
        """Return the references of a range, which the driver wrote where every task reads them."""
        if self.request.references is None:
            return None
        wanted = [("bucket", ">=", buckets.start), ("bucket", "<", buckets.stop)]
        return pq.read_table(Path(self.out) / SPILL / _REFERENCES, filters=wanted, schema=SCHEMA)

    def shapes(self, buckets: range) -> dict[str, Any]:
        return decide.count_range(self.case, buckets, self.references(buckets))

    def collide(self, part: range) -> dict[str, Any]:
        """Write the ledgers of a range of lower halves that stand in several scopes."""
        found = find_collisions([*self.request.inventories, *self.case.evidence.datasets], part)
        name = f"collisions-{part.start:04d}"
        return _part_json(write_part(Path(self.out), SPILL, name, [found], secret=True))

    def recover(self, buckets: range) -> dict[str, Any]:
        assert self.prior is not None  # noqa: S101 - pass 2 comes after pass 1
        evidence, references = self.case.evidence, self.references(buckets)
        copies = self.case.copies(buckets)
        known = evidence.read_tables(buckets, references)
        sides = decide.decide_range(self.case, self.prior, copies, known, evidence.find_issued(self.request.layout))
        rows, stored = sides.outcomes(), sides.stored
        matched = diff.match(rows, stored)
        missing = rows.take(pa.array(matched.missing))
        held = missing.filter(pc.equal(missing["outcome"], "held"))
        secrets = os.urandom(HOLD_PASSWORD_SIZE * held.num_rows)
        wanted = missing.filter(pc.is_in(missing["outcome"], pa.array(["restored", "held"])))
        released, of_store = select_released(rows, stored, matched)
        wanted = sort_by_key(pa.concat_tables([wanted, released], promote_options="default"))
        actions = make_ledger_actions(wanted, self.request.layout, self.request.passwords, secrets)
        kept = holds.find_holds(only(stored, pa.array(~of_store)))
        waiting = missing.filter(pc.equal(missing["outcome"], "waiting"))
        unsolved = pa.concat_tables([*(t.select(kept.schema.names).cast(kept.schema) for t in (held, waiting)), kept])
        run = Run(self.run, self.at)
        disagreements = diff.disagreements(rows, stored, matched)
        if not evidence.looked_at:
            disagreements = disagreements.filter(pc.not_equal(disagreements["category"], Category.NOT_ON_BOOKIES))
        found = pa.concat_tables(
            [
                diff.findings(disagreements, run),
                holds.findings(unsolved, run),
                range_findings.find_all(evidence, sides, copies, buckets, run, references),
            ]
        )
        compared, looked_at = range_findings.give_verdicts(evidence, sides, found, references)
        actions, left = alternatives.offer_alternatives(sides, self.request.layout, self.request.passwords, actions)
        name = f"buckets-{buckets.start:04d}-{buckets.stop - 1:04d}"
        written = {
            table: _part_json(write_part(Path(self.out), table, name, [content], secret=True))
            for table, content in (
                ("actions", actions),
                ("findings", found),
                ("reconstruction", rows),
                ("sides", compared),
            )
        }
        used = used_ids.numbers(self.request.layout, used_ids.of_ledgers(compared, sides.history, references))
        return {
            "parts": written,
            "actions": bucket_hashes(actions),
            "settled": ledger_hashes(rows),
            "ledgers": rows.num_rows,
            "outcomes": _count_values(missing["outcome"]),
            "present": len(matched.held_rows),
            "stored": stored.num_rows,
            "unheld": len(matched.unheld),
            "still_held": kept.num_rows,
            "released": released.num_rows,
            "classes": _count_values(rows["class"]),
            "reasons": _count_values(held["reason"]),
            "formats": _count_values(pc.cast(wanted["format"], pa.string())),
            "findings": _count_values(found["category"]),
            "proven": _count_values(found.filter(self._is_proven(found))["category"]),
            "looked_at": looked_at,
            "relations": _count_values(compared["relation"]),
            "verdicts": _count_values(compared["verdict"]),
            "left": left,
            "references": {} if references is None else _count_references(references, rows, stored),
            "used": asdict(used),
        }

    def _is_proven(self, found: pa.Table) -> pa.ChunkedArray:
        """Say which findings are critical and were shown: absence counts only where every bookie was looked at."""
        critical = pc.equal(found["severity"], "critical")
        if self.case.evidence.everywhere:
            return critical
        of_absence = [str(Category.ENTRIES_MISSING), str(Category.NOT_ON_BOOKIES)]
        return pc.and_not(critical, pc.is_in(found["category"], pa.array(of_absence)))


def _count_references(references: pa.Table, rows: pa.Table, stored: pa.Table) -> dict[str, Any]:
    """Count what references name, what they do not, and what they name in vain; and list some of the latter two."""
    wanted = references.filter(pc.invert(pc.fill_null(references["deleted"], fill_value=False)))
    said, shown, now = unite([references, rows, stored]).rows
    ours, held, now_too = unite([wanted, rows, stored]).rows
    unreferenced = np.sort(shown[(shown != ABSENT) & (said == ABSENT)])
    in_vain = ours[(ours != ABSENT) & (held == ABSENT) & (now_too == ABSENT)]
    return {
        "referenced": int(((said != ABSENT) & ((shown != ABSENT) | (now != ABSENT))).sum()),
        "unreferenced": len(unreferenced),
        "referenced_not_found": len(in_vain),
        "some_unreferenced": [
            row | {"key": None if row["key"] is None else row["key"].hex()}
            for row in rows.select(["scope", "ledger", "key"]).take(pa.array(unreferenced[:_SOME])).to_pylist()
        ],
        "some_not_found": wanted.select(["scope", "ledger"]).take(pa.array(np.sort(in_vain)[:_SOME])).to_pylist(),
    }


def _all_references(answers: Sequence[Mapping[str, Any]], given: References | None) -> dict[str, Any]:
    """Add up what the ranges say of references; nothing where there are none."""
    if given is None:
        return {}
    parts = [answer["references"] for answer in answers if answer["references"]]
    found: dict[str, Any] = {}
    for name in parts[0] if parts else ():
        values = [part[name] for part in parts]
        found[name] = [one for value in values for one in value][:_SOME] if name.startswith("some_") else sum(values)
    found["some_unreferenced"] = beside_them(given.rows, found["some_unreferenced"])
    return found | {"unreadable": len(given.unreadable), "gaps": len(given.gaps)}


def _part_json(part: Part) -> dict[str, Any]:
    return {name: getattr(part, name) for name in Part.__slots__}


def _count_values(column: pa.ChunkedArray) -> dict[str, int]:
    return {str(row["values"]): row["counts"] for row in pc.value_counts(column).to_pylist()}


def open_inventories(paths: Sequence[str]) -> tuple[Dataset, ...]:
    """Open inventories and see that they are of different bookies of one cluster.

    Raises:
        DatasetError: one is not a whole inventory.
        InputError: a bookie comes twice or has an id that is none, or two clusters are mixed.
    """
    found = tuple(open_dataset(path, "inventory") for path in paths)
    bookies: dict[str, str] = {}
    clusters: dict[str, str] = {}
    for dataset in found:
        for row in dataset.read("bookies", columns=["bookie", "instance_id"]).to_pylist():
            if not is_bookie_id(row["bookie"]):
                raise InputError(dataset.path, f"is of {row['bookie']!r}, no bookie id", "collect the bookie again")
            if row["bookie"] in bookies:
                problem = f"holds bookie {row['bookie']}, and so does {bookies[row['bookie']]}"
                raise InputError(dataset.path, problem, "give each bookie's newest inventory once")
            bookies[row["bookie"]] = dataset.path
            if row["instance_id"] is not None:
                clusters.setdefault(row["instance_id"], dataset.path)
    if len(clusters) > 1:
        (one, first), (two, second) = list(clusters.items())[:2]
        problem = f"is of cluster instance {two}, {first} is of {one}"
        raise InputError(second, problem, "recover one cluster at a time")
    return found


def sources_of_cluster(request: Request, bookies: pa.Table) -> tuple[clusters.Source, ...]:
    """Return everything that says of which cluster it is, the bookies first; BOOKIES in.

    Raises:
        InputError: an earlier catalog, or a store of references, is of another cluster than the bookies; than the
            store, where no bookie names one. That the store itself is of another is a finding: somebody may have
            initialised it again, and apply refuses it.
    """

    def of(title: str, catalog: Dataset) -> clusters.Source:
        rows = catalog.read("sources")
        uri = next(iter(rows["uri"].to_pylist()), None)
        name = f"{title} {uri} ({catalog.path})" if uri else f"{title} {catalog.path}"
        return clusters.of_catalog(name, rows, catalog.read("nodes", columns=["path", "kind", "raw"]))

    of_bookies = clusters.of_bookies(bookies)
    store = [of("the store", request.live)] if request.live is not None else []
    others = [of("snapshot", snapshot) for snapshot in request.snapshots]
    others += request.references.stores if request.references is not None else ()
    named = any(source.instance_id is not None for source in of_bookies)
    clusters.demand_one([*of_bookies, *([] if named else store), *others])
    # Nothing is believed of a store that is empty.
    empty = request.live is None or not request.live.rows("ledgers")
    return (*of_bookies, *([] if empty else store), *others)


def recover(
    request: Request,
    out: Path,
    spark: "SparkSession",
    *,
    now: Callable[[], datetime],
    progress: Callable[[int, int, str], None] = lambda _done, _all, _stage: None,
) -> Recovered:
    """Make a plan: a dataset of kind plan in the folder `out`, which `prepare` made ready.

    Args:
        request: what is asked.
        out: the folder.
        spark: the session.
        now: the clock; aware.
        progress: is told (tasks done, of all, stage).

    Raises:
        DatasetError: an inventory or catalog is damaged, or the plan cannot be written.
        InputError: two sources are of two clusters.
        SparkError: Spark failed.
    """
    at = now()
    bookies = pa.concat_tables([tables.BOOKIES.empty_table(), *(i.read("bookies") for i in request.inventories)])
    sources = sources_of_cluster(request, bookies)
    instances = sorted({i for i in bookies["instance_id"].to_pylist() if i is not None})
    # Where no bookie names a cluster, what else was put together with them does.
    instances = instances or sorted({one.instance_id for one in sources if one.instance_id is not None})
    coverage = _cover(request, bookies)
    # One alone has nothing to be compared with.
    coverage = coverage.with_nameless(clusters.nameless(sources) if len(sources) > 1 else [])
    evidence = Evidence(
        live=Catalog.read(request.live) if request.live else None,
        earlier=sort_newest_first(request.snapshots),
        everywhere=coverage.is_whole,
        looked_at=bool(request.inventories),
    )
    options = Options(passwords=request.passwords.values, unscanned_bookies=coverage.not_scanned, tail=request.tail)
    case = Case(
        request.inventories,
        bookies,
        evidence,
        options,
        request.layout,
        request.default_quorum,
        members_known=bool(coverage.members_known_from),
    )
    job = _Job(request, str(out.absolute()), case, None, at.isoformat(timespec="seconds"), at)
    rows = case.rows()
    ranges = decide.cut_ranges(case)
    if request.references is not None:
        write_part(out, SPILL, _REFERENCES.removesuffix(".parquet"), [request.references.rows], secret=True)
    evidence = _with_collisions(job, spark, ranges, lambda done, of: progress(done, of, "scopes"))
    job = replace(job, case=replace(case, evidence=evidence))
    answers = over_buckets(
        spark, job.shapes, decide.sample_ranges(ranges, rows), done=lambda done, of: progress(done, of, "shapes")
    )
    case, prior = decide.prepare_case(job.case, answers)
    job = replace(job, case=case, prior=prior)
    answers = over_buckets(spark, job.recover, ranges, done=lambda done, of: progress(done, of, "ledgers"))
    try:
        return _finish(request, out, job, answers, coverage, instances)
    finally:
        shutil.rmtree(out / SPILL, ignore_errors=True)


def _with_collisions(
    job: _Job, spark: "SparkSession", ranges: Sequence[range], done: Callable[[int, int], None]
) -> Evidence:
    """Find ledgers of several scopes with the same lower half; costs nothing where all are of scope 0."""
    datasets = [*job.request.inventories, *job.case.evidence.datasets]
    if not has_scopes(datasets):
        return job.case.evidence
    files = [answer["file"] for answer in over_buckets(spark, job.collide, ranges, done=done) if answer["rows"]]
    return replace(job.case.evidence, collisions=tuple(f"{job.out}/{file}" for file in files))


def _cover(request: Request, bookies: pa.Table) -> Coverage:
    """Say which bookies were looked at, which were not, and what names the members."""
    scanned = {row["bookie"]: row["complete"] for row in bookies.select(["bookie", "complete"]).to_pylist()}
    named: dict[str, set[str]] = {}
    if request.expected is not None:
        named["expected by the operator"] = set(request.expected)
    for title, catalog in (("in the store", request.live), *(("in a snapshot", s) for s in request.snapshots)):
        if catalog is None:
            continue
        nodes = catalog.read("nodes", columns=["path", "kind"])
        cookies = nodes.filter(pc.equal(nodes["kind"], "cookie"))["path"].to_pylist()
        if cookies:
            named.setdefault(f"with a cookie {title}", set()).update(path.rsplit("/", 1)[-1] for path in cookies)
    return Coverage.count(scanned, dict(sorted(named.items())))


def _finish(
    request: Request,
    out: Path,
    job: _Job,
    answers: Sequence[Mapping[str, Any]],
    coverage: Coverage,
    instances: Sequence[str],
) -> Recovered:
    sums: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    hashes = Hashes()
    for answer in answers:
        sums.update({f"outcome {k}": v for k, v in answer["outcomes"].items()})
        sums.update({f"class {k}": v for k, v in answer["classes"].items()})
        sums.update({f"finding {k}": v for k, v in answer["findings"].items()})
        sums.update({f"proven {k}": v for k, v in answer["proven"].items()})
        sums.update({f"relation {k}": v for k, v in answer["relations"].items()})
        sums.update({f"verdict {k}": v for k, v in answer["verdicts"].items()})
        names = (
            "ledgers",
            "present",
            "stored",
            "unheld",
            "still_held",
            "released",
            "looked_at",
            "left",
        )
        sums.update({name: answer[name] for name in names})
        reasons.update(answer["reasons"])
        hashes.actions.update({int(bucket): value for bucket, value in answer["actions"].items()})
        hashes.settled.update({int(bucket): value for bucket, value in answer["settled"].items()})
    counters = used_ids.numbers(request.layout, used_ids.of_counters(job.case.evidence.read_counters(request.layout)))
    of_bookies = used_ids.numbers(request.layout, used_ids.of_bookies(job.case.bookies))
    used = [used_ids.UsedNumbers(**answer["used"]) for answer in answers]
    raises = used_ids.decide_raises([counters, of_bookies, *used], request.raise_past)
    settled = sum(sums[f"outcome {name}"] for name in ("restored", "held", "accepted_loss", "deleted"))
    unsettled = sums["ledgers"] - sums["present"] - settled
    writes = _system_writes(request, job.case.bookies, raises.taken, with_cookies=unsettled == 0)
    proposes = bool(request.inventories or sums["ledgers"])
    actions = make_system_actions(writes if proposes else ())
    hashes.actions.update(bucket_hashes(actions))
    split = sum(phase_of(seq) < Phase.LEDGERS for seq in actions["seq"].to_pylist())
    first, last = actions.slice(0, split), actions.slice(split)
    parts: dict[str, list[Part]] = {
        name: [Part(**answer["parts"][name]) for answer in answers]
        for name in ("actions", "findings", "reconstruction", "sides")
    }
    beside = range_findings.find_beside_ledgers(
        job.case.evidence,
        job.case.bookies,
        Run(job.run, job.at),
        layout=request.layout,
        taken=raises.taken,
        raised=frozenset(write.key for write in writes if write.op == "raise" and proposes),
    )
    beside = pa.concat_tables([beside, make_rows(list_far_ids(raises), Run(job.run, job.at))])
    if request.references is not None:
        bad = reference_checks.unreadable(request.references.unreadable, request.references.gaps)
        beside = pa.concat_tables([beside, make_rows(bad, Run(job.run, job.at))])
    parts["findings"].append(write_part(out, "findings", "beside", [beside], secret=True))
    sums.update({f"finding {k}": v for k, v in _count_values(beside["category"]).items()})
    proven = beside.filter(pc.equal(beside["severity"], "critical"))["category"]
    sums.update({f"proven {k}": v for k, v in _count_values(proven).items()})
    parts["actions"].insert(0, write_part(out, "actions", "system-first", [first], secret=True))
    parts["actions"].append(write_part(out, "actions", "system-last", [last], secret=True))
    binding = {
        "instance_ids": list(instances),
        "layout": str(request.layout),
        "root": request.root,
        "bookies": sorted(
            zip(job.case.bookies["bookie"].to_pylist(), job.case.bookies["incarnation"].to_pylist(), strict=True)
        ),
        "cookies_held_back": unsettled > 0,
        "made": job.run,
        "inputs": _inputs(request),
        "options": {
            "tail": str(request.tail),
            "default_quorum": request.default_quorum,
            "passwords": len(request.passwords.values),
            "expected_bookies": None if request.expected is None else sorted(request.expected),
            **({} if request.raise_past is None else {"raise_past": request.raise_past}),
        },
    }
    counts = {
        "ledgers": sums["ledgers"],
        "restored": sums["outcome restored"],
        "held": sums["outcome held"],
        "waiting": sums["outcome waiting"],
        "deleted": sums["outcome deleted"],
        "in_store_already": sums["present"],
        "in_store": sums["stored"],
        "in_store_not_on_bookies": sums["unheld"],
        "held_in_store": sums["still_held"],
        "released": sums["released"],
        "disagreements": sum(_select_sums(sums, "finding").values())
        - sum(sums[f"finding {category}"] for category in _NO_DISAGREEMENT)
        - beside.num_rows,
        "critical": sum(_select_sums(sums, "proven").values()),
        "looked_at": sums["looked_at"],
        **{name: sums[f"verdict {name}"] for name in ("clean", "skipped", "undecided")},
        "with_findings": sum(v for k, v in _select_sums(sums, "verdict").items() if k in set(Category)),
        "findings": sum(_select_sums(sums, "finding").values()),
        "left_alone": sums["left"] + actions["op"].to_pylist().count(LEAVE),
        "actions": sum(p.rows for p in parts["actions"]),
        "ids_above_short_generator": sum(part.above_short for part in used),
        "ids_not_raised_past": sum(part.above_raise - part.above_short for part in used),
        "ids_far_above": len(raises.far_above),
        "counters_not_raised_past": counters.above_raise - counters.above_short,
    }
    manifest = write_manifest(
        out,
        "plan",
        parts,
        binding=binding,
        coverage=coverage.to_json(),
        secret=True,
        extra={
            "counts": counts,
            "reasons": dict(reasons),
            "references": _all_references(answers, request.references),
            "sides": _select_sums(sums, "relation"),
            "found": _select_sums(sums, "finding"),
            "mass_deletion": job.case.evidence.mass_deletion,
            "mass_let_go": job.case.evidence.mass_let_go,
            "settings": dict(request.settings),
            "prior": [asdict(shape) for shape in job.prior.shapes] if job.prior else [],
            "histories": [
                {
                    "uri": str(one.dataset.manifest["binding"].get("uri") or one.source),
                    "txn": one.txn,
                    "chosen": one.is_chosen,
                }
                for one in job.case.evidence.catalogs
                if one.dataset.rows("history")
            ],
        },
        sign=hashes.sign,
    )
    return Recovered(manifest, counts, dict(reasons), coverage)


def _inputs(request: Request) -> list[dict[str, str]]:
    """Say what the plan is made of: each dataset by its digest, references by that of their rows."""
    datasets = [("inventory", one) for one in request.inventories]
    datasets += [("store", one) for one in (request.live,) if one is not None]
    datasets += [("snapshot", one) for one in request.snapshots]
    found = [{"kind": kind, "name": one.path, "digest": one.digest} for kind, one in datasets]
    if request.references is not None:
        rows = pa.BufferOutputStream()
        with pa.ipc.new_stream(rows, request.references.rows.schema) as stream:
            stream.write_table(request.references.rows.combine_chunks())
        found.append({"kind": "references", "name": "", "digest": hashlib.sha256(rows.getvalue()).hexdigest()})
    return found


def _select_sums(sums: Mapping[str, int], kind: str) -> dict[str, int]:
    """Return the sums of one kind by their names."""
    return {k.removeprefix(f"{kind} "): v for k, v in sorted(sums.items()) if k.startswith(f"{kind} ")}


def _earlier_instances(request: Request) -> list[str]:
    """Return the instance id of the newest earlier catalog that has one."""
    for catalog in sort_newest_first(request.snapshots):
        nodes = catalog.dataset.read("nodes", columns=["kind", "raw"])
        raws = nodes.filter(pc.equal(nodes["kind"], "instance_id"))["raw"].to_pylist()
        if raws:
            return sorted(raw.decode(errors="replace") for raw in raws)
    return []


def _system_writes(
    request: Request, bookies: pa.Table, taken: Mapping[str, int], *, with_cookies: bool
) -> list[SystemWrite]:
    """Return what a cluster needs besides ledgers, as far as the store does not have it already."""
    nodes: dict[str, Mapping[str, Any]] = {}
    if request.live is not None:
        for row in request.live.read("nodes", columns=["path", "raw", "children_created"]).to_pylist():
            nodes[row["path"]] = row
    where = store.places(request.layout)
    writes = [
        SystemWrite(Phase.GENERATORS, "raise", "generator", counter, str(largest).encode())
        for counter, largest in sorted(taken.items())
        if used_ids.is_behind(nodes.get(counter, {}).get("children_created"), largest)
    ]
    wanted = [SystemWrite(Phase.LAYOUT, "create", "node", folder, b"") for folder in where.folders]
    wanted.append(SystemWrite(Phase.LAYOUT, "create", "layout", where.layout, store.layout_bytes(request.layout)))
    instances = sorted({i for i in bookies["instance_id"].to_pylist() if i is not None}) or _earlier_instances(request)
    wanted += [
        SystemWrite(Phase.INSTANCE_ID, "create", "instance_id", where.instance_id, i.encode()) for i in instances
    ]
    if with_cookies:
        wanted += [
            SystemWrite(Phase.COOKIES, "create", "cookie", f"{where.cookies}/{row['bookie']}", row["cookie"])
            for row in bookies.select(["bookie", "complete", "cookie"]).to_pylist()
            if row["complete"] and row["cookie"] is not None
        ]
    # LAYOUT and instance id are always named: that binds the plan to a store that has these, or none.
    bound = ("layout", "instance_id")
    writes += [write for write in wanted if write.kind in bound or write.key not in nodes]
    # Another cookie in the store is replaced only where a person names it.
    return writes + [
        replace(write, op=LEAVE)
        for write in wanted
        if write.kind == "cookie" and nodes.get(write.key, {}).get("raw", write.value) != write.value
    ]
