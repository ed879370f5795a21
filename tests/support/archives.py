"""Archives of real bookies' disks, and what is in them."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reconcile.cli.options import make_context
from reconcile.cli.output import Output
from reconcile.jobs.capture import CaptureRequest, capture
from recovery.archive.bookies import DiskSource
from recovery.archive.choice import ArchiveChoice
from recovery.archive.copies import CopyState, judge
from recovery.archive.objects import ARCHIVE_FILE, list_indexes
from recovery.archive.reader import About, ArchivedLedger, make_ledger, read_index, read_records
from recovery.archive.task import CopyTask
from recovery.codecs.entry import payload_of
from recovery.dataset import Dataset, open_dataset
from recovery.model.ids import BUCKETS, LedgerId
from recovery.out_folder import write_whole
from recovery.place import DatasetPlace
from tests.support import cases

ALL = range(BUCKETS)
AT_MS = 1 << 42


def capture_case(name: str, folder: Path) -> Dataset:
    """Capture the store of a case."""
    uri = f"zkfiles://{cases.case_dir(name)}/zookeeper?root={cases.truth(name)['root']}"
    capture(CaptureRequest(uri=uri, out=folder), make_context(Output(as_json=True, progress="none")))
    return open_dataset(folder, "catalog")


def disks_of(name: str, bookies: Path | None = None, without: Collection[int] = ()) -> dict[str, list[Path]]:
    """Return the folder of each bookie of a case by its id."""
    top = bookies or cases.case_dir(name) / "bookies"
    there = (b for b in cases.truth(name)["bookies"] if b["present"] and b["n"] not in without)
    return {b["id"]: [top / f"b{b['n']}"] for b in there}


def make_task(
    catalog: Dataset, place: DatasetPlace, disks: Mapping[str, Sequence[Path]], run: str = "run-1"
) -> CopyTask:
    """Return what copies all closed ledgers of a catalog from disks."""
    place.mkdir(parents=True, exist_ok=True)
    with write_whole(place / ARCHIVE_FILE, secret=True) as file:
        file.sink.write(About("", "/ledgers").encode())
    known = tuple(list_indexes(place))
    return CopyTask(catalog, str(place), run, known, ArchiveChoice(AT_MS), DiskSource(disks, {}))


def choose(task: CopyTask, **changes: Any) -> CopyTask:
    """Return the same task for other ledgers."""
    return replace(task, choice=replace(task.choice, **changes))


def list_archived(place: DatasetPlace) -> list[ArchivedLedger]:
    """Return every ledger that an archive's indexes name, each as often as it is there."""
    rows = (row for index in list_indexes(place) for row in read_index(place, index).to_pylist())
    return [make_ledger(row, str(place)) for row in rows]


def read_payloads(place: DatasetPlace, ledger: ArchivedLedger) -> list[list[object]]:
    """Return size and SHA-256 of what the client wrote in each entry, each with a digest that agrees."""
    found: list[list[object]] = []
    record = ledger.record
    assert record.digest is not None
    for number, records in read_records(place, ledger):
        assert number == len(found)
        for at, raw in enumerate(records, number):
            assert judge(raw, ledger.id, record.digest, record.password or b"", at) is CopyState.GOOD
            payload = payload_of(raw, record.digest)
            found.append([len(payload), hashlib.sha256(payload).hexdigest()])
    return found


def closed_of(name: str) -> dict[LedgerId, list[list[object]]]:
    """Return the closed ledgers of a case, each with size and SHA-256 of its entries."""
    rows = cases.truth(name)["ledgers"]
    return {LedgerId(0, row["ledger"]): row["entries"] for row in rows if row["state"] == "CLOSED"}
