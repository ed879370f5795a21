"""Deletes of every ledger of a store: asked for, verified twice, purged; what each step costs, as JSON.

    tombstones URI INVENTORIES FOLDER

`seconds` and `cpu_s` are all steps together; `note` has each by itself, what stands in the store, and what was written.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from backends.protocols import Write
from backends.registry import OpenStore, open_store
from reconcile.cli.access import EnvironmentAccess
from reconcile.deletes.own_root import open_own_root
from reconcile.deletes.verification.verdicts import Rules
from reconcile.jobs.context import Context, StageProgress
from reconcile.jobs.deletes.clusters import DeleteTarget
from reconcile.jobs.deletes.looks import Looks
from reconcile.jobs.deletes.purge import PurgeJob, purge_deletes
from reconcile.jobs.deletes.requests import DeleteRequest, request_deletes
from reconcile.jobs.deletes.verify import VerifyDeletesRequest, verify_deletes
from recovery.codecs.store import COOKIES
from recovery.dataset import MANIFEST, open_dataset, write_manifest, write_part
from recovery.model import tables
from recovery.model.ids import LedgerId

_FOREVER_MS: Final = 100 * 365 * 24 * 3600 * 1000
_BATCH: Final = 100
_MIB: Final = 1 << 20


class _Quiet:
    """Shows nothing."""

    @contextmanager
    def progress(self, title: str, unit: str) -> Iterator[StageProgress]:
        """Give a function that does nothing."""
        del title, unit
        yield lambda _done, _total, _stage="": None

    def expect(self, step: object, things: int) -> None:
        """Show nothing."""


def delete_all(uri: str, inventories: str, folder: str) -> dict[str, Any]:
    """Delete every ledger of a store in two phases; return what that took."""
    work = Path(folder)
    paths = tuple(_look_now(path, work / path.name) for path in sorted(Path(inventories).iterdir()))
    context = Context(EnvironmentAccess(), _Quiet(), lambda: datetime.now(UTC))
    ledgers = _list_ledgers(paths)
    with open_store(uri, writable=True) as opened:
        _write_cookies(opened, paths)
    references = work / "refs.jsonl"
    target, certificate = DeleteTarget(uri, work / "journal"), work / "purge.json"
    notes: list[str] = []

    def step(name: str, run: Callable[[], object]) -> None:
        before = _count_operations(target.folder)
        began = time.perf_counter()
        run()
        seconds = time.perf_counter() - began
        notes.append(f"{name} {seconds:.1f} s, {_count_operations(target.folder) - before} transactions")

    def verify() -> None:
        references.write_text(json.dumps({"listed": datetime.now(UTC).isoformat()}) + "\n")
        rules = Rules(min_age_ms=0, freshness_ms=_FOREVER_MS, confirmed=len(ledgers))
        request = VerifyDeletesRequest(
            target=target,
            ledgers=(),
            looks=Looks(paths),
            references=(str(references),),
            rules=rules,
            certificate=certificate,
        )
        verdicts = verify_deletes(request, context).verdicts
        if verdicts["SAFE"] != len(ledgers):
            raise AssertionError(f"not all are safe: {verdicts}")

    def purge() -> None:
        digest = json.loads(certificate.read_text())["hash"]
        purge_deletes(PurgeJob(target, certificate, confirmed=digest), context)

    began, used = time.perf_counter(), sum(os.times()[:4])
    step(
        "request",
        lambda: request_deletes(DeleteRequest(target=target, ledgers=ledgers, reason="benchmark", soak_ms=0), context),
    )
    step("verify", verify)
    notes.append(_measure(uri, "before the purge"))
    step("verify again", verify)
    step("purge", purge)
    took = {"seconds": time.perf_counter() - began, "cpu_s": sum(os.times()[:4]) - used}
    notes.append(_measure(uri, "after it"))
    began = time.perf_counter()
    with open_store(uri) as opened:
        own = open_own_root(opened.store, opened.root)
        count = 0 if own is None else sum(len(node) for node in own.tombstones.read_all())
    notes.append(f"all read {time.perf_counter() - began:.1f} s")
    return {**took, "ledgers": count, "note": "; ".join(notes)}


def _list_ledgers(paths: tuple[str, ...]) -> tuple[LedgerId, ...]:
    ids: set[int] = set()
    for path in paths:
        ids.update(open_dataset(path, "inventory").read("copies", columns=["ledger"])["ledger"].to_pylist())
    return tuple(LedgerId(0, ledger) for ledger in sorted(ids))


def _look_now(path: Path, folder: Path) -> str:
    """Return a copy of an inventory that was made just now: what was seen before a record changed says nothing."""
    shutil.copytree(path, folder, copy_function=os.link)
    inventory = open_dataset(folder, "inventory")
    now = datetime.now(UTC)
    rows = [{**row, "started": now, "ended": now} for row in inventory.read("bookies").to_pylist()]
    parts = {name: inventory.parts(name) for name in tables.INVENTORY}
    parts["bookies"] = [write_part(folder, "bookies", "now", [pa.Table.from_pylist(rows, schema=tables.BOOKIES)])]
    binding, coverage = inventory.manifest["binding"], inventory.manifest["coverage"]
    (folder / MANIFEST).unlink()
    write_manifest(folder, "inventory", parts, binding=binding, coverage=coverage, secret=False)
    return str(folder)


def _write_cookies(opened: OpenStore, paths: tuple[str, ...]) -> None:
    """Give the store the bookies' cookies: without them nobody knows whose disks were looked at."""
    for path in paths:
        [row] = open_dataset(path, "inventory").read("bookies", columns=["bookie", "cookie"]).to_pylist()
        key = f"{opened.root}{COOKIES}/{row['bookie']}"
        if opened.store.get(key) is None:
            opened.store.write([Write(key, row["cookie"])])


def _count_operations(journal: Path) -> int:
    """Return how many transactions a journal has announced."""
    path = journal / "journal.jsonl"
    if not path.exists():
        return 0
    with path.open("rb") as lines:
        return sum(b'"intent"' in line for line in lines)


def _measure(uri: str, when: str) -> str:
    with open_store(uri) as opened:
        own = open_own_root(opened.store, opened.root)
        nodes, stored = (0, 0) if own is None else own.tombstones.measure()
    return f"{when} {nodes} nodes of {stored / _MIB:.1f} MiB"


if __name__ == "__main__":
    print(json.dumps(delete_all(*sys.argv[1:])), flush=True)
