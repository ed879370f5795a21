"""Journals that an earlier version wrote: today's program writes the same lines, and reads and goes on with those."""

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backends.protocols import Write
from reconcile.write import audit_journal, undo
from reconcile.write.apply import ApplyOptions, apply
from reconcile.write.apply_results import Applied
from reconcile.write.audit_journal import JOURNAL
from reconcile.write.freezing import freeze
from reconcile.write.journal_events import FreezeHistory
from recovery.codecs.store import Layout, layout_bytes
from tests.support.memory_store import TRANSACTION_BYTES, MemoryStore
from tests.support.plans import action, clock, plan_of, restore_of

DATA = Path("tests/data/journals")
ROOT = "/ledgers"
IDENTITY = "digest:tool:aGFzaGhhc2g="
ROWS = [
    *restore_of(9),
    action("ledger", "replace", "/00/0000/L0100", b"better", expects=0, before=b"worse"),
    action("ledger", "replace", "/00/0000/L0101", b"better", expects=0, before=b"worse"),
    action("ledger", "remove", "/00/0000/L0102", None, expects=0, before=b"held"),
]


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """Nothing here is killed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def now() -> datetime:
    """Return always the same time."""
    return datetime(2026, 1, 2, tzinfo=UTC)


def damaged_store() -> MemoryStore:
    """Return a store that has some records: the plan's, somebody else's, and those that the plan replaces."""
    store = MemoryStore()
    keys = {
        "/LAYOUT": layout_bytes(Layout.HIERARCHICAL),
        "/00/0000/L0001": b"record 1",
        "/00/0000/L0002": b"somebody's",
        "/00/0000/L0100": b"worse",
        "/00/0000/L0101": b"not as expected",
        "/00/0000/L0102": b"held",
    }
    for key, value in keys.items():
        store.write([Write(ROOT + key, value)])
    return store


def change_rights(store: MemoryStore, folder: Path, *, thaw: bool = False) -> None:
    """Freeze, or thaw, as the commands do."""
    past = FreezeHistory()
    with audit_journal.AuditJournal.open(
        folder, freeze.make_binding(ROOT), resume=True, now=now, replay=past.replay
    ) as journal:
        if thaw:
            proposal = freeze.propose_thaw(store, ROOT, past)
        else:
            proposal = freeze.propose_freeze(store, ROOT, IDENTITY, past)
        freeze.carry_out(proposal, store, journal)


def apply_plan(store: MemoryStore, folder: Path, *, resume: bool = False) -> Applied:
    """Apply a plan in small batches."""
    rows = [row for row in ROWS if row["kind"] != "layout"]
    options = ApplyOptions("hash", resume=resume, batch_rows=4, in_flight=2, reason="a test")
    return apply(lambda: [plan_of(rows)], store, ROOT, folder, options, now=clock())


def write_journals(folder: Path) -> MemoryStore:
    """Write one journal of each kind: an apply that is gone on with and undone, a freeze, a made root."""
    store = damaged_store()
    change_rights(store, folder / "freeze")
    apply_plan(store, folder / "apply")
    shutil.copytree(folder / "apply", folder / "first")
    apply_plan(store, folder / "apply", resume=True)
    store.write([Write(f"{ROOT}/00/0000/L0003", b"changed since", 0)])
    undo.undo(undo.propose(folder / "apply", store, ROOT), store, ROOT, now=clock())
    change_rights(store, folder / "freeze", thaw=True)
    change_rights(MemoryStore(), folder / "root")
    return store


def read_lines(path: Path) -> list[list[tuple[str, Any]]]:
    """Return the fields of every line in their order, without those that depend on who wrote it."""
    found = []
    for line in path.read_text().splitlines():
        *pairs, _ = json.loads(line, object_pairs_hook=list)
        varying = {"prev", "by", *(["hash"] if ("event", "undo") in pairs else [])}
        # Why a write was left is a sentence, which may change.
        plain = ((name, [number for number, _ in value] if name == "left" else value) for name, value in pairs)
        found.append([(name, value) for name, value in plain if name not in varying])
    return found


def put_in_turn(lines: list[list[tuple[str, Any]]]) -> list[list[tuple[str, Any]]]:
    """Return lines without number and time, each batch's announcement right before what became of it."""
    found: list[list[tuple[str, Any]]] = []
    for is_batch, some in itertools.groupby(lines, lambda line: any(name == "batch" for name, _ in line)):
        plain = [[(name, value) for name, value in line if name not in ("n", "at")] for line in some]
        found += sorted(plain, key=lambda line: dict(line)["batch"]) if is_batch else plain
    return found


