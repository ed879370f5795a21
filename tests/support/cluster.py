"""A real cluster in a JVM of its own: ZooKeeper, bookies, the Java client (java/Driver.java), driven line by line.

What a cluster holds is kept in the form of a case's `truth.json`, so that one judge (acid.py) serves both.
"""

import atexit
import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from select import select
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


class _Machine:
    """A JVM with the driver, in a folder of links: relative paths lead to the home of the cluster that runs in it.

    What a cluster made it load and compile serves the next one, which takes half the CPU then.
    """

    def __init__(self, class_path: str, options: Sequence[str], environment: Mapping[str, str]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bkmeta-jvm-"))
        self.uses = 0
        with (self._folder / ".log").open("w") as log:
            self._jvm = subprocess.Popen(
                ["java", *JVM, *options, "-cp", class_path, "Driver"],
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **environment},
            )
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._jvm.pid

    def ask(self, op: str, arguments: Mapping[str, Any], patience_s: float | None = None) -> dict[str, Any]:
        """Return the driver's answer; an empty one if the JVM ended, or does not answer in time."""
        if self._jvm.stdin is None or self._jvm.stdout is None:
            raise AssertionError("opened with pipes")
        try:
            self._jvm.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
            self._jvm.stdin.flush()
        except BrokenPipeError:
            return {}
        ready, _, _ = select([self._jvm.stdout], [], [], patience_s)
        answer: dict[str, Any] = json.loads((ready and self._jvm.stdout.readline()) or "{}")
        return answer

    def link(self, home: Path, names: Iterable[str]) -> None:
        """Let relative paths lead below `home`."""
        for name in {Path(name).parts[0] for name in names if not Path(name).is_absolute()}:
            (home / name).mkdir(exist_ok=True)
            if not (self._folder / name).is_symlink():
                (self._folder / name).symlink_to(home / name)

    def clear(self) -> bool:
        """End what runs in it; tell whether it may serve another cluster."""
        if self.ask("end", {}, _PATIENCE_S).get("result") is not True:
            return False
        for link in self._folder.iterdir():
            if link.is_symlink():
                link.unlink()
        self.uses += 1
        return self.uses < _MOST_USES

    def end(self) -> None:
        """Let it end by itself."""
        self._jvm.communicate()
        self.kill()

    def kill(self) -> None:
        """End it, and all that runs in it."""
        atexit.unregister(self.kill)
        self._jvm.kill()
        if self._jvm.returncode is None:
            self._jvm.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)


_MOST_USES: Final = 8
"""Bookies leave some of their memory behind."""
_PATIENCE_S: Final = 60.0
_idle: Final[list[_Machine]] = []


class Cluster:
    """A cluster in a JVM; files lie in `home`, and cookies are relative to it. Ends with the `with` block.

    What the JVM logs goes to `<home>.log`. It is the JVM of an earlier one, where both have no options of their own.
    """

    def __init__(
        self,
        home: Path,
        *,
        class_path: str = "",
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home.absolute()
        self.zookeeper = ""
        self._started: dict[int, Bookie] = {}
        self._is_over = False
        self._is_kept = not (class_path or options or environment)
        self._machine = (
            _idle.pop()
            if self._is_kept and _idle
            else _Machine(class_path or jars.class_path(), options, environment or {})
        )
        self._log = self.home.with_name(f"{home.name}.log")
        self("begin", log=str(self._log))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._is_kept and error is None and self._machine.clear():
            _idle.append(self._machine)
        else:
            self._machine.kill()

    def end(self) -> None:
        """Let the JVM end by itself."""
        self._machine.end()

    @property
    def pid(self) -> int:
        """The JVM's process."""
        return self._machine.pid

    def __call__(self, op: str, **arguments: Any) -> Any:
        """Do one operation of the driver and return its result.

        Raises:
            ClientHangsError: what was asked of the client has no end.
            ClusterError: with the error's class and message as Java gave them.
        """
        answer = self._machine.ask(op, arguments)
        if not answer:
            raise ClusterError(f"{op}: the JVM ended, see {self._log}")
        if "error" in answer:
            self._is_kept = False  # a bookie that did not start may have left threads
            raise (ClientHangsError if answer.get("hangs") else ClusterError)(f"{op}: {answer['error']}")
        return answer["result"]

    def start_zookeeper(self, folder: str, root: str) -> None:
        """Start ZooKeeper on its data folder; `zookeeper` is then its address."""
        self._machine.link(self.home, [folder])
        port: int = self("zk_start", folder=folder, root=root)
        self.zookeeper = f"127.0.0.1:{port}"

    def start(self, bookie: Bookie) -> None:
        """Start a bookie as BookKeeper's own main program does, cookies checked."""
        self._started[bookie.n] = bookie
        self._machine.link(self.home, [*bookie.journals, *bookie.ledgers, *(bookie.indexes or ())])
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
