"""Ledgers read back from real bookies' disks through their lost records: what is there is found, and nothing else."""

import base64
import dataclasses
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.protocols import Write
from reconcile.check.verify import verify
from reconcile.check.verify_results import ABOVE_END, RecordInStore, VerifyOutcome, VerifyResult
from reconcile.jobs.verify import NamedDisks
from recovery.bookies.disk_reader import open_disks
from recovery.codecs import entry, entry_log, index_file
from recovery.codecs.store import Layout
from recovery.dataset import Dataset
from recovery.errors import InputError
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest
from tests.support import cases
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger, of_truth, write_plan

pytestmark = pytest.mark.long

ROOT = "/ledgers"


def _closed(name: str) -> list[dict[str, Any]]:
    return [row for row in cases.truth(name)["ledgers"] if row["state"] == "CLOSED"]


def _plan(folder: Path, name: str, ledgers: list[Ledger] | None = None) -> Dataset:
    known = [base64.b64decode(row["password"]) for row in _closed(name) if row["password"]]
    chosen = [of_truth(row) for row in _closed(name)] if ledgers is None else ledgers
    return write_plan(folder / "plan", chosen, layout=Layout.LONGHIERARCHICAL, passwords=known)


def _applied(dataset: Dataset) -> MemoryStore:
    store = MemoryStore()
    for row in dataset.read("actions").to_pylist():
        if row["kind"] == "ledger":
            store.write([Write(ROOT + row["key"], row["value"])])
    return store


def _verified(
    dataset: Dataset,
    case: Path,
    name: str,
    *,
    without: tuple[str, ...] = (),
    sample: int | None = None,
    store: Any = None,
) -> VerifyResult:
    with ExitStack() as stack:
        disks = {
            bookie["id"]: stack.enter_context(open_disks(bookie["id"], [case / "bookies" / f"b{bookie['n']}"]))
            for bookie in cases.truth(name)["bookies"]
            if bookie["present"] and bookie["id"] not in without
        }
        found = verify(dataset, store or _applied(dataset), ROOT, disks, sample=sample)
    assert found.adds_up
    return found


@pytest.mark.parametrize("name", cases.NAMES)
def test_every_entry_of_a_closed_ledger_is_readable(name: str, tmp_path: Path) -> None:
    """With the true records every entry is found on every member, in index or journal, and its digest agrees."""
    dataset = _plan(tmp_path, name)
    found = _verified(dataset, cases.case_dir(name), name)
    # A record of format 1 or 2 may have no password: what HMAC or nothing guards cannot be checked then.
    blind = {
        row["ledger"]
        for row in _closed(name)
        if row["password"] is None and row["writer"]["digest"] in ("MAC", "DUMMY")
    }
    rows = [row for row in _closed(name) if row["ledger"] not in blind]
    assert found.outcomes == {
        VerifyOutcome.READABLE: len(rows), **({VerifyOutcome.UNCHECKED: len(blind)} if blind else {})
    }  # fmt: skip
    assert found.full == len(rows)
    assert found.entries["readable"] == sum(row["last"] + 1 for row in rows)
    assert found.copies["good"] == sum((row["last"] + 1) * row["W"] for row in rows)
    assert (found.records, found.wrong) == ({RecordInStore.PLANNED: len(_closed(name))}, 0)
    assert (found.incomplete, found.without_disks, found.seed) == ({}, {}, "")


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[str], Path]:
    """Copies of cases, to be damaged."""
    return lambda name: cases.copy_of(name, tmp_path / "copies")


def _index(case: Path, row: dict[str, Any], bookie: str) -> Path:
    number = next(b["n"] for b in cases.truth("c01")["bookies"] if b["id"] == bookie)
    return case / "bookies" / f"b{number}" / "ledgers" / "current" / index_file.path_of(row["ledger"])


def _without_replay(case: Path) -> None:
    """Put every mark behind its journals' end, so that nothing is replayed."""
    for journal in case.glob("bookies/*/journal*/current/*.txn"):
        end = struct.pack(">qq", int(journal.stem, 16), journal.stat().st_size)
        for mark in journal.parents[2].glob("ledgers*/current/lastMark*"):
            mark.write_bytes(max(end, mark.read_bytes()))


