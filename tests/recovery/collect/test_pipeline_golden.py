"""Inventories of real bookies' disks against what was true of their clusters."""

import functools
import hashlib
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from recovery.codecs.entry import master_key
from recovery.collect.disk.folders import survey
from recovery.collect.options import CollectOptions, CollectSummary
from recovery.collect.pipeline import collect
from recovery.dataset import Dataset, open_dataset
from recovery.model.groups import expand, from_arrow
from recovery.model.metadata import DIGEST_SIZES, Digest
from tests.support.cases import NAMES, case_dir, operator, truth

pytestmark = pytest.mark.long

Collected = Callable[[str, int], tuple[CollectSummary, Dataset]]

BOOKIES = [(name, n) for name in NAMES for n, bookie in enumerate(truth(name)["bookies"]) if bookie["present"]]
CLEAN = ("c01-clean-sorted", "c02-clean-interleaved", "c03-clean-db", "c08-long-ids", "c08b-legacy-layout")
"""Cases in which the metadata name all that was ever written."""


def options(name: str, bookie: int, root: Path | None = None) -> CollectOptions:
    """What the operator of a case would say of a bookie, whose disks may be mounted elsewhere."""
    known = operator(name)["bookies"][bookie]
    ledgers, indexes, journals = (
        tuple((root or case_dir(name)) / folder for folder in known[role] or ())
        for role in ("ledgers", "indexes", "journals")
    )
    passwords = tuple(password.encode() for password in operator(name)["passwords"])
    return CollectOptions(ledgers, indexes, journals, passwords=passwords)


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Collected:
    """Gives the inventory of a bookie of a case, made once."""

    @functools.cache
    def made(name: str, bookie: int) -> tuple[CollectSummary, Dataset]:
        out = tmp_path_factory.mktemp("collect") / "inventory"
        summary = collect(options(name, bookie), out, now=lambda: datetime.now(UTC), progress=lambda _: None)
        return summary, open_dataset(out, "inventory")

    return made


def held(dataset: Dataset, *sources: str) -> set[tuple[int, int]]:
    """Every (ledger, entry) that the rows of some sources list."""
    rows = dataset.read("copies")
    rows = rows.filter(pc.is_in(rows["source"], pa.array(sources)))
    row, entry = expand(from_arrow(rows["groups"]))
    return set(zip(rows["ledger"].to_numpy()[row].tolist(), entry.tolist(), strict=True))


def promised(name: str, bookie: int) -> set[tuple[int, int]]:
    """Every (ledger, entry) that the lost metadata put on a bookie and that was acknowledged."""
    identity = truth(name)["bookies"][bookie]["id"]
    pairs = set()
    for ledger in truth(name)["ledgers"]:
        last = ledger["writer"]["acked_last"] if ledger["last"] is None else ledger["last"]
        starts = [first for first, _ in ledger["segments"]]
        for (first, members), end in zip(ledger["segments"], [*starts[1:], last + 1], strict=True):
            pairs |= {
                (ledger["ledger"], entry)
                for entry in range(first, end)
                for copy in range(ledger["W"])
                if members[(entry + copy) % ledger["E"]] == identity
            }
    return pairs


@pytest.mark.parametrize(("name", "bookie"), BOOKIES)
def test_every_promised_copy_is_found(name: str, bookie: int, collected: Collected) -> None:
    """What the metadata put on a bookie is in its index or its journal, but for what the history took away."""
    _, dataset = collected(name, bookie)
    gone = {
        (int(ledger), entry) for ledger, facts in truth(name)["baseline"].items() for entry in facts["unreadable"] or ()
    }
    assert promised(name, bookie) - held(dataset, "index", "journal") <= gone


@pytest.mark.parametrize(("name", "bookie"), [b for b in BOOKIES if b[0] in CLEAN])
def test_a_clean_bookie_shows_nothing_else(name: str, bookie: int, collected: Collected) -> None:
    """Index rows are exactly what the metadata put there; journal and logs have nothing beside them."""
    _, dataset = collected(name, bookie)
    assert held(dataset, "index") == promised(name, bookie)
    assert not held(dataset, "journal", "log")


