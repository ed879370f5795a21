"""Plans as people handle them: read one, compare two, cut one into waves. No store is touched.

    wave   writes
    1      the id generators, and the ledgers of the first buckets
    2 …    the ledgers of the next buckets
    last   the ledgers of the rest, then LAYOUT, instance id, cookies

Buckets are a hash of the ledger id, so a share of the buckets is about the same share of the ledgers. A plan that was
not cut has wave 0 everywhere.
"""

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile import plan
from reconcile.errors import PlanError
from reconcile.plan import Phase
from recovery.codecs import ledger_metadata
from recovery.dataset import Dataset, Part, prepare, write_manifest, write_part
from recovery.errors import FormatError
from recovery.model import tables
from recovery.model.ids import BUCKETS, LedgerId
from recovery.model.metadata import LedgerMetadata
from recovery.spark import bucket_ranges

SYSTEM: Final = range(plan.SYSTEM_BUCKET, plan.SYSTEM_BUCKET + 1)
"""The bucket range of the actions of no ledger."""
_STORE: Final = "store"
_SHARE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)%")
_REST: Final = "rest"
_MANIFEST_KEYS: Final = frozenset(
    {"kind", "schema_version", "tool_version", "secret", "tables", "binding", "coverage", "hash"}
)
"""Keys that a new manifest gets of its own; the others go over as they are."""


@dataclass(frozen=True, slots=True)
class Line:
    """One action for people: what, where, and on which condition; never the bytes, which may hold a password."""

    seq: int
    wave: int
    op: str
    kind: str
    key: str
    expects: int | None

    def __str__(self) -> str:
        condition = "if absent" if self.expects is None else f"if version {self.expects}"
        return f"{self.op} {self.kind} {self.key} {condition}"


@dataclass(frozen=True, slots=True)
class Hold:
    """A ledger that is kept and not served, and why."""

    ledger: LedgerId
    reason: str
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """What a plan says, recounted from its files.

    Attributes:
        hash: recomputed from the actions' own bytes and the binding.
        altered: actions whose id is not what their fields give.
        phases: phase → op → actions.
        waves: wave → actions.
        first: the first actions, in the order in which they are written.
        holds: the first held ledgers.
        problems: where the files contradict the manifest.
    """

    hash: str
    altered: int
    phases: Mapping[Phase, Mapping[str, int]]
    waves: Mapping[int, int]
    first: tuple[Line, ...]
    holds: tuple[Hold, ...]
    problems: tuple[str, ...]


def ranges_of(dataset: Dataset) -> list[range]:
    """Return the bucket ranges that a plan is read in, the actions of no ledger first."""
    return [SYSTEM, *bucket_ranges(dataset.rows("actions"))]


def overview(dataset: Dataset, *, shown: int) -> Overview:
    """Read a whole plan, a bucket range at a time.

    Args:
        dataset: of kind plan.
        shown: how many actions and how many holds are given one by one.

    Raises:
        DatasetError: a file is gone or damaged.
        PlanError: an action of a phase that is not known.
    """
    hashes: dict[int, str] = {}
    altered = 0
    phases: dict[Phase, Counter[str]] = {}
    waves: Counter[int] = Counter()
    first: list[Line] = []
    for buckets in ranges_of(dataset):
        actions = dataset.read("actions", buckets=buckets)
        ids = plan.action_ids(actions)
        altered += actions.num_rows - int(pc.sum(pc.equal(actions["id"], ids)).as_py() or 0)
        at = tables.ACTIONS.get_field_index("id")
        hashes.update(plan.bucket_hashes(actions.set_column(at, tables.ACTIONS.field(at), ids)))
        numbered = pa.table({"phase": actions["seq"].to_numpy() >> 48, "op": actions["op"]})
        for row in numbered.group_by(["phase", "op"]).aggregate([([], "count_all")]).to_pylist():
            if row["phase"] not in set(Phase):
                raise PlanError(dataset.path, f"has actions of a phase {row['phase']}", "use the version that wrote it")
            phases.setdefault(Phase(row["phase"]), Counter())[row["op"]] += row["count_all"]
        waves.update({row["values"]: row["counts"] for row in pc.value_counts(actions["wave"]).to_pylist()})
        early = actions.take(pc.sort_indices(actions["seq"])[:shown]).select(list(Line.__slots__))
        first = sorted([*first, *(Line(**row) for row in early.to_pylist())], key=lambda line: line.seq)[:shown]
    found = plan.plan_hash(dataset.manifest["binding"], hashes)
    return Overview(
        hash=found,
        altered=altered,
        phases=dict(sorted(phases.items())),
        waves=dict(sorted(waves.items())),
        first=tuple(first),
        holds=tuple(_holds(dataset, shown)),
        problems=tuple(_problems(dataset, found, altered, phases)),
    )


