"""Ledgers that a topic of Pulsar made after the snapshot, appended to the topic's record as a plan writes it."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.errors import PlanError
from reconcile.plan.actions import find_places
from reconcile.plan.manifest import read_plan_manifest
from reconcile.plan.plan_reader import open_captured_store
from recovery.capture.subtrees import TOPICS
from recovery.codecs import managed_ledger, store
from recovery.codecs.managed_ledger import Listed, ManagedLedger
from recovery.dataset import Dataset
from recovery.errors import FormatError
from recovery.model.ids import LedgerId
from recovery.model.metadata import State

_PERSISTENT: Final = "persistent://"
_WRITTEN: Final = ("create", "replace")


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


def append_adopted(plan: Dataset, adopted: Mapping[LedgerId, str]) -> Mapping[str, bytes]:
    """Return the records of topics with the ledgers that are adopted: path in the store → bytes.

    Args:
        plan: that brings the topics back.
        adopted: ledger → topic.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
        PlanError: the plan does not write the topic or does not bring the ledger back to its end.
    """
    manifest = read_plan_manifest(plan)
    tops = [subtree.path for subtree in manifest.subtrees if subtree.path.endswith(TOPICS)]
    if adopted and not tops:
        problem = f"brings back no {TOPICS}, so there is no topic to append to"
        raise PlanError(plan.path, problem, "make the plan again with what Pulsar keeps")
    at_ms = int(datetime.fromisoformat(manifest.binding.made or "").timestamp() * 1000) if adopted else 0
    records: dict[str, bytes] = {}
    for topic in sorted(set(adopted.values())):
        path = f"{tops[0]}/{name_topic(topic)}"
        ledgers = sorted(ledger for ledger, other in adopted.items() if other == topic)
        records[path] = _append(plan, path, ledgers, at_ms)
    return records


def _append(plan: Dataset, path: str, ledgers: Sequence[LedgerId], at_ms: int) -> bytes:
    raw = _read_planned(plan, path)
    try:
        record = managed_ledger.decode(raw)
        if not isinstance(record, ManagedLedger):
            raise PlanError(path, "is a subscription, not a topic", "name the topic")
        known = {listed.ledger for listed in record.ledgers}
        for ledger in ledgers:
            _demand_unnamed(plan, ledger, known)
        last = [LedgerId(0, max(listed.ledger for listed in record.ledgers))] if record.ledgers else []
        closed = [_find_end(plan, ledger) for ledger in (*last, *ledgers)]
        return managed_ledger.append_ledgers(raw, closed, at_ms)
    except (FormatError, ValueError) as error:
        raise PlanError(path, f"cannot be appended to: {error}", "leave it out") from error


def _read_planned(plan: Dataset, path: str) -> bytes:
    """Return the bytes that a plan writes at a path of the store."""
    [place] = find_places(pa.array([path])).tolist()
    rows = plan.read("actions", buckets=range(place, place + 1), columns=["key", "op", "value"])
    for row in rows.filter(pc.equal(rows["key"], store.name_outside(path))).to_pylist():
        if row["op"] in _WRITTEN:
            return bytes(row["value"])
    problem = "is not written by the plan: the snapshot has no such topic, or the store has its node already"
    raise PlanError(path, problem, "see what the plan writes: bkmeta plan show PLAN")


def _demand_unnamed(plan: Dataset, ledger: LedgerId, known: Collection[int]) -> None:
    """Refuse a ledger that the topic names, or, where the plan was made with references, that something else names."""
    if ledger.ledger in known:
        raise PlanError(str(ledger), "is one of the topic's already", "leave it out")
    side = _find_row(plan.read("sides", buckets=range(ledger.bucket, ledger.bucket + 1)), ledger)
    if side is not None and side["referenced"]:
        problem = f"is named by {side['owner'] or 'an upper layer'}: no topic may have what something else uses"
        raise PlanError(str(ledger), problem, "leave it out")


def _find_end(plan: Dataset, ledger: LedgerId) -> Listed:
    """Return the end of a ledger that comes back, or that the store has closed."""
    row = _find_row(plan.read("reconstruction", buckets=range(ledger.bucket, ledger.bucket + 1)), ledger)
    if row is not None and row["outcome"] != "restored":
        problem = f"is {row['outcome']}, so its end is not known"
        raise PlanError(str(ledger), problem, f"see what would settle it: bkmeta explain {ledger}")
    if row is None:
        captured = open_captured_store(plan)
        stored = captured.read("ledgers", buckets=range(ledger.bucket, ledger.bucket + 1)) if captured else None
        row = _find_row(stored, ledger) if stored is not None else None
    if row is None:
        raise PlanError(str(ledger), "is neither on the bookies nor in the store", "name another ledger")
    if row["state"] != State.CLOSED or row["last_entry"] is None or row["length"] is None:
        raise PlanError(str(ledger), f"is {row['state']}: it has no end", "see it: bkmeta explain LEDGER")
    return Listed(ledger.ledger, row["last_entry"], row["length"])


def _find_row(rows: pa.Table, ledger: LedgerId) -> dict[str, Any] | None:
    own = rows.filter(pc.and_(pc.equal(rows["scope"], ledger.scope), pc.equal(rows["ledger"], ledger.ledger)))
    return next(iter(own.to_pylist()), None)
