"""What is known of ledgers besides what bookies hold, true or not: a snapshot's records, an upper layer's ends.

    now            every record, as the store had it last
    stale          as it had them some time before: open ledgers that were closed since, deleted ones, ids given out
                   again, bookies replaced since; later ledgers are not there
    lacking        the last records, of two ledgers in three
    contradicting  the last records, half of them with another end, length, digest, password or shape, or other bookies
    foreign        the records of another cluster whose bookies have the same ids
    references     the ends that an upper layer knows, and what it deleted
    misreferences  half of those with another end or length
    both           stale records, and references
    deletions      the last records, and what the store's history shows as deleted, with the record that it had
    elsewhere      the last records, and such a history of another cluster whose bookies have the same ids
    counter        stale records, and the id that the generator would have given next

Same kind, class, seed and number: the same evidence.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recovery.codecs import ledger_metadata
from recovery.infer.references import SCHEMA
from recovery.model import tables
from recovery.model.ids import buckets
from recovery.model.metadata import NO_ENTRY, Digest, LedgerMetadata, LedgerState, Segment
from tests.simulation.protocol import World

_OTHER_PASSWORD: Final = b"of another ledger"


@dataclass(frozen=True, slots=True)
class Reference:
    """What an upper layer knows of a ledger."""

    last_entry: int | None
    length: int | None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known besides what bookies hold.

    Attributes:
        records: of a snapshot, by ledger.
        references: of an upper layer, by ledger.
        deletions: the last record of each ledger that a store's history shows as deleted; None: not known any more.
        issued: the id below which every ledger of the records' time was given out.
        is_honest: all of it was true of these ledgers, at its time.
        is_last: the records are those that the store had last, as its own complete files show.
    """

    records: Mapping[int, LedgerMetadata] = field(default_factory=dict)
    references: Mapping[int, Reference] = field(default_factory=dict)
    deletions: Mapping[int, LedgerMetadata | None] = field(default_factory=dict)
    issued: int = 0
    is_honest: bool = True
    is_last: bool = False

    def quorums(self) -> dict[tuple[int, int, int], int]:
        """Count (E, W, A) of the records."""
        return Counter(
            (record.ensemble_size, record.write_quorum, record.ack_quorum) for record in self.records.values()
        )

    def catalog(self) -> pa.Table | None:
        """Return CATALOG_LEDGERS as `capture` would write them; None: no snapshot is known."""
        if not self.records:
            return None
        ledgers = np.array(sorted(self.records), np.int64)
        raw = pa.array([ledger_metadata.encode(self.records[ledger]) for ledger in ledgers.tolist()], pa.binary())
        parsed = ledger_metadata.decode_columns(raw)
        given: dict[str, Any] = {
            **_keys(ledgers),
            "raw": raw,
            "version": pa.array(np.zeros(len(ledgers), np.int64)),
            **{name: parsed[name] for name in parsed.column_names},
        }
        columns = [given[f.name] if f.name in given else pa.nulls(len(ledgers), f.type) for f in tables.CATALOG_LEDGERS]
        return pa.table(columns, schema=tables.CATALOG_LEDGERS)

    def history(self) -> pa.Table:
        """Return CATALOG_HISTORY: each deletion, in a transaction of its own."""
        ledgers = np.array(sorted(self.deletions), np.int64)
        records = [self.deletions[ledger] for ledger in ledgers.tolist()]
        given: dict[str, Any] = {
            **_keys(ledgers),
            "txn": pa.array(np.arange(1, len(ledgers) + 1)),
            "op": pa.array(["deleted"] * len(ledgers), pa.string()),
            "before": pa.array([None if r is None else ledger_metadata.encode(r) for r in records], pa.binary()),
        }
        columns = [given[f.name] if f.name in given else pa.nulls(len(ledgers), f.type) for f in tables.CATALOG_HISTORY]
        return pa.table(columns, schema=tables.CATALOG_HISTORY)

    def reference_table(self) -> pa.Table | None:
        """Return what references know, of `infer.references.SCHEMA`; None: nobody was asked."""
        if not self.references:
            return None
        ledgers = np.array(sorted(self.references), np.int64)
        stated = [self.references[ledger] for ledger in ledgers.tolist()]
        given: dict[str, Any] = {
            **_keys(ledgers),
            "last_entry": pa.array([reference.last_entry for reference in stated], pa.int64()),
            "length": pa.array([reference.length for reference in stated], pa.int64()),
            "deleted": pa.array([reference.deleted for reference in stated], pa.bool_()),
        }
        columns = [given[f.name] if f.name in given else pa.nulls(len(ledgers), f.type) for f in SCHEMA]
        return pa.table(columns, schema=SCHEMA)


