"""The rows: each names a stage, the floor that it is compared with, and how both are run."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from backends.protocols import Write
from backends.zookeeper import ZooKeeperStore
from benchmarks import bookie_folder, catalogs, disks, etcd, inventories, nasties, plans, scoped, snapshots
from benchmarks.bookies import JAVA_IN_FLIGHT, LEDGERS, bookies
from benchmarks.bookies import client as client_of_bookies
from benchmarks.data import kept
from benchmarks.ledgers import INSTANCE
from benchmarks.measure import Cost, RunFailedError, python, run, staying
from benchmarks.pairs import Contestant
from benchmarks.zookeeper import BATCH, BATCHES, READS, client, formatter, server
from recovery.codecs import store
from recovery.testing import histories, protocol

_STAGES: Final = "benchmarks.stages"
_ROOT: Final = "/ledgers"
_GROUPED: Final = "DuckDB, grouped"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row works.

    Attributes:
        home: of data that is kept.
        scratch: of what stages write; empty before, removed afterwards.
        ledgers: how many.
        alone: nothing but the stage will run.
    """

    home: Path
    scratch: Path
    ledgers: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A stage and its floor.

    Attributes:
        name: on the command line.
        goal: the ratio to stay at or below.
        compares: what with what, in one line.
        largest: ledgers that growth is looked at up to.
        open: makes ready; gives the contestants, the stage first and the floor last.
        beside: other contestants that are floors, too, and the ratio to stay at or below.
    """

    name: str
    goal: float
    compares: str
    largest: int
    open: Callable[[Place], AbstractContextManager[dict[str, Contestant]]]
    beside: Mapping[str, float] = field(default_factory=dict)


def _whole(place: Place, cost: Cost) -> Cost:
    """See that a run did all of its work."""
    if cost.said.get("ledgers") != place.ledgers:
        raise RunFailedError(f"{place.ledgers} ledgers were there, and the run says {dict(cost.said)}")
    return cost


def _collecting(place: Place, ledgers: Path, journal: Path) -> Contestant:
    """Return the whole command on the folders of a bookie."""
    out = place.scratch / "inventory"
    folders = ["--ledger-dir", str(ledgers), "--journal-dir", str(journal)]
    # `-c` instead of the installed program: it also runs where the checkout is not installed.
    program = [sys.executable, "-c", "from reconcile.cli.main import main; main()"]
    collect = [*program, "collect", *folders, "--out", str(out), "--progress", "none", "--json"]

    def product() -> Cost:
        shutil.rmtree(out, ignore_errors=True)
        cost = run(collect)
        found = {"ledgers": cost.said["counts"]["ledgers"], "code": cost.said["exit_code"]}
        return _whole(place, replace(cost, said=found))

    return product


@contextmanager
def _collect(place: Place) -> Iterator[dict[str, Contestant]]:
    folder = kept(place.home, bookie_folder.write, place.ledgers)
    ledgers = folder / bookie_folder.LEDGERS
    product = _collecting(place, ledgers, folder / bookie_folder.JOURNAL)
    yield {"collect": product, "find | xargs -P2 cat": lambda: disks.cat(ledgers / "current")}


def _scoped(kind: str) -> Callable[[Place], AbstractContextManager[dict[str, Contestant]]]:
    @contextmanager
    def row(place: Place) -> Iterator[dict[str, Contestant]]:
        folder = kept(place.home, scoped.write, place.ledgers)
        plain, of_scopes = (folder / side / kind for side in scoped.SIDES)
        stages = {"collect, scopes": _collecting(place, of_scopes / scoped.LEDGERS, of_scopes / scoped.JOURNAL)}
        if kind == "index":
            stages["cat, scopes"] = lambda: disks.cat(of_scopes / scoped.LEDGERS)
            stages["cat, scope 0"] = lambda: disks.cat(plain / scoped.LEDGERS)
        yield stages | {"collect, scope 0": _collecting(place, plain / scoped.LEDGERS, plain / scoped.JOURNAL)}

    return row


@contextmanager
def _reconstruct(place: Place) -> Iterator[dict[str, Contestant]]:
    folder = kept(place.home, inventories.write, place.ledgers)
    with ExitStack() as stack:
        product = stack.enter_context(staying(python(_STAGES, "recover", folder, place.scratch / "plan")))
        stages = {"recover": lambda: _whole(place, product.run())}
        if not place.alone:
            floor = stack.enter_context(staying(python(_STAGES, "pass-through", folder)))
            group, flat = (
                stack.enter_context(staying(python(_STAGES, name, folder, place.scratch / f"{name}.parquet")))
                for name in ("group", "group-flat")
            )
            stages |= {
                "inference, one core": lambda: _whole(place, run(python(_STAGES, "infer", folder))),
                _GROUPED: lambda: _whole(place, group.run()),
                "DuckDB, flat columns": lambda: _whole(place, flat.run()),
                "Spark, pass-through": floor.run,
            }
        yield stages


@contextmanager
def _nasty(place: Place) -> Iterator[dict[str, Contestant]]:
    nasty = kept(place.home, nasties.write, place.ledgers, inventories, histories, protocol)
    with ExitStack() as stack:
        product = stack.enter_context(staying(python(_STAGES, "recover", nasty, place.scratch / "nasty")))
        stages = {"recover, nasty": lambda: _whole(place, product.run())}
        if not place.alone:
            clean = kept(place.home, inventories.write, place.ledgers)
            floor = stack.enter_context(staying(python(_STAGES, "recover", clean, place.scratch / "clean")))
            stages |= {"recover, clean": lambda: _whole(place, floor.run())}
        yield stages


@contextmanager
def _diff(place: Place) -> Iterator[dict[str, Contestant]]:
    folder = kept(place.home, catalogs.write, place.ledgers)
    with ExitStack() as stack:
        product = stack.enter_context(staying(python(_STAGES, "diff", folder, place.scratch / "compared")))
        stages = {"diff": lambda: _whole(place, product.run())}
        if not place.alone:
            floor = stack.enter_context(staying(python(_STAGES, "outer-join", folder)))
            stages |= {"Spark, outer join": lambda: _whole(place, floor.run())}
        yield stages


@contextmanager
def _apply(place: Place) -> Iterator[dict[str, Contestant]]:
    plan = kept(place.home, plans.write, place.ledgers)
    java = client(place.home)
    with server() as hosts:

        def product() -> Cost:
            run([*java, "delete", hosts, _ROOT])
            journal = place.scratch / "journal"
            shutil.rmtree(journal, ignore_errors=True)
            return _whole(place, run(python(_STAGES, "apply", plan, f"zk://{hosts}{_ROOT}", _ROOT, journal)))

        def floor() -> Cost:
            run([*java, "delete", hosts, _ROOT])
            records = str(plan / plans.RECORDS)
            return _whole(place, run([*java, "create", hosts, _ROOT, records, str(BATCH), str(BATCHES)]))

        yield {"apply": product, "Java, asynchronous": floor}


@contextmanager
def _capture(place: Place) -> Iterator[dict[str, Contestant]]:
    plan = kept(place.home, plans.write, place.ledgers)
    java = client(place.home)
    with server() as hosts:
        run([*java, "create", hosts, _ROOT, str(plan / plans.RECORDS), str(BATCH), str(BATCHES)])
        held = ZooKeeperStore(hosts)
        nodes = {store.LAYOUT: store.layout_bytes(plans.LAYOUT), store.INSTANCE_ID: INSTANCE.encode()}
        held.write([Write(_ROOT + key, value) for key, value in nodes.items()])
        held.close()
        out = place.scratch / "catalog"

        def product() -> Cost:
            shutil.rmtree(out, ignore_errors=True)
            return _whole(place, run(python(_STAGES, "capture", f"zk://{hosts}{_ROOT}", out)))

        yield {
            "capture": product,
            "Java, asynchronous": lambda: _whole(place, run([*java, "read", hosts, _ROOT, str(READS)])),
        }


@contextmanager
def _etcd(place: Place) -> Iterator[dict[str, Contestant]]:
    plan = kept(place.home, plans.write, place.ledgers)
    catalog = place.scratch / "catalog"
    with etcd.server() as hosts:
        etcd.load(hosts, plan)
        uri = f"etcd://{hosts}{etcd.ROOT}"

        def parsed() -> Cost:
            shutil.rmtree(catalog, ignore_errors=True)
            return _whole(place, run(python(_STAGES, "capture", uri, catalog)))

        yield {
            "etcd, raw": lambda: _whole(place, run(python(_STAGES, "etcd", uri, place.scratch / "raw.parquet"))),
            "capture, all parsed": parsed,
            "etcdctl get --prefix": lambda: run(["bash", "-c", f"{shlex.join(etcd.get_all(hosts))} > /dev/null"]),
        }


@contextmanager
def _snapshot(place: Place) -> Iterator[dict[str, Contestant]]:
    folder = kept(place.home, snapshots.write, place.ledgers)
    [snapshot] = (folder / snapshots.FOLDER).iterdir()
    java = shlex.join(formatter(snapshot))
    catalog = place.scratch / "catalog"

    def product() -> Cost:
        return _whole(place, run(python("benchmarks.raw_snapshot", folder, place.scratch / "raw.parquet")))

    def parsed() -> Cost:
        shutil.rmtree(catalog, ignore_errors=True)
        return _whole(place, run(python(_STAGES, "capture", f"zkfiles://{folder}?root={_ROOT}", catalog)))

    yield {
        "snapshot, raw": product,
        "capture, all parsed": parsed,
        "SnapshotFormatter -json": lambda: run(["bash", "-c", f"{java} > /dev/null"]),
    }


def _wire(count: int) -> Callable[[Place], AbstractContextManager[dict[str, Contestant]]]:
    @contextmanager
    def row(place: Place) -> Iterator[dict[str, Contestant]]:
        java = client_of_bookies(place.home)
        asked = place.ledgers - place.ledgers % count
        with bookies(count) as addresses:

            def whole(cost: Cost) -> Cost:
                return _whole(replace(place, ledgers=asked), cost)

            yield {
                "wire": lambda: whole(run(python(_STAGES, "wire", LEDGERS, asked, *addresses))),
                "BookKeeper's client": lambda: whole(
                    run([*java, str(LEDGERS), str(asked), str(JAVA_IN_FLIGHT), *addresses])
                ),
            }

    return row


_COLD: Final = (
    (
        Row(
            "index-cold",
            0.5,
            "the same small index files from the disk, the page cache dropped before each: several reads in flight",
            1_000_000,
            disks.cold,
        ),
        Row(
            "index-slow",
            0.5,
            "the same from a disk each of whose reads waits a millisecond, several of them at a time",
            20_000,
            disks.slow,
        ),
    )
    if os.access(disks.DROP, os.W_OK)
    else ()
)
"""Only root may drop the page cache."""

ROWS: Final = (
    Row(
        "collect",
        2.0,
        "`bkmeta collect` of a bookie with a small index file a ledger, as a whole command: index files, a header read "
        "in the entry log for each ledger, the inventory written; against cat of the same index files, two at a time",
        1_000_000,
        _collect,
    ),
    Row(
        "index",
        0.6,
        "small index files into groups, two processes, against cat of them, two at a time",
        1_000_000,
        disks.small,
    ),
    *_COLD,
    Row(
        "large",
        2.0,
        "index files of 64 KiB to 2 MiB, one for twenty ledgers, into groups, two processes, against cat of them",
        100_000,
        disks.large,
    ),
    Row(
        "locations",
        1.1,
        "a hundred locations a ledger in RocksDB into groups, two processes, against RocksDB's C API",
        200_000,
        disks.all_locations,
    ),
    Row(
        "log",
        1.0,
        "ten records of 1 KiB a ledger in an entry log into groups, against cat of the log into cat",
        100_000,
        disks.one_log,
    ),
    Row(
        "journal",
        1.5,
        "ten records of 1 KiB a ledger in a journal into groups, against cat of the journal into cat",
        100_000,
        disks.one_journal,
    ),
    *(
        Row(
            f"scoped-{kind}",
            1.5,
            f"`bkmeta collect` of a bookie whose ledgers are of scopes, {what}, as a whole command; against that of "
            "a bookie that has the same ledgers in scope 0",
            100_000,
            _scoped(kind),
        )
        for kind, what in scoped.KINDS.items()
    ),
    Row(
        "reconstruct",
        1.5,
        "`recover` of three copies a ledger, inventories to plan, against Spark that reads the same files, hands every "
        "row to Python and back, and drops it; both sessions run already",
        5_000_000,
        _reconstruct,
        {_GROUPED: 2.0},
    ),
    Row(
        "nasty",
        1.5,
        "`recover` where of a hundred ledgers one more changed bookies, up to three times, and one was re-replicated, "
        "and of a thousand one is damaged, against `recover` of the same number without",
        1_000_000,
        _nasty,
    ),
    Row(
        "diff",
        1.5,
        "`recover` that compares a store's catalog with an earlier one, record by record, against Spark's full outer "
        "join of both on ids and 64-bit hashes of the records; both sessions run already",
        1_000_000,
        _diff,
    ),
    Row(
        "apply",
        1.0,
        "every ledger's record created, journalled and read back twice, against Java's asynchronous client that "
        f"creates the same in transactions of {BATCH}, {BATCHES} in flight",
        100_000,
        _apply,
    ),
    Row(
        "capture",
        1.6,
        "a live ZooKeeper to a catalog, the rights of every ledger included, against Java's asynchronous client that "
        f"reads the values alone, {READS:,} in flight",
        1_000_000,
        _capture,
    ),
    Row(
        "snapshot",
        0.7,
        "a snapshot to a Parquet file of ids, versions and raw records, checksums and the tree's digest checked, as a "
        "whole program; against ZooKeeper's own reader that prints it as JSON to /dev/null",
        1_000_000,
        _snapshot,
    ),
    Row(
        "etcd",
        0.7,
        "a live etcd to a Parquet file of ids, revisions and raw records at one revision, without the interpreter's "
        "start; against etcd's own client that prints them to /dev/null",
        1_000_000,
        _etcd,
    ),
    Row(
        "wire",
        0.3,
        "lists of entries of one running bookie, decoded, against BookKeeper's own client with "
        f"{JAVA_IN_FLIGHT} in flight; both warm",
        1_000_000,
        _wire(1),
    ),
    Row("wire-3", 0.3, "the same, of three bookies at the same time", 1_000_000, _wire(3)),
)
