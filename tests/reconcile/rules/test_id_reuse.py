"""Ids of two ledgers: what shows it, what does not, and what each finding says."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from backends.protocols import Versioned
from reconcile.compare.single_ledger import as_catalog_row
from reconcile.findings.table import FindingRun
from reconcile.rules import id_reuse
from reconcile.rules.holds import HOLD_MARK
from recovery.codecs import ledger_metadata
from recovery.codecs.entry import master_key
from recovery.model import metadata as md
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.simulation import histories, inventories, nasty, simulator
from tests.simulation.evidence import Evidence
from tests.simulation.inventories import View
from tests.simulation.protocol import World
from tests.support.inventories import fill_row

RUN = FindingRun("test", datetime(2030, 1, 1, tzinfo=UTC))
NAMES = ("a:1", "b:1", "c:1")
LAST = 9


def stored(**changed: Any) -> pa.Table:
    """The record of ledger 7 in the store."""
    values: dict[str, Any] = {
        "format": 3, "ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2, "state": md.LedgerState.CLOSED,
        "last_entry": LAST, "length": 90, "segments": (md.Segment(0, NAMES),), "digest": md.Digest.CRC32C,
        "password": simulator.PASSWORD, **changed,
    }  # fmt: skip
    return as_catalog_row(Versioned(ledger_metadata.encode(md.LedgerMetadata(**values)), 0), LedgerId(0, 7))


def copies(held: dict[str, set[int]], lac: int = LAST, **changed: Any) -> pa.Table:
    """What bookies hold of ledger 7."""
    rows = []
    for name, entries in held.items():
        header = {"entry": max(entries), "lac": lac, "length": 1, "size": 46, "digest": "CRC32C"} if entries else None
        row = simulator.copy_row(7, name, sorted(entries), headers=[header] if header else [])
        rows.append(row | changed)
    return pa.Table.from_pylist(rows, schema=tables.COPIES)


def keyed(password: bytes) -> bytes:
    """The hash of a master key, as inventories have it."""
    return hashlib.sha256(master_key(password)).digest()


def test_another_key_than_the_records_is_another_ledger() -> None:
    """Both keys are named, never a password; so are holders that the record does not name, for they may delete it."""
    held = copies({"a:1": {1}, "z:1": {1}}, key_kind="set", key=keyed(b"older"))
    [found] = id_reuse.findings(held, stored(), tables.RECONSTRUCTION.empty_table(), RUN).to_pylist()
    evidence = {(one["side"], one["field"]): one["value"] for one in found["evidence"]}
    assert evidence["bookies", "key"] == f"key {keyed(b'older').hex()[:12]}…"
    assert evidence["store", "key"] == f"key {keyed(simulator.PASSWORD).hex()[:12]}…"
    assert evidence["bookies", "hold it, and are not in the record"] == "z:1"
    assert found["severity"] == "critical"
    assert simulator.PASSWORD.decode() not in repr(found)


@pytest.mark.parametrize(
    ("key", "record"),
    [
        (keyed(simulator.PASSWORD), {}),
        (hashlib.sha256(simulator.PASSWORD).digest(), {}),
        (keyed(b"older"), {"custom": ((HOLD_MARK, b"hole"),), "state": md.LedgerState.IN_RECOVERY, "last_entry": None,
                           "length": None}),
        (keyed(b"older"), {"format": 1, "password": None, "digest": None}),
    ],
)  # fmt: skip
def test_the_same_ledger_is_not_called_two(key: bytes, record: dict[str, Any]) -> None:
    """Its own key, the password where a copy has it for a key, a hold of ours, a record that has no password."""
    held = copies({"a:1": {1}}, key_kind="set", key=key)
    assert id_reuse.findings(held, stored(**record), tables.RECONSTRUCTION.empty_table(), RUN).num_rows == 0


def reconstructed(*rows: tuple[int, str | None]) -> pa.Table:
    """RECONSTRUCTION of ledgers that are held for these reasons."""
    made = [
        fill_row(tables.RECONSTRUCTION, {
            "bucket": LedgerId(0, ledger).bucket, "ledger": ledger, "reason": reason, "holders": ["a:1", "z:1"],
            "grades": dict.fromkeys(tables.GRADED, "unknown"),
        })
        for ledger, reason in rows
    ]  # fmt: skip
    table = pa.Table.from_pylist(made, schema=tables.RECONSTRUCTION)
    return table.sort_by([(name, "ascending") for name in tables.KEY_COLUMNS])


def test_what_bookies_alone_show_to_be_two_ledgers() -> None:
    """Two keys, or two histories; each key with who has it. What the record shows already is not said twice."""
    older, newer = keyed(b"older"), keyed(b"newer")
    held = pa.concat_tables([
        copies({"a:1": {1}, "b:1": {1}}, bucket=LedgerId(0, 8).bucket, ledger=8, key=newer),
        copies({"z:1": {1}}, bucket=LedgerId(0, 8).bucket, ledger=8, key=older),
        copies({"y:1": {1}}, bucket=LedgerId(0, 8).bucket, ledger=8, key=None, key_kind="absent"),
        copies({"z:1": {1}}, bucket=LedgerId(0, 9).bucket, ledger=9, key=older),
        copies({"z:1": {1}}, key=older),
    ])  # fmt: skip
    rows = reconstructed((7, "two_keys"), (8, "two_keys"), (9, "digests_differ"), (10, "source_incomplete"), (11, None))
    found = {row["ledger"]: row for row in id_reuse.findings(held, stored(), rows, RUN).to_pylist()}
    assert set(found) == {7, 8, 9}
    assert [one["field"] for one in found[7]["evidence"]][:2] == ["key", "state"]
    told = {number: [one["value"] for one in found[number]["evidence"]] for number in (8, 9)}
    first, second = sorted([(older.hex()[:12], "z:1"), (newer.hex()[:12], "a:1, b:1")])
    assert told == {
        8: ["two_keys", f"key {first[0]}… on {first[1]}; key {second[0]}… on {second[1]}"],
        9: ["digests_differ", f"key {older.hex()[:12]}… on z:1"],
    }
    assert [(row["bookies"], bool(row["unknowns"])) for row in (found[8], found[9])] == [(["a:1", "z:1"], True)] * 2
    assert id_reuse.findings(held, stored().slice(0, 0), reconstructed((11, None)), RUN).num_rows == 0


def test_several_other_keys_are_one_finding() -> None:
    """With what the store says of its own, all keys and all bookies; of members alone nobody is outside."""
    older, oldest = keyed(b"older"), keyed(b"oldest")
    held = pa.concat_tables([
        copies({name: {1}}, key=key)
        for name, key in (("b:1", oldest), ("a:1", older), ("c:1", keyed(b"testpasswd")))
    ])  # fmt: skip
    empty = tables.RECONSTRUCTION.empty_table()
    [found] = id_reuse.findings(held, stored(), empty, RUN).to_pylist()
    evidence = {(one["side"], one["field"]): one["value"] for one in found["evidence"]}
    names = sorted(key.hex()[:12] for key in (older, oldest, keyed(b"testpasswd")))
    assert evidence["bookies", "key"] == ", ".join(f"key {name}…" for name in names)
    assert evidence["bookies", "hold it, and are not in the record"] == "none"
    assert (evidence["store", "state"], found["bookies"]) == ("CLOSED", ["a:1", "b:1", "c:1"])
    other = copies({"a:1": {1}}, bucket=LedgerId(0, 8).bucket, ledger=8, key=older)
    assert id_reuse.findings(other, stored(), empty, RUN).num_rows == 0


@pytest.mark.parametrize(
    ("bookie", "header", "is_other"),
    [
        # The record's own: ends at entry 9 with 90 bytes.
        ("z:1", {"entry": 9, "lac": 8, "length": 90}, False),
        ("z:1", {"entry": 5, "lac": 4, "length": 90}, False),
        ("z:1", {"entry": 12, "lac": 9, "length": 90}, False),
        # Of none that was closed there: one just beside each bound.
        ("z:1", {"entry": 9, "lac": 10, "length": 90}, True),
        ("z:1", {"entry": 9, "lac": 8, "length": 89}, True),
        ("z:1", {"entry": 5, "lac": 4, "length": 91}, True),
        ("z:1", {"entry": 12, "lac": 9, "length": 89}, True),
        ("z:1", {"entry": 3, "lac": 2, "length": 30, "digest": "HMAC"}, True),
        # A bookie that the record names may have what a close dropped.
        ("a:1", {"entry": 12, "lac": 9, "length": 89}, False),
        ("a:1", {"entry": 3, "lac": 2, "length": 30, "digest": "HMAC"}, True),
    ],
)
def test_another_ledger_under_the_same_key_is_known_by_its_headers(
    bookie: str, header: dict[str, Any], is_other: bool
) -> None:
    """Ids that were given again to clients with the same password: the keys agree, and the headers do not."""
    header = {"size": 46, "digest": "CRC32C", **header}
    own = keyed(simulator.PASSWORD)
    last: dict[str, Any] = {"size": 46, "digest": "CRC32C", "entry": LAST, "lac": LAST - 1, "length": 90}
    heads: list[tuple[str, dict[str, Any]]] = [(bookie, header), ("b:1", last)]
    rows = [
        simulator.copy_row(7, name, list(range(head["entry"] + 1)), headers=[head]) | {"key": own, "key_kind": "set"}
        for name, head in heads
    ]
    held = pa.Table.from_pylist(rows, schema=tables.COPIES)
    empty = tables.RECONSTRUCTION.empty_table()
    found = id_reuse.findings(held, stored(), empty, RUN)
    assert found.num_rows == is_other
    if is_other:
        evidence = {(one["side"], one["field"]): one["value"] for one in found.to_pylist()[0]["evidence"]}
        assert evidence["bookies", "entries that are not the record's"].startswith(
            f"entry {header['entry']} on {bookie}"
        )
    # Only what the record does not name is deleted by the over-replicated check.
    assert len(id_reuse.find_strays(held, stored(), found)) == (is_other and bookie == "z:1")
    # What is still written to has no end.
    still_open = stored(state=md.LedgerState.OPEN, last_entry=None, length=None)
    assert id_reuse.findings(held, still_open, empty, RUN).num_rows == (header["digest"] == "HMAC")


@pytest.mark.parametrize(
    ("ends", "ack", "is_other"),
    [
        ({"y:1": 12, "z:1": 12}, 2, True),
        ({"y:1": 9, "z:1": 12}, 2, False),
        ({"z:1": 12}, 1, False),
        ({"y:1": 12, "z:1": 12}, 3, False),
        ({"a:1": 12, "b:1": 12}, 2, False),
    ],
)
def test_entries_above_the_end_on_enough_strangers_are_another_ledgers(
    ends: dict[str, int], ack: int, is_other: bool
) -> None:
    """A quick writer's headers say little: the LAC stands far behind, and entries of one size have the same lengths."""
    rows = []
    for bookie, end in ends.items():
        header = {"entry": end, "lac": -1, "length": 90 + end, "size": 46, "digest": "CRC32C"}
        rows.append(simulator.copy_row(7, bookie, list(range(end + 1)), headers=[header] if end > LAST else []))
    held = pa.Table.from_pylist(rows, schema=tables.COPIES)
    found = id_reuse.findings(held, stored(ack_quorum=ack), tables.RECONSTRUCTION.empty_table(), RUN)
    assert found.num_rows == is_other