def _keys(ledgers: "np.typing.NDArray[np.int64]") -> dict[str, pa.Array]:
    scope = np.zeros_like(ledgers)
    return {"bucket": pa.array(buckets(scope, ledgers)), "scope": pa.array(scope), "ledger": pa.array(ledgers)}


Records = dict[int, LedgerMetadata]
Draw = Callable[[], World]
"""Lives through another cluster's history of the same class."""


def _take_last(rng: Random, world: World, other: Draw) -> Evidence:
    return Evidence(_list_readable(world.metadata()), is_last=True)


def _take_stale(rng: Random, world: World, other: Draw) -> Evidence:
    return Evidence(_list_readable(rng.choice(world.past) if world.past else world.metadata()))


def _take_lacking(rng: Random, world: World, other: Draw) -> Evidence:
    records = _list_readable(world.metadata())
    return Evidence({ledger: record for ledger, record in records.items() if rng.random() < 2 / 3})


def _contradict(rng: Random, world: World, other: Draw) -> Evidence:
    records = _list_readable(world.metadata())
    names = list(world.bookies)
    return Evidence(
        {n: rng.choice(CHANGES)(rng, record, names) if rng.random() < 0.5 else record for n, record in records.items()},
        is_honest=False,
    )


def _take_foreign(rng: Random, world: World, other: Draw) -> Evidence:
    return Evidence(_list_readable(other().metadata()), is_honest=False)


def _take_references(rng: Random, world: World, other: Draw) -> Evidence:
    closed = {ledger: record for ledger, record in world.records.items() if record.state is LedgerState.CLOSED}
    # An upper layer may have written down the end alone.
    ends = {n: Reference(r.last, r.length if rng.random() < 0.5 else None) for n, r in closed.items()}
    gone = {ledger: Reference(None, None, deleted=True) for ledger in world.deleted if ledger not in world.records}
    return Evidence(references={**ends, **gone})


def _misstate_references(rng: Random, world: World, other: Draw) -> Evidence:
    honest = _take_references(rng, world, other).references
    return Evidence(
        references={
            n: _misstate(rng, reference) if not reference.deleted and rng.random() < 0.5 else reference
            for n, reference in honest.items()
        },
        is_honest=False,
    )


def _take_both(rng: Random, world: World, other: Draw) -> Evidence:
    return Evidence(_take_stale(rng, world, other).records, _take_references(rng, world, other).references)


def _take_deletions(rng: Random, world: World, other: Draw) -> Evidence:
    return Evidence(_list_readable(world.metadata()), deletions=_list_deleted(rng, world), is_last=True)


def _take_elsewhere(rng: Random, world: World, other: Draw) -> Evidence:
    foreign = other()
    # There what is here may have been deleted only yesterday.
    gone = {ledger: record for ledger, record in foreign.metadata().items() if rng.random() < 0.3}
    return Evidence(_list_readable(world.metadata()), deletions=gone | _list_deleted(rng, foreign), is_honest=False)


def _take_counter(rng: Random, world: World, other: Draw) -> Evidence:
    records = rng.choice(world.past) if world.past else world.metadata()
    return Evidence(records, issued=max(records, default=-1) + 1)


def _list_deleted(rng: Random, world: World) -> dict[int, LedgerMetadata | None]:
    """Return what was deleted and not made again; of some, logs remember the deletion alone."""
    gone = {ledger: record for ledger, record in world.deleted.items() if ledger not in world.records}
    return {ledger: record.metadata() if rng.random() < 0.8 else None for ledger, record in gone.items()}


