"""The drill: on a good day, what would come back if the store were lost now.

folder   holds
store/   the store, captured: the truth
plan/    what `recover` makes without it
drills/  DRILLS: a row a ledger of the store
ledgers/ a file of the ids of each class of ledgers that do not come back, or of which it is not known
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile import clusters
from reconcile.check.records.drill import Class, DrillRange, judge_drill, read_written
from reconcile.clusters import open_inventories
from reconcile.id_files import write_keys
from reconcile.jobs.capture import capture_store
from reconcile.jobs.collect.tables import with_tables
from reconcile.jobs.context import Context, StageProgress, connect, throttle
from reconcile.jobs.recover import RecoverRequest, recover
from reconcile.plan.actions import Passwords
from reconcile.plan.manifest import PlanManifest
from reconcile.rules.segments.copy_findings import see_bookies
from reconcile.rules.segments.member_names import rename_members
from reconcile.snapshots import find_snapshots
from recovery.bookies.recorded_members import sample_ledgers
from recovery.codecs.store import COOKIES, Layout
from recovery.dataset import Dataset, open_dataset, prepare, read_part, write_manifest, write_part
from recovery.errors import InputError
from recovery.infer.search import Tail
from recovery.manifest import Part
from recovery.model.ids import bucket_ranges
from recovery.place import DatasetPlace

STORE: Final = "store"
PLAN: Final = "plan"
IDS: Final = "ledgers"
_LISTED: Final = (Class.HELD, Class.LOST, Class.UNDECIDED)
"""Classes whose ledgers have a file of ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRequest:
    """What is tried.

    Attributes:
        uri: the store, which is hidden from `recover`.
        out: a new folder.
        inventories: folders of inventories; each bookie once.
        snapshots: what would be left of the store, as `reconcile.snapshots` takes it.
        passwords: candidates.
        expected: bookies that the cluster has, as the operator would say then; None: not said.
        aliases: other names of bookies in records → ids.
        master: Spark's; None: as of `recover`.
        python: what executors run as their Python; None: what they have.
        settings: of the run, each with where it came from, for the manifest.
    """

    uri: str
    out: DatasetPlace
    inventories: tuple[str, ...] = ()
    snapshots: tuple[str, ...] = ()
    passwords: Passwords
    expected: tuple[str, ...] | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    python: Path | None = None
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drilled:
    """What would come back.

    Attributes:
        listed: ledgers of the store.
        ledgers: class → how many.
        entries: class → entries that are readable now.
        entries_lost: of all classes.
        reasons: class → reason → ledgers.
        guessed: field → ledgers that come back, and of which the field is a guess.
        differs: field → ledgers that come back with another one.
        returned: outcome → ledgers that the store does not list any more, and that would be brought back or held.
        bookies: of which there is an inventory.
        not_collected: bookies that the store knows, or records name, and of which there is none.
        snapshots: that were given.
        told: of passwords and bookies, whether they were given.
        worst: the first ledgers that do not come back, as rows of DRILLS.
        plan: what the plan says about itself.
    """

    listed: int
    ledgers: Mapping[str, int]
    entries: Mapping[str, int]
    entries_lost: int
    reasons: Mapping[str, Mapping[str, int]]
    guessed: Mapping[str, int]
    differs: Mapping[str, int]
    returned: Mapping[str, int]
    bookies: tuple[str, ...]
    not_collected: tuple[str, ...]
    snapshots: int
    told: Mapping[str, bool]
    worst: tuple[Mapping[str, Any], ...]
    plan: PlanManifest

    @property
    def adds_up(self) -> bool:
        """Whether every ledger that is listed became one thing."""
        return sum(self.ledgers.values()) == self.listed


_SHOWN: Final = 20


@dataclass(slots=True)
class _Sums:
    """Adds up ranges."""

    parts: list[Part] = field(default_factory=list)
    ledgers: Counter[str] = field(default_factory=lambda: Counter({str(inventory): 0 for inventory in Class}))
    reasons: dict[str, Counter[str]] = field(default_factory=dict)
    entries: Counter[str] = field(default_factory=Counter)
    guessed: Counter[str] = field(default_factory=Counter)
    differs: Counter[str] = field(default_factory=Counter)
    returned: Counter[str] = field(default_factory=Counter)
    entries_lost: int = 0
    worst: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, part: Part, judged: DrillRange) -> None:
        self.parts.append(part)
        for row in judged.rows.group_by(["class", "reason"]).aggregate([([], "count_all")]).to_pylist():
            self.ledgers[row["class"]] += row["count_all"]
            if row["reason"] is not None:
                self.reasons.setdefault(row["class"], Counter())[row["reason"]] += row["count_all"]
        self.entries.update(judged.entries)
        self.guessed.update(judged.guessed)
        self.differs.update(judged.differs)
        self.returned.update(judged.returned)
        self.entries_lost += pc.sum(judged.rows["entries_lost"]).as_py() or 0
        bad = pc.is_in(judged.rows["class"], value_set=pa.array([str(Class.LOST), str(Class.HELD)]))
        self.worst += judged.rows.filter(bad).slice(0, _SHOWN - len(self.worst)).to_pylist()


def drill(request: DrillRequest, context: Context) -> Drilled:
    """Capture the store, make a plan without it, and hold the two together; only the folder is written.

    Raises:
        DatasetError: an inventory or catalog is damaged, or the folder cannot be written.
        InputError: no Java or Spark, files that cannot be used, a store without a root or that could not be read whole,
            or two clusters.
        SparkError: Spark failed.
        UnavailableError: the store does not answer.
    """
    with with_tables(request.inventories, context.now()) as folders:
        return _drill(replace(request, inventories=folders), context)


