"""What an apply wrote, judged by the rules of `scrutinize`: do the new records agree with what bookies hold?

    evidence                                     is used
    inventories that the caller names            in place of the plan's
    inventories that the plan was made from      where they still are at their places, with the same content
    running bookies                              asked after all was written; what is found is asked once more

A finding is *expected* where the plan has it, too: it lists the same finding of the ledger, or it counted copies or
entries that no bookie shows. All others above info are *unexpected*: they stop the next wave. Holds and guarded ledgers
are skipped, as in every scrutiny. Placement is not judged: an apply chooses no bookies.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from backends.registry import OpenStore
from reconcile.check.scrutiny.judge import Demands, LookJudgement, judge_range
from reconcile.check.scrutiny.replication import StoredReplication
from reconcile.clusters import InstanceSource, of_bookies, open_inventories, require_one
from reconcile.findings.categories import TRAITS, Category
from reconcile.findings.table import FindingRun
from reconcile.jobs.context import Context, WireOptions, throttle
from reconcile.jobs.scrutiny.range_task import are_of, count_verdicts, read_all
from reconcile.plan.actions import Guard
from reconcile.plan.manifest import PlanManifest, read_plan_manifest
from reconcile.rules.segments.copy_findings import see_bookies
from reconcile.rules.segments.member_names import rename_members
from reconcile.rules.segments.placement import PlacementSettings
from recovery.bookies.addresses import read_members
from recovery.bookies.wire_inventory import WireRequest, collect_wire
from recovery.bookies.wire_results import CATALOG, AskedKind
from recovery.capture.records import read_marks, read_records
from recovery.codecs.store import Layout
from recovery.codecs.store_kind import kind_of
from recovery.dataset import Dataset, DatasetWriter, open_dataset, sort_by_key
from recovery.errors import DatasetError
from recovery.model import tables
from recovery.model.ids import LedgerId, bucket_ranges

LISTED: Final = 20
"""Unexpected findings that a result names; all are counted."""
_NEVER_S: Final = 10 * 365 * 86_400.0
"""How long a mark or a recovery may be there: an apply made none of them."""
_WRITTEN: Final = pa.array(["create", "hold", "replace"])
_RESTORED: Final = pa.array(["create", "replace"])
_GUARDED: Final = pa.array([str(Guard.LOCK), str(Guard.NAMED)])
_ON_NO_BOOKIE: Final = "entries on no bookie"
"""A statement of `copy_findings`."""


@dataclass(frozen=True, slots=True)
class TouchedEvidence:
    """What touched ledgers are judged by.

    Attributes:
        inventories: of bookies.
        wire: how running bookies are asked; None: they are not.
        aliases: other names of bookies in records → ids.
        absent: inventories of the plan that are no longer at their places, or have changed.
        everywhere: the inventories show all that any bookie of the cluster has.
    """

    inventories: tuple[Dataset, ...]
    wire: WireOptions | None
    aliases: Mapping[str, str]
    absent: tuple[str, ...]
    everywhere: bool


@dataclass(slots=True)
class Touched:
    """What the scrutiny of touched ledgers found.

    Attributes:
        absent: inventories of the plan that could not be used.
        inventories: how many were used.
        asked: running bookies were asked.
        ledgers: that the plan wrote records of.
        clean: of these, those without a finding.
        skipped, undecided: reason → ledgers that were not judged.
        with_findings: the others.
        expected: findings above info that the plan has, too.
        unexpected: findings above info that the plan does not have.
        worst: the first of these, as rows of FINDINGS.
        with_unexpected: the ledgers of these.
        positions: copies that the judged records ask for.
        judged: of these, those that evidence shows to be there, or to be missing.
    """

    absent: tuple[str, ...]
    inventories: int
    asked: bool
    ledgers: int = 0
    clean: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)
    with_findings: int = 0
    expected: int = 0
    unexpected: int = 0
    worst: list[dict[str, Any]] = field(default_factory=list)
    with_unexpected: list[LedgerId] = field(default_factory=list)
    positions: int = 0
    judged: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` has it."""
        names = ("ledgers", "clean", "with_findings", "expected", "unexpected", "positions", "judged", "inventories")
        return {
            **{name: getattr(self, name) for name in names},
            "skipped": dict(sorted(self.skipped.items())),
            "undecided": dict(sorted(self.undecided.items())),
            "asked": self.asked,
            "absent": list(self.absent),
        }