KINDS: Final[Mapping[str, Callable[[Random, World, Draw], Evidence]]] = {
    "now": _take_last,
    "stale": _take_stale,
    "lacking": _take_lacking,
    "contradicting": _contradict,
    "foreign": _take_foreign,
    "references": _take_references,
    "misreferences": _misstate_references,
    "both": _take_both,
    "deletions": _take_deletions,
    "elsewhere": _take_elsewhere,
    "counter": _take_counter,
}
"""By name."""
DECIDED: Final = ("deletions", "elsewhere", "counter")
"""What only a decision of `recover` hears of: a reconstruction alone knows no store's history and no generator."""


def make(kind: str, history: str, seed: int, world: World, other: Draw) -> Evidence:
    """Return the evidence of a kind beside a cluster's history."""
    return KINDS[kind](Random(f"{kind} of {history} {seed}"), world, other)


def _list_readable(records: Mapping[int, LedgerMetadata]) -> Records:
    """Leave out what was in recovery, as `recover` does: a hold is."""
    return {ledger: record for ledger, record in records.items() if record.state is not LedgerState.IN_RECOVERY}


# ------------------------------------------------------------------------------------------------ what is not true


def _with_another_end(rng: Random, record: LedgerMetadata, names: list[str]) -> LedgerMetadata:
    if record.last_entry is None or record.length is None:
        return replace(record, state=LedgerState.CLOSED, last_entry=rng.randint(-1, 5), length=rng.randint(0, 1000))
    end = rng.choice((NO_ENTRY, record.last_entry - rng.randint(1, 20), record.last_entry + rng.randint(1, 70)))
    end = max(NO_ENTRY, end)
    segments = tuple(s for s in record.segments if s.first <= end + 1)
    return replace(
        record,
        segments=segments,
        last_entry=end,
        length=0 if end < 0 else rng.choice((record.length, record.length + end)),
    )


def _with_another_length(rng: Random, record: LedgerMetadata, names: list[str]) -> LedgerMetadata:
    return record if record.length is None else replace(record, length=max(0, record.length + rng.choice((-7, 9999))))


def _with_another_digest(rng: Random, record: LedgerMetadata, names: list[str]) -> LedgerMetadata:
    return replace(record, digest=rng.choice([digest for digest in Digest if digest is not record.digest]))


def _with_another_password(rng: Random, record: LedgerMetadata, names: list[str]) -> LedgerMetadata:
    return replace(record, password=_OTHER_PASSWORD)


def _with_another_shape(rng: Random, record: LedgerMetadata, names: list[str]) -> LedgerMetadata:
    ensemble = record.ensemble_size + rng.choice((-1, 0, 1))
    ensemble = min(max(1, ensemble), len(names))
    write = min(max(1, record.write_quorum + rng.choice((-1, 1))), ensemble)
    segments = tuple(
        Segment(s.first, (*s.members, *(n for n in names if n not in s.members))[:ensemble]) for s in record.segments
    )
    ack = min(record.ack_quorum, write)
    return replace(record, ensemble_size=ensemble, write_quorum=write, ack_quorum=ack, segments=segments)


def _with_other_bookies(rng: Random, record: LedgerMetadata, names: list[str]) -> LedgerMetadata:
    segments = tuple(Segment(s.first, tuple(rng.sample(names, len(s.members)))) for s in record.segments)
    return replace(record, segments=segments)


CHANGES: Final = (
    _with_another_end,
    _with_another_end,
    _with_another_length,
    _with_another_digest,
    _with_another_password,
    _with_another_shape,
    _with_another_shape,
    _with_other_bookies,
)


def _misstate(rng: Random, reference: Reference) -> Reference:
    last = reference.last_entry if reference.last_entry is not None else NO_ENTRY
    if reference.length is not None and rng.random() < 0.4:
        return replace(reference, length=reference.length + 7)
    return Reference(max(NO_ENTRY, last + rng.choice((-20, -3, -1, 1, 5, 50))), None)