def _drill(request: DrillRequest, context: Context) -> Drilled:
    inventories = open_inventories(request.inventories)
    if not inventories:
        raise InputError("the drill", "has no inventory", "collect the bookies first, and name their inventories")
    prepare(request.out, "drill", secret=True)
    with connect(request.uri, context) as opened:
        captured = capture_store(opened, request.out / STORE, context)
    if captured.layout is None or captured.root != "present":
        raise InputError(request.uri, "has no ledgers root", "name the root of the cluster's ledgers")
    if captured.gaps:
        raise InputError(request.uri, f"could not be read whole ({captured.gaps[0]})", "fix the access first")
    catalog = open_dataset(request.out / STORE, "catalog")
    bookies = pa.concat_tables([inventory.read("bookies") for inventory in inventories])
    nodes = catalog.read("nodes")
    clusters.require_one(
        [*clusters.of_bookies(bookies), clusters.of_catalog(request.uri, catalog.read("sources"), nodes)]
    )
    with find_snapshots(request.snapshots, request.uri) as snapshots:
        recovered = recover(
            RecoverRequest(
                out=request.out / PLAN,
                inventories=request.inventories,
                disks={},
                uri=None,
                layout=Layout(captured.layout),
                snapshots=snapshots,
                passwords=request.passwords,
                expected=request.expected,
                default_quorum=None,
                references=(),
                tail=Tail.INCLUSIVE,
                lost=(),
                raise_past=None,
                master=request.master,
                python=request.python,
                aliases=request.aliases,
                settings=request.settings,
            ),
            context,
        )
    sums = _Sums()
    with context.reporter.progress("holding the plan against the store", "parts") as progress:
        for span, judged in hold_against(recovered.plan, catalog, inventories, request.aliases, throttle(progress)):
            name = f"buckets-{span.start:04d}-{span.stop - 1:04d}"
            sums.add(write_part(request.out, "drills", name, [judged.rows], secret=True), judged)
    has = set(bookies["bookie"].to_pylist())
    begin = f"{COOKIES}/"
    cookies = nodes.filter(pc.equal(nodes["kind"], "cookie"))["path"].to_pylist()
    named = {request.aliases.get(name, name) for name in sample_ledgers(catalog)}
    known = named | {request.aliases.get(name, name) for name in (path.removeprefix(begin) for path in cookies)}
    result = Drilled(
        listed=catalog.rows("ledgers"),
        ledgers=dict(sums.ledgers),
        entries=dict(sums.entries),
        entries_lost=sums.entries_lost,
        reasons={name: dict(counted) for name, counted in sums.reasons.items()},
        guessed={name: count for name, count in sums.guessed.items() if count},
        differs={name: count for name, count in sums.differs.items() if count},
        returned=dict(sums.returned),
        bookies=tuple(sorted(has)),
        not_collected=tuple(sorted(known - has)),
        snapshots=len(request.snapshots),
        told={"passwords": bool(request.passwords.values), "bookies": request.expected is not None},
        worst=tuple(sums.worst),
        plan=recovered.manifest,
    )
    _write_ids_of_classes(request.out, sums.parts)
    left_out = ("worst", "plan")
    write_manifest(
        request.out,
        "drill",
        {"drills": sums.parts},
        binding={"uri": request.uri},
        coverage={"bookies": list(result.bookies), "not_collected": list(result.not_collected)},
        secret=True,
        extra={
            "settings": dict(request.settings),
            "result": {name: value for name, value in asdict(result).items() if name not in left_out},
            "adds_up": result.adds_up,
        },
    )
    return result


def _write_ids_of_classes(out: DatasetPlace, parts: Sequence[Part]) -> None:
    """Write the ids of the ledgers of each class that does not come back."""
    for name in _LISTED:
        only = pc.field("class") == str(name)
        keys = [read_part(out, part.file, columns=["scope", "ledger"], filters=only) for part in parts]
        if any(rows.num_rows for rows in keys):
            (out / IDS).mkdir(parents=True, exist_ok=True)
            write_keys(out / IDS / f"{name}.txt", keys)


def hold_against(
    plan: Dataset,
    catalog: Dataset,
    inventories: Sequence[Dataset],
    aliases: Mapping[str, str],
    progress: StageProgress = lambda _done, _total, _stage="": None,
) -> Iterator[tuple[range, DrillRange]]:
    """Yield what becomes of the ledgers of each bucket range.

    Args:
        plan: made without the store.
        catalog: the store.
        inventories: that the plan was made of.
        aliases: other names of bookies in records → ids.
        progress: is called with ranges done, of all.
    """
    bookies, damage = (
        pa.concat_tables([inventory.read(name) for inventory in inventories]) for name in ("bookies", "damage")
    )
    # Recover takes the store for lost and its bookies for stopped: so do we.
    sight = see_bookies(bookies, damage, {})
    collected: datetime | None = pc.min(bookies["started"]).as_py()
    spans = bucket_ranges(catalog.rows("ledgers") + sum(inventory.rows("copies") for inventory in inventories))
    for number, span in enumerate(spans, 1):
        yield (
            span,
            judge_drill(
                rename_members(catalog.read("ledgers", buckets=span), aliases),
                plan.read("reconstruction", buckets=span),
                read_written(plan.read("actions", buckets=span)),
                pa.concat_tables([inventory.read("copies", buckets=span) for inventory in inventories]),
                sight,
                collected,
            ),
        )
        progress(number, len(spans))
