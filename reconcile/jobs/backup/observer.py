"""An observer of one's own: a server that receives every committed transaction and has no vote, with files to follow.

Its folder gets ``zoo.cfg`` and ``data``; what runs is ZooKeeper's own class, from jars that are there. Clients reach it
on loopback only, and no server has to reach it: it connects to the ensemble's servers, whose numbers are lower.

    file of settings   a line               goes to
                       -Dname=value, -X…    Java's command line
                       key=value            zoo.cfg: TLS and SASL of the quorum, server.N lines of an ensemble that does
                                            not show its own
                       # …, nothing         nowhere

Source: Apache ZooKeeper 3.9, "Observers", QuorumPeerConfig, ObserverZooKeeperServer.
"""

import os
import re
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.errors import AccessDeniedError
from reconcile.jobs.context import Context, connect
from reconcile.operator_files import read_operator_text
from recovery.errors import InputError

_MARK: Final = "# Written by bkmeta backup observer; what is changed here is lost when it starts again."
_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_CONFIG_KEY: Final = "/zookeeper/config"
_LARGEST_NUMBER: Final = 254
_LIKELY_NUMBER: Final = 200
"""Servers are numbered from 1 on by people: an observer of one's own is above them."""
_SECRET: Final = re.compile(r"-D[^=]*password=", re.IGNORECASE)
"""Of Java's options: `…PasswordPath=` is none."""
_SERVER: Final = re.compile(r"server\.([0-9]{1,3})=(\S+)")
_OURS: Final = (
    "dataDir",
    "dataLogDir",
    "clientPort",
    "clientPortAddress",
    "secureClientPort",
    "peerType",
    "syncEnabled",
    "dynamicConfigFile",
    "standaloneEnabled",
)
_DEFAULTS: Final = {
    "tickTime": "2000",
    "initLimit": "60",
    "syncLimit": "15",
    "autopurge.snapRetainCount": "6",
    "autopurge.purgeInterval": "1",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "srvr,ruok",
}
_PLACES: Final = (
    "/opt/zookeeper/lib",
    "/usr/share/zookeeper/lib",
    "/usr/share/java",
    "/opt/bookkeeper/lib",
    "/pulsar/lib",
)
_HEAP: Final = "-Xmx1g"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverRequest:
    """What `prepare_observer` is asked for.

    Attributes:
        hosts: ``host:port`` of the ensemble's servers, as clients connect, joined with commas.
        folder: of the observer: absent, empty, or its own from before.
        number: of the observer in the ensemble; None: one above those of all servers.
        port: for clients, on loopback; the two behind it are the observer's own for the quorum.
        settings: file of more settings; None: none.
        jars: folder of ZooKeeper's jars, or one jar; None: they are searched for.
        environ: where ``JAVA_HOME``, ``ZOOKEEPER_HOME`` and ``PATH`` are looked up.
    """

    hosts: str
    folder: Path
    number: int | None = None
    port: int = 12181
    settings: Path | None = None
    jars: Path | None = None
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Observer:
    """An observer that can be run.

    Attributes:
        command: runs it; the first word is Java's path.
        config: its ``zoo.cfg``.
        number: in the ensemble.
        servers: how many the ensemble has.
    """

    command: tuple[str, ...]
    config: Path
    number: int
    servers: int


@dataclass(frozen=True, slots=True)
class _Settings:
    """A file of settings: options of Java, lines of zoo.cfg by key, and servers by number."""

    options: tuple[str, ...]
    values: Mapping[str, str]
    servers: Mapping[int, str]


def prepare_observer(request: ObserverRequest, context: Context) -> Observer:
    """Write an observer's configuration.

    Raises:
        InputError: Java or ZooKeeper's jars are missing, a setting cannot be used, the folder is not an observer's, or
            the ensemble does not show its servers.
        UnavailableError: the ensemble does not answer.
    """
    settings = _read_settings(request.settings)
    java, jars = _find_programs(request)
    servers = settings.servers or _ask_servers(request.hosts, context)
    number = _choose_number(request.number, servers)
    _require_own_folder(request.folder)
    data = request.folder / "data"
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write(data / "myid", f"{number}\n")
    lines = [
        _MARK,
        f"dataDir={data}",
        "clientPortAddress=127.0.0.1",
        f"clientPort={request.port}",
        "peerType=observer",
        "syncEnabled=true",
        "standaloneEnabled=false",
        *(f"{key}={value}" for key, value in {**_DEFAULTS, **settings.values}.items()),
        *(f"server.{voter}={place}" for voter, place in sorted(servers.items())),
        f"server.{number}=127.0.0.1:{request.port + 1}:{request.port + 2}:observer",
    ]
    config = request.folder / "zoo.cfg"
    _write(config, "\n".join(lines) + "\n")
    heap = () if any(option.startswith("-Xmx") for option in settings.options) else (_HEAP,)
    options = ("-Dzookeeper.observer.syncEnabled=true", "-XX:+ExitOnOutOfMemoryError", *heap, *settings.options)
    command = (java, *options, "-cp", jars, _CLASS, str(config))
    return Observer(command, config, number, len(servers))


