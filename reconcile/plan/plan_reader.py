"""The one reader of plans: `plan show`, the hash, and everything that changes or applies a plan read the same rows."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.errors import PlanError
from reconcile.plan.actions import KEEP, LEAVE, PHASES, REUSE_LOCK, SUBTREE, PlanPhase, find_places
from reconcile.plan.manifest import PlanManifest, read_plan_manifest
from reconcile.plan.plan_hash import (
    BUCKETS_END,
    SYSTEM_BUCKET,
    VERSION,
    BucketStream,
    Hashes,
    bucket_hashes,
    ledger_hashes,
    plan_hash,
    read_hashes,
    with_ids,
)
from reconcile.topics import topics
from recovery.codecs import store
from recovery.codecs.keys import ledger_keys
from recovery.codecs.replication_lock import lock_key
from recovery.dataset import Dataset, open_dataset
from recovery.model import tables
from recovery.model.ids import BUCKETS, LedgerId, bucket_ranges, buckets
from recovery.place import DatasetPlace, to_place

SYSTEM: Final = range(SYSTEM_BUCKET, SYSTEM_BUCKET + 1)
"""The bucket range of the actions of no ledger."""
STORE: Final = "store"
"""Folder in a plan's: the catalog of the store that it was made for."""
_HOLD: Final = ["scope", "ledger", "outcome", "reason", "holders"]


@dataclass(frozen=True, slots=True)
class ActionLine:
    """One action for people: what, where, and on which condition; never the bytes, which may hold a password."""

    seq: int
    wave: int
    op: str
    kind: str
    key: str
    expects: int | None

    def __str__(self) -> str:
        condition = "if absent" if self.expects is None else f"if version {self.expects}"
        key = self.key[1:] if store.is_outside(self.key) else self.key
        return f"{self.op} {self.kind} {key} {condition}"


@dataclass(frozen=True, slots=True)
class Hold:
    """A ledger that is kept and not served, and why."""

    ledger: LedgerId
    reason: str
    holders: tuple[str, ...]
    topic: str | None


@dataclass(frozen=True, slots=True)
class Overview:
    """What a plan says, recounted from its files.

    Attributes:
        hash: recomputed from what actions and ledgers say, and from the manifest.
        hashes: of the buckets, which it was made of.
        altered: actions whose id is not what their fields give.
        phases: phase → op → actions.
        waves: wave → writes.
        first: the first writes, in their order.
        holds: the first held ledgers.
        problems: where the files contradict the manifest.
        is_whole: every row was hashed, and not only those that are given one by one (`plan_glance`).
    """

    hash: str
    hashes: Hashes
    altered: int
    phases: Mapping[PlanPhase, Mapping[str, int]]
    waves: Mapping[int, int]
    first: tuple[ActionLine, ...]
    holds: tuple[Hold, ...]
    problems: tuple[str, ...]
    is_whole: bool = True


def ranges_of(dataset: Dataset) -> list[range]:
    """Return the bucket ranges that a plan is read in, the actions of no ledger first."""
    return [SYSTEM, *bucket_ranges(dataset.rows("actions"))]


def list_subtree_ranges(dataset: Dataset) -> list[range]:
    """Return the bucket ranges of a plan's actions of upper layers' nodes, one a file."""
    bounds = [(part.first_bucket, part.last_bucket) for part in dataset.parts("actions") if part.rows]
    return [range(low, high + 1) for low, high in bounds if low is not None and high is not None and low >= BUCKETS]


def name_subtree_part(buckets: range) -> str:
    """Return the name of a file of actions of upper layers' nodes."""
    return f"subtrees-{buckets.start:05d}-{buckets.stop - 1:05d}"


def open_whole(path: str | DatasetPlace) -> tuple[Dataset, Overview]:
    """Open a plan, and see that its files are what its hash was made of.

    Its files are hashed whenever they are read, and the manifest is read only here: whatever is put in their place
    afterwards is not read as this plan.

    Raises:
        DatasetError: no whole plan.
        PlanError: it contradicts itself, or was made by another version.
    """
    dataset = open_dataset(path, "plan")
    return dataset, require_whole(dataset)


