"""The configuration of the service: one TOML file, every key of it typed; conf/serve.toml has them all."""

import re
import socket
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import field

from reconcile.operator_files import OperatorTable, convert_values, read_toml
from reconcile.service.runs.commands import OF_BACKUP, OVER_WIRE, OWN
from reconcile.service.runs.schedule import Timing
from recovery.errors import InputError

COMMANDS: Final = ("scrutinize", "capture", "orphans", "drill")
"""Commands that can be run by a schedule: each reads the store and writes a new folder."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"([0-9]{1,6})([smhd])")
_WINDOW: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.\-]+):([0-9]{1,5})")
_NAME: Final = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.\-]+")
NONE: Final = "none"
READ: Final = "read"
"""The rights of callers without a token."""
_TOKEN: Final = re.compile(r"([A-Za-z0-9_.\-]{1,64}) ([\x21-\x7e]{16,512})(?: ([a-z,]{1,64}))?")
_MOST_SHARES: Final = 100
_INSTANCE: Final = "{instance}"
_INSTANCE_NAME: Final = re.compile(r"[A-Za-z0-9_.:\-]{1,64}")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.\-]+)(:[0-9]+)?(?=[,;]|$)")
_ARGUMENTS: Final = ("delete_request", "delete_verify", "check_impact", "explain")
_FORM: Final = "fix it; conf/serve.toml shows every key"
_ANYWHERE: Final = ("0.0.0.0", "[::]")  # noqa: S104 - what others cannot ask


class TokenRole(StrEnum):
    """What a token may do; every token may call methods that change nothing."""

    READ = "read"
    RUN = "run"
    DELETE = "delete"
    APPROVE = "approve"


ALL_ROLES: Final = frozenset(TokenRole)


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a token.

    Attributes:
        name: of the caller.
        roles: of the caller.
    """

    name: str
    roles: frozenset[TokenRole] = ALL_ROLES


class Seconds(float):
    """A duration; in TOML a number and a unit, s, m, h or d."""

    __slots__ = ()


class ElectionConfig(OperatorTable, frozen=True):
    """How one of several instances is chosen.

    Attributes:
        session: an instance that the store does not hear of for so long is followed by another one.
    """

    session: Seconds = Seconds(15)


class Listen(OperatorTable, frozen=True):
    """Where the service is asked.

    Attributes:
        http: ``host:port`` of the page and JSON.
        health: ``host:port`` of /healthz, /readyz and /metrics.
        names: further names that callers over HTTP have for this service; requests for other hosts are refused.
        grpc: ``host:port`` of gRPC.
        advertise: how other instances name the gRPC address of this one, `{instance}` is its name; empty: as it is, or
            the instance's name in place of all addresses.
    """

    http: str = "127.0.0.1:8480"
    grpc: str = "127.0.0.1:8481"
    health: str = "127.0.0.1:8482"
    names: tuple[str, ...] = ()
    advertise: str = ""


class ServiceAccess(OperatorTable, frozen=True):
    """The allowed callers.

    Attributes:
        tokens: file with a line of name, token and roles for each caller that may change something; mode 0600. Empty:
            no caller may.
        anonymous: what callers without a token may do: ``none``, or ``read``: call methods that change nothing. Health
            needs no token.
        tls_cert, tls_key: files of the service's own certificate and its key, PEM; empty: not encrypted.
    """

    tokens: str = ""
    anonymous: str = "none"
    tls_cert: str = ""
    tls_key: str = ""


class Requests(OperatorTable, frozen=True):
    """Limits of requests.

    Attributes:
        at_once: requests with a token that run a command at the same time; more wait.
        at_once_anonymous: the same for requests without a token; more are refused.
        deadline: of a request, at most.
        delete_request: further arguments of `bkmeta delete request`: references that verifications must read.
        delete_verify: further arguments of `bkmeta delete verify`: how bookies are read, references.
        check_impact: further arguments of `bkmeta check-impact`: topology, placement.
        explain: further arguments of `bkmeta explain`.
    """

    at_once: int = 2
    at_once_anonymous: int = 1
    deadline: Seconds = Seconds(600)
    delete_request: tuple[str, ...] = ()
    delete_verify: tuple[str, ...] = OVER_WIRE
    check_impact: tuple[str, ...] = ()
    explain: tuple[str, ...] = ()


