"""Bookies that give no lists: their entries are read, some in each run, so that after N runs each was asked for.

The second look asks the bookies of a suspect for the same entries again, and every such bookie for what is missing:
does any bookie have the entries, or do all of them lack them?
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from reconcile.check.scrutiny.earlier_reads import ReadAge
from reconcile.findings.categories import TRAITS
from reconcile.jobs.scrutiny.entry_reads import list_due
from reconcile.jobs.scrutiny.first_look import AskedBookies
from reconcile.jobs.scrutiny.request import SampleReads, ScrutinyRequest
from recovery.bookies.addresses import BookieNames
from recovery.bookies.entry_choice import Rotation
from recovery.bookies.sampled_reads import Sampler
from recovery.bookies.sampling import Sampling
from recovery.bookies.wire_task import WireTarget
from recovery.dataset import Dataset
from recovery.model.groups import KeyedRuns
from recovery.model.tables import SAMPLES

ROTATIONS: Final = "rotations"
"""Key of the manifest: share → number of its last run, and N."""
_MOST_MISSING: Final = 100
"""Missing entries of a ledger that every bookie is asked for: what is left then was not asked for everywhere."""
_SIZE: Final = 1000.0
"""Bytes that a missing entry is thought to have."""
Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SampledBookies:
    """Bookies that give no lists and are asked for single entries.

    Attributes:
        names: their ids.
        sampling: which entries, and at which pace.
    """

    names: tuple[str, ...]
    sampling: Sampling


def find_sampling(request: ScrutinyRequest, earlier: Dataset | None) -> Sampling | None:
    """Return which entries a run asks for: those after the ones of the run before, of the same share."""
    wanted = request.sample_reads
    if wanted is None:
        return None
    return Sampling(_find_rotation(request.share, wanted, earlier), wanted.bytes_s)


def _find_rotation(share: tuple[int, int], wanted: SampleReads, earlier: Dataset | None) -> Rotation:
    before = read_rotations(earlier).get(_name_share(share))
    return Rotation(0, wanted.runs) if before is None else before.advance(wanted.runs)


def read_rotations(run: Dataset | None) -> dict[str, Rotation]:
    """Return where a run and those before it left off: share → its last run."""
    kept = {} if run is None else run.manifest.get(ROTATIONS, {})
    return {share: Rotation(*fields) for share, fields in kept.items()}


def note_rotations(request: ScrutinyRequest, sampling: Sampling | None, earlier: Dataset | None) -> dict[str, Any]:
    """Return what the manifest keeps, so that the next run of each share goes on."""
    kept = read_rotations(earlier)
    if sampling is not None:
        kept[_name_share(request.share)] = sampling.rotation
    same = {share: rotation for share, rotation in kept.items() if share.endswith(f"/{request.share[1]}")}
    return {share: [rotation.run, rotation.runs] for share, rotation in same.items()}


def _name_share(share: tuple[int, int]) -> str:
    return f"{share[0]}/{share[1]}"


def describe_samples(bookies: AskedBookies, sampling: Sampling | None, read_earlier: ReadAge) -> dict[str, Any] | None:
    """Return what a result says of the reads, and of those of earlier runs that count; None where there were none."""
    sampled = bookies.sampled
    if sampled is None or sampling is None:
        return None
    names = ("held", "lacking", "failed")
    return {
        "run": sampling.rotation.number,
        "runs": sampling.rotation.runs,
        "bytes_s": sampling.bytes_s,
        **asdict(sampled.plan),
        **{name: sum(getattr(bookie, name) for bookie in sampled.bookies) for name in names},
        "read_earlier": read_earlier.entries,
        "oldest_read": None if read_earlier.oldest is None else read_earlier.oldest.isoformat(timespec="seconds"),
        "bytes_got": sum(bookie.bytes for bookie in sampled.bookies),
        "why": next((bookie.why for bookie in sampled.bookies if bookie.why), ""),
    }


def find_registered(members: BookieNames, names: Sequence[str], renames: Mapping[str, str]) -> tuple[WireTarget, ...]:
    """Return some bookies as they are asked, as far as they are registered.

    Args:
        members: the bookies.
        names: their ids.
        renames: name in records → id.
    """
    found = [members.find(name) for name in names]
    return tuple(
        WireTarget(m.bookie, m.address, 0, tuple(name for name, bookie in renames.items() if bookie == m.bookie))
        for m in found
        if m.address is not None and m.registered_txn is not None
    )


def read_missing(
    sampler: Sampler, records: Sequence[Mapping[str, Any]], findings: Sequence[Mapping[str, Any]]
) -> tuple[pa.Table, frozenset[Key]]:
    """Ask every bookie for entries that findings say are missing.

    Args:
        sampler: the bookies.
        records: rows of CATALOG_LEDGERS.
        findings: rows of FINDINGS, of these.

    Returns:
        SAMPLES, and the scope and ledger of which every bookie said of each missing entry whether it has it.
    """
    of_ledger = {(record["scope"], record["ledger"]): record for record in records}
    missing: dict[Key, list[int]] = {}
    for finding in findings:
        key = (finding["scope"], finding["ledger"])
        is_loss = TRAITS[finding["category"]].of_copies and finding["severity"] != "info"
        if is_loss and finding["entries"] and key in of_ledger and not key[0]:
            due = islice(list_due(of_ledger[key], None, finding["entries"]), _MOST_MISSING + 1)
            missing.setdefault(key, []).extend(due)
    if not missing:
        return SAMPLES.empty_table(), frozenset()
    keys = sorted(missing, key=lambda key: key[1])
    chosen = [sorted({*missing[key]})[:_MOST_MISSING] for key in keys]
    place = np.repeat(np.arange(len(keys)), [len(entries) for entries in chosen])
    entry = np.array([entry for entries in chosen for entry in entries], np.int64)
    ledgers = np.array([ledger for _, ledger in keys], np.int64)
    runs = KeyedRuns(place, entry, np.ones(len(entry), np.int64))
    rows, _ = sampler.read_everywhere(ledgers, runs, np.full(len(keys), _SIZE))
    is_part = {key for key in keys if len({*missing[key]}) > _MOST_MISSING}
    settled: dict[Key, int] = {}
    for row in rows.select(["scope", "ledger", "no_ledger", "failed"]).to_pylist():
        key = (row["scope"], row["ledger"])
        if row["no_ledger"] or (not row["failed"] and key not in is_part):
            settled[key] = settled.get(key, 0) + 1
    return rows, frozenset(key for key, count in settled.items() if count == len(sampler.targets))
