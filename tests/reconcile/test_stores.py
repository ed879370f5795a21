"""What a store's URI says of the store before it is opened."""

import pytest

from reconcile.stores import is_live


@pytest.mark.parametrize(
    ("uri", "live"),
    [
        ("zk+hierarchical://h:2181/ledgers", True),
        ("ZK+HIERARCHICAL://h:2181/ledgers", True),
        ("ETCD://h:2379/bk", True),
        ("METADATA-STORE:ZK:h:2181", True),
        ("zkfiles:///copies/zk1", False),
        ("ZKFILES:///copies/zk1", False),
        ("etcdfile:///copies/member.db", False),
        ("catalog:///captures/monday", False),
        ("backup:/backups/east", False),
    ],
)
def test_servers_answer_where_a_uri_names_some_in_any_letters(uri: str, *, live: bool) -> None:
    """Copies in files are not live: what is said of a running cluster does not hold for them."""
    assert is_live(uri) is live