def open_captured_store(dataset: Dataset) -> Dataset | None:
    """Return the catalog of the store that a plan was made for; None: it is not there.

    Raises:
        DatasetError: it is not a whole catalog.
        PlanError: it is not the one that the plan was made of.
    """
    folder = to_place(dataset.path) / STORE
    if not folder.is_dir():
        return None
    catalog = open_dataset(folder, "catalog")
    inputs = read_plan_manifest(dataset).binding.inputs
    if inputs is not None and catalog.digest not in [item.digest for item in inputs if item.kind == STORE]:
        raise PlanError(str(folder), "is not the catalog that the plan was made of", "copy or make the plan again")
    return catalog


def require_whole(dataset: Dataset) -> Overview:
    """Return what a plan says, after seeing that its files are what its hash was made of.

    Raises:
        DatasetError: a file is gone or damaged.
        PlanError: it contradicts itself, or was made by another version.
    """
    seen = overview(dataset, shown=0)
    if seen.problems:
        raise PlanError(dataset.path, seen.problems[0], "make the plan again: it is not the one that was reviewed")
    return seen


def overview(dataset: Dataset, *, shown: int) -> Overview:
    """Read a whole plan, as `apply` reads it: every row of every file, whatever bucket it says it is of.

    Args:
        dataset: of kind plan.
        shown: how many writes and how many holds are given one by one.

    Raises:
        DatasetError: a file is gone or damaged.
        PlanError: an action of a phase that is not known, or the plan was made by another version.
    """
    manifest = require_version(dataset)
    hashes = Hashes()
    actions, ledgers = _Actions(dataset.path, manifest.binding.layout, shown), _Ledgers(shown)
    _read(dataset, "actions", actions, hashes.actions, bucket_hashes)
    _read(dataset, "reconstruction", ledgers, hashes.settled, ledger_hashes)
    problems = [] if read_hashes(dataset.manifest) in (None, hashes) else ["its buckets have other hashes than it says"]
    hash_now = plan_hash(dataset.manifest, hashes)
    return Overview(
        hash=hash_now,
        hashes=hashes,
        altered=actions.altered,
        phases=actions.tally.list_phases(),
        waves=dict(sorted(actions.tally.waves.items())),
        first=tuple(line for _, line in actions.first),
        holds=tuple(ledgers.holds(dataset)),
        problems=(*_problems(manifest, hash_now, actions, ledgers), *problems),
    )


def require_version(dataset: Dataset) -> PlanManifest:
    """Return the manifest of a plan whose hash covers what this program's covers.

    Raises:
        PlanError: the plan was made by another version.
    """
    manifest = read_plan_manifest(dataset)
    if manifest.hash_version != VERSION:
        problem = f"was made by bkmeta {manifest.tool_version}, whose hash covers other things"
        raise PlanError(dataset.path, problem, "make it again with this version, or use that one")
    return manifest


def _read(
    dataset: Dataset,
    name: str,
    reading: "_Actions | _Ledgers",
    hashes: dict[int, str],
    hash_of: Callable[[pa.Table], Mapping[int, str]],
) -> None:
    """Give every row of a table to who counts it, and hash it bucket by bucket."""
    stream = BucketStream()
    for part in dataset.parts(name):
        low, high = BUCKETS_END, SYSTEM_BUCKET
        for rows in dataset.batches(name, parts=[part]):
            edge = pc.min_max(rows["bucket"]).as_py()
            low, high = min(low, edge["min"]), max(high, edge["max"])
            for whole in stream.add(reading.take(rows)):
                hashes.update(hash_of(whole))
        # What the manifest says about a part decides who reads it.
        stream.misplaced += part.rows > 0 and (part.first_bucket, part.last_bucket) != (low, high)
    for whole in stream.rest():
        hashes.update(hash_of(whole))
    reading.misplaced += stream.misplaced


