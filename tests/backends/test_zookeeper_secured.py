"""A ZooKeeper that asks who one is: encrypted connections with client certificates, SASL, digests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.errors import AccessDeniedError, UnavailableError
from backends.protocols import StoreTls, Write
from backends.zookeeper.acl import digest_principal
from backends.zookeeper.reader import ZooKeeperReader
from backends.zookeeper.store import ZooKeeperStore
from reconcile.cli.access import EnvironmentAccess
from reconcile.stores import open_store
from recovery.codecs.store import Layout, layout_bytes
from recovery.errors import InputError
from tests.support.certificates import authority, signed
from tests.support.command import run
from tests.support.waiting import free_port
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

JAAS = """Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_bob="hunter2" user_eve="eve"; };"""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ZooKeeperServer, str, Path]]:
    """One server with SASL on its plain port, and with certificates demanded on its encrypted one."""
    folder = tmp_path_factory.mktemp("secured")
    authority(folder, "ca")
    for name in ("server", "client"):
        signed(folder, name, "ca")
    authority(folder, "other")
    (folder / "server.pem").write_text((folder / "server.key").read_text() + (folder / "server.crt").read_text())
    (folder / "ca.pem").write_text((folder / "ca.crt").read_text())
    (folder / "jaas").write_text(JAAS)
    port = free_port()
    server = ZooKeeperServer(
        folder / "zookeeper",
        settings=f"""
secureClientPort={port}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={folder / "server.pem"}
ssl.trustStore.location={folder / "ca.pem"}
ssl.clientAuth=need
authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
""",
        options=[f"-Djava.security.auth.login.config={folder / 'jaas'}"],
    )
    server.start()
    try:
        yield server, f"127.0.0.1:{port}", folder
    finally:
        server.kill()


def test_a_client_with_a_certificate_reads_and_writes(secured: tuple[ZooKeeperServer, str, Path]) -> None:
    """Values, names and rights come over an encrypted connection; the stream of rights is encrypted, too."""
    _, hosts, folder = secured
    tls = StoreTls(str(folder / "ca.crt"), str(folder / "client.crt"), str(folder / "client.key"))
    store = ZooKeeperStore(hosts, chroot="/tls", tls=tls)
    store.write([Write(f"/k/{n}", b"%d" % n) for n in range(700)])
    keys = [f"/k/{n}" for n in range(700)]
    assert [held and held.value for _, held in store.get_many(keys)] == [b"%d" % n for n in range(700)]
    assert {rights and rights.text for _, rights in store.get_acls(keys)} == {"world:anyone:cdrwa"}
    store.close()


# kazoo leaves the sockets of failed handshakes to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_without_a_certificate_or_with_a_wrong_one_gets_no_session(
    secured: tuple[ZooKeeperServer, str, Path],
) -> None:
    """Neither an unknown authority, ours or theirs, nor a connection without a certificate is taken."""
    _, hosts, folder = secured
    for tls in (
        StoreTls(str(folder / "ca.crt")),
        StoreTls(str(folder / "other.crt"), str(folder / "client.crt"), str(folder / "client.key")),
        StoreTls(str(folder / "ca.crt"), str(folder / "other.crt"), str(folder / "other.key")),
    ):
        with pytest.raises(UnavailableError):
            ZooKeeperReader(hosts, tls=tls, patience_s=1.5)


def test_files_of_the_environment(
    secured: tuple[ZooKeeperServer, str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Variables name the files; one that cannot be read, and half of a pair, are errors of usage."""
    _, hosts, folder = secured
    monkeypatch.setenv("BKMETA_TLS_CA", str(folder / "ca.crt"))
    monkeypatch.setenv("BKMETA_TLS_CERT", str(folder / "client.crt"))
    with pytest.raises(InputError, match="_KEY"):
        open_store(f"zk://{hosts}/tls", EnvironmentAccess())
    monkeypatch.setenv("BKMETA_TLS_KEY", str(tmp_path / "none"))
    with pytest.raises(InputError, match="No such file"):
        open_store(f"zk://{hosts}/tls", EnvironmentAccess())
    monkeypatch.setenv("BKMETA_TLS_KEY", str(folder / "client.key"))
    with open_store(f"zk://{hosts}/tls", EnvironmentAccess()) as opened:
        assert opened.store.get("/") is not None


