"""A real cluster in a JVM of its own: ZooKeeper, bookies, the Java client (java/Driver.java), driven line by line.

What a cluster holds is kept in the form of a case's `truth.json`, so that one judge (acid.py) serves both.
"""

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from tests.support import jars
from tests.support.class_archives import find_archive, list_options

ARCHIVE: Final = find_archive("cluster", jars.name_driver())
JVM: Final = (
    "-Xmx1200m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:MaxDirectMemorySize=1g",
    "-Dzookeeper.preAllocSize=64",
    "-Dzookeeper.admin.enableServer=false",
    "-Dio.netty.leakDetectionLevel=disabled",
    "-Djava.net.preferIPv4Stack=true",
    *list_options(ARCHIVE),
)
DIGESTS: Final = ("CRC32C", "CRC32", "MAC", "DUMMY")
"""The Java client's names."""
_HUNG: Final = re.compile(r"bookie (\d+) deletes ledger")
"""What the driver says of a bookie that should have collected a ledger."""


class ClusterError(Exception):
    """The JVM answered with an error, or ended."""


class ClientHangsError(ClusterError):
    """The Java client answers no more.

    Its own fault, seen now and then when a bookie is lost (https://github.com/apache/bookkeeper/issues/4261).
    """


@dataclass(frozen=True, slots=True)
class Bookie:
    """One bookie; folders relative to the cluster's home."""

    n: int
    id: str
    storage: str
    journals: Sequence[str]
    ledgers: Sequence[str]
    indexes: Sequence[str] | None = None
    props: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None


def encoded(data: bytes) -> str:
    """Return bytes as they travel to the JVM and stand in `truth.json`."""
    return base64.b64encode(data).decode()


