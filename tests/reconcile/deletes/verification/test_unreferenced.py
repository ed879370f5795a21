"""What listings of references say of ledgers that a part of Pulsar made."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pytest

from reconcile.clusters import InstanceSource
from reconcile.deletes.verification.evidence import ReferenceListing
from reconcile.deletes.verification.objections import Objections, UnsafeReason
from reconcile.deletes.verification.unreferenced import judge_references
from reconcile.deletes.verification.wanted import WantedLedgers
from reconcile.references import References
from recovery.infer.references import SCHEMA
from recovery.model.ids import LedgerId
from recovery.model.tables import CUSTOM

LEDGER: Final = LedgerId(0, 7)
TOPIC: Final = "public/default/persistent/t"
CUSTOM_OF: Final = [
    {"key": "application", "value": b"pulsar"},
    {"key": "component", "value": b"compacted-ledger"},
    {"key": "pulsar/compactedTopic", "value": b"persistent://public/default/t"},
]
STORE: Final = (InstanceSource("zk", "one"),)


def listing(*rows: dict[str, Any], stores: tuple[InstanceSource, ...] = STORE, **given: Any) -> ReferenceListing:
    """Return a listing of some references, by default of a store's records."""
    made = [{"bucket": LEDGER.bucket, "scope": 0, **row} for row in rows]
    return ReferenceListing(References(pa.Table.from_pylist(made, schema=SCHEMA), stores=stores), 1_000, **given)


def judge(listings: Sequence[ReferenceListing], custom: Sequence[dict[str, Any]] = CUSTOM_OF) -> set[UnsafeReason]:
    """Return why a ledger, by default the compacted one of a topic, may not be deleted."""
    objections = Objections(1)
    records = pa.table(
        {
            "row": [0],
            "custom": pa.array([list(custom)], CUSTOM),
            "created_at": pa.array([0], pa.timestamp("ms", "UTC")),
            "ctime": [0],
        }
    )
    judge_references(WantedLedgers([LEDGER]), records, listings, 0, objections)
    return {reason for reason in UnsafeReason if objections.list_rows(reason)}


def cursor(ledger: int = 9) -> dict[str, Any]:
    """Return the reference of the subscription that compacts the topic, to a ledger of its own."""
    return {"ledger": ledger, "owner": f"cursor __compaction of {TOPIC}"}


@pytest.mark.parametrize(
    ("listings", "reasons"),
    [
        ([listing()], set()),
        ([listing({"ledger": 9, "owner": "cursor mine of x"})], set()),
        # Its subscription has a ledger of its own, which may name it; unless bookies told what that names.
        ([listing(cursor())], {UnsafeReason.MAKER_UNLISTED}),
        ([listing(cursor(), read_topics=frozenset({TOPIC}))], set()),
        # No store's records were read, by one of the listings.
        ([listing(stores=())], {UnsafeReason.MAKER_UNLISTED}),
        ([listing(), listing(stores=())], {UnsafeReason.MAKER_UNLISTED}),
        (
            [listing(), ReferenceListing(None, 1_000)],
            {UnsafeReason.MAKER_UNLISTED, UnsafeReason.REFERENCES_UNKNOWN},
        ),
        # Somebody states that it was deleted; that a store's history shows a deletion states nothing.
        ([listing(cursor(), {"ledger": 7, "deleted": True})], set()),
        ([listing(cursor(), {"ledger": 7, "deleted": True, "deletion": "by 0x7"})], {UnsafeReason.MAKER_UNLISTED}),
        ([listing(cursor(), {"ledger": 8, "deleted": True})], {UnsafeReason.MAKER_UNLISTED}),
    ],
)  # fmt: skip
def test_a_compacted_ledger_may_go_once_all_was_read_that_may_name_it(
    listings: Sequence[ReferenceListing], reasons: set[UnsafeReason]
) -> None:
    """Each listing read the records of a store, and the subscription's own ledger; or a person states the deletion."""
    assert judge(listings) == reasons


PRAVEGA: Final = ({"key": "application", "value": b"Pravega"},)
OTHERS: Final = ({"key": "application", "value": b"another"},)


@pytest.mark.parametrize(
    ("custom", "listings", "is_unlisted"),
    [
        # A file in each listing states that nothing else is referred to.
        (OTHERS, [listing(), listing()], False),
        (OTHERS, [listing(), listing(is_stated=False)], True),
        (OTHERS, [listing(is_stated=False, has_pravega=True)], True),
        # Or each listing has the records of Pravega's containers, and the ledger is Pravega's.
        (PRAVEGA, [listing(is_stated=False)], True),
        (PRAVEGA, [listing(is_stated=False, has_pravega=True), listing(is_stated=False)], True),
        (PRAVEGA, [listing(is_stated=False, has_pravega=True)] * 2, False),
    ],
)
def test_another_applications_ledger_may_go_once_all_listings_are_of_that_application(
    custom: Sequence[dict[str, Any]], listings: Sequence[ReferenceListing], *, is_unlisted: bool
) -> None:
    """One listing that leaves its records out is enough to keep it."""
    assert (UnsafeReason.MAKER_UNLISTED in judge(listings, custom)) == is_unlisted