def open_evidence(
    manifest: PlanManifest, given: Sequence[str], wire: WireOptions | None, aliases: Mapping[str, str]
) -> TouchedEvidence:
    """Open what touched ledgers will be judged by, before anything is written.

    Args:
        manifest: of the plan.
        given: inventories that are used in place of the plan's; none: the plan's.
        wire: how running bookies are asked; None: they are not.
        aliases: other names of bookies in records → ids.

    Raises:
        DatasetError: an inventory that was given is damaged.
        InputError: an inventory that was given is of another cluster.
    """
    absent: list[str] = []
    if given:
        inventories = open_inventories(given)
        bookies = read_all(inventories, "bookies").select(["bookie", "instance_id"])
        require_one(
            [*(InstanceSource("the plan", name) for name in manifest.binding.instance_ids[:1]), *of_bookies(bookies)]
        )
    else:
        usable: list[Dataset] = []
        for source in manifest.binding.inputs or ():
            if source.kind == "inventory":
                try:
                    dataset = open_dataset(source.name, "inventory")
                    usable += [dataset] if dataset.digest == source.digest else []
                    absent += [] if dataset.digest == source.digest else [source.name]
                except DatasetError:
                    absent.append(source.name)
        inventories = tuple(usable)
    rows = read_all(inventories, "bookies").select(["bookie", "complete"]).to_pylist()
    coverage = manifest.coverage
    members = {*coverage.scanned, *coverage.not_scanned} - {*coverage.lost}
    whole = {row["bookie"] for row in rows if row["complete"]}
    everywhere = bool(coverage.members_known_from) and not coverage.lost and members <= whole
    return TouchedEvidence(inventories, wire, aliases, tuple(absent), everywhere)


def scrutinize_touched(
    plan: Dataset, wave: int | None, opened: OpenStore, evidence: TouchedEvidence, context: Context
) -> Touched:
    """Judge the ledgers whose records a plan, or one wave of it, wrote.

    Args:
        plan: that was applied.
        wave: of it; None: all of it.
        opened: the store.
        evidence: what they are judged by.
        context: of the job.

    Raises:
        BackendError: the store stopped answering.
        DatasetError: a file of the plan or of an inventory is gone or damaged.
    """
    started = context.now()
    layout = Layout(read_plan_manifest(plan).binding.layout or opened.layout_hint or Layout.HIERARCHICAL)
    judge = _Judge(opened, layout, evidence, context, FindingRun(started.isoformat(timespec="seconds"), started))
    touched = Touched(evidence.absent, len(evidence.inventories), evidence.wire is not None)
    ranges = bucket_ranges(plan.rows("actions"))
    with context.reporter.progress("scrutinizing what was written", "parts") as progress:
        show = throttle(progress)
        for number, part in enumerate(ranges, 1):
            keys, guarded = _list_touched(plan, part, wave)
            if keys.num_rows:
                _add(touched, judge.judge(keys, guarded, part), keys, plan, part)
            show(number, len(ranges))
    return touched


def list_marked(plan: Dataset, wave: int, opened: OpenStore, context: Context) -> tuple[LedgerId, ...]:
    """Return the ledgers that the waves before wrote, and that are marked for re-replication now.

    The auditor marks a ledger when a bookie that its record names is gone, or lacks copies. Holds and guarded ledgers
    are left out: no worker copies them. So are ledgers whose missing copies the plan counted.

    Args:
        plan: that is applied, cut into waves.
        wave: that comes next.
        opened: the store; it keeps marks.
        context: of the job.

    Raises:
        BackendError: the store stopped answering.
        DatasetError: a file of the plan is gone or damaged.
    """
    marked: list[LedgerId] = []
    ranges = bucket_ranges(plan.rows("actions"))
    with context.reporter.progress("looking for marks of earlier waves", "parts") as progress:
        show = throttle(progress)
        for number, part in enumerate(ranges, 1):
            actions = plan.read("actions", buckets=part, columns=["scope", "ledger", "op", "kind", "wave", "guard"])
            wanted = pc.and_(pc.equal(actions["kind"], "ledger"), pc.is_in(actions["op"], value_set=_RESTORED))
            wanted = pc.and_(wanted, pc.invert(pc.is_in(actions["guard"], value_set=_GUARDED)))
            keys = actions.filter(pc.and_(wanted, pc.less(actions["wave"], wave))).select(["scope", "ledger"])
            made = plan.read("reconstruction", buckets=part, columns=[*tables.KEY_COLUMNS, "missing"])
            expected = made.filter(pc.greater(pc.fill_null(made["missing"], 0), 0))
            keys = keys.filter(pc.invert(are_of(keys, expected)))
            if keys.num_rows:
                nodes = read_marks(opened.store, opened.root, *(keys[name].to_numpy() for name in ("scope", "ledger")))
                marks = StoredReplication.from_nodes(nodes, kind_of(opened.layout_hint)).marks
                pairs = zip(marks["scope"].to_pylist(), marks["ledger"].to_pylist(), strict=True)
                marked += [LedgerId(*pair) for pair in pairs]
            show(number, len(ranges))
    return tuple(marked)