@pytest.mark.parametrize(("name", "bookie"), BOOKIES)
def test_undamaged_disks_are_complete(name: str, bookie: int, collected: Collected) -> None:
    """No damage, every folder complete, every ledger that an index or journal lists complete."""
    summary, dataset = collected(name, bookie)
    (row,) = dataset.read("bookies").to_pylist()
    assert summary.complete
    assert row["complete"]
    assert dataset.rows("damage") == 0
    assert all(folder["complete"] and folder["unread"] == 0 for folder in row["dirs"])
    rows = dataset.read("copies").select(["source", "complete"]).to_pylist()
    assert all(row["complete"] is (row["source"] != "log") for row in rows)


@pytest.mark.parametrize(("name", "bookie"), BOOKIES)
def test_a_bookie_is_recognised(name: str, bookie: int, collected: Collected) -> None:
    """Identity, storage, clean or killed, and the manifest's coverage are what the case says."""
    summary, dataset = collected(name, bookie)
    known = truth(name)["bookies"][bookie]
    (row,) = dataset.read("bookies").to_pylist()
    assert (row["bookie"], row["instance_id"]) == (known["id"], truth(name)["instance_id"])
    assert row["storage"] == ("db" if known["storage"] == "db" else "interleaved")
    assert row["dirty"] is (known["ended"] == "killed")
    assert row["incarnation"] == summary.incarnation
    assert dataset.manifest["coverage"]["complete"]
    assert dataset.manifest["binding"]["bookie"] == known["id"]
    roles = [folder["role"] for folder in row["dirs"]]
    assert roles.count("ledger") == len(known["ledgers"])
    assert roles.count("journal") == len(known["journals"])
    assert row["max_ids"][0]["ledger"] <= truth(name)["largest_id_ever"]


@pytest.mark.parametrize(("name", "bookie"), BOOKIES)
def test_the_last_entry_of_each_row_has_its_header(name: str, bookie: int, collected: Collected) -> None:
    """Each row that lists an entry has the header of its last one, with the ledger's own length and digest type."""
    _, dataset = collected(name, bookie)
    ledgers = {ledger["ledger"]: ledger for ledger in truth(name)["ledgers"]}
    for row in dataset.read("copies").to_pylist():
        if not row["entries"]:
            continue
        heads = {head["entry"]: head for head in row["headers"]}
        assert row["last"] in heads
        ledger = ledgers.get(row["ledger"])
        if ledger is None:
            continue
        digest = ledger["writer"]["digest"].replace("MAC", "HMAC")
        payloads = [size for size, _ in ledger["entries"]]
        for entry, head in heads.items():
            if not ledger["writer"]["adv"]:
                assert head["length"] == sum(payloads[: entry + 1])
            assert head["digest"] in (None, digest)
            assert (head["digest"] is None) == (digest == "DUMMY")
            assert head["size"] == 32 + DIGEST_SIZES[Digest(digest)] + payloads[entry]


@pytest.mark.parametrize(("name", "bookie"), BOOKIES)
def test_keys_are_those_of_the_passwords(name: str, bookie: int, collected: Collected) -> None:
    """A stored key is the hash of the master key that the ledger's password makes."""
    _, dataset = collected(name, bookie)
    for ledger in truth(name)["ledgers"]:
        key = hashlib.sha256(master_key(ledger["writer"]["password"].encode())).digest()
        rows = dataset.read("copies").filter(pc.equal(dataset.read("copies")["ledger"], ledger["ledger"]))
        assert {row["key"] for row in rows.to_pylist() if row["key_kind"] == "set"} <= {key}


def test_a_killed_bookie_shows_its_newest_entries_in_the_journal(collected: Collected) -> None:
    """What was not flushed is listed by the journal's rows, and by no other."""
    for bookie in (0, 1, 3):
        _, dataset = collected("c05-unclosed", bookie)
        assert held(dataset, "journal")
        assert not held(dataset, "journal") & held(dataset, "index")