def test_who_one_is_by_sasl(secured: tuple[ZooKeeperServer, str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """What bob alone may read, bob reads, by value and by rights, and nobody else; a wrong password gets no session."""
    server, _, _ = secured
    bob = ZooKeeperStore(server.hosts, chroot="/sasl", sasl=("bob", "hunter2"))
    bob.write([Write(f"/k/{n}", b"v", acl="sasl:bob:cdrwa") for n in range(5)])
    keys = [f"/k/{n}" for n in range(5)]
    assert {rights and rights.text for _, rights in bob.get_acls(keys)} == {"sasl:bob:cdrwa"}
    bob.close()
    monkeypatch.setenv("BKMETA_ZK_SASL", "bob:hunter2")
    with open_store(f"zk://{server.hosts}/sasl", EnvironmentAccess()) as opened:
        held = opened.store.get("/sasl/k/0")
        assert held is not None
        assert (held.value, held.acl) == (b"v", "sasl:bob:cdrwa")
    for sasl in (("eve", "eve"), None):
        other = ZooKeeperReader(server.hosts, chroot="/sasl", sasl=sasl)
        with pytest.raises(AccessDeniedError):
            other.get("/k/0")
        with pytest.raises(AccessDeniedError):
            list(other.get_acls(keys))
        other.close()
    with pytest.raises(AccessDeniedError, match="refused") as refused:
        ZooKeeperReader(server.hosts, sasl=("bob", "wrong"), patience_s=120)
    assert "wrong" not in str(refused.value)


def _make_cluster_of(server: ZooKeeperServer, root: str, principal: str) -> None:
    """Make what a freeze looks at, with the rights of bookies that are known as a principal."""
    tool = f"{digest_principal(('tool', 'secret'))}:cdrwa"
    store = ZooKeeperStore(server.hosts, auth=("tool", "secret"))
    theirs = f"{principal}:cdrwa,world:anyone:r"
    store.write([Write(root, b"", acl=f"{theirs},{tool}")])
    for key in ("/00", "/idgen", "/available", "/LAYOUT"):
        value = layout_bytes(Layout.HIERARCHICAL) if key == "/LAYOUT" else b""
        store.write([Write(root + key, value, acl=theirs if key == "/available" else f"{theirs},{tool}")])
    store.close()


def test_a_freeze_where_bookies_are_known_by_certificates(
    secured: tuple[ZooKeeperServer, str, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit 0 only if it was tried with the bookies' certificate, which the server names; else 4, and it is named."""
    server, hosts, folder = secured
    root, uri = "/tls-frozen", f"zk+hierarchical://{hosts}/tls-frozen"
    _make_cluster_of(server, root, "x509:CN=client")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BKMETA_ZK_BOOKIE_AUTH", raising=False)
    monkeypatch.setenv("BKMETA_ZK_AUTH", "tool:secret")
    monkeypatch.setenv("BKMETA_TLS_CA", str(folder / "ca.crt"))
    for name, code, untried in (("server", 4, ["x509:CN=client"]), ("client", 0, [])):
        monkeypatch.setenv("BKMETA_TLS_CERT", str(folder / f"{name}.crt"))
        monkeypatch.setenv("BKMETA_TLS_KEY", str(folder / f"{name}.key"))
        offered = run(capsys, "freeze", "--metadata", uri, "--json").result
        done = run(capsys, "freeze", "--metadata", uri, *(("--confirm", offered["hash"]) if code else ()), "--json")
        assert (done.code, done.result["coverage"]["not_tried_as"]) == (code, untried), done.result
        assert done.result["coverage"]["tried_as"] == [f"x509:CN={name}"]


def test_a_freeze_where_bookies_are_known_by_sasl(
    secured: tuple[ZooKeeperServer, str, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit 0 only if it was tried as the bookies' principal; else 4, and it is named."""
    server, _, _ = secured
    root, uri = "/sasl-frozen", f"zk+hierarchical://{server.hosts}/sasl-frozen"
    _make_cluster_of(server, root, "sasl:bob")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BKMETA_ZK_AUTH", raising=False)
    monkeypatch.delenv("BKMETA_ZK_BOOKIE_AUTH", raising=False)
    monkeypatch.setenv("BKMETA_ZK_SASL", "bob:hunter2")
    alone = run(capsys, "freeze", "--metadata", uri, "--json")
    # The identity that is made has no rights yet: whoever has them is told the exact entry to add.
    assert (alone.code, "digest:bkmeta:" in alone.result["next"]) == (5, True), alone.result
    assert (tmp_path / "bkmeta-identity").exists()
    monkeypatch.setenv("BKMETA_ZK_AUTH", "tool:secret")
    monkeypatch.delenv("BKMETA_ZK_SASL")
    offered = run(capsys, "freeze", "--metadata", uri, "--json").result
    unseen = run(capsys, "freeze", "--metadata", uri, "--confirm", offered["hash"], "--json")
    assert (unseen.code, unseen.result["coverage"]["not_tried_as"]) == (4, ["sasl:bob"])
    assert "there was no connection to try as sasl:bob" in unseen.result["verdict"]
    for sasl, code, untried in (("eve:eve", 4, ["sasl:bob"]), ("bob:hunter2", 0, [])):
        monkeypatch.setenv("BKMETA_ZK_SASL", sasl)
        done = run(capsys, "freeze", "--metadata", uri, "--json")
        assert (done.code, done.result["coverage"]["not_tried_as"]) == (code, untried), done.result
        assert done.result["coverage"]["tried_as"] == [f"sasl:{sasl.split(':')[0]}"]
