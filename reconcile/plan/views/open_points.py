"""What a plan leaves open that a person may know: passwords that no candidate is, rights that no snapshot names."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from recovery.dataset import Dataset

_CREATED = pa.array(["create", "hold"])
_READABLE = pa.array(["restored", "guarded"])


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of the keys that a plan creates.

    Attributes:
        created: such keys.
        lacking: of these, keys that the plan names no rights for.
        named: rights → records of ledgers that the plan names them for.
    """

    created: int
    lacking: int
    named: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class UnopenedLedgers:
    """Ledgers that come back without a password, because no candidate opens them.

    Attributes:
        ledgers: such ledgers.
        keys: different master keys of theirs.
    """

    ledgers: int
    keys: int


def count_rights(plan: Dataset) -> Rights:
    """Count the rights of what a plan creates.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
    """
    created = lacking = 0
    named: Counter[str] = Counter()
    for rows in plan.batches("actions", ["op", "kind", "acl"]):
        made = rows.filter(pc.is_in(rows["op"], value_set=_CREATED))
        created, lacking = created + made.num_rows, lacking + made["acl"].null_count
        of_ledgers = made["acl"].filter(pc.equal(made["kind"], "ledger"))
        for item in pc.value_counts(of_ledgers.drop_null()).to_pylist():
            named[item["values"]] += item["counts"]
    return Rights(created, lacking, dict(named))


def count_unopened(plan: Dataset) -> UnopenedLedgers:
    """Count the ledgers that a plan brings back without a password, as no candidate has their master key.

    Records that a snapshot has are written as they are there, and count as known.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
    """
    ledgers, keys = 0, set[bytes]()
    for rows in plan.batches("reconstruction", ["outcome", "format", "raw", "key"]):
        is_made = pc.and_(pc.is_in(rows["outcome"], value_set=_READABLE), pc.is_null(rows["raw"]))
        unopened = rows.filter(pc.and_(is_made, pc.fill_null(pc.equal(rows["format"], 1), fill_value=False)))
        ledgers += unopened.num_rows
        keys.update(pc.unique(unopened["key"].drop_null()).to_pylist())
    return UnopenedLedgers(ledgers, len(keys))
