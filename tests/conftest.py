"""Fixtures that tests in several folders share, and how tests are spread over processes."""

import pytest
from hypothesis import settings

from tests.zookeeper_server import zookeeper_server

__all__ = ["zookeeper_server"]

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("bkmeta", deadline=None)
settings.load_profile("bkmeta")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share a Spark session or a server in one process, whichever way they are spread.

    A test's own `xdist_group` wins.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            if item.get_closest_marker("spark") is not None:
                item.add_marker(pytest.mark.xdist_group("spark"))
            elif "zookeeper_server" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group("zookeeper"))
