"""A plan cut into waves, which are applied one by one.

    wave   writes
    1      the id generators, and the ledgers of the first buckets
    2 …    the ledgers of the next buckets
    last   the ledgers of the rest, then nodes of upper layers, LAYOUT, instance id, cookies

Buckets are a hash of the ledger id, so a share of the buckets is about the same share of the ledgers. A plan that was
not cut has wave 0 everywhere.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.plan.actions import LEAVE, PlanPhase
from reconcile.plan.manifest import PlanManifest, WaveBuckets, read_plan_manifest, write_plan_manifest
from reconcile.plan.plan_hash import Hashes, bucket_hashes
from reconcile.plan.plan_reader import (
    STORE,
    SYSTEM,
    list_subtree_ranges,
    name_subtree_part,
    open_captured_store,
    ranges_of,
    require_whole,
)
from recovery.dataset import Dataset, prepare, write_part
from recovery.manifest import Part
from recovery.model import tables
from recovery.model.ids import BUCKETS
from recovery.place import DatasetPlace, copy_tree, to_place

_SHARE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)%")
_REST: Final = "rest"
_CANARY: Final = "canary"


def parse_waves(text: str) -> list[range]:
    """Read shares of the ledgers, as in ``canary,1%,rest``, into one bucket range a wave; a canary is one bucket.

    Raises:
        ValueError: not shares above 0 that come to 100 % at most, or they leave something over without ``rest``.
    """
    parts = [part.strip() for part in text.split(",")]
    rest = parts[-1] == _REST
    shares = []
    for place, part in enumerate(parts[: len(parts) - rest]):
        if part == _CANARY and place == 0:
            shares.append(100 / BUCKETS)
            continue
        match = _SHARE.fullmatch(part)
        if match is None or float(match[1]) <= 0:
            raise ValueError(f"not a share: {part!r}; write for example canary,1%,rest")
        shares.append(float(match[1]))
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
    if any(low >= high for low, high in pairwise(edges)):
        raise ValueError(f"more waves than {BUCKETS} buckets can be cut into")
    return [range(low, high) for low, high in pairwise(edges)]


@dataclass(frozen=True, slots=True)
class Wave:
    """One stretch of a plan that is applied by itself; `actions` are those that write."""

    number: int
    first_bucket: int
    last_bucket: int
    actions: int
    ledgers: int


def split_plan(dataset: Dataset, waves: Sequence[range], out: DatasetPlace) -> tuple[PlanManifest, list[Wave]]:
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
    seen = require_whole(dataset)
    open_captured_store(dataset)
    prepare(out, "plan", secret=True)
    whole = read_plan_manifest(dataset)
    binding = replace(
        whole.binding,
        split_from=whole.hash,
        waves=tuple(WaveBuckets(n, r.start, r.stop - 1) for n, r in enumerate(waves, 1)),
    )
    last = len(waves)
    hashes = Hashes(settled=dict(seen.hashes.settled))
    actions: Counter[int] = Counter()
    ledgers: Counter[int] = Counter()

    def in_wave(rows: pa.Table, wave: Any) -> pa.Table:  # noqa: ANN401 - a NumPy array
        index = tables.ACTIONS.get_field_index("wave")
        actions.update(wave[pc.not_equal(rows["op"], LEAVE).to_numpy()].tolist())
        return rows.set_column(index, tables.ACTIONS.field(index), pa.array(wave, pa.int32()))

    def write_wave(name: str, rows: pa.Table) -> Part:
        return write_part(out, "actions", name, [rows], secret=True)

    system = dataset.read("actions", buckets=SYSTEM)
    early = system["seq"].to_numpy() >> 48 < PlanPhase.LEDGERS
    system = in_wave(system, np.where(early, 1, last))
    hashes.actions.update(bucket_hashes(system))
    parts = [write_wave("system-first", system.filter(pa.array(early)))]
    starts = np.array([r.start for r in waves])
    for buckets in ranges_of(dataset)[1:]:
        rows = dataset.read("actions", buckets=buckets)
        wave = np.searchsorted(starts, rows["bucket"].to_numpy(), side="right")
        ledgers.update(wave.tolist())
        rows = in_wave(rows, wave)
        hashes.actions.update(bucket_hashes(rows))
        parts.append(write_wave(f"buckets-{buckets.start:04d}-{buckets.stop - 1:04d}", rows))
    for buckets in list_subtree_ranges(dataset):
        rows = dataset.read("actions", buckets=buckets)
        rows = in_wave(rows, np.full(rows.num_rows, last))
        hashes.actions.update(bucket_hashes(rows))
        parts.append(write_wave(name_subtree_part(buckets), rows))
    parts.append(write_wave("system-last", system.filter(pa.array(~early))))
    tables_kept = {
        name: [write_part(out, name, "part-00000", chain([schema.empty_table()], dataset.batches(name)), secret=True)]
        for name, schema in tables.PLAN.items()
        if name != "actions"
    }
    captured = to_place(dataset.path) / STORE
    if captured.is_dir():
        copy_tree(captured, out / STORE)
    manifest = write_plan_manifest(out, replace(whole, binding=binding), {"actions": parts, **tables_kept}, hashes)
    cut = [Wave(n, r.start, r.stop - 1, actions[n], ledgers[n]) for n, r in enumerate(waves, 1)]
    return manifest, cut