def _list_touched(plan: Dataset, part: range, wave: int | None) -> tuple[pa.Table, frozenset[LedgerId]]:
    """Return the keys of ledgers whose records were written, and those of them that a lock or replication guards."""
    actions = plan.read("actions", buckets=part, columns=["scope", "ledger", "op", "kind", "wave", "guard"])
    wanted = pc.and_(pc.equal(actions["kind"], "ledger"), pc.is_in(actions["op"], value_set=_WRITTEN))
    if wave is not None:
        wanted = pc.and_(wanted, pc.equal(actions["wave"], wave))
    rows = actions.filter(wanted)
    of_guards = rows.filter(pc.is_in(rows["guard"], value_set=_GUARDED))
    pairs = zip(of_guards["scope"].to_pylist(), of_guards["ledger"].to_pylist(), strict=True)
    return rows.select(["scope", "ledger"]), frozenset(LedgerId(*pair) for pair in pairs)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Judges touched ledgers by the records that the store has now."""

    opened: OpenStore
    layout: Layout
    evidence: TouchedEvidence
    context: Context
    run: FindingRun

    def judge(self, keys: pa.Table, guarded: frozenset[LedgerId], part: range) -> LookJudgement:
        """Judge ledgers; what running bookies seem to lack is asked for once more, on every bookie."""
        first = self._look(keys, guarded, part, only_members=True)
        grave = first.findings.filter(pc.not_equal(first.findings["severity"], "info"))
        if self.evidence.wire is None or not grave.num_rows:
            return first
        doubted = are_of(first.verdicts, grave)
        second = self._look(first.verdicts.filter(doubted).select(["scope", "ledger"]), guarded, part)
        settled = first.verdicts.filter(pc.invert(doubted))
        return replace(
            first,
            findings=pa.concat_tables([first.findings.filter(are_of(first.findings, settled)), second.findings]),
            verdicts=pa.concat_tables([settled, second.verdicts]),
        )

    def _look(
        self, keys: pa.Table, guarded: frozenset[LedgerId], part: range, *, only_members: bool = False
    ) -> LookJudgement:
        store, root = self.opened.store, self.opened.root
        scope, ledger = (keys[name].to_numpy() for name in ("scope", "ledger"))
        records = sort_by_key(read_records(store, root, self.layout, scope, ledger))
        replication = StoredReplication.from_nodes(read_marks(store, root, scope, ledger), kind_of(self.layout))
        inventories, everywhere = self.evidence.inventories, self.evidence.everywhere
        with TemporaryDirectory(prefix="bkmeta-scrutiny-") as folder:
            if self.evidence.wire is not None and records.num_rows:
                asked, answered = self._ask(records, self.evidence.wire, Path(folder), only_members=only_members)
                inventories = (*inventories, *asked)
                everywhere = answered and not only_members
            copies = [inventory.read("copies", buckets=part) for inventory in inventories]
            bookies, damage = read_all(inventories, "bookies"), read_all(inventories, "damage")
            return judge_range(
                rename_members(records, self.evidence.aliases),
                pa.concat_tables([tables.COPIES.empty_table(), *copies]),
                # The records are newer than the inventories, because they were made from them: none is outdated.
                see_bookies(bookies, damage, {}),
                replace(replication, guarded=guarded),
                Demands(_NEVER_S, None, PlacementSettings()),
                self.run,
                everywhere=everywhere,
            )

    def _ask(
        self, records: pa.Table, wire: WireOptions, folder: Path, *, only_members: bool
    ) -> tuple[tuple[Dataset, ...], bool]:
        """Ask registered bookies without an inventory; return what they hold, and whether every bookie was seen."""
        members = read_members(self.opened.store, self.opened.root, self.opened.layout_hint, self.evidence.aliases)
        with DatasetWriter(folder / CATALOG, "catalog", binding={}, secret=True) as writer:
            writer.append("ledgers", records)
            writer.close(coverage={})
        given = {row["bookie"]: row["complete"] for row in read_all(self.evidence.inventories, "bookies").to_pylist()}
        registered = [name for name in members.bookies if members.find(name).registered_txn is not None]
        summary = collect_wire(
            WireRequest(
                catalog=open_dataset(folder / CATALOG, "catalog"),
                members=members,
                wanted=tuple(name for name in registered if name not in given),
                options=wire.options,
                only_members=only_members,
            ),
            folder,
            lambda task, ranges: [task(part) for part in ranges],
            now=self.context.now,
        )
        answered = all(result.kind is AskedKind.COLLECTED and not result.unanswered for result in summary.bookies)
        asked = tuple(open_dataset(result.folder, "inventory") for result in summary.bookies if result.folder)
        return asked, answered and all(given.values()) and {*members.bookies} <= {*registered, *given}


def _add(touched: Touched, judged: LookJudgement, keys: pa.Table, plan: Dataset, part: range) -> None:
    """Count what was judged of some ledgers; sort findings into those that the plan has, too, and the others."""
    counted = count_verdicts(judged.verdicts)
    touched.ledgers += keys.num_rows
    touched.clean += sum(counted.pop("clean", {}).values())
    touched.skipped.update(counted.pop("skipped", {}))
    touched.undecided.update(counted.pop("undecided", {}))
    if keys.num_rows > judged.verdicts.num_rows:
        touched.undecided["gone"] += keys.num_rows - judged.verdicts.num_rows
    touched.with_findings += sum(sum(reasons.values()) for reasons in counted.values())
    touched.positions += judged.positions
    touched.judged += judged.judged
    grave = judged.findings.filter(pc.not_equal(judged.findings["severity"], "info"))
    for row, is_expected in _compare_with_plan(grave, plan, part):
        if is_expected:
            touched.expected += 1
        else:
            touched.unexpected += 1
            touched.with_unexpected.append(LedgerId(row["scope"], row["ledger"]))
            touched.worst += [row] if len(touched.worst) < LISTED else []


def _compare_with_plan(findings: pa.Table, plan: Dataset, part: range) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield findings of a bucket range, each with whether the plan has it, too."""
    if not findings.num_rows:
        return
    columns = [*tables.KEY_COLUMNS, "missing", "holes"]
    made = plan.read("reconstruction", buckets=part, columns=columns)
    rows = {(row["scope"], row["ledger"]): row for row in made.filter(are_of(made, findings)).to_pylist()}
    named = plan.read("findings", columns=["bucket", "scope", "ledger", "category"])
    inside = pc.and_(pc.greater_equal(named["bucket"], part.start), pc.less(named["bucket"], part.stop))
    named = named.filter(pc.fill_null(inside, fill_value=False))
    has = {(row["scope"], row["ledger"], row["category"]) for row in named.filter(are_of(named, findings)).to_pylist()}
    for row in findings.to_pylist():
        key = row["scope"], row["ledger"]
        yield row, (*key, row["category"]) in has or _is_counted(row, rows.get(key))


def _is_counted(finding: Mapping[str, Any], made: Mapping[str, Any] | None) -> bool:
    """Whether the plan's own reconstruction of a ledger counted the copies or entries that a finding lacks."""
    if made is None or not TRAITS[Category(finding["category"])].of_copies or not made["missing"]:
        return False
    is_lost = any(item["field"] == _ON_NO_BOOKIE for item in finding["evidence"])
    # No holes: entries were searched for, and each is on some bookie.
    return not (is_lost and made["holes"] is not None and not made["holes"])
