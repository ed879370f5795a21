"""Store URIs are read as BookKeeper and Pulsar write them, and refused by name where they cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import ReadOnlyStoreError, UnsupportedStoreError
from backends.protocols import Write
from backends.registry import OpenStore, ReadOnlyStore, StoreAddress, open_store, parse_store_uri
from tests.support.memory_store import MemoryStore


@pytest.mark.parametrize(
    ("uri", "hosts", "root", "layout"),
    [
        ("zk+hierarchical://h1:2181;h2:2182/ledgers", "h1:2181,h2:2182", "/ledgers", "hierarchical"),
        ("zk+longhierarchical://h1:2181,h2:2181/a/b", "h1:2181,h2:2181", "/a/b", "longhierarchical"),
        ("zk+flat://10.0.0.1/ledgers/", "10.0.0.1:2181", "/ledgers", "flat"),
        ("zk+legacyhierarchical://zk-0.zk.svc:2181/ledgers", "zk-0.zk.svc:2181", "/ledgers", "legacy"),
        ("zk+longlonghierarchical://h/x", "h:2181", "/x", "longlonghierarchical"),
        ("zk://h:2181/ledgers", "h:2181", "/ledgers", None),
        ("zk+null://[::1]:2181/ledgers", "[::1]:2181", "/ledgers", None),
        ("ZK+Hierarchical://h:2181/Ledgers", "h:2181", "/Ledgers", "hierarchical"),
        ("metadata-store:zk:h1:2181,h2:2181", "h1:2181,h2:2181", "/ledgers", "hierarchical"),
        ("metadata-store:zk:h1:2181,h2:2181/pulsar/east", "h1:2181,h2:2181", "/pulsar/east/ledgers", "hierarchical"),
        ("metadata-store:zk:h1/", "h1:2181", "/ledgers", "hierarchical"),
    ],
)
def test_every_form_of_a_configuration_file(uri: str, hosts: str, root: str, layout: str | None) -> None:
    """Servers, root and layout come out as BookKeeper and Pulsar mean them."""
    assert parse_store_uri(uri) == StoreAddress("zookeeper", uri, hosts, root, layout)


def test_etcd_as_bookkeeper_names_it() -> None:
    """Endpoints are joined with commas, and the path is the root that all keys begin with."""
    uri = "etcd://e1:2379,e2:2380/bk/c1"
    assert parse_store_uri(uri) == StoreAddress("etcd", uri, "e1:2379,e2:2380", "/bk/c1", "etcd")
    assert parse_store_uri("etcd://e1/bk/").hosts == "e1:2379"


@pytest.mark.parametrize(
    ("uri", "word"),
    [
        ("catalog:///captures/monday", "catalog"),
        ("zk+ms://h:2181/ledgers", "'ms'"),
        ("metadata-store:etcd:http://h:2379", "Pulsar on etcd"),
        ("metadata-store:oxia://h:6648/default", "Pulsar on Oxia"),
        ("metadata-store:rocksdb:///data", "RocksDB"),
        ("metadata-store:memory:local", "memory"),
    ],
)
def test_what_is_not_read_is_refused_by_name(uri: str, word: str) -> None:
    """A store of another kind is never opened as something else, nor reported as empty."""
    with pytest.raises(UnsupportedStoreError, match=word) as refused:
        open_store(uri)
    assert refused.value.uri == uri


@pytest.mark.parametrize(
    ("uri", "word"),
    [
        ("", "not a store URI"),
        ("/ledgers", "not a store URI"),
        ("localhost:2181", "unknown kind"),
        ("http://h/ledgers", "unknown kind"),
        ("zk+other://h:2181/ledgers", "unknown kind"),
        ("zk:h:2181/ledgers", "must follow"),
        ("zk://h:2181", "names no ledgers root"),
        ("zk://h:2181/", "names no ledgers root"),
        ("zk:///ledgers", "not host:port"),
        ("zk://h1:2181;;h2:2181/ledgers", "not host:port"),
        ("zk://h:0/ledgers", "not host:port"),
        ("zk://h:65536/ledgers", "not host:port"),
        ("zk://h:port/ledgers", "not host:port"),
        ("zk://h:2181//ledgers", "not a path"),
        ("zk://h:2181/led gers", "not a path"),
        ("zk://h:2181/ledgers?x=1", "not a path"),
        ("etcd:h:2379/bk", "must follow"),
        ("etcd://h:2379/", "names no root"),
        ("etcd://h:port/bk", "not host:port"),
        ("metadata-store:h:2181", "only metadata-store:zk:"),
        ("metadata-store:zk:", "not host:port"),
    ],
)
def test_a_malformed_uri_gets_one_clear_error(uri: str, word: str) -> None:
    """What is wrong is said in one sentence, before anything is connected to."""
    with pytest.raises(UnsupportedStoreError, match=word):
        open_store(uri)


def test_a_password_in_a_uri_is_refused_and_not_repeated() -> None:
    """Secrets do not belong on a command line, and not into the message either."""
    with pytest.raises(UnsupportedStoreError) as refused:
        parse_store_uri("zk://bob:hunter2@h:2181/ledgers")
    assert "hunter2" not in str(refused.value)


@given(st.text() | st.builds("{}{}".format, st.sampled_from(["zk://", "etcd://", "metadata-store:zk:"]), st.text()))
def test_any_text_is_an_address_or_an_error_of_ours(text: str) -> None:
    """No text makes the parser fail otherwise, and what it takes has servers and a clean root."""
    try:
        address = parse_store_uri(text)
    except UnsupportedStoreError:
        return
    assert address.hosts
    assert address.root.startswith("/")
    assert not address.root.endswith("/")
    assert "//" not in address.root


def test_without_writable_nothing_is_written() -> None:
    """Every write through a store that was opened for reading raises; reads pass."""
    inner = MemoryStore()
    inner.write([Write("/k", b"v")])
    with OpenStore(ReadOnlyStore(inner), "/", None, "memory:") as opened:
        with pytest.raises(ReadOnlyStoreError):
            opened.store.write([Write("/other", b"")])
        with pytest.raises(ReadOnlyStoreError):
            opened.store.raise_counter("/k", 5)
        held = opened.store.get("/k")
        assert held is not None
        assert held.value == b"v"
        assert [key for key, _ in opened.store.get_many(["/k"])] == ["/k"]
        assert opened.store.children("/") == ["k"]
        assert opened.store.uri == "memory:"
    assert inner.dump() == {"/k": b"v"}