class ActionTally:
    """How many actions a plan has, batch by batch.

    Attributes:
        phases: phase → op → actions.
        waves: wave → writes.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.phases: dict[PlanPhase, Counter[str]] = {}
        self.waves: Counter[int] = Counter()

    def count(self, actions: pa.Table) -> None:
        """Count a batch, of which op, kind, seq and wave are read.

        Raises:
            PlanError: an action of a phase that is not known.
        """
        numbered = pa.table({"phase": number_phases(actions), "op": actions["op"]})
        for row in numbered.group_by(["phase", "op"]).aggregate([([], "count_all")]).to_pylist():
            if row["phase"] not in set(PlanPhase):
                problem = f"has actions of a phase {row['phase']}"
                raise PlanError(self._path, problem, "use the version that wrote it")
            self.phases.setdefault(PlanPhase(row["phase"]), Counter())[row["op"]] += row["count_all"]
        written = actions["wave"].filter(pc.not_equal(actions["op"], LEAVE))
        self.waves.update({row["values"]: row["counts"] for row in pc.value_counts(written).to_pylist()})

    def list_phases(self) -> dict[PlanPhase, Counter[str]]:
        """Return the phases in their order."""
        return {phase: self.phases[phase] for phase in PlanPhase if phase in self.phases}

    def compare(self, manifest: PlanManifest) -> Iterator[str]:
        """Yield where a manifest has other numbers."""
        ledgers: Mapping[str, int] = self.phases.get(PlanPhase.LEDGERS, {})
        counts = manifest.counts
        for name, have, stated in (
            ("actions", sum(sum(ops.values()) for ops in self.phases.values()), counts.actions),
            ("restored or guarded", ledgers.get("create", 0), counts.restored + counts.guarded),
            ("released", ledgers.get("replace", 0), counts.released),
            ("held", ledgers.get("hold", 0), counts.held),
            ("locks of ids with two ledgers", ledgers.get(KEEP, 0), counts.reuse_locks),
        ):
            if stated != have:
                yield f"{have} {name} in its files, {stated} in its manifest"


def number_phases(actions: pa.Table) -> npt.NDArray[np.int64]:
    """Return the phase of each action, by its kind and its place in the order."""
    is_node = pc.equal(actions["kind"], SUBTREE).to_numpy()
    phases: npt.NDArray[np.int64] = np.where(is_node, int(PlanPhase.SUBTREES), actions["seq"].to_numpy() >> 48)
    return phases


class _Actions:
    """What the actions of a plan say, batch by batch."""

    def __init__(self, path: str, layout: str | None, shown: int) -> None:
        self._path = path
        self._shown = shown
        try:
            self._layout = None if layout is None else store.Layout(layout)
        except ValueError as error:
            problem = f"was made for a layout {layout!r}"
            raise PlanError(self._path, problem, "use the version that wrote it") from error
        self.altered = self.misplaced = 0
        self.tally = ActionTally(path)
        self.first: list[tuple[tuple[int, int, int, int], ActionLine]] = []

    def take(self, actions: pa.Table) -> pa.Table:
        """Count a batch, and return it with its ids made again."""
        fresh = with_ids(actions)
        self.altered += actions.num_rows - int(pc.sum(pc.equal(actions["id"], fresh["id"])).as_py() or 0)
        self.misplaced += _count_misplaced(actions, self._layout)
        self.tally.count(actions)
        written = actions.filter(pc.not_equal(actions["op"], LEAVE))
        self.first = _first([*self.first, *_lines(written, self._shown)], self._shown)
        return fresh


def _count_misplaced(actions: pa.Table, layout: store.Layout | None) -> int:
    """Count the actions whose bucket, phase or key is not that of what they are of."""
    phases = pc.index_in(actions["kind"], pa.array(list(PHASES)))
    phase = np.array([*PHASES.values(), 0])[pc.fill_null(phases, len(PHASES)).to_numpy()]
    bad = phase != actions["seq"].to_numpy() >> 48
    is_lock = pc.equal(actions["kind"], REUSE_LOCK).to_numpy(zero_copy_only=False)
    is_ledger = pc.equal(actions["kind"], "ledger").to_numpy(zero_copy_only=False) | is_lock
    bad |= is_ledger != pc.is_valid(actions["ledger"]).to_numpy(zero_copy_only=False)
    bucket = actions["bucket"].to_numpy()
    is_node = pc.equal(actions["kind"], SUBTREE).to_numpy(zero_copy_only=False)
    bad |= ~is_ledger & ~is_node & (bucket != SYSTEM_BUCKET)
    bad[is_node] |= _are_misplaced(actions.filter(pa.array(is_node)))
    placed_actions = actions.filter(pa.array(is_ledger & ~bad))
    scope, ledger = (pc.fill_null(placed_actions[name], 0).to_numpy() for name in ("scope", "ledger"))
    wrong = placed_actions["bucket"].to_numpy() != buckets(scope, ledger)
    if layout is not None:
        placed = ~store.find_placeless(layout, scope, ledger)
        keys = ledger_keys(layout, scope[placed], ledger[placed])
        of_locks = is_lock[is_ledger & ~bad][placed]
        if of_locks.any():
            pairs = zip(scope[placed][of_locks].tolist(), ledger[placed][of_locks].tolist(), strict=True)
            locks = pa.array([lock_key(LedgerId(*pair)) for pair in pairs], pa.string())
            keys = pc.replace_with_mask(keys, pa.array(of_locks), locks)
        wrong[placed] |= pc.not_equal(placed_actions["key"].filter(pa.array(placed)), keys).to_numpy()
        wrong |= ~placed
    return int(bad.sum() + wrong.sum())


def _are_misplaced(nodes: pa.Table) -> npt.NDArray[np.bool_]:
    """Say which actions of upper layers' nodes have another bucket, or another place in the order, than their keys."""
    places = find_places(pc.utf8_slice_codeunits(nodes["key"], 1))
    numbers = nodes["seq"].to_numpy() >> 32 & 0xFFFF
    wrong: npt.NDArray[np.bool_] = (nodes["bucket"].to_numpy() != places) | (numbers != places)
    return wrong


