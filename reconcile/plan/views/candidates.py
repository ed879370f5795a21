"""Ledgers that came after the snapshot of Pulsar's nodes, as a plan has them: whose each may be."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.topics import TOPIC
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId

_TABLE: Final = "candidates"


class Evidence(StrEnum):
    """What says whose a ledger may be, the surest first."""

    RECORD = "record"
    """A record of the ledger names the topic."""
    PRODUCERS = "producers"
    """Its entries are of producers that wrote to the topic before."""
    ORDER = "order"
    """Its id is above that of the topic's last ledger."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One topic that a ledger may be of.

    Attributes:
        ledger: it.
        topic: tenant/namespace/persistent/topic; None: nothing tells which.
        use: what the ledger is for: messages of the topic, or something else of it.
        evidence: one of `Evidence`.
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
        chosen = rows.filter(pc.equal(rows["evidence"], str(Evidence.RECORD))).to_pylist()
        for key, own in groupby(chosen, key=lambda row: (row["scope"], row["ledger"])):
            names = {(row["topic"], row["use"]) for row in own}
            if len(names) == 1 and (pair := names.pop())[1] == TOPIC:
                named[LedgerId(*key)] = pair[0]
    return named
