"""Two runs at once: into a folder the second is refused; in an object store what both copied is there twice, whole."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from backends.protocols import Write
from reconcile.cli.options import make_context
from reconcile.cli.output import Output
from reconcile.deletes.own_root import make_own_root, open_log
from reconcile.jobs.archive.copy_marks import CopyMarks, list_ids
from reconcile.jobs.archive.verify import VerifyArchiveRequest, verify_archive
from recovery.archive.objects import list_indexes
from recovery.archive.reader import read_index
from recovery.place import to_place
from tests.support.archives import (
    ALL,
    AT_MS,
    capture_case,
    closed_of,
    disks_of,
    list_archived,
    make_task,
    read_payloads,
)
from tests.support.command import run
from tests.support.memory_store import MemoryStore
from tests.support.object_store import started_store

CASE = "c02-clean-interleaved"
COLUMNS = ("scope", "ledger", "sha256", "pieces")
_HOLD = (
    "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], 0), fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
)


@pytest.mark.spark
def test_a_second_run_into_a_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before it asks the store or a bookie anything: unfinished objects there are the other run's."""
    place = tmp_path / "place"
    make_task(capture_case(CASE, tmp_path / "catalog"), place, disks_of(CASE))(ALL)
    before = sorted(place.rglob("*"))
    words = ("archive", "run", "--metadata", "zk+hierarchical://127.0.0.1:1/ledgers", "--disk", f"b:1={tmp_path}")
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        refused = run(capsys, *words, "--to", place, "--journal", tmp_path / "journal")
        holder.communicate(b"")
    assert refused.code != 0
    assert "another run" in refused.err, refused.err
    assert sorted(place.rglob("*")) == before


def test_two_runs_into_an_object_store_harm_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither knows of the other: all is there twice, from other bookies, whole both times, and marked once."""
    catalog, wanted = capture_case(CASE, tmp_path / "catalog"), closed_of(CASE)
    disks = disks_of(CASE)
    turned = dict(reversed(disks.items()))
    with started_store() as store:
        for name, value in store.environment().items():
            monkeypatch.setenv(name, value)
        place = to_place(f"{store.uri}/archive")
        tasks = [make_task(catalog, place, of_run, name) for name, of_run in (("run-1", disks), ("run-2", turned))]
        with ThreadPoolExecutor(2) as threads:
            answers = list(threads.map(lambda task: task(ALL), tasks))
        assert [answer["counts"]["copied"] for answer in answers] == [len(wanted)] * 2
        archived = list_archived(place)
        assert sorted(item.id for item in archived) == sorted([*wanted, *wanted])
        for item in archived:
            assert read_payloads(place, item) == wanted[item.id]

        context = make_context(Output(as_json=True, progress="none"))
        done = verify_archive(VerifyArchiveRequest(place=place), context)
        assert (done.ledgers, done.twice, done.damaged) == (len(wanted), len(wanted), 0)
        assert (done.problems, done.unfinished) == ({}, ())
        assert make_task(catalog, place, disks, "run-3")(ALL)["indexes"] == []

        memory = MemoryStore()
        memory.write([Write("/ledgers/x", b"")])
        with open_log(tmp_path / "journal", memory, "/ledgers", lambda: datetime(2026, 1, 1, tzinfo=UTC)) as log:
            marks = CopyMarks(make_own_root(memory, "/ledgers", log), log, "run", place)
            indexes = [read_index(place, index, COLUMNS) for index in list_indexes(place)]
            written = [marks.write(rows, AT_MS) for rows in indexes]
            assert [(mark.marked, mark.unmarked, mark.lacking) for mark in written] == [
                (len(wanted), 0, ()),
                (0, 0, ()),
            ]
            assert set(marks.own.archive.read_some(list_ids(pa.concat_tables(indexes)))) == set(wanted)
