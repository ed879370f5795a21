"""Ledgers that came after the snapshot of Pulsar's nodes, as a plan has them: whose each may be."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.topics import CURSOR, SCHEMA, TOPIC
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId

_TABLE: Final = "candidates"


class OwnerEvidence(StrEnum):
    """What says whose a ledger may be, the surest first."""

    RECORD = "record"
    """A record of the ledger names the topic."""
    ENTRY = "entry"
    """Its first entry names it: that of a schema does."""
    PRODUCERS = "producers"
    """Its entries are of producers that wrote to the topic before."""
    ORDER = "order"
    """Its id is above that of the topic's last ledger."""
    NONE = "none"


_SUREST_FIRST: Final = tuple(map(str, OwnerEvidence))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One topic that a ledger may be of.

    Attributes:
        ledger: it.
        topic: tenant/namespace/persistent/topic; None: nothing tells which.
        use: what the ledger is for: messages of the topic, or something else of it.
        evidence: one of `OwnerEvidence`.
        source: where that stands; None: nowhere.
        detail: for people.
    """

    ledger: LedgerId
    topic: str | None
    use: str
    evidence: str
    source: str | None
    detail: str

    def __str__(self) -> str:
        topic = "nobody knows whose" if self.topic is None else self.topic
        use = "" if self.use == TOPIC else f" ({self.use})"
        where = "" if self.source is None else f", {self.source}"
        return f"{self.ledger} {topic}{use}: {self.evidence}: {self.detail}{where}"

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` has it."""
        return {
            "ledger": str(self.ledger),
            **{name: getattr(self, name) for name in ("topic", "use", "evidence", "source", "detail")},
        }


def list_candidates(plan: Dataset, shown: int) -> tuple[Candidate, ...]:
    """Return the candidates of the ledgers with the smallest ids.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
    """
    smallest = pa.array([], pa.int64())
    for rows in plan.batches(_TABLE, ["ledger"]):
        united = pc.unique(pa.concat_arrays([smallest, *rows["ledger"].chunks]))
        smallest = united.take(pc.sort_indices(united)[:shown])
    wanted = set(smallest.to_pylist())
    listed = [candidate for rows in plan.batches(_TABLE) for candidate in _read(rows, smallest)] if wanted else []
    return tuple(sorted(listed, key=lambda candidate: candidate.ledger.ledger))


def _read(rows: pa.Table, ledgers: pa.Array) -> Iterator[Candidate]:
    for row in rows.filter(pc.is_in(rows["ledger"], value_set=ledgers)).to_pylist():
        names = ("topic", "use", "evidence", "source", "detail")
        yield Candidate(LedgerId(row["scope"], row["ledger"]), *(row[name] for name in names))


def select_recorded(plan: Dataset) -> Mapping[LedgerId, str]:
    """Return the ledgers whose own records name a topic, and only one, with that topic.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
    """
    named: dict[LedgerId, str] = {}
    for rows in plan.batches(_TABLE):
        chosen = rows.filter(pc.equal(rows["evidence"], str(OwnerEvidence.RECORD))).to_pylist()
        for key, own in groupby(chosen, key=lambda row: (row["scope"], row["ledger"])):
            names = {(row["topic"], row["use"]) for row in own}
            if len(names) == 1 and (pair := names.pop())[1] == TOPIC:
                named[LedgerId(*key)] = pair[0]
    return named


def count_best(rows: pa.Table) -> Counter[str]:
    """Count the ledgers of a table by the best that is known of each.

    Args:
        rows: of CANDIDATES; those of one ledger stand together.
    """
    ledgers = rows["ledger"].to_numpy()
    starts = np.flatnonzero(np.append(True, ledgers[1:] != ledgers[:-1])[: len(ledgers)])
    rank = pc.index_in(rows["evidence"], value_set=pa.array(_SUREST_FIRST)).to_numpy()
    best = np.bincount(np.minimum.reduceat(rank, starts))
    return Counter({name: int(count) for name, count in zip(_SUREST_FIRST, best, strict=False) if count})


def sum_counts(counts: Counter[str]) -> dict[str, int]:
    """Return what a manifest has of them: `ledgers`, and each evidence, the surest first; nothing where none is."""
    if not counts:
        return {}
    return {"ledgers": counts.total(), **{name: counts[name] for name in _SUREST_FIRST if counts[name]}}


@dataclass(frozen=True, slots=True)
class OwnLedger:
    """A ledger in which a subscription or a schema is kept.

    Attributes:
        ledger: it.
        topic: tenant/namespace/persistent/topic; of a schema tenant/namespace/topic.
        subscription: its name; None: it is a schema's.
        record: that names the schema's ledgers; None: the schema was not read, or it is a subscription's.
    """

    ledger: LedgerId
    topic: str
    subscription: str | None
    record: bytes | None


def list_own(plan: Dataset) -> Iterator[OwnLedger]:
    """Yield the ledgers that subscriptions and schemas have for themselves, as their records and entries say.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
    """
    columns = ["scope", "ledger", "topic", "use", "node"]
    for rows in plan.batches(_TABLE, columns):
        is_own = pc.or_(pc.equal(rows["use"], SCHEMA), pc.starts_with(rows["use"], CURSOR))
        for row in rows.filter(is_own).to_pylist():
            subscription = None if row["use"] == SCHEMA else row["use"].removeprefix(CURSOR)
            yield OwnLedger(LedgerId(row["scope"], row["ledger"]), row["topic"], subscription, row["node"])
