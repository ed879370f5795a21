"""Ledgers of real clusters, reconstructed from their bookies' disks, against the metadata that was lost."""

import base64
import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from recovery.codecs.ledger_metadata import decode, decode_columns, encode
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.dataset import open_dataset
from recovery.infer.prior import Prior, count_shapes
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.ids import buckets
from recovery.model.metadata import Digest
from tests.support.cases import NAMES, case_dir, operator, truth

pytestmark = pytest.mark.long

CLEAN: Final = ("c01-clean-sorted", "c02-clean-interleaved", "c03-clean-db")

Row = dict[str, Any]
Seen = tuple[pa.Table, pa.Table, pa.Table, tuple[bytes, ...]]
Recovered = Callable[[str], tuple[dict[int, Row], dict[int, Row]]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Seen]:
    """Gives copies, bookies and damage of a case, and its passwords; made once."""

    @functools.cache
    def made(name: str) -> Seen:
        known = operator(name)
        passwords = tuple(password.encode() for password in known["passwords"])
        inventories = []
        for bookie in known["bookies"]:
            ledgers, indexes, journals = (
                tuple(case_dir(name) / folder for folder in bookie[role] or ())
                for role in ("ledgers", "indexes", "journals")
            )
            out = tmp_path_factory.mktemp("infer") / "inventory"
            options = CollectOptions(ledgers, indexes, journals, passwords=passwords)
            collect(options, out, now=lambda: datetime.now(UTC), progress=lambda _: None)
            inventories.append(open_dataset(out, "inventory"))
        copies, bookies, damage = (
            pa.concat_tables([i.read(table) for i in inventories]) for table in ("copies", "bookies", "damage")
        )
        return copies, bookies, damage, passwords

    return made


def reconstructed(seen: Seen, earlier: pa.Table | None = None) -> dict[int, Row]:
    """Return the rows by ledger."""
    copies, bookies, damage, passwords = seen
    prior = Prior.build(count_shapes(copies, bookies))
    rows = reconstruct(copies, bookies, damage, prior, InferOptions(passwords=passwords), earlier).to_pylist()
    return {row["ledger"]: row for row in rows}


@pytest.fixture(scope="module")
def recovered(seen: Callable[[str], Seen]) -> Recovered:
    """Gives what is reconstructed of a case, and what was true, both by ledger; made once."""

    @functools.cache
    def made(name: str) -> tuple[dict[int, Row], dict[int, Row]]:
        return reconstructed(seen(name)), {ledger["ledger"]: ledger for ledger in truth(name)["ledgers"]}

    return made