def _holds(dataset: Dataset, shown: int) -> Iterator[Hold]:
    names = ["scope", "ledger", "outcome", "reason", "holders"]
    left = shown
    for buckets in ranges_of(dataset)[1:]:
        if not left:
            return
        rows = dataset.read("reconstruction", buckets=buckets, columns=names)
        for row in rows.filter(pc.equal(rows["outcome"], "held")).slice(0, left).to_pylist():
            yield Hold(LedgerId(row["scope"], row["ledger"]), row["reason"] or "", tuple(row["holders"]))
            left -= 1


def _problems(dataset: Dataset, found: str, altered: int, phases: Mapping[Phase, Mapping[str, int]]) -> Iterator[str]:
    if altered:
        yield f"{altered} actions are not what their ids say"
    if found != dataset.manifest.get("hash"):
        yield f"the actions give the hash {found}, the manifest says {dataset.manifest.get('hash')}"
    ledgers = phases.get(Phase.LEDGERS, {})
    counts = dataset.manifest.get("counts", {})
    for name, have in (
        ("actions", sum(sum(ops.values()) for ops in phases.values())),
        ("restored", ledgers.get("create", 0)),
        ("held", ledgers.get("hold", 0)),
    ):
        if counts.get(name) != have:
            yield f"{have} {name} in its files, {counts.get(name)} in its manifest"


@dataclass(frozen=True, slots=True)
class Difference:
    """One key that two plans treat differently.

    Attributes:
        key: below the ledgers root.
        one, other: the op of each plan, with the kind; None: it has no action there.
        fields: what differs, with both sides; a password is named, never shown.
    """

    key: str
    one: str | None
    other: str | None
    fields: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        if self.one is None:
            return f"{self.key}: only the second has it ({self.other})"
        if self.other is None:
            return f"{self.key}: only the first has it ({self.one})"
        return f"{self.key}: " + "; ".join(f"{name} {a} → {b}" if a != b else name for name, a, b in self.fields)


def differences(one: Dataset, other: Dataset) -> Iterator[Difference]:
    """Compare two plans key by key, in bucket order; yields nothing where they would write the same.

    Holds get a random password each time, so two holds that differ in nothing else are the same.

    Raises:
        DatasetError: a file is gone or damaged.
    """
    names = ["key", "id", "op", "kind", "value", "expects"]
    rows = max(one.rows("actions"), other.rows("actions"))
    for buckets in [SYSTEM, *bucket_ranges(rows)]:
        sides = [d.read("actions", buckets=buckets, columns=names) for d in (one, other)]
        numbered = [
            side.select(["key", "id"]).append_column("at", pa.array(np.arange(side.num_rows))) for side in sides
        ]
        both = numbered[0].join(numbered[1], "key", join_type="full outer", right_suffix="_2")
        same = pc.fill_null(pc.equal(both["id"], both["id_2"]), False)  # noqa: FBT003 - Arrow's signature
        for row in both.filter(pc.invert(same)).sort_by("key").to_pylist():
            left, right = (
                None if at is None else side.slice(at, 1).to_pylist()[0]
                for side, at in zip(sides, (row["at"], row["at_2"]), strict=True)
            )
            found = _difference(row["key"], left, right)
            if found is not None:
                yield found