def _alone(digest: str = "CRC32C") -> dict[str, Any]:
    """A ledger whose entries have one copy each, all on one bookie."""
    return next(row for row in _closed("c01") if row["E"] == 1 and row["digest"] == digest and row["last"] > 5)


def test_a_flipped_byte_is_a_corrupt_entry(copy: Callable[[str], Path], tmp_path: Path) -> None:
    """One byte of an entry's only copy: that entry is corrupt, all others stay readable."""
    case = copy("c01")
    _without_replay(case)
    row = _alone()
    path = _index(case, row, row["segments"][0][1][0])
    slots = index_file.slots(path.read_bytes()[index_file.HEADER_SIZE :])
    number = int(np.flatnonzero(slots)[3])
    log_id, position = entry_log.split_location(int(slots[number]))
    log = path.parents[2] / f"{log_id:x}.log"
    content = bytearray(log.read_bytes())
    content[position + entry.HEADER_SIZE] ^= 1
    log.write_bytes(content)
    found = _verified(_plan(tmp_path, "c01"), case, "c01")
    assert found.outcomes == {VerifyOutcome.READABLE: 32, VerifyOutcome.CORRUPT: 1}
    assert found.entries[VerifyOutcome.CORRUPT] == found.copies["bad"] == 1
    assert [(p.ledger, p.outcome) for p in found.problems] == [(LedgerId(0, row["ledger"]), "corrupt")]
    assert f"entries corrupt: {number}" in found.problems[0].detail
    assert found.wrong == 1


def _replicated() -> dict[str, Any]:
    """A ledger whose entries have several copies, each on every bookie of its only segment."""
    rows = (row for row in _closed("c01") if len(row["segments"]) == 1 and row["E"] == row["W"] > 1)
    return next(row for row in rows if row["digest"] == "CRC32C" and row["last"] > 5)


def _change_copy(case: Path, row: dict[str, Any], bookie: str, number: int, change: Callable[[bytes], bytes]) -> None:
    """Change the copy of an entry that one bookie serves, in place: as many bytes as before."""
    path = _index(case, row, bookie)
    slots = index_file.slots(path.read_bytes()[index_file.HEADER_SIZE :])
    log_id, position = entry_log.split_location(int(slots[number]))
    log = path.parents[2] / f"{log_id:x}.log"
    content = bytearray(log.read_bytes())
    [size] = struct.unpack_from(">i", content, position - 4)
    changed = change(bytes(content[position : position + size]))
    assert len(changed) == size
    content[position : position + size] = changed
    log.write_bytes(content)


def test_a_corrupt_first_copy_costs_no_entry(copy: Callable[[str], Path], tmp_path: Path) -> None:
    """The copy that readers ask for first has a wrong byte: it is counted as bad, and the next one serves the entry."""
    case = copy("c01")
    _without_replay(case)
    row, number = _replicated(), 3
    members = row["segments"][0][1]
    first = members[number % len(members)]
    _change_copy(case, row, first, number, lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]))
    found = _verified(_plan(tmp_path, "c01"), case, "c01")
    assert found.outcomes == {VerifyOutcome.READABLE: 33}
    assert (found.copies["bad"], found.entries[VerifyOutcome.CORRUPT], found.entries[VerifyOutcome.MISSING]) == (
        1,
        0,
        0,
    )
    assert found.full == 32


def test_what_was_corrupt_before_its_digest_was_made_agrees_with_it(
    copy: Callable[[str], Path], tmp_path: Path
) -> None:
    """A client sends wrong bytes with a digest of these: no bookie, no reader and no check can tell. It is readable."""
    case = copy("c01")
    _without_replay(case)
    row = _replicated()
    password = base64.b64decode(row["password"])

    def write_wrong(raw: bytes) -> bytes:
        header, payload = entry.decode_header(raw), bytes(entry.payload_of(raw, Digest.CRC32C))
        return entry.encode(header, bytes(byte ^ 0xFF for byte in payload), Digest.CRC32C, password)

    for bookie in row["segments"][0][1]:
        _change_copy(case, row, bookie, 3, write_wrong)
    found = _verified(_plan(tmp_path, "c01"), case, "c01")
    assert (found.outcomes, found.copies["bad"], found.full) == ({VerifyOutcome.READABLE: 33}, 0, 33)