@pytest.mark.parametrize("name", ["apply", "freeze", "root"])
def test_the_lines_are_those_of_an_earlier_version(tmp_path: Path, name: str) -> None:
    """Events, fields and their order are what they were; an apply announces a batch while others are under way."""
    write_journals(tmp_path)
    lines, before = read_lines(tmp_path / name / JOURNAL), read_lines(DATA / f"{name}.jsonl")
    assert put_in_turn(lines) == put_in_turn(before)
    assert (lines == before) is (name != "apply")


@pytest.mark.parametrize("name", ["apply", "freeze", "root"])
def test_a_journal_of_an_earlier_version_is_whole(name: str) -> None:
    """Its hashes hold."""
    records = list(audit_journal.scan(DATA / f"{name}.jsonl"))
    assert all(isinstance(record, audit_journal.JournalLine) for record in records)
    assert len(records) > 5


def test_a_journal_of_an_earlier_version_is_gone_on_with(tmp_path: Path) -> None:
    """Cut off behind any line, it is resumed, and the counts are those of the whole run."""
    store = damaged_store()
    change_rights(store, tmp_path / "freeze")
    whole = apply_plan(store, tmp_path / "whole")
    lines = (DATA / "apply.jsonl").read_bytes().splitlines(keepends=True)
    first_end = next(n for n, line in enumerate(lines) if b'"event":"end"' in line)
    for kept in range(1, first_end + 1):
        folder = tmp_path / str(kept)
        folder.mkdir(mode=0o700)
        (folder / JOURNAL).write_bytes(b"".join(lines[:kept]))
        resumed = apply_plan(store, folder, resume=True)
        for group, tally in whole.tallies.items():
            again = resumed.tallies[group]
            assert (again.planned, again.written + again.there, again.conflicts) == (
                tally.planned,
                tally.written + tally.there,
                tally.conflicts,
            )


def test_an_undo_takes_back_by_a_journal_of_an_earlier_version(tmp_path: Path) -> None:
    """What it says was written is taken back, with the same counts."""
    store = damaged_store()
    change_rights(store, tmp_path / "freeze")
    apply_plan(store, tmp_path / "own")
    folder = tmp_path / "apply"
    folder.mkdir(mode=0o700)
    lines = (DATA / "apply.jsonl").read_bytes().splitlines(keepends=True)
    begun = next(n for n, line in enumerate(lines) if b'"event":"undo"' in line)
    (folder / JOURNAL).write_bytes(b"".join(lines[: begun - 1]))
    done = undo.undo(undo.propose(folder, store, ROOT), store, ROOT, now=clock())
    assert (sum(done.left.values()), sum(done.done.values())) == (0, 11)
    assert store.get(f"{ROOT}/00/0000/L0100").value == b"worse"  # type: ignore[union-attr] # it is there
    assert store.get(f"{ROOT}/00/0000/L0102").value == b"held"  # type: ignore[union-attr] # as above


def test_former_values_of_any_size_are_put_back(tmp_path: Path) -> None:
    """What one batch replaced may be more than a transaction takes."""
    store = MemoryStore()
    former = bytes(TRANSACTION_BYTES // 8)
    ledgers = [f"/00/0000/L{n:04d}" for n in range(20)]
    for key in ledgers:
        store.write([Write(ROOT + key, former)])
    rows = [action("ledger", "replace", key, b"small", expects=0, before=former) for key in ledgers]
    apply(lambda: [plan_of(rows)], store, ROOT, tmp_path / "j", ApplyOptions("hash"), now=clock())
    done = undo.undo(undo.propose(tmp_path / "j", store, ROOT), store, ROOT, now=clock())
    assert (done.done, done.left) == ({"replace": 20}, {})
    assert {stored.value for _, stored in store.get_many(ROOT + key for key in ledgers) if stored} == {former}