@pytest.mark.parametrize(
    ("headers", "record"),
    [
        # A recovery started from the last entry of the member that had the latest LAC, and read none.
        ({"z:1": (9, 8, 80), "y:1": (10, 8, 85)}, {}),
        # The last segment is empty: its members had an earlier entry, or none.
        ({"z:1": (9, 8, 95)}, {"segments": (md.Segment(0, NAMES), md.Segment(LAST + 1, NAMES))}),
        ({"z:1": (3, 2, 30)}, {"segments": (md.Segment(0, NAMES), md.Segment(LAST + 1, NAMES)), "length": 0}),
        # Who sends ids out of order: a member shows it, too.
        ({"a:1": (9, 8, 95), "z:1": (9, 8, 95)}, {}),
        # The close dropped them, and re-replication took the places of bookies that are back.
        ({"a:1": (9, 9, 90), "y:1": (12, 8, 120), "z:1": (12, 8, 120)}, {}),
        # A writer replaced both, and sent their entry again: members have the same one.
        ({"a:1": (10, 8, 100), "b:1": (10, 8, 100), "y:1": (10, 8, 100), "z:1": (10, 8, 100)}, {}),
    ],
)
def test_what_one_ledger_leaves_is_not_called_two(
    headers: dict[str, tuple[int, int, int]], record: dict[str, Any]
) -> None:
    """Lengths of recoveries that read no entry, of clients that send ids out of order; what a close dropped."""
    rows = []
    for bookie, (entry, lac, length) in headers.items():
        header = {"entry": entry, "lac": lac, "length": length, "size": 46, "digest": "CRC32C"}
        rows.append(simulator.copy_row(7, bookie, list(range(entry + 1)), headers=[header]))
    held = pa.Table.from_pylist(rows, schema=tables.COPIES)
    assert id_reuse.findings(held, stored(**record), tables.RECONSTRUCTION.empty_table(), RUN).num_rows == 0