def catalog(records: dict[int, bytes]) -> pa.Table:
    """Return the catalog of a store that has these records."""
    ledgers = np.array(list(records), np.int64)
    raws = pa.array(list(records.values()), pa.binary())
    parsed = decode_columns(raws)
    columns = dict(zip(parsed.column_names, parsed.columns, strict=True))
    columns |= {
        "bucket": pa.array(buckets(np.zeros_like(ledgers), ledgers)),
        "scope": pa.array(np.zeros_like(ledgers)),
        "ledger": pa.array(ledgers),
        "raw": raws,
        "version": pa.array(np.zeros_like(ledgers)),
    }
    rows = len(ledgers)
    fields = [columns.get(field.name, pa.nulls(rows, field.type)) for field in tables.CATALOG_LEDGERS]
    return pa.table(
        [c.cast(f.type) for c, f in zip(fields, tables.CATALOG_LEDGERS, strict=True)], schema=tables.CATALOG_LEDGERS
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_earlier_record_that_agrees_comes_back_byte_for_byte(name: str, seen: Callable[[str], Seen]) -> None:
    """With the lost records themselves as the snapshot, every closed ledger with an entry is exactly as it was."""
    true = {was["ledger"]: was for was in truth(name)["ledgers"]}
    found = reconstructed(seen(name), catalog({ledger: base64.b64decode(was["raw"]) for ledger, was in true.items()}))
    closed = {ledger for ledger, was in true.items() if was["state"] == "CLOSED" and ledger in found}
    assert closed
    for ledger in closed:
        row = found[ledger]
        assert (row["outcome"], row["reason"]) == ("restored", None)
        assert row["raw"] == base64.b64decode(true[ledger]["raw"])
        assert set(row["grades"].values()) <= {"snapshot", "unknown", "verified"}
    for ledger in set(true) & set(found) - closed:
        if found[ledger]["outcome"] == "restored":
            assert found[ledger]["ack_quorum"] == true[ledger]["A"]


def test_what_moved_since_is_brought_forward(seen: Callable[[str], Seen], recovered: Recovered) -> None:
    """A record whose bookies were replaced keeps all but its segments, and the earlier ones are shown."""
    rows, true = recovered("c06-rereplicated")
    records = {}
    for ledger, was in true.items():
        stored = decode(base64.b64decode(was["raw"]))
        away = tuple(replace(s, members=tuple(f"gone-{m}" for m in s.members)) for s in stored.segments)
        records[ledger] = encode(replace(stored, segments=away))
    found = reconstructed(seen("c06-rereplicated"), catalog(records))
    assert set(found) == set(rows)
    for ledger, row in found.items():
        was = true[ledger]
        assert row["outcome"] == "restored"
        made = decode(row["raw"])
        assert (made.last_entry, made.length, made.ack_quorum) == (was["last"], was["length"], was["A"])
        assert made.custom == decode(base64.b64decode(was["raw"])).custom
        segments = [(segment.first, list(segment.members)) for segment in made.segments]
        for wanted, got in zip(
            write_sets(was["E"], was["W"], [(f, m) for f, m in was["segments"]], was["last"]),
            write_sets(was["E"], was["W"], segments, was["last"]),
            strict=True,
        ):
            assert wanted & got
        assert any(other["field"] == "segments" for other in row["alternatives"])


@pytest.mark.parametrize("name", CLEAN)
@pytest.mark.parametrize("default", [None, (3, 3, 2), (4, 3, 2)])
def test_no_copy_of_a_bookie_that_was_not_scanned_is_given_up(
    name: str, default: tuple[int, int, int] | None, seen: Callable[[str], Seen]
) -> None:
    """Without one bookie's inventory, what is restored names that bookie wherever it has a copy, or is held.

    A record with fewer copies than there are would let the bookie collect its own as one too many.
    """
    copies, bookies, damage, passwords = seen(name)
    true = {was["ledger"]: was for was in truth(name)["ledgers"]}
    came: Counter[str] = Counter()
    for left in bookies["bookie"].to_pylist():
        held, listed, harm = (t.filter(pc.not_equal(t["bookie"], left)) for t in (copies, bookies, damage))
        prior = Prior.build(count_shapes(held, listed), None, default, unscanned=[left])
        options = InferOptions(passwords=passwords, unscanned_bookies=(left,))
        for row in reconstruct(held, listed, harm, prior, options).to_pylist():
            was = true[row["ledger"]]
            came[row["outcome"] if row["outcome"] == "restored" else row["reason"]] += 1
            if row["outcome"] != "restored":
                continue
            sets = write_sets(was["E"], was["W"], [(f, m) for f, m in was["segments"]], was["last"])
            segments = [(segment["first"], segment["members"]) for segment in row["segments"]]
            named = write_sets(row["ensemble_size"], row["ensemble_size"], segments, was["last"])
            assert all(wanted <= got for wanted, got in zip(sets, named, strict=True)), (left, row["ledger"])
            for field, value in (("ensemble_size", was["E"]), ("write_quorum", was["W"])):
                assert row["grades"][field] not in ("observed", "verified") or row[field] == value
    assert set(came) == {"restored", Refusal.SOURCE_INCOMPLETE}


def test_another_ledger_under_the_id_is_held(seen: Callable[[str], Seen], recovered: Recovered) -> None:
    """A record with another password than the bookies' key, or that ends below an acknowledged entry, is another's."""
    _, true = recovered("c06-rereplicated")
    others = {}
    for ledger, was in true.items():
        stored = decode(base64.b64decode(was["raw"]))
        cut = was["last"] > 5
        others[ledger] = encode(
            replace(stored, last_entry=0, length=1) if cut else replace(stored, password=b"other", digest=Digest.HMAC)
        )
    found = reconstructed(seen("c06-rereplicated"), catalog(others))
    for ledger, row in found.items():
        if true[ledger]["format"] == 1:
            continue
        assert row["outcome"] == "held" or row["lac_low"] <= 0
    assert {row["reason"] for row in found.values()} >= {Refusal.TWO_HISTORIES, Refusal.TWO_KEYS}


def within(value: str, wanted: int) -> bool:
    """Whether an alternative's number, or range of them, has a number."""
    low, _, high = value.partition("..")
    return "/" not in value and int(low) <= wanted <= int(high or low)


def write_sets(size: int, write: int, segments: list[tuple[int, list[str]]], last: int) -> list[set[str]]:
    """Return who has which entry, by metadata."""
    found = []
    for entry in range(last + 1):
        members = next(names for first, names in reversed(segments) if first <= entry)
        found.append({members[(entry + i) % size] for i in range(write)})
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_is_restored_is_what_was_lost(name: str, recovered: Recovered) -> None:
    """Length, digest, key and every entry's bookies are the true ones, E and W where they are observed.

    The last entry is, or adds pending at a close were stored: then the true one is among the alternatives.
    """
    found, true = recovered(name)
    restored = {ledger: row for ledger, row in found.items() if row["outcome"] == "restored" and ledger in true}
    assert restored
    for ledger, row in restored.items():
        was = true[ledger]
        acked = was["writer"]["acked_last"]
        acked = acked if was["last"] is None else was["last"]
        assert row["last_entry"] >= acked
        if was["state"] == "CLOSED" and row["last_entry"] == was["last"]:
            assert row["length"] == was["length"]
        elif was["state"] == "CLOSED":
            assert any(within(other["value"], was["last"]) for other in row["alternatives"])
        if was["format"] != 1:
            assert row["digest"] == {"MAC": "HMAC"}.get(was["digest"], was["digest"])
        assert row["grades"]["password"] == "verified"
        seen = (row["ensemble_size"], row["write_quorum"])
        if row["grades"]["ensemble_size"] == "observed":
            assert seen == (was["E"], was["W"])
        if seen == (was["E"], was["W"]):
            ours = [(segment["first"], segment["members"]) for segment in row["segments"]]
            theirs = [(first, members) for first, members in was["segments"]]
            assert write_sets(*seen, ours, acked) == write_sets(*seen, theirs, acked)


@pytest.mark.parametrize("name", CLEAN)
def test_clean_clusters_come_back_whole(name: str, recovered: Recovered) -> None:
    """Every ledger with an entry is restored; E and W are others only where one or two entries cannot show them."""
    found, true = recovered(name)
    with_entries = {ledger for ledger, was in true.items() if was["last"] >= 0}
    assert set(found) == with_entries
    assert {row["outcome"] for row in found.values()} == {"restored"}
    for ledger, row in found.items():
        was = true[ledger]
        if (row["ensemble_size"], row["write_quorum"]) != (was["E"], was["W"]):
            assert was["last"] < 2
            assert f"{was['E']}/{was['W']}" in {alternative["value"] for alternative in row["alternatives"]}


def test_ensemble_changes_come_back(recovered: Recovered) -> None:
    """All are restored, up to six segments; they begin where they did, within what the entries show."""
    found, true = recovered("c04-ensemble-changes")
    assert set(found) == set(true)
    assert {row["outcome"] for row in found.values()} == {"restored"}
    for ledger, row in found.items():
        starts = [first for first, _ in true[ledger]["segments"]]
        for first, low in ((segment["first"], segment["first_low"]) for segment in row["segments"]):
            assert any(low <= start <= first for start in starts)
        # A segment of which no entry shows a newcomer leaves no trace.
        assert len(row["segments"]) >= len(starts) - (true[ledger]["last"] < 10)


def test_what_was_not_closed_comes_back_unless_its_end_is_torn(recovered: Recovered) -> None:
    """Writers that died, recoveries begun: closed at the last entry that anyone holds, if there is no gap before it."""
    found, true = recovered("c05-unclosed")
    torn = Counter((row["outcome"], row["reason"]) for row in found.values() if row["outcome"] != "restored")
    assert torn == {("guarded", Refusal.RAGGED_TAIL): 2, ("guarded", Refusal.NOT_FROM_ZERO): 1}
    assert set(found) <= set(true)


def test_deleted_ledgers_are_seen_where_a_bookie_deleted_them(recovered: Recovered) -> None:
    """A ledger that some bookie's index lacks and its logs have is not resurrected."""
    found, true = recovered("c07-deletes")
    deleted = [row for ledger, row in found.items() if ledger not in true]
    assert Counter(row["reason"] for row in deleted)[Refusal.DELETED_SOMEWHERE] >= 8
    assert not [row for row in found.values() if row["ledger"] in true and row["outcome"] != "restored"]


def test_re_replicated_ledgers_come_back(recovered: Recovered) -> None:
    """All are restored; the copies are told by their LAC and stand where they were made for."""
    found, true = recovered("c06-rereplicated")
    assert set(found) == set(true)
    assert {row["outcome"] for row in found.values()} == {"restored"}
    assert Counter(row["class"] for row in found.values())["re-replicated"] > 10


def test_passwords_of_the_operator_open_what_they_made(recovered: Recovered) -> None:
    """Each restored ledger's key is that of its true password."""
    found, true = recovered("c01-clean-sorted")
    keys: dict[bytes, set[bytes]] = {}
    for ledger, row in found.items():
        keys.setdefault(base64.b64decode(true[ledger]["password"]), set()).add(row["key"])
    assert len(keys) > 1
    assert all(len(values) == 1 for values in keys.values())
