"""What tests in several folders share."""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.etcd_server import etcd_server
from tests.support.spark_classes import spark_environment
from tests.support.zookeeper_server import zookeeper_server

__all__ = ["etcd_server", "zookeeper_server"]

# How long an example takes says more about what else the machine does than about the code.
# The same examples each time: what changes from run to run is for scripts/soak, where someone looks into what it finds.
SOAKED = any(name.startswith("BKMETA_SOAK_") for name in os.environ)
EXAMPLES = int(os.environ.get("BKMETA_SOAK_EXAMPLES", "30"))
settings.register_profile("bkmeta", deadline=None, derandomize=not SOAKED, max_examples=EXAMPLES)
settings.register_profile("fast", settings.get_profile("bkmeta"), max_examples=10)
settings.load_profile("bkmeta")

# What is loaded and collected stays: garbage is first looked for when all of it is there.
gc.disable()

# Each session of this process, and of programs that tests start.
os.environ.update(spark_environment())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes a server, and mix modules that wait for servers or for Spark with those that compute.

    No core is idle for long then.

    Long ones begin first, and the last minutes have only short ones, which compute.
    """
    for item in items:
        if {"etcd_server", "zookeeper_server"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("real")
    waiting = {item.path for item in items if any(map(item.get_closest_marker, ("real", "spark")))}
    long = {item.path for item in items if item.get_closest_marker("long")}
    modules = sorted(dict.fromkeys(item.path for item in items), key=lambda path: path not in long)
    places: dict[Path, float] = {}
    for some, end in (waiting, 1.0), (set(modules) - waiting, 1.25):
        chosen = [path for path in modules if path in some]
        places |= {path: end * number / len(chosen) for number, path in enumerate(chosen)}
    items.sort(key=lambda item: places[item.path])


def pytest_collection_finish() -> None:
    """Leave out of each later collection of garbage what now stays to the end: thousands of tests, and all modules."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