def _read_settings(path: Path | None) -> _Settings:
    options: list[str] = []
    values: dict[str, str] = {}
    servers: dict[int, str] = {}
    lines = [] if path is None else read_operator_text(path, "write lines of key=value, as in zoo.cfg").splitlines()
    for place, line in enumerate((line.strip() for line in lines), 1):
        key, separator, value = line.partition("=")
        if not line or line.startswith("#"):
            continue
        if _SECRET.match(line) is not None:
            remedy = "give it as a line of zoo.cfg, as ssl.quorum.keyStore.password=…, or its file, …passwordPath=…"
            raise InputError(f"{path}, line {place}", "a password on Java's command line is seen by all", remedy)
        if line.startswith("-"):
            options.append(line)
        elif (match := _SERVER.fullmatch(line)) is not None:
            servers[int(match[1])] = match[2]
        elif not separator or not key.strip():
            raise InputError(f"{path}, line {place}", f"not key=value: {line!r}", "give it as in zoo.cfg, or remove it")
        elif key.strip() in _OURS:
            raise InputError(f"{path}, line {place}", f"{key.strip()} is not yours to set here", "remove the line")
        else:
            values[key.strip()] = value.strip()
    return _Settings(tuple(options), values, servers)


def _find_programs(request: ObserverRequest) -> tuple[str, str]:
    """Return Java's path and the class path; all that is missing is named in one error."""
    home = request.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=request.environ.get("PATH"))
    missing = []
    if java is None or not os.access(java, os.X_OK):
        missing.append(f"Java ({f'{java} of JAVA_HOME' if home else 'no java on the PATH'})")
    places = [request.jars] if request.jars is not None else list(_list_places(request.environ))
    jars = next((found for place in places if (found := _class_path(place)) is not None), None)
    if jars is None:
        searched = ", ".join(map(str, places))
        missing.append(f"ZooKeeper's jars (no jar with {_CLASS} in {searched})")
    if missing or java is None or jars is None:
        remedy = "install Java 17, or set JAVA_HOME; unpack a release of ZooKeeper, and name its lib folder"
        raise InputError("the observer", f"missing: {'; '.join(missing)}", remedy)
    return java, jars


def _list_places(environ: Mapping[str, str]) -> Iterable[Path]:
    for name in ("ZOOKEEPER_HOME", "ZK_HOME", "BOOKKEEPER_HOME"):
        if environ.get(name):
            yield Path(environ[name], "lib")
    yield from map(Path, _PLACES)
    from importlib.util import find_spec  # noqa: PLC0415 - only where no other place has them

    spec = find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "jars"


def _class_path(place: Path) -> str | None:
    """Return the class path of a folder or a jar that has the class; None: it does not."""
    jars = [place] if place.is_file() else sorted(place.glob("*zookeeper*.jar"))
    member = f"{_CLASS.replace('.', '/')}.class"
    for jar in jars:
        try:
            with zipfile.ZipFile(jar) as archive:
                if member in archive.NameToInfo:
                    return str(place) if place.is_file() else f"{place}/*"
        except (OSError, zipfile.BadZipFile):
            continue
    return None


def _ask_servers(hosts: str, context: Context) -> dict[int, str]:
    """Return the servers of an ensemble by number, as it names them to its clients."""
    remedy = "name them in a file of settings, a line server.N=host:2888:3888 for each; the servers' zoo.cfg has them"
    try:
        with connect(f"zk://{hosts}{_CONFIG_KEY}", context) as opened:
            node = opened.store.get(_CONFIG_KEY)
    except AccessDeniedError as error:
        raise InputError(hosts, f"its servers are not shown ({error})", remedy) from error
    text = "" if node is None else node.value.decode("utf-8", "replace")
    servers = {int(match[1]): match[2].partition(";")[0] for match in _SERVER.finditer(text)}
    if not servers:
        problem = "it does not name its servers: one server alone has no observers, and before 3.5 none are named"
        raise InputError(hosts, problem, remedy)
    return servers


def _choose_number(number: int | None, servers: Mapping[int, str]) -> int:
    highest = max(servers)
    chosen = max(_LIKELY_NUMBER, highest + 1) if number is None else number
    if chosen in servers or not highest < chosen <= _LARGEST_NUMBER:
        problem = f"{chosen} is not above those of the ensemble's servers, up to {highest}, and at most 254"
        raise InputError(
            "the observer's number", problem, "servers do not connect to an observer: its number must be the highest"
        )
    return chosen


def _require_own_folder(folder: Path) -> None:
    config = folder / "zoo.cfg"
    if not folder.exists() or not any(folder.iterdir()):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return
    if not config.is_file() or not config.read_text("utf-8", "replace").startswith(_MARK):
        raise InputError(str(folder), "it is not empty, and no observer's folder", "name an empty folder")


def _write(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(path)