class _Ledgers:
    """What is said about a plan's ledgers, batch by batch."""

    def __init__(self, shown: int) -> None:
        self._shown = shown
        self._held = tables.RECONSTRUCTION.empty_table().select(_HOLD)
        self.misplaced = 0

    def take(self, rows: pa.Table) -> pa.Table:
        """Remember the held ledgers with the smallest ids."""
        self.misplaced += int((rows["bucket"].to_numpy() != buckets(*_ids(rows))).sum())
        holds = pa.concat_tables([self._held, rows.select(_HOLD).filter(pc.equal(rows["outcome"], "held"))])
        order = pc.sort_indices(holds, [("scope", "ascending"), ("ledger", "ascending")])
        self._held = holds.take(order[: self._shown])
        return rows

    def holds(self, dataset: Dataset) -> Iterator[Hold]:
        """Yield the held ledgers with the smallest ids, and their topics, which are for people and in no hash."""
        rows = {LedgerId(row["scope"], row["ledger"]): row for row in self._held.to_pylist()}
        named = topics(dataset, rows)
        for ledger, row in rows.items():
            yield Hold(ledger, row["reason"] or "", tuple(row["holders"]), named.get(ledger))


def _ids(rows: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return rows["scope"].to_numpy(), rows["ledger"].to_numpy()


def _lines(actions: pa.Table, shown: int) -> list[tuple[tuple[int, int, int, int], ActionLine]]:
    """Return the first actions of a bucket range: phase by phase, and in each by ledger, as people look for them."""
    behind = pc.equal(actions["kind"], SUBTREE).to_numpy()
    numbered = actions.append_column("phase", pa.array((actions["seq"].to_numpy() >> 48) * 2 + behind))
    order = [(name, "ascending") for name in ("phase", "scope", "ledger", "seq")]
    early = numbered.take(pc.sort_indices(numbered, order)[:shown])
    return [
        (
            (row["phase"], row["scope"] or 0, row["ledger"] or 0, row["seq"]),
            ActionLine(**{name: row[name] for name in ActionLine.__slots__}),
        )
        for row in early.to_pylist()
    ]


def _first(
    lines: list[tuple[tuple[int, int, int, int], ActionLine]], shown: int
) -> list[tuple[tuple[int, int, int, int], ActionLine]]:
    return sorted(lines, key=lambda line: line[0])[:shown]


def _problems(manifest: PlanManifest, hash_now: str, actions: _Actions, settled: _Ledgers) -> Iterator[str]:
    if actions.altered:
        yield f"{actions.altered} actions are not what their ids say"
    if actions.misplaced or settled.misplaced:
        yield f"{actions.misplaced + settled.misplaced} rows are where no reader looks for them"
    if hash_now != manifest.hash:
        yield f"the actions give the hash {hash_now}, the manifest says {manifest.hash}"
    yield from actions.tally.compare(manifest)