def test_fences_and_explicit_lacs_come_from_wherever_they_stand(collected: Collected) -> None:
    """Ledgers in recovery are fenced on a bookie; the ledger that had an explicit LAC shows it."""
    rows = [row for n in range(5) for row in collected("c05-unclosed", n)[1].read("copies").to_pylist()]
    fenced = {row["ledger"] for row in rows if row["fenced"]}
    recovering = {ledger["ledger"] for ledger in truth("c05")["ledgers"] if ledger["state"] == "IN_RECOVERY"}
    assert recovering <= fenced
    explicit = {row["ledger"]: row["explicit_lac"] for row in rows if row["explicit_lac"] is not None}
    writers = {ledger["ledger"]: ledger["writer"] for ledger in truth("c05")["ledgers"]}
    assert explicit
    assert all(lac <= writers[ledger]["acked_last"] for ledger, lac in explicit.items())


def test_deleted_ledgers_are_known_from_what_still_holds_them(collected: Collected) -> None:
    """After a collection a deleted ledger has no index row; what stands before the mark is a candidate, no copy."""
    deleted = {entry["ledger"] for entry in truth("c07")["deleted"]}
    _, dataset = collected("c07-deletes", 0)
    left = {ledger for ledger, _ in held(dataset, "log")}
    assert left
    assert left <= deleted
    assert not left & {ledger for ledger, _ in held(dataset, "index", "journal")}


@pytest.mark.parametrize(
    ("name", "bookie"), [("c02-clean-interleaved", 1), ("c03-clean-db", 0), ("c09-mixed-db-sorted", 1)]
)
def test_nothing_below_the_folders_is_touched(name: str, bookie: int, tmp_path: Path) -> None:
    """On a read-only tree the same is found, and every file and folder is afterwards as it was, to the nanosecond."""
    known = truth(name)["bookies"][bookie]
    folders = [*known["ledgers"], *(known["indexes"] or ()), *known["journals"]]
    for folder in folders:
        shutil.copytree(case_dir(name) / folder, tmp_path / folder)
    tree = [tmp_path / folder for folder in folders]
    for path in (path for top in tree for path in (top, *top.rglob("*"))):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = listing(tree)
    summary = collect(
        options(name, bookie, tmp_path), tmp_path / "out", now=lambda: datetime.now(UTC), progress=lambda _: None
    )
    assert listing(tree) == before
    assert summary.complete
    for path in (path for top in tree for path in (top, *top.rglob("*")) if path.is_dir()):
        path.chmod(0o755)


def listing(folders: list[Path]) -> dict[str, tuple[int, int, int]]:
    """Size, modification and change time of everything below some folders."""
    return {
        str(path): (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        for top in folders
        for path in (top, *sorted(top.rglob("*")))
        for status in [path.lstat()]
    }


def test_a_copy_of_the_disks_is_the_same_incarnation(tmp_path: Path, collected: Collected) -> None:
    """The number depends on what a copy keeps, and on nothing that it changes."""
    for name in ("c02-clean-interleaved", "c03-clean-db"):
        known = truth(name)["bookies"][0]
        for folder in (*known["ledgers"], *known["journals"]):
            shutil.copytree(case_dir(name) / folder, tmp_path / name / folder, copy_function=shutil.copyfile)
        copied = survey(
            [tmp_path / name / folder for folder in known["ledgers"]],
            [],
            [tmp_path / name / folder for folder in known["journals"]],
            None,
        )
        assert copied.incarnation == collected(name, 0)[0].incarnation


def test_incarnations_of_different_bookies_differ(collected: Collected) -> None:
    """No two bookies of all cases have the same number, though their ids are the same in several clusters."""
    numbers = [collected(name, bookie)[0].incarnation for name, bookie in BOOKIES]
    assert len(set(numbers)) == len(numbers)