class Gates(OperatorTable, frozen=True):
    """Maintenances that wait until they are safe.

    Attributes:
        check_every: while they wait.
    """

    check_every: Seconds = Seconds(60)


class Cache(OperatorTable, frozen=True):
    """Captures of the store for scrutinies, impact checks and maintenances.

    Attributes:
        max_age: of a capture that is used; it is made again in the background at half of that.
        background: false: a question that finds none young enough captures the store itself.
        timeout: of a capture.
    """

    max_age: Seconds = Seconds(600)
    background: bool = True
    timeout: Seconds = Seconds(3600)


class KeptRuns(OperatorTable, frozen=True):
    """Runs that are kept; the last run of each share is always kept.

    Attributes:
        runs: the newest.
        hourly, daily, weekly: the newest of each of so many hours, days and weeks that have runs.
    """

    runs: int = 3
    hourly: int = 0
    daily: int = 0
    weekly: int = 0


class Job(OperatorTable, frozen=True):
    """A job that is run by a schedule.

    Attributes:
        every: from the beginning of one run to that of the next.
        jitter: share of `every` that is added at most.
        retry: until a run that failed is repeated; twice as long after each more.
        timeout: a run is ended after it.
        shares: of `scrutinize`: each run checks one of so many shares of the ledgers, in turn.
        arguments: further ones of the command.
        keep: which runs are kept.
        only: times of the day at which the schedule begins runs, ``HH:MM-HH:MM`` in UTC; none: at any time. A run that
            was begun goes on behind its end. What a caller asks for is begun at once.
    """

    every: Seconds
    jitter: float = 0.1
    retry: Seconds = Seconds(300)
    timeout: Seconds = Seconds(86_400)
    shares: int = 1
    arguments: tuple[str, ...] = ()
    keep: KeptRuns = field(default_factory=KeptRuns)
    only: tuple[str, ...] = ()

    @property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """Begin and end of each time of the day, in minutes."""
        return tuple((window[0], window[1]) for text in self.only if (window := _read_window(text)) is not None)


class BackupConfig(OperatorTable, frozen=True):
    """A backup that the elected instance follows the store into.

    Attributes:
        to: its folder, or a URI of one that all instances reach; empty: there is none.
        keep: every moment of so long can be restored; empty: nothing is removed.
        arguments: further ones of `bkmeta backup follow`.
    """

    to: str = ""
    keep: str = ""
    arguments: tuple[str, ...] = ()


