"""Pulsar's records in a real etcd: with what topics let go of, for etcd remembers."""

import pytest

from backends.etcd.store import EtcdStore
from backends.protocols import Write
from reconcile.references import of_store
from reconcile.stores import open_store
from tests.reconcile.test_references_pulsar import TOPIC, by_ledger, topic
from tests.recovery.codecs.test_managed_ledger_golden import records
from tests.support.etcd_server import EtcdServer

pytestmark = pytest.mark.real


def test_topics_in_etcd_are_read_with_their_history(etcd_server: EtcdServer) -> None:
    """Every record, by the URI of the topics' own root, and a ledger that a topic had once and has no more."""
    etcd_server.wipe()
    made = EtcdStore(etcd_server.hosts, top="/managed-ledgers")
    for key, raw in records().items():
        if key.startswith("/managed-ledgers/"):
            made.write([Write(key, raw)])
    [version] = made.write([Write(TOPIC, topic(1000, 1001))])
    made.write([Write(TOPIC, topic(1001), version)])
    made.close()
    with open_store(f"etcd://{etcd_server.hosts}/managed-ledgers") as opened:
        found = of_store(opened)
    rows = by_ledger(found)
    assert found.unreadable == ()
    assert len(rows) == 24 + 2
    assert rows[1000]["deleted"] is True
    assert "at an unknown time" in str(rows[1000]["deletion"])
    assert rows[1001]["deleted"] is None
