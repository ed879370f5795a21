"""Rows about metadata stores: records written, and read, against the stores' own clients."""

import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from backends.protocols import Write
from backends.zookeeper.store import ZooKeeperStore
from benchmarks.data import backups, catalogs, plans, snapshots
from benchmarks.data.cache import kept
from benchmarks.data.ledgers import INSTANCE
from benchmarks.measure import Cost, beside_servers, python, run
from benchmarks.pairs import Contestant
from benchmarks.rows.row import STAGES, Place, Row, require_whole
from benchmarks.servers import etcd
from benchmarks.servers.zookeeper import BATCH, BATCHES, READS, client, formatter, log_formatter, server
from recovery.codecs import store

_ROOT: Final = "/ledgers"
_READ_TWICE: Final = "Java, and read twice"


@contextmanager
def _apply(place: Place) -> Iterator[dict[str, Contestant]]:
    plan = kept(place.home, plans.write, place.ledgers)
    java = client(place.home)
    with server() as hosts:

        def product() -> Cost:
            run([*java, "delete", hosts, _ROOT])
            journal = place.scratch / "journal"
            shutil.rmtree(journal, ignore_errors=True)
            return require_whole(place, run(python(STAGES, "apply", plan, f"zk://{hosts}{_ROOT}", _ROOT, journal)))

        def floor() -> Cost:
            run([*java, "delete", hosts, _ROOT])
            records = str(plan / plans.RECORDS)
            return require_whole(place, run([*java, "create", hosts, _ROOT, records, str(BATCH), str(BATCHES)]))

        def floor_read_twice() -> Cost:
            made = floor()
            parts = [made, *(run([*java, "read", hosts, _ROOT, str(READS)]) for _ in range(2))]
            seconds, cpu_s = sum(cost.seconds for cost in parts), sum(cost.cpu_s for cost in parts)
            return require_whole(place, replace(made, seconds=seconds, cpu_s=cpu_s))

        yield {"apply": product, _READ_TWICE: floor_read_twice, "Java, asynchronous": floor}


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
            return require_whole(place, run(python(STAGES, "capture", f"zk://{hosts}{_ROOT}", out)))

        yield {
            "capture": product,
            "Java, asynchronous": lambda: require_whole(place, run([*java, "read", hosts, _ROOT, str(READS)])),
        }


@contextmanager
def _etcd(place: Place) -> Iterator[dict[str, Contestant]]:
    plan = kept(place.home, plans.write, place.ledgers)
    catalog = place.scratch / "catalog"
    with etcd.server() as (process, hosts):
        etcd.load(hosts, plan)
        uri = f"etcd://{hosts}{etcd.ROOT}"

        def parsed() -> Cost:
            shutil.rmtree(catalog, ignore_errors=True)
            return require_whole(place, run(python(STAGES, "capture", uri, catalog)))

        raw = python(STAGES, "etcd", uri, place.scratch / "raw.parquet")
        answers = python(STAGES, "etcd-answers", hosts, etcd.ROOT)
        printed = ["bash", "-c", f"{shlex.join(etcd.get_all(hosts))} > /dev/null"]
        yield {
            "etcd, raw": lambda: require_whole(place, beside_servers([process], lambda: run(raw))),
            "capture, all parsed": lambda: beside_servers([process], parsed),
            "answers alone": lambda: require_whole(place, beside_servers([process], lambda: run(answers))),
            "etcdctl get --prefix": lambda: beside_servers([process], lambda: run(printed)),
        }


