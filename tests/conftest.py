"""What tests in several folders share."""

from hypothesis import settings

from tests.zookeeper_server import zookeeper_server

__all__ = ["zookeeper_server"]

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("bkmeta", deadline=None)
settings.load_profile("bkmeta")
