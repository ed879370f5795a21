"""An observer of one's own beside a real ensemble: what its files say while leaders are killed, and what is refused."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError

from backends.errors import UnavailableError
from backends.protocols import Followed, ScannableStore
from backends.zkfiles.feed import ShownState, ZooKeeperLogFeed
from backends.zookeeper.reader import ZooKeeperReader
from reconcile.jobs.backup.observer import ObserverRequest, prepare_observer
from recovery.errors import InputError
from tests.support.service import make_context
from tests.support.waiting import free_port
from tests.support.zookeeper_server import ZooKeeperServer, _jars, ensemble


def _request(folder: Path, hosts: str = "127.0.0.1:1", **more: Any) -> ObserverRequest:
    return ObserverRequest(hosts=hosts, folder=folder, environ=os.environ, **more)


def _write_settings(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_settings_go_to_java_and_to_zookeeper(tmp_path: Path) -> None:
    """TLS and SASL of the quorum reach zoo.cfg, Java's options its command line; named servers are not asked for."""
    settings = _write_settings(
        tmp_path / "more",
        "# of our quorum",
        "sslQuorum=true",
        "ssl.quorum.keyStore.password=secret",
        "quorum.auth.enableSasl=true",
        "-Djava.security.auth.login.config=/etc/jaas.conf",
        "server.1=zk1:2888:3888",
        "server.2=zk2:2888:3888",
        "tickTime=500",
    )
    observer = prepare_observer(_request(tmp_path / "o", settings=settings, jars=_jars()), make_context())
    lines = observer.config.read_text().splitlines()
    assert {"sslQuorum=true", "ssl.quorum.keyStore.password=secret", "quorum.auth.enableSasl=true"} <= set(lines)
    assert {"peerType=observer", "syncEnabled=true", "clientPortAddress=127.0.0.1", "tickTime=500"} <= set(lines)
    assert "tickTime=2000" not in lines
    assert "server.200=127.0.0.1:12182:12183:observer" in lines
    assert "-Djava.security.auth.login.config=/etc/jaas.conf" in observer.command
    assert "secret" not in " ".join(observer.command)
    assert observer.config.stat().st_mode & 0o777 == 0o600
    assert (observer.config.parent / "data" / "myid").read_text() == "200\n"


def test_all_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    """Neither Java nor jars: one error names both, where they were looked for, and what to do; nothing is written."""
    (tmp_path / "empty").mkdir()
    environ = {"PATH": str(tmp_path / "empty")}
    request = ObserverRequest(hosts="h:1", folder=tmp_path / "o", jars=tmp_path / "empty", environ=environ)
    with pytest.raises(InputError) as refused:
        prepare_observer(request, make_context())
    for word in ("Java", "no java on the PATH", "ZooKeeper's jars", str(tmp_path / "empty"), "lib folder"):
        assert word in str(refused.value)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("dataDir=/other", "line 1: dataDir is not yours to set here"),
        ("clientPortAddress=0.0.0.0", "clientPortAddress is not yours"),
        ("syncEnabled=false", "syncEnabled is not yours"),
        ("nothing", "not key=value"),
        ("-Dzookeeper.ssl.quorum.keyStore.password=secret", "line 1: a password on Java's command line is seen by all"),
        ("-Djavax.net.ssl.keyStorePassword=secret", "give it as a line of zoo.cfg"),
    ],
)
def test_settings_that_would_harm_are_refused(line: str, problem: str, tmp_path: Path) -> None:
    """What makes an observer useless, or reachable, is not taken from a file; the line is named."""
    settings = _write_settings(tmp_path / "more", line)
    with pytest.raises(InputError, match=problem) as refused:
        prepare_observer(_request(tmp_path / "o", settings=settings), make_context())
    assert "secret" not in str(refused.value)


def test_a_folder_of_others_and_a_low_number_are_refused(tmp_path: Path) -> None:
    """A folder that holds something else is left alone; a number must be above those of all servers."""
    settings = _write_settings(tmp_path / "more", "server.7=zk7:2888:3888")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").write_text("x")
    with pytest.raises(InputError, match="no observer's folder"):
        prepare_observer(_request(tmp_path / "theirs", settings=settings, jars=_jars()), make_context())
    with pytest.raises(InputError, match="not above those"):
        prepare_observer(_request(tmp_path / "o", settings=settings, jars=_jars(), number=7), make_context())


@contextmanager
def _running(command: tuple[str, ...], log: Path) -> Iterator[None]:
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _is_leader(server: ZooKeeperServer) -> bool:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"srvr")
        answer = b""
        while part := connection.recv(1 << 12):
            answer += part
    return b"Mode: leader" in answer


def _create(client: KazooClient, keys: list[str]) -> None:
    """Create keys, whatever the ensemble does meanwhile."""
    for key in keys:
        while True:
            try:
                client.create(key, key.encode())
                break
            except NodeExistsError:
                break
            except KazooException:
                client.handler.sleep_func(0.1)


@pytest.mark.real
def test_an_observer_s_files_have_what_was_committed_while_leaders_are_killed(tmp_path: Path) -> None:
    """An ensemble of three that does not know of the observer: every acknowledged key is followed, in order."""
    with ensemble(tmp_path / "servers") as servers:
        hosts = ",".join(server.hosts for server in servers)
        client = KazooClient(hosts, connection_retry={"max_tries": -1})
        client.start()
        client.create("/ledgers")
        settings = _write_settings(tmp_path / "more", "tickTime=500", "-XX:TieredStopAtLevel=1", "-Xmx256m")
        request = _request(tmp_path / "o", hosts, settings=settings, jars=_jars(), port=free_port())
        observer = prepare_observer(request, make_context())
        assert observer.servers == 3
        shown = ShownState(lambda: ZooKeeperReader(hosts, patience_s=5))
        feed = ZooKeeperLogFeed("zk", [request.folder], ["/ledgers"], shown=shown, pause_s=0.05)
        with _running(observer.command, tmp_path / "log"):
            base = None
            while base is None:
                try:
                    base = feed.open_base()
                except UnavailableError:
                    client.set("/ledgers", b"again")
            assert isinstance(base, ScannableStore)
            assert feed.means == "observer"
            keys = [f"/ledgers/{n:03}" for n in range(60)]
            steps = feed.follow(base.point().txn or 0)
            _create(client, keys[:30])
            next(server for server in servers if _is_leader(server)).kill()
            _create(client, keys[30:])
            followed: list[str] = []
            while len(followed) < len(keys):
                step = next(steps)
                assert isinstance(step, Followed), step
                rows = step.rows.to_pylist()
                assert all(row["after"] == row["key"].encode() for row in rows if row["op"] == "created")
                followed += [row["key"] for row in rows if row["op"] == "created"]
            assert followed == keys
        feed.close()
        client.stop()
        client.close()
