"""Ledgers that a topic of Pulsar made after the snapshot, appended to the topic's record."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.errors import PlanError
from reconcile.plan.manifest import read_plan_manifest
from reconcile.plan.plan_reader import open_captured_store
from reconcile.plan.upper_layers.node_edits import NodeWrite
from reconcile.plan.views.candidates import select_recorded
from reconcile.pulsar.topic_nodes import TopicNodes
from recovery.capture.subtrees import TOPICS
from recovery.codecs import managed_ledger
from recovery.codecs.managed_ledger import Listed, ManagedLedger
from recovery.dataset import Dataset
from recovery.errors import FormatError
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerState

_PERSISTENT: Final = "persistent://"
_STAYS_DELETED: Final = ("deleted", "accepted_loss")
_END: Final = ("state", "last_entry", "length")


def name_topic(topic: str) -> str:
    """Return the name of a topic's node below `TOPICS`: tenant/namespace/persistent/topic, as Pulsar encodes it.

    Args:
        topic: that name, or as clients say it: persistent://tenant/namespace/topic.
    """
    if not topic.startswith(_PERSISTENT):
        return topic.strip("/")
    tenant, _, rest = topic.removeprefix(_PERSISTENT).partition("/")
    namespace, _, local = rest.partition("/")
    encoded = quote_plus(local, safe="*-._").replace("~", "%7E")
    return f"{tenant}/{namespace}/persistent/{encoded}"


@dataclass(frozen=True, slots=True)
class Adoptable:
    """The ledgers of a plan whose own records name their topics.

    Attributes:
        topics: ledger → topic, of those that can be appended.
        left: of the others each with the reason.
    """

    topics: Mapping[LedgerId, str]
    left: Mapping[LedgerId, str]


def select_adoptable(plan: Dataset, named: Collection[LedgerId], replaced: Collection[str] = ()) -> Adoptable:
    """Choose the ledgers whose own records name a topic, topic by topic in the order of their ids.

    Behind the first that cannot be appended none is: that one would have no place any more. What stays deleted (a topic
    lets go of its first ledgers) is in nobody's way.

    Args:
        plan: that brings the topics back.
        named: ledgers that a person adopts, or accepts to lose: what a record says about them does not count.
        replaced: paths at and below which the snapshot's nodes replace the store's in the same edit.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
    """
    recorded = {ledger: topic for ledger, topic in select_recorded(plan).items() if ledger not in named}
    sides = _Sides(plan, recorded, replaced)
    topics, left = dict[LedgerId, str](), dict[LedgerId, str]()
    for topic, ledgers in _group(recorded):
        taken: list[LedgerId] = []
        reason: str | None = None
        for ledger in ledgers:
            if sides.is_deleted(ledger):
                continue
            if reason is not None:
                left[ledger] = f"comes after one that cannot be appended ({reason})"
                continue
            try:
                sides.append(topic, [*taken, ledger])
                taken.append(ledger)
            except PlanError as error:
                left[ledger] = reason = f"{error.subject} {error.problem}"
        topics.update(dict.fromkeys(taken, topic))
    return Adoptable(topics, left)


def append_adopted(
    plan: Dataset, adopted: Mapping[LedgerId, str], replaced: Collection[str] = ()
) -> dict[str, NodeWrite]:
    """Return what is written so that topics have the ledgers that are adopted: path in the store → node.

    Args:
        plan: that brings the topics back.
        adopted: ledger → topic.
        replaced: paths at and below which the snapshot's nodes replace the store's in the same edit.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
        PlanError: a topic cannot have a ledger, or the plan does not bring that back to its end.
    """
    sides = _Sides(plan, adopted, replaced)
    writes: dict[str, NodeWrite] = {}
    for topic, ledgers in _group(adopted):
        writes |= sides.append(topic, ledgers)
    return writes


def _group(adopted: Mapping[LedgerId, str]) -> list[tuple[str, list[LedgerId]]]:
    """Return each topic, by its node's name, with its ledgers, both ascending."""
    of_topic: dict[str, list[LedgerId]] = {}
    for ledger, topic in adopted.items():
        of_topic.setdefault(name_topic(topic), []).append(ledger)
    return [(topic, sorted(of_topic[topic], key=lambda ledger: ledger.ledger)) for topic in sorted(of_topic)]