def _difference(key: str, one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> Difference | None:
    what = [None if side is None else f"{side['op']} {side['kind']}" for side in (one, other)]
    if one is None or other is None:
        return Difference(key, what[0], what[1], ())
    fields = [
        (name, _said(one[name]), _said(other[name])) for name in ("op", "kind", "expects") if one[name] != other[name]
    ]
    held = one["op"] == other["op"] == "hold"
    if one["value"] != other["value"]:
        fields += _value_fields(one, other, held=held)
    return Difference(key, what[0], what[1], tuple(fields)) if fields else None


def _said(value: object) -> str:
    return "absent" if value is None else str(value)


def _value_fields(one: Mapping[str, Any], other: Mapping[str, Any], *, held: bool) -> Iterator[tuple[str, str, str]]:
    """Name the fields in which two values differ; two holds' passwords do not count."""
    left, right = (_record(side) for side in (one, other))
    if left is None or right is None:
        yield "value", f"{len(one['value'] or b'')} bytes", f"{len(other['value'] or b'')} other bytes"
        return
    for name in type(left).__slots__:
        a, b = getattr(left, name), getattr(right, name)
        if a == b:
            continue
        if name == "password":
            if not held:
                yield "another password", "", ""
        elif name in ("custom", "unknown"):
            yield f"other {name}", "", ""
        elif name == "segments":
            yield name, _segments(a), _segments(b)
        else:
            yield name, _said(a), _said(b)


def _record(action: Mapping[str, Any]) -> LedgerMetadata | None:
    """Return the record that an action writes; None if it writes something else."""
    if action["kind"] != "ledger":
        return None
    try:
        return ledger_metadata.decode(action["value"] or b"")
    except FormatError:
        return None


def _segments(segments: Sequence[Any]) -> str:
    return " ".join(f"{segment.first}:[{','.join(segment.members)}]" for segment in segments)


def parse_waves(text: str) -> list[range]:
    """Read shares of the ledgers, as in ``1%,10%,rest``, into one bucket range a wave.

    Raises:
        ValueError: not shares above 0 that come to 100 % at most, or they leave something over without ``rest``.
    """
    parts = [part.strip() for part in text.split(",")]
    rest = parts[-1] == _REST
    shares = []
    for part in parts[: len(parts) - rest]:
        found = _SHARE.fullmatch(part)
        if found is None or float(found[1]) <= 0:
            raise ValueError(f"not a share: {part!r}; write for example 1%,10%,rest")
        shares.append(float(found[1]))
    total = sum(shares)
    if total > 100 or (rest and total >= 100):
        raise ValueError(f"the shares come to {total:g} %" + (", which leaves no rest" if rest else ""))
    if not rest and total < 100:
        raise ValueError(f"the shares come to {total:g} % only; end with rest")
    edges = [0]
    for share in np.cumsum(shares):
        edges.append(min(BUCKETS, max(edges[-1] + 1, round(BUCKETS * share / 100))))
    if rest:
        edges.append(BUCKETS)
    if edges[-1] != BUCKETS or any(low >= high for low, high in pairwise(edges)):
        raise ValueError(f"more waves than {BUCKETS} buckets can be cut into")
    return [range(low, high) for low, high in pairwise(edges)]


@dataclass(frozen=True, slots=True)
class Wave:
    """One stretch of a plan that is applied by itself."""

    number: int
    first_bucket: int
    last_bucket: int
    actions: int
    ledgers: int


def split(dataset: Dataset, waves: Sequence[range], out: Path) -> tuple[dict[str, Any], list[Wave]]:
    """Write a plan again, with a wave for every action; return its manifest and what is in each wave.

    The waves are part of the binding, so the new plan has a hash of its own.

    Args:
        dataset: the plan, which stays as it is.
        waves: bucket ranges, together all buckets.
        out: a new folder; it will hold passwords.

    Raises:
        PlanError: the plan's actions are not those that its hash was made of.
        DatasetError: a file of the plan is damaged, or `out` cannot be written.
    """
    prepare(out, "plan", secret=True)
    binding = {
        **dataset.manifest["binding"],
        "split_from": dataset.manifest["hash"],
        "waves": [[n, r.start, r.stop - 1] for n, r in enumerate(waves, 1)],
    }
    last = len(waves)
    hashes: dict[int, str] = {}
    actions: Counter[int] = Counter()
    ledgers: Counter[int] = Counter()

    def written(name: str, rows: pa.Table, wave: Any) -> Part:  # noqa: ANN401 - a NumPy array
        at = tables.ACTIONS.get_field_index("wave")
        actions.update(wave.tolist())
        return write_part(
            out,
            "actions",
            name,
            [rows.set_column(at, tables.ACTIONS.field(at), pa.array(wave, pa.int32()))],
            secret=True,
        )

    system = _checked(dataset, SYSTEM, hashes)
    early = pa.array(system["seq"].to_numpy() >> 48 < Phase.LEDGERS)
    first, end = system.filter(early), system.filter(pc.invert(early))
    parts = [written("system-first", first, np.ones(first.num_rows, np.int32))]
    starts = np.array([r.start for r in waves])
    for buckets in ranges_of(dataset)[1:]:
        rows = _checked(dataset, buckets, hashes)
        wave = np.searchsorted(starts, rows["bucket"].to_numpy(), side="right")
        ledgers.update(wave.tolist())
        parts.append(written(f"buckets-{buckets.start:04d}-{buckets.stop - 1:04d}", rows, wave))
    parts.append(written("system-last", end, np.full(end.num_rows, last, np.int32)))
    if plan.plan_hash(dataset.manifest["binding"], hashes) != dataset.manifest["hash"]:
        raise PlanError(dataset.path, "its actions do not give the hash in its manifest", "make the plan again")
    others = {
        name: [
            write_part(out, name, "part-00000", [tables.PLAN[name].empty_table(), *dataset.batches(name)], secret=True)
        ]
        for name in tables.PLAN
        if name != "actions"
    }
    store = Path(dataset.path) / _STORE
    if store.is_dir():
        shutil.copytree(store, out / _STORE)
    manifest = write_manifest(
        out,
        "plan",
        {"actions": parts, **others},
        binding=binding,
        coverage=dataset.manifest["coverage"],
        secret=True,
        extra={
            **{key: value for key, value in dataset.manifest.items() if key not in _MANIFEST_KEYS},
            "hash": plan.plan_hash(binding, hashes),
        },
    )
    found = [Wave(n, r.start, r.stop - 1, actions[n], ledgers[n]) for n, r in enumerate(waves, 1)]
    return manifest, found


def _checked(dataset: Dataset, buckets: range, hashes: dict[int, str]) -> pa.Table:
    """Return a bucket range of the actions, and add its hashes, made anew from the actions' fields."""
    rows = dataset.read("actions", buckets=buckets)
    at = tables.ACTIONS.get_field_index("id")
    fresh = rows.set_column(at, tables.ACTIONS.field(at), plan.action_ids(rows))
    hashes.update(plan.bucket_hashes(fresh))
    return rows