def test_an_entry_whose_writes_failed_beyond_the_ack_quorum_is_behind_the_end(
    copy: Callable[[str], Path], tmp_path: Path
) -> None:
    """All but one write of the last entry failed, so it was never acknowledged, and the ledger ends before it."""
    case = copy("c01")
    _without_replay(case)
    row = _replicated()
    assert row["A"] > 1
    for bookie in row["segments"][0][1][1:]:
        path = _index(case, row, bookie)
        content = bytearray(path.read_bytes())
        at = index_file.HEADER_SIZE + 8 * row["last"]
        content[at : at + 8] = bytes(8)
        path.write_bytes(content)
    whole = [of_truth(one) for one in _closed("c01")]
    shorter = [
        dataclasses.replace(ledger, last=row["last"] - 1) if ledger.ledger == row["ledger"] else ledger
        for ledger in whole
    ]
    found = _verified(_plan(tmp_path, "c01", shorter), case, "c01")
    [problem] = found.problems
    assert (problem.ledger, problem.outcome) == (LedgerId(0, row["ledger"]), ABOVE_END)
    assert (found.entries[VerifyOutcome.MISSING], found.copies["absent"]) == (0, 0)
    longer = _verified(_plan(tmp_path / "longer", "c01", whole), case, "c01")
    assert longer.entries[VerifyOutcome.MISSING] == 0
    assert longer.copies["absent"] == len(row["segments"][0][1]) - 1


def test_an_entry_on_no_member_is_missing(copy: Callable[[str], Path], tmp_path: Path) -> None:
    """An index slot that is empty, and nothing to replay: the entry is missing, not merely unknown."""
    case = copy("c01")
    _without_replay(case)
    row = _alone()
    path = _index(case, row, row["segments"][0][1][0])
    content = bytearray(path.read_bytes())
    content[index_file.HEADER_SIZE : index_file.HEADER_SIZE + 8] = bytes(8)
    path.write_bytes(content)
    found = _verified(_plan(tmp_path, "c01"), case, "c01")
    assert (found.outcomes[VerifyOutcome.MISSING], found.entries[VerifyOutcome.MISSING], found.copies["absent"]) == (
        1,
        1,
        1,
    )
    assert found.problems[0].detail.startswith(f"1 of {row['last'] + 1} entries missing: 0")


def test_an_index_that_points_elsewhere_is_not_believed(copy: Callable[[str], Path], tmp_path: Path) -> None:
    """A slot that names the place of another entry, or none in any log, gives nothing."""
    case = copy("c01")
    _without_replay(case)
    row = _alone()
    path = _index(case, row, row["segments"][0][1][0])
    content = bytearray(path.read_bytes())
    at = index_file.HEADER_SIZE
    content[at : at + 8] = content[at + 8 : at + 16]
    content[at + 16 : at + 24] = struct.pack(">q", entry_log.location(0, 1 << 30))
    content[at + 24 : at + 32] = struct.pack(">q", entry_log.location(77, 1028))
    path.write_bytes(content)
    found = _verified(_plan(tmp_path, "c01"), case, "c01")
    assert (found.outcomes[VerifyOutcome.MISSING], found.entries[VerifyOutcome.MISSING]) == (1, 3)
    assert "0, 2 to 3" in found.problems[0].detail


def test_one_lost_copy_of_several_costs_nothing_but_is_counted(copy: Callable[[str], Path], tmp_path: Path) -> None:
    """Where another member has the entry it is readable; the ledger is no longer among those with every copy."""
    case = copy("c01")
    _without_replay(case)
    row = next(row for row in _closed("c01") if row["E"] == row["W"] == 3 and row["last"] > 3)
    _index(case, row, row["segments"][0][1][0]).unlink()
    found = _verified(_plan(tmp_path, "c01"), case, "c01")
    assert found.outcomes == {VerifyOutcome.READABLE: 33}
    assert (found.full, found.wrong) == (32, 0)
    assert found.copies["absent"] == row["last"] + 1