@contextmanager
def _follow(place: Place) -> Iterator[dict[str, Contestant]]:
    plan = kept(place.home, plans.write, place.ledgers)
    begun, backup = place.scratch / "begun", place.scratch / "backup"
    with etcd.server() as (process, hosts):
        uri = f"etcd://{hosts}{etcd.ROOT}"
        run(python(STAGES, "follow", uri, begun, 0))
        etcd.load(hosts, plan)
        revision, last = etcd.put_last(hosts)

        def product() -> Cost:
            shutil.rmtree(backup, ignore_errors=True)
            shutil.copytree(begun, backup)
            cost = run(python(STAGES, "follow", uri, backup, revision))
            # What else is below the root is written with the ledgers.
            return require_whole(place, replace(cost, said={"ledgers": min(cost.said["ledgers"], place.ledgers)}))

        watched = ["bash", "-c", etcd.print_changes(hosts, last, place.scratch / "changes")]
        yield {
            "backup follow": lambda: beside_servers([process], product),
            "etcdctl watch": lambda: beside_servers([process], lambda: run(watched)),
        }


@contextmanager
def _snapshot(place: Place) -> Iterator[dict[str, Contestant]]:
    folder = kept(place.home, snapshots.write, place.ledgers)
    [snapshot] = (folder / snapshots.FOLDER).iterdir()
    java = shlex.join(formatter(snapshot))
    catalog = place.scratch / "catalog"

    def product() -> Cost:
        return require_whole(
            place, run(python("benchmarks.programs.raw_snapshot", folder, place.scratch / "raw.parquet"))
        )

    def parsed() -> Cost:
        shutil.rmtree(catalog, ignore_errors=True)
        return require_whole(place, run(python(STAGES, "capture", f"zkfiles://{folder}?root={_ROOT}", catalog)))

    yield {
        "snapshot, raw": product,
        "capture, all parsed": parsed,
        "SnapshotFormatter -json": lambda: run(["bash", "-c", f"{java} > /dev/null"]),
    }


@contextmanager
def _backup_point(place: Place) -> Iterator[dict[str, Contestant]]:
    backup = kept(place.home, backups.write, place.ledgers, catalogs)
    made, grouped = (python(STAGES, name, backup, place.scratch / name) for name in ("backup-point", "backup-group"))
    yield {
        "point in time": lambda: require_whole(place, run(made)),
        "DuckDB, last changes": lambda: require_whole(place, run(grouped)),
    }


@contextmanager
def _backup_zookeeper(place: Place) -> Iterator[dict[str, Contestant]]:
    plan = kept(place.home, plans.write, place.ledgers)
    java = client(place.home)
    place.scratch.mkdir(exist_ok=True)
    with server(place.scratch) as hosts:
        # A transaction a ledger.
        run([*java, "create", hosts, _ROOT, str(plan / plans.RECORDS), "1", str(READS)])
    folder = place.scratch / "data"
    [log] = (folder / "version-2").glob("log.*")
    printed = shlex.join(log_formatter(log))
    yield {
        "followed": lambda: require_whole(place, run(python("benchmarks.programs.followed_logs", folder, _ROOT))),
        "TxnLogToolkit": lambda: run(["bash", "-c", f"{printed} > /dev/null"]),
    }


ROWS: Final = (
    Row(
        "apply",
        1.0,
        "every ledger's record created, journalled and read back twice, against Java's asynchronous client that "
        f"creates the same in transactions of {BATCH}, {BATCHES} in flight",
        100_000,
        _apply,
        beside={_READ_TWICE: 1.0},
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
        "backup-zookeeper",
        0.8,
        "a server's log of a created ledger a transaction, followed to its end as rows with the tree's digest compared "
        "after each, as a whole program; against ZooKeeper's own log formatter that prints it to /dev/null",
        1_000_000,
        _backup_zookeeper,
        cpu_goal=0.6,
    ),
    Row(
        "backup-etcd",
        2.0,
        "every change of a live etcd, with the value before it, into a sealed backup, without the interpreter's start; "
        "against etcd's own client that prints them as JSON for a grep",
        1_000_000,
        _follow,
        cpu_goal=2.0,
    ),
    Row(
        "backup-point",
        6.0,
        "the last moment of a month of a backup, as a catalog of parsed records; against DuckDB that finds the last "
        "change of each key in the same files, and copies the base, both raw",
        1_000_000,
        _backup_point,
        cpu_goal=8.0,
    ),
)
