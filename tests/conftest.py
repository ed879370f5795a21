"""What tests in several folders share."""

from hypothesis import settings

from tests.etcd_server import etcd_server
from tests.zookeeper_server import zookeeper_server

__all__ = ["etcd_server", "zookeeper_server"]

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("bkmeta", deadline=None)
settings.load_profile("bkmeta")
