"""What tests in several folders share."""

import os

import pytest
from hypothesis import settings

from tests.support.etcd_server import etcd_server
from tests.support.spark_classes import spark_environment
from tests.support.zookeeper_server import zookeeper_server

__all__ = ["etcd_server", "zookeeper_server"]

# How long an example takes says more about what else the machine does than about the code.
# The same examples each time: what changes from run to run is for scripts/soak, where someone looks into what it finds.
SOAKED = any(name.startswith("BKMETA_SOAK_") for name in os.environ)
settings.register_profile("bkmeta", deadline=None, derandomize=not SOAKED, max_examples=100 if SOAKED else 60)
settings.load_profile("bkmeta")

# Each session of this process, and of programs that tests start.
os.environ.update(spark_environment())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run modules first that wait for servers or for Spark, then long ones: short ones fill the last minutes of all."""
    waiting = {item.path for item in items if any(map(item.get_closest_marker, ("real", "spark")))}
    long = {item.path for item in items if item.get_closest_marker("long")}
    items.sort(key=lambda item: (item.path not in waiting, item.path not in long))
