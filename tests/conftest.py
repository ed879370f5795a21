"""Fixtures that tests in several folders share."""

from tests.zookeeper_server import zookeeper_server

__all__ = ["zookeeper_server"]