@pytest.mark.parametrize(
    ("make", "name", "seed", "most"),
    [(histories.make, "tended", 900, 0), (nasty.make, "turnover", 1, 2), (nasty.make, "turnover", 2, 1)],
)
def test_no_record_of_a_cluster_is_called_two(
    make: Callable[[str, int, int], tuple[World, View]], name: str, seed: int, most: int
) -> None:
    """Auto-recovery, recoveries, bookies that return, ensembles that writers replaced whole: no id was given twice.

    Of whole ensembles that were replaced it is one in a hundred where only one member got what the strays have.
    """
    world, view = make(name, seed, 300)
    catalog = Evidence(world.metadata()).catalog()
    assert catalog is not None
    held = inventories.inventory(world, view).copies
    assert id_reuse.findings(held, catalog, tables.RECONSTRUCTION.empty_table(), RUN).num_rows <= most


def test_ids_that_were_given_twice_are_found() -> None:
    """Both ledgers have one key: all are found of which a bookie beside the record has the older one above the end."""
    world, view = nasty.make("reused-same", 0, 150)
    catalog = Evidence(world.metadata()).catalog()
    assert catalog is not None
    held = inventories.inventory(world, view)
    rows = id_reuse.findings(held.copies, catalog, tables.RECONSTRUCTION.empty_table(), RUN)["ledger"].to_pylist()
    assert set(rows) <= world.forgotten.keys()
    shown = set()
    for ledger, older in world.forgotten.items():
        record = world.records[ledger]
        named = {name for _, members in record.segments for name in members}
        strays = [
            name
            for name, copies in held.served.get(ledger, {}).items()
            if name not in named
            and any(entry > (record.last or 0) and copy.life == older.life for entry, copy in copies.items())
        ]
        if record.state is md.LedgerState.CLOSED and len(strays) >= max(record.ack, 2):
            shown.add(ledger)
    assert len(shown) > 10
    assert shown <= set(rows)


def test_another_ledger_that_a_member_holds_too_is_still_another() -> None:
    """One bookie was a member of both."""
    header = {"entry": 12, "lac": 11, "length": 120, "size": 46, "digest": "CRC32C"}
    rows = [simulator.copy_row(7, name, list(range(13)), headers=[header]) for name in ("a:1", "z:1")]
    held = pa.Table.from_pylist(rows, schema=tables.COPIES)
    assert id_reuse.findings(held, stored(), tables.RECONSTRUCTION.empty_table(), RUN).num_rows == 1