class Config(OperatorTable, frozen=True):
    """The whole file.

    Attributes:
        metadata: URI of the live store.
        data: folder of runs, captures and journals; instances that share one go on with each other's findings.
        instance: name of this instance; empty: the host's.
        acl: rights of bkmeta's own root, where it is made; empty: those of the ledgers root.
        spark_master: of scrutinies, drills and impact checks, as `spark-submit --master` takes it; empty: this host.
        election, listen, access, requests, gates, cache, backup: tables of these names.
        jobs: by the name of their command.
    """

    metadata: str
    data: Path
    instance: str = ""
    acl: str = ""
    spark_master: str = ""
    election: ElectionConfig = field(default_factory=ElectionConfig)
    listen: Listen = field(default_factory=Listen)
    access: ServiceAccess = field(default_factory=ServiceAccess)
    requests: Requests = field(default_factory=Requests)
    gates: Gates = field(default_factory=Gates)
    cache: Cache = field(default_factory=Cache)
    backup: BackupConfig = field(default_factory=BackupConfig)
    jobs: Mapping[str, Job] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of this instance."""
        return self.instance or socket.gethostname()

    @property
    def host_names(self) -> frozenset[str]:
        """The names of this service in requests over HTTP, in lower case."""
        listened = self.listen.http.rpartition(":")[0]
        advertised = self.listen.advertise.replace(_INSTANCE, self.name).rpartition(":")[0]
        own = {"localhost", "127.0.0.1", "[::1]", socket.gethostname(), socket.getfqdn(), self.name}
        given = {advertised, *self.listen.names, *(() if listened in _ANYWHERE else (listened,))}
        return frozenset(name.lower() for name in own | given if name)

    @property
    def address(self) -> str:
        """Where others ask this instance over gRPC."""
        host, _, port = self.listen.grpc.rpartition(":")
        own = f"{self.name}:{port}" if host in _ANYWHERE else self.listen.grpc
        return self.listen.advertise.replace(_INSTANCE, self.name) or own

    @property
    def timings(self) -> dict[str, Timing]:
        """When each job is due."""
        return {
            name: Timing(
                name,
                round(job.every * 1000),
                job.jitter,
                round(job.retry * 1000),
                job.shares,
                self.metadata,
                job.windows,
            )
            for name, job in self.jobs.items()
        }


def _read_window(text: str) -> tuple[int, int] | None:
    """Return begin and end of a window of the day, in minutes; None: no window, or an empty one."""
    match = _WINDOW.fullmatch(text)
    if match is None:
        return None
    first, last = int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])
    return None if first == last else (first, last)


def read_config(path: Path) -> Config:
    """Read a configuration.

    Raises:
        InputError: it cannot be read, or a key is unknown, missing, of another type or out of its range.
    """
    values = read_toml(path, _FORM)
    jobs = convert_values(values.pop("jobs", {}), dict[str, dict[str, Any]], path, _FORM, table="jobs")
    config = convert_values(values, Config, path, _FORM, own=_read_own)
    read = {
        name: convert_values(job, Job, path, _FORM, table=f"jobs.{name}", own=_read_own) for name, job in jobs.items()
    }
    config = msgspec.structs.replace(config, jobs=read)
    _check(config, str(path))
    return config


def _read_own(kind: type, value: Any) -> Any:  # noqa: ANN401 - what TOML has
    if kind is Path and isinstance(value, str) and value:
        return Path(value)
    if kind is not Seconds:
        raise ValueError(f"{value!r} is not a folder")
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{value!r} is not a duration, a number above 0 and s, m, h or d in quotes")
    return Seconds(int(match[1]) * _UNITS[match[2]])


def _check(config: Config, source: str) -> None:
    """Check the rules that types cannot express.

    Raises:
        InputError: a value cannot be used.
    """

    def demand(place: str, problem: str, remedy: str, *, holds: bool) -> None:
        if not holds:
            raise InputError(f"{source}, {place}", problem, remedy)

    demand(
        "instance",
        f"{config.name!r} is no name",
        "write letters, digits, _ . : and -, at most 64",
        holds=_INSTANCE_NAME.fullmatch(config.name) is not None,
    )
    for name in ("http", "grpc", "health", "advertise"):
        address = getattr(config.listen, name).replace(_INSTANCE, config.name if name == "advertise" else _INSTANCE)
        match = _ADDRESS.fullmatch(address)
        fits = (match is not None and int(match[2]) < 1 << 16) or (name == "advertise" and not address)
        demand(f"listen.{name}", f"{address!r} is not an address", "write host:port", holds=fits)
    demand("election.session", "is too short or too long", "write 3s to 60s", holds=3 <= config.election.session <= 60)
    for name in _ARGUMENTS:
        own = next((word for word in getattr(config.requests, name) if word.partition("=")[0] in OWN), "")
        demand(f"requests.{name}", f"{own} is given by the service", "leave it out", holds=not own)
    for name in ("at_once", "at_once_anonymous"):
        demand(f"requests.{name}", "is out of range", "write 1 to 64", holds=1 <= getattr(config.requests, name) <= 64)
    anonymous = config.access.anonymous
    demand("access.anonymous", f"{anonymous!r} is unknown", 'write "none" or "read"', holds=anonymous in (NONE, READ))
    own = next((word for word in config.backup.arguments if word.partition("=")[0] in OF_BACKUP), "")
    demand("backup.arguments", f"{own} is given by the service", "leave it out", holds=not own)
    is_duration = _DURATION.fullmatch(config.backup.keep) is not None
    problem = f"{config.backup.keep!r} is no duration"
    demand(
        "backup.keep", problem, 'write a number and s, m, h or d: "30d"', holds=not config.backup.keep or is_duration
    )
    for name in config.listen.names:
        fits = _NAME.fullmatch(name) is not None
        demand("listen.names", f"{name!r} is not a host name", "write it without a port", holds=fits)
    paired = bool(config.access.tls_cert) == bool(config.access.tls_key)
    demand("access.tls_cert", "and tls_key go together", "name both, or none", holds=paired)
    for name, job in config.jobs.items():
        place = f"jobs.{name}"
        demand(place, "is not a job", f"known are {', '.join(COMMANDS)}", holds=name in COMMANDS)
        demand(f"{place}.jitter", "is out of range", "write 0 to 1", holds=0 <= job.jitter <= 1)
        shared = job.shares == 1 or (name == "scrutinize" and 1 <= job.shares <= _MOST_SHARES)
        demand(f"{place}.shares", "is out of range", f"write 1 to {_MOST_SHARES}, of scrutinize only", holds=shared)
        own = next((word for word in job.arguments if word.partition("=")[0] in OWN), "")
        demand(f"{place}.arguments", f"{own} is given by the service", "leave it out", holds=not own)
        for text in job.only:
            fits = _read_window(text) is not None
            demand(f"{place}.only", f"{text!r} is not a time of day", 'write "22:00-06:00", in UTC', holds=fits)
        counts = (job.keep.runs, job.keep.hourly, job.keep.daily, job.keep.weekly)
        demand(f"{place}.keep", "is out of range", "write numbers from 0 on", holds=min(counts) >= 0)


def list_missing(config: Config) -> list[str]:
    """Return the hosts of the store, files and folders of a configuration that this host does not have.

    Paths are searched for among further arguments too: each absolute one.
    """
    missing = []
    for host in sorted({host for host, _ in _HOST.findall(config.metadata.partition("://")[2].partition("/")[0])}):
        try:
            socket.getaddrinfo(host.strip("[]"), None)
        except OSError as error:
            missing.append(f"metadata: host {host} is not known here ({error.strerror})")
    requests = [(f"requests.{name}", getattr(config.requests, name)) for name in _ARGUMENTS]
    jobs = [(f"jobs.{name}.arguments", job.arguments) for name, job in sorted(config.jobs.items())]
    for key, words in (*requests, *jobs):
        for word in words:
            text = word.rpartition("=")[2]
            if text.startswith("/") and not Path(text).exists():
                missing.append(f"{key}: {text} does not exist")
    return missing


def read_tls(access: ServiceAccess) -> ssl.SSLContext | None:
    """Return a server's settings for TLS; None: it is not encrypted.

    Raises:
        InputError: the files cannot be read, are none, do not belong together, or the key has a password.
    """
    if not access.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # The password of a key would be asked for at a terminal without a person.
        context.load_cert_chain(access.tls_cert, access.tls_key, password="-")  # noqa: S106 - none that opens anything
    except OSError as error:
        remedy = "name a certificate and its key, PEM, without a password, that you can read"
        problem = f"and {access.tls_key} cannot be used ({error.strerror or error})"
        raise InputError(access.tls_cert, problem, remedy) from error
    return context


def read_tokens(path: str) -> dict[str, Caller]:
    """Return the tokens of a file, token → caller; none where no file is named. A line without roles has all.

    Raises:
        InputError: it cannot be read, is readable by others, has another line, gives a token to two, or a name
            different roles.
    """
    if not path:
        return {}
    try:
        mode = stat.S_IMODE(Path(path).stat().st_mode)
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, "cannot be read as text", "name a file of tokens that you can read") from error
    if mode & 0o077:
        raise InputError(path, f"holds tokens and has mode {mode:04o}", f"run: chmod 600 {path}")
    tokens: dict[str, Caller] = {}
    roles_of: dict[str, frozenset[TokenRole]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _TOKEN.fullmatch(line.strip())
        if match is None:
            remedy = (
                "write a name, a space and a token of at least 16 characters (openssl rand -hex 24 makes one); after "
                f"another space roles, if not all: {','.join(TokenRole)}"
            )
            raise InputError(f"{path}, line {number}", "is not a name and token", remedy)
        words = match[3].split(",") if match[3] else list(TokenRole)
        if not set(words) <= set(TokenRole):
            raise InputError(f"{path}, line {number}", "has an unknown role", f"known are {', '.join(TokenRole)}")
        caller = Caller(match[1], frozenset(map(TokenRole, words)))
        if roles_of.setdefault(caller.name, caller.roles) != caller.roles:
            problem = f"gives {caller.name} other roles than an earlier line"
            raise InputError(f"{path}, line {number}", problem, "give each name the same roles everywhere")
        if match[2] in tokens:
            # What is done with it would be beside the name of the last.
            problem = f"has the token of {tokens[match[2]].name}"
            raise InputError(f"{path}, line {number}", problem, "give each name a token of its own")
        tokens[match[2]] = caller
    return tokens