def test_disks_are_read_under_the_other_name_of_their_bookie(tmp_path: Path) -> None:
    """A record names the old address of a bookie: with the alias its disks are read, without it they were not given."""
    name = "c01"
    row = next(row for row in _closed(name) if row["last"] > 0)
    new, old = row["segments"][0][1][0], "old.example:3181"
    said = {"segments": [[first, [old if one == new else one for one in names]] for first, names in row["segments"]]}
    dataset = _plan(tmp_path, name, [of_truth({**row, **said})])
    with ExitStack() as stack:
        disks = {
            bookie["id"]: stack.enter_context(
                open_disks(bookie["id"], [cases.case_dir(name) / "bookies" / f"b{bookie['n']}"])
            )
            for bookie in cases.truth(name)["bookies"]
        }
        unnamed, named = (
            verify(dataset, _applied(dataset), ROOT, NamedDisks(disks, aliases), sample=None)
            for aliases in ({}, {old: new})
        )
    assert (named.full, named.without_disks) == (1, {})
    assert (unnamed.full, [*unnamed.without_disks]) == (0, [old])


def test_a_bookie_without_disks_is_not_taken_for_empty(tmp_path: Path) -> None:
    """What only it should hold cannot be checked; what others hold too is readable; it is named with its copies."""
    found = _verified(_plan(tmp_path, "c01"), cases.case_dir("c01"), "c01", without=("10.0.0.1:3181",))
    alone = [r for r in _closed("c01") if r["segments"][0][1] == ["10.0.0.1:3181"] and r["last"] >= 0]
    assert found.outcomes[VerifyOutcome.UNCHECKED] == len(alone)
    assert VerifyOutcome.MISSING not in found.outcomes
    assert found.wrong == 0
    assert list(found.without_disks) == ["10.0.0.1:3181"]
    assert found.copies["not_looked_at"] == found.without_disks["10.0.0.1:3181"] > 0


def test_half_a_bookies_folders_are_not_taken_for_all(copy: Callable[[str], Path], tmp_path: Path) -> None:
    """With one of two ledger folders missing, what is not found is not missing."""
    case = copy("c02")
    with ExitStack() as stack:
        disks = {}
        for bookie in cases.truth("c02")["bookies"]:
            folders = [
                case / folder for folder in (*bookie["journals"], *bookie["ledgers"][:1], *(bookie["indexes"] or ()))
            ]
            disks[bookie["id"]] = stack.enter_context(open_disks(bookie["id"], folders))
        dataset = _plan(tmp_path, "c02")
        found = verify(dataset, _applied(dataset), ROOT, disks, sample=None)
    assert VerifyOutcome.MISSING not in found.outcomes
    assert found.outcomes[VerifyOutcome.UNCHECKED] > 0
    assert set(found.incomplete) == set(disks)
    assert all("was not given" in problems[0] for problems in found.incomplete.values())


def test_disks_of_another_bookie_are_refused(tmp_path: Path) -> None:
    """A folder whose cookie says another id is named with both ids."""
    case = cases.case_dir("c01")
    with pytest.raises(InputError, match=r"10\.0\.0\.2:3181"), open_disks("10.0.0.2:3181", [case / "bookies" / "b0"]):
        pass
    with pytest.raises(InputError, match="no such folder"), open_disks("b", [tmp_path / "gone"]):
        pass


def test_what_only_the_journal_has_is_served_after_replay(copy: Callable[[str], Path], tmp_path: Path) -> None:
    """A killed bookie's newest entries stand behind the mark only; without the journals they are gone."""
    case = copy("c05")
    whole = _verified(_plan(tmp_path / "1", "c05"), case, "c05")
    assert whole.full == len(_closed("c05"))
    _without_replay(case)
    found = _verified(_plan(tmp_path / "2", "c05"), case, "c05")
    assert found.copies["absent"] > 0
    assert found.copies["good"] < whole.copies["good"]


