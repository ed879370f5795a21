"""Rows about deletes: every ledger of a store deleted in two phases, beside what it cost to create them."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from backends.protocols import Write
from backends.zookeeper.store import ZooKeeperStore
from benchmarks.data import inventories, plans
from benchmarks.data.cache import kept
from benchmarks.data.ledgers import INSTANCE
from benchmarks.measure import Cost, python, run
from benchmarks.pairs import Contestant
from benchmarks.rows.row import Place, Row, require_whole
from benchmarks.servers import etcd
from benchmarks.servers.zookeeper import BATCH, BATCHES, client, server
from recovery.codecs import store

_ROOT: Final = "/ledgers"
_PROGRAM: Final = "benchmarks.programs.tombstones"


@contextmanager
def _zookeeper(place: Place) -> Iterator[dict[str, Contestant]]:
    plan, looks = kept(place.home, plans.write, place.ledgers), kept(place.home, inventories.write, place.ledgers)
    create = [*client(place.home), "create"]
    runs = _number_runs(place)

    def fill(hosts: str) -> Cost:
        return run([*create, hosts, _ROOT, str(plan / plans.RECORDS), str(BATCH), str(BATCHES)])

    def product() -> Cost:
        with server() as hosts:
            fill(hosts)
            opened = ZooKeeperStore(hosts)
            nodes = {store.LAYOUT: store.layout_bytes(plans.LAYOUT), store.INSTANCE_ID: INSTANCE.encode()}
            opened.write([Write(_ROOT + key, value) for key, value in nodes.items()])
            opened.close()
            return require_whole(place, run(python(_PROGRAM, f"zk://{hosts}{_ROOT}", looks, next(runs))))

    def floor() -> Cost:
        with server() as hosts:
            return require_whole(place, fill(hosts))

    yield {"deletes": product, "created, Java": floor}


@contextmanager
def _etcd(place: Place) -> Iterator[dict[str, Contestant]]:
    plan, looks = kept(place.home, plans.write, place.ledgers), kept(place.home, inventories.write, place.ledgers)
    runs = _number_runs(place)

    def product() -> Cost:
        with etcd.server() as (_, hosts):
            etcd.load(hosts, plan, keeps_ids=True)
            return require_whole(place, run(python(_PROGRAM, f"etcd://{hosts}{etcd.ROOT}", looks, next(runs))))

    def floor() -> Cost:
        with etcd.server() as (_, hosts):
            began, used = time.perf_counter(), sum(os.times()[:4])
            etcd.load(hosts, plan, keeps_ids=True)
            seconds, cpu_s = time.perf_counter() - began, sum(os.times()[:4]) - used
            return Cost(seconds, cpu_s, {}, {"ledgers": place.ledgers})

    yield {"deletes": product, "created": floor}


def _number_runs(place: Place) -> Iterator[Path]:
    """Yield a new folder for each run: journals are gone on with."""
    number = 0
    while True:
        folder = place.scratch / f"run-{number}"
        folder.mkdir()
        yield folder
        number += 1


ROWS: Final = (
    Row(
        "tombstones",
        10.0,
        "every ledger of a real ZooKeeper asked for, verified twice by inventories, and purged, each step journalled, "
        f"against Java's asynchronous client that created them in transactions of {BATCH}, {BATCHES} in flight",
        1_000_000,
        _zookeeper,
    ),
    Row(
        "tombstones-etcd",
        10.0,
        "the same on a real etcd, against creating the ledgers by several writers",
        1_000_000,
        _etcd,
    ),
)