class Cluster:
    """The JVM and what it runs; files lie in `home`, and cookies are relative to it. Ends with the `with` block.

    What the JVM logs goes to `<home>.log`.
    """

    def __init__(
        self,
        home: Path,
        *,
        class_path: str = "",
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        class_path = class_path or jars.class_path()
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.zookeeper = ""
        self._started: dict[int, Bookie] = {}
        self._log = home.with_name(f"{home.name}.log").open("w")
        self._jvm = subprocess.Popen(
            ["java", *JVM, *options, "-cp", class_path, "Driver"],
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Nothing in the cluster is worth an orderly end.
        self._jvm.kill()
        self._jvm.communicate()
        self._log.close()

    def end(self) -> None:
        """Let the JVM end by itself."""
        self._jvm.communicate()

    @property
    def pid(self) -> int:
        """The JVM's process."""
        return self._jvm.pid

    def __call__(self, op: str, **arguments: Any) -> Any:
        """Do one operation of the driver and return its result.

        Raises:
            ClientHangsError: what was asked of the client has no end.
            ClusterError: with the error's class and message as Java gave them.
        """
        if self._jvm.stdin is None or self._jvm.stdout is None:
            raise AssertionError("opened with pipes")
        self._jvm.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
        self._jvm.stdin.flush()
        line = self._jvm.stdout.readline()
        if not line:
            raise ClusterError(f"{op}: the JVM ended, see {self._log.name}")
        answer = json.loads(line)
        if "error" in answer:
            raise (ClientHangsError if answer.get("hangs") else ClusterError)(f"{op}: {answer['error']}")
        return answer["result"]

    def start_zookeeper(self, folder: str, root: str) -> None:
        """Start ZooKeeper on its data folder; `zookeeper` is then its address."""
        port: int = self("zk_start", folder=folder, root=root)
        self.zookeeper = f"127.0.0.1:{port}"

    def start(self, bookie: Bookie) -> None:
        """Start a bookie as BookKeeper's own main program does, cookies checked."""
        self._started[bookie.n] = bookie
        self(
            "bookie_start",
            n=bookie.n,
            id=bookie.id,
            storage=bookie.storage,
            journals=list(bookie.journals),
            ledgers=list(bookie.ledgers),
            indexes=None if bookie.indexes is None else list(bookie.indexes),
            props=dict(bookie.props),
            port=bookie.port,
        )

    def collect_garbage(self, running: int) -> int:
        """End two passes of collection on so many bookies, which collect every second; return the id of a new ledger.

        Two, because a pass that a ledger goes in may have been with the others before that.
        """
        ledgers: list[int] = []

        # A bookie that collects while a ledger comes may never list it, so that it stays there: another one is taken.
        @retry(retry=retry_if_exception_type(ClusterError), stop=stop_after_attempt(3), reraise=True)
        def end_pass() -> None:
            shape = {"E": running, "W": running, "A": running}
            ledgers.append(self._small(shape))
            self("close", ledger=ledgers[-1])
            try:
                self("pass", ledger=ledgers[-1])
            except ClusterError as error:
                self._restart_hung(str(error))
                raise

        for _ in range(2):
            end_pass()
        return ledgers[0]

    def _restart_hung(self, problem: str) -> None:
        """Start a bookie anew that collects no more: on a busy machine one was seen to wait for a record for ever."""
        if hung := _HUNG.search(problem):
            bookie = self._started[int(hung[1])]
            self("bookie_stop", n=bookie.n)
            self.start(bookie)

    @retry(retry=retry_if_exception_type(ClusterError), stop=stop_after_attempt(5), wait=wait_fixed(1), reraise=True)
    def _small(self, shape: Mapping[str, int]) -> int:
        """Return a new ledger with an entry; another one where auto-recovery has closed it first."""
        ledger: int = self("create", **shape, digest="CRC32C", password="", custom={})
        self("add", ledger=ledger, sizes=[10], ids=None)
        return ledger

    def nodes(self, path: str) -> dict[str, dict[str, Any]]:
        """Return the subtree of ZooKeeper below a path, by path; empty if it is absent."""
        return {node["path"]: node for node in self("zk_dump", path=path)}

    def ledgers(self) -> dict[int, dict[str, Any]]:
        """Return every ledger of the store as the Java client reads it, by id."""
        return {row["ledger"]: row for row in self("ledgers")}


class History:
    """A fresh cluster being written to, and the truth about it being recorded."""

    def __init__(self, cluster: Cluster, *, root: str = "/ledgers", layout: str = "hierarchical") -> None:
        self.cluster = cluster
        self.root = root
        self._bookies: dict[int, Bookie] = {}
        self._ended: dict[int, str] = {}
        self._writers: dict[int, dict[str, Any]] = {}
        self._entries: dict[int, dict[int, list[Any]]] = {}
        cluster.start_zookeeper("zookeeper", root)
        cluster("format", layout=layout)

    def bookie(self, n: int, storage: str, *, folders: int = 1, journals: int = 1, indexes: bool = False) -> None:
        """Make a bookie with as many folders of each kind, and start it."""
        base = f"bookies/b{n}"
        self._bookies[n] = Bookie(
            n,
            f"10.0.0.{n + 1}:3181",
            storage,
            tuple(f"{base}/journal{k}" for k in range(journals)),
            tuple(f"{base}/ledgers{k}" for k in range(folders)),
            tuple(f"{base}/index{k}" for k in range(folders)) if indexes else None,
        )
        self.up(n)

    def up(self, n: int) -> None:
        """Start a bookie that is down."""
        self.cluster.start(self._bookies[n])
        self._ended.pop(n, None)

    def down(self, n: int, how: str = "clean") -> None:
        """Stop a bookie: ``clean``, or ``killed`` as `kill -9` leaves it."""
        self.cluster("bookie_stop" if how == "clean" else "bookie_kill", n=n)
        self._ended[n] = how

    def wipe(self, n: int) -> None:
        """Take all disks and the cookie of a bookie that is down, as anybody who gives it new ones does."""
        for folder in {Path(f).parent for f in (*self._bookies[n].journals, *self._bookies[n].ledgers)}:
            shutil.rmtree(self.cluster.home / folder)
        self.cluster("zk_wipe", paths=[f"{self.root}/cookies/{self._bookies[n].id}"])

    def create(
        self,
        quorum: tuple[int, int, int],
        *,
        digest: str,
        password: bytes,
        custom: Mapping[str, bytes] | None = None,
        adv: bool = False,
        members: Sequence[str] | None = None,
    ) -> int:
        """Create a ledger with (E, W, A), on these bookies or on any; an `adv` one takes entries in any order."""
        ensemble, write, ack = quorum
        known = {"digest": digest, "password": encoded(password), "adv": adv}
        values = {key: encoded(value) for key, value in (custom or {}).items()}
        ledger: int = self.cluster("create", E=ensemble, W=write, A=ack, custom=values, members=members, **known)
        self._writers[ledger] = known
        self._entries[ledger] = {}
        return ledger

    def add(self, ledger: int, sizes: Sequence[int], ids: Sequence[int] | None = None) -> None:
        """Add entries of these sizes in bytes; returns when all are acknowledged."""
        for entry, size, digest in self.cluster("add", ledger=ledger, sizes=list(sizes), ids=ids):
            self._entries[ledger][entry] = [size, digest]

    def close(self, ledger: int) -> None:
        """Close a ledger as its writer."""
        self.cluster("close", ledger=ledger)

    def members(self, ledger: int) -> list[int]:
        """Return the bookies that a ledger is written to now, in placement order."""
        numbers = {bookie.id: n for n, bookie in self._bookies.items()}
        return [numbers[member] for member in self.cluster.ledgers()[ledger]["segments"][-1][1]]

    def id_of(self, n: int) -> str:
        """Return the id of a bookie."""
        return self._bookies[n].id

    def truth(self) -> dict[str, Any]:
        """Return what is true now, with the keys of `truth.json` that the judge reads."""
        nodes = self.cluster.nodes(self.root)
        rows = self.cluster.ledgers()
        for ledger, row in rows.items():
            entries = self._entries[ledger]
            row["entries"] = [entries[entry] for entry in sorted(entries)]
            row["ctime_stored"] = False
            row["writer"] = {**self._writers[ledger], "acked_last": len(entries) - 1}
        paths = {row["path"] for row in rows.values()}
        return {
            "root": self.root,
            "layout": base64.b64decode(nodes[f"{self.root}/LAYOUT"]["data"]).decode(),
            "instance_id": base64.b64decode(nodes[f"{self.root}/INSTANCEID"]["data"]).decode(),
            "bookies": [
                {
                    "n": n,
                    "id": bookie.id,
                    "storage": bookie.storage,
                    "journals": bookie.journals,
                    "ledgers": bookie.ledgers,
                    "indexes": bookie.indexes,
                    "props": dict(bookie.props),
                    "present": True,
                    "ended": self._ended.get(n),
                }
                for n, bookie in self._bookies.items()
            ],
            "znodes": [node for path, node in nodes.items() if path not in paths and not node["ephemeral"]],
            "largest_id_ever": max(rows, default=-1),
            "deleted": [],
            "ledgers": list(rows.values()),
        }


def bookies_of(truth: Mapping[str, Any]) -> list[Bookie]:
    """Return the bookies of a truth that are there and that a real bookie may be started on."""
    return [
        Bookie(b["n"], b["id"], b["storage"], b["journals"], b["ledgers"], b["indexes"], b["props"])
        for b in truth["bookies"]
        if b["present"] and b.get("startable", True)
    ]


def of_case(case: Path, home: Path) -> Cluster:
    """Copy the disks and the ZooKeeper data of a case to `home` and return a JVM there; nothing runs in it yet."""
    for part in ("bookies", "zookeeper"):
        shutil.copytree(case / part, home / part)
    return Cluster(home)