def test_a_wrong_record_shows(tmp_path: Path) -> None:
    """Another password, an end too high, a length too small, another order of the ensemble: none of them reads well."""
    rows = {row["ledger"]: of_truth(row) for row in _closed("c01")}
    hmac = next(r for r in _closed("c01") if r["digest"] == "MAC" and r["last"] > 0)
    plain = [r for r in _closed("c01") if r["last"] > 3 and r["E"] == r["W"] == 2]
    striped = next(r for r in _closed("c01") if r["E"] == 4 and r["W"] == 2 and r["last"] > 8)
    changed = {
        hmac["ledger"]: (dataclasses.replace(of_truth(hmac), password=b"no"), VerifyOutcome.CORRUPT),
        plain[0]["ledger"]: (dataclasses.replace(of_truth(plain[0]), last=plain[0]["last"] + 1), VerifyOutcome.MISSING),
        plain[1]["ledger"]: (dataclasses.replace(of_truth(plain[1]), length=1), VerifyOutcome.LENGTH),
        striped["ledger"]: (
            dataclasses.replace(
                of_truth(striped),
                segments=[(first, [*members[2:], *members[:2]]) for first, members in striped["segments"]],
            ),
            VerifyOutcome.MISSING,
        ),
    }
    ledgers = [changed[n][0] if n in changed else row for n, row in rows.items()]
    known = [base64.b64decode(row["password"]) for row in _closed("c01") if row["password"]]
    dataset = write_plan(tmp_path / "plan", ledgers, passwords=[*known, b"no"])
    store = MemoryStore()
    for row in dataset.read("actions").to_pylist():
        if row["kind"] == "ledger":
            store.write([Write(ROOT + row["key"], row["value"])])
    found = _verified(dataset, cases.case_dir("c01"), "c01", store=store)
    assert {p.ledger.ledger: p.outcome for p in found.problems} == {n: str(o) for n, (_, o) in changed.items()}
    assert found.wrong == len(changed)


def test_the_store_is_what_is_read_through(tmp_path: Path) -> None:
    """A record that is absent, another one's, or none at all is said, whatever the plan has."""
    dataset = _plan(tmp_path, "c01")
    store = _applied(dataset)
    keys = [ROOT + row["key"] for row in dataset.read("actions").to_pylist() if row["kind"] == "ledger"]
    other = store.get(keys[3])
    assert other is not None
    store.write([Write(keys[0], None, 0), Write(keys[1], b"nothing", 0), Write(keys[2], other.value, 0)])
    found = _verified(dataset, cases.case_dir("c01"), "c01", store=store)
    assert found.records == {
        RecordInStore.PLANNED: 30,
        RecordInStore.ABSENT: 1,
        RecordInStore.UNPARSABLE: 1,
        RecordInStore.CHANGED: 1,
    }
    assert found.outcomes[VerifyOutcome.NO_RECORD] == 2
    assert found.wrong >= 3


def test_holds_are_counted_apart(tmp_path: Path) -> None:
    """A hold's record must be the planned one; its entries are nobody's to read, and it is no restored ledger."""
    rows = [of_truth(row) for row in _closed("c01")]
    dataset = _plan(tmp_path, "c01", [*rows[:30], *(dataclasses.replace(row, reason="HOLE") for row in rows[30:])])
    store = _applied(dataset)
    holds = [ROOT + row["key"] for row in dataset.read("actions").to_pylist() if row["op"] == "hold"]
    good = _verified(dataset, cases.case_dir("c01"), "c01", store=store)
    assert (good.ledgers, good.held, good.holds, good.wrong) == (30, 3, {RecordInStore.PLANNED: 3}, 0)
    store.write([Write(holds[0], None, 0)])
    bad = _verified(dataset, cases.case_dir("c01"), "c01", store=store)
    assert (bad.holds, bad.wrong) == ({RecordInStore.PLANNED: 2, RecordInStore.ABSENT: 1}, 1)