class _Sides:
    """What a plan says about some topics and of the ledgers that they are to have, read once."""

    def __init__(self, plan: Dataset, adopted: Mapping[LedgerId, str], replaced: Collection[str]) -> None:
        manifest = read_plan_manifest(plan)
        tops = [subtree.path for subtree in manifest.subtrees if subtree.path.endswith(TOPICS)]
        if adopted and not tops:
            problem = f"brings back no {TOPICS}, so there is no topic to append to"
            raise PlanError(plan.path, problem, "make the plan again with what Pulsar keeps")
        self._top = tops[0] if tops else TOPICS
        self._at_ms = int(datetime.fromisoformat(manifest.binding.made or "").timestamp() * 1000) if adopted else 0
        names = {name_topic(topic) for topic in adopted.values()}
        self._nodes = TopicNodes(plan, self._top, names, replaced)
        self._records = {name: _decode(self._nodes.read(name)) for name in names}
        lasts = {_last_of(record) for record in self._records.values() if isinstance(record, ManagedLedger)}
        wanted = sorted({ledger.ledger for ledger in adopted} | {ledger for ledger in lasts if ledger is not None})
        ids = pa.array(wanted, pa.int64())
        self._rows = _index(plan, "reconstruction", ["outcome", *_END], ids)
        captured = open_captured_store(plan) if wanted else None
        self._stored = {} if captured is None else _index(captured, "ledgers", _END, ids)
        self._owners = _index(plan, "sides", ["referenced", "owner"], ids)

    def append(self, name: str, ledgers: Sequence[LedgerId]) -> dict[str, NodeWrite]:
        """Return what is written so that a topic has some ledgers behind its last one.

        Raises:
            PlanError: the topic cannot have them, or a ledger has no end or is somebody's.
        """
        path, record = f"{self._top}/{name}", self._records[name]
        if isinstance(record, str):
            raise PlanError(path, record, "name another topic")
        known = {listed.ledger for listed in record.ledgers}
        for ledger in ledgers:
            self._require_unnamed(ledger, known)
        last = _last_of(record)
        closed = [self._find_end(ledger) for ledger in (*([] if last is None else [LedgerId(0, last)]), *ledgers)]
        try:
            made = managed_ledger.append_ledgers(self._nodes.read(name) or b"", closed, self._at_ms)
        except (FormatError, ValueError) as error:
            remedy = "leave it out; or, where the store's node came after the loss, replace it by the snapshot's"
            raise PlanError(path, f"cannot be appended to: {error}", remedy) from error
        return self._nodes.write(name, made, ledgers[0].ledger)

    def is_deleted(self, ledger: LedgerId) -> bool:
        """Whether a ledger was deleted, and stays so."""
        row = self._rows.get(ledger)
        return row is not None and row["outcome"] in _STAYS_DELETED

    def _require_unnamed(self, ledger: LedgerId, known: Collection[int]) -> None:
        """Refuse a ledger that the topic names, or, where the plan was made with references, something else names."""
        if ledger.ledger in known:
            raise PlanError(str(ledger), "is one of the topic's already", "leave it out")
        side = self._owners.get(ledger)
        if side is not None and side["referenced"]:
            problem = f"is named by {side['owner'] or 'an upper layer'}: no topic may have what something else uses"
            raise PlanError(str(ledger), problem, "leave it out")

    def _find_end(self, ledger: LedgerId) -> Listed:
        """Return the end of a ledger that comes back, or that the store has closed."""
        row = self._rows.get(ledger)
        if row is not None and row["outcome"] != "restored":
            problem = f"is {row['outcome']}, so its end is not known"
            raise PlanError(str(ledger), problem, f"see what would settle it: bkmeta explain {ledger}")
        row = row or self._stored.get(ledger)
        if row is None:
            raise PlanError(str(ledger), "is neither on the bookies nor in the store", "name another ledger")
        if row["state"] != LedgerState.CLOSED or row["last_entry"] is None or row["length"] is None:
            raise PlanError(str(ledger), f"is {row['state']}: it has no end", "see it: bkmeta explain LEDGER")
        return Listed(ledger.ledger, row["last_entry"], row["length"])


def _decode(raw: bytes | None) -> ManagedLedger | str:
    """Return a topic's record, or why it is none."""
    try:
        record = managed_ledger.decode(raw or b"")
    except FormatError as error:
        return f"cannot be appended to: {error}"
    return record if isinstance(record, ManagedLedger) else "is a subscription, not a topic"


def _last_of(record: ManagedLedger) -> int | None:
    return max((listed.ledger for listed in record.ledgers), default=None)


def _index(dataset: Dataset, table: str, columns: Sequence[str], ledgers: pa.Array) -> dict[LedgerId, dict[str, Any]]:
    """Return the rows of some ledgers."""
    rows_of: dict[LedgerId, dict[str, Any]] = {}
    for rows in dataset.batches(table, ["scope", "ledger", *columns]) if len(ledgers) else ():
        for row in rows.filter(pc.is_in(rows["ledger"], value_set=ledgers)).to_pylist():
            rows_of[LedgerId(row["scope"], row["ledger"])] = row
    return rows_of