def test_a_sample_is_drawn_by_the_plans_hash(tmp_path: Path) -> None:
    """So many ledgers, the same for the same plan; a sample as large as the plan is all of it."""
    dataset = _plan(tmp_path, "c01")
    runs = [_verified(dataset, cases.case_dir("c01"), "c01", sample=5) for _ in range(2)]
    assert runs[0] == runs[1]
    assert (runs[0].looked_at, runs[0].ledgers, runs[0].seed) == (5, 33, dataset.manifest["hash"][:16])
    every = _verified(dataset, cases.case_dir("c01"), "c01", sample=33)
    assert (every.looked_at, every.seed) == (33, "")


def test_nothing_on_the_disks_is_touched(copy: Callable[[str], Path], tmp_path: Path) -> None:
    """Reading back changes no file and makes none, on any storage."""
    for name in ("c03", "c09"):
        case = copy(name)
        before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in case.rglob("*")}
        _verified(_plan(tmp_path / name, name), case, name)
        assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in case.rglob("*")} == before


@pytest.mark.parametrize("kept", [-1, 0, 3])
def test_what_bookies_have_above_an_end_is_said(kept: int, tmp_path: Path) -> None:
    """A record that ends too low is readable, and does not read as if it were all; no sum has what is above it."""
    row = next(r for r in _closed("c01") if r["last"] > 70 - kept and r["E"] == 3)
    rows = [of_truth(r) for r in _closed("c01") if r is not row]
    length = row["length"] if kept >= 0 else 0
    cut = dataclasses.replace(of_truth(row), last=kept, length=length, segments=[row["segments"][0]])
    dataset = _plan(tmp_path, "c01", [*rows, cut])
    found = _verified(dataset, cases.case_dir("c01"), "c01")
    assert found.outcomes == {VerifyOutcome.READABLE: 33}
    assert found.above == {"ledgers": 1, "entries": row["last"] - kept}
    [problem] = found.problems
    assert (problem.ledger.ledger, problem.outcome) == (row["ledger"], ABOVE_END)
    assert f"entries {kept + 1} to {row['last']} above its end {kept}" in problem.detail
    assert "acknowledged" in problem.detail
    assert found.entries["looked_at"] == sum(r["last"] + 1 for r in _closed("c01")) - (row["last"] - kept)


def test_what_the_plan_leaves_open_is_read_as_far_as_it_goes(copy: Callable[[str], Path], tmp_path: Path) -> None:
    """All its entries follow each other from the first; a flipped byte, or a bookie without disks, is no end."""
    row = _alone()
    rows = [of_truth(r) for r in _closed("c01") if r is not row]
    opened = dataclasses.replace(of_truth(row), last=None, length=None, state="OPEN")
    dataset = _plan(tmp_path, "c01", [*rows, opened])
    found = _verified(dataset, cases.case_dir("c01"), "c01")
    assert (found.outcomes, found.problems) == ({VerifyOutcome.READABLE: 33}, ())
    assert found.above == {"open_ledgers": 1, "open_entries": row["last"] + 1}
    unseen = _verified(dataset, cases.case_dir("c01"), "c01", without=(row["segments"][0][1][0],))
    assert (str(row["ledger"]), VerifyOutcome.UNCHECKED) in {(str(p.ledger), p.outcome) for p in unseen.problems}
    case = copy("c01")
    _without_replay(case)
    path = _index(case, row, row["segments"][0][1][0])
    slots = index_file.slots(path.read_bytes()[index_file.HEADER_SIZE :])
    log_id, position = entry_log.split_location(int(slots[3]))
    log = path.parents[2] / f"{log_id:x}.log"
    content = bytearray(log.read_bytes())
    content[position + entry.HEADER_SIZE] ^= 1
    log.write_bytes(content)
    torn = _verified(dataset, case, "c01")
    assert {p.ledger.ledger: p.outcome for p in torn.problems} == {row["ledger"]: VerifyOutcome.CORRUPT}
    assert torn.above["open_entries"] == 3
