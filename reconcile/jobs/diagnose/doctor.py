"""Is this installation complete: what the program needs on this machine, one check a line, each with its remedy.

A check looks at one thing and never raises for what it finds. What only some commands need says so, so that a bookie's
host without Java is not called broken for that.
"""

import importlib.metadata
import importlib.util
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backends.errors import AccessDeniedError, BackendError
from backends.protocols import AccessControl, parse_acl
from backends.registry import OpenStore
from reconcile.jobs.context import Context, throttle
from reconcile.stores import open_store, require_store_uri
from reconcile.words import list_names
from recovery import __version__
from recovery.codecs import store
from recovery.codecs.store_kind import KINDS, kind_of
from recovery.spark import find_java, has_executors, java_problem, over_buckets, session

if TYPE_CHECKING:
    from recovery.spark import SparkSession

DISTRIBUTION: Final = "bkmeta"
OURS: Final = ("recovery", "reconcile", "backends")
"""Top-level import names; each must be of this distribution alone."""

OLDEST_PYTHON: Final = (3, 11)
FEWEST_FILES: Final = 1024
"""Open files that are needed: every table file of a bookie's RocksDB is held open while it is read."""
LEAST_TEMPORARY: Final = 64 << 20
"""Free bytes that are needed for temporary files; what grows with the cluster is written elsewhere."""

_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*([^;\[\s]*)\s*(?:;.*extra\s*==\s*['\"]([^'\"]+)['\"])?")
_LIMIT: Final = re.compile(r"(>=|<=|==|!=|<|>)\s*([0-9][0-9.]*)")
_PATIENCE_S: Final = 10.0
"""How long a store may take to answer before it counts as unreachable."""
_SPARK: Final = "spark"
_PYSPARK: Final = "pyspark"
_WAYS: Final = "ways in"
_SASL: Final = "sasl"
_BOOKIE_WAYS: Final = (
    "bookies: SASL with DIGEST-MD5 or Kerberos, TLS with client certificates, or your own mechanism; not supported: "
    "SASL that signs or encrypts what follows (auth-int, auth-conf)"
)
_SCHEMES: Final = frozenset({"world", "auth", "digest", "ip", _SASL, "super", "x509"})
"""Of ZooKeeper's own: whom a session is, or may be, by what is told to it or known of its connection."""
_ONLY_SPARK: Final = "only work on Spark needs it"
_TRY_CLIENT: Final = "import sys; from backends.registry import try_client; try_client(sys.argv[1])"
_AGAIN: Final = "install bkmeta again, alone in an environment: uv tool install bkmeta, or pipx install bkmeta"


class CheckState(StrEnum):
    """What a check says; stored in --json, so never renamed."""

    OK = "ok"
    MISSING = "missing"
    SKIPPED = "skipped"
    """Not looked at, because it was not asked for or something before it is missing."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line.

    Attributes:
        name: what was looked at.
        state: what came of it.
        found: what is there.
        remedy: what to do; empty where nothing is to be done.
    """

    name: str
    state: CheckState
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRequest:
    """What `doctor` checks besides this machine.

    Attributes:
        uri: a store that must be reachable; None: none.
        spark: this machine may run what needs Spark, if PySpark is installed.
        master: start a session there and run tasks in it; None: do not.
        python: what executors are to run as their Python; None: what they have.
    """

    uri: str | None = None
    spark: bool = False
    master: str | None = None
    python: Path | None = None


def examine_installation(request: DoctorRequest, context: Context) -> list[Check]:
    """Say whether this installation is complete.

    Raises:
        UnsupportedStoreError: the URI is malformed: that is not a store that is down.
    """
    connect: Callable[[], OpenStore] | None = None
    if request.uri is not None:
        require_store_uri(request.uri)
        connect = partial(open_store, request.uri, context.access, patience_s=_PATIENCE_S)
    with context.reporter.progress("looking", "checks") as progress:
        return examine(
            spark=request.master is not None or (request.spark and _version(_PYSPARK) is not None),
            master=request.master,
            python=request.python,
            connect=connect,
            progress=throttle(progress),
        )


def examine(
    *,
    spark: bool,
    master: str | None = None,
    python: Path | None = None,
    connect: Callable[[], OpenStore] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[Check]:
    """Look at everything that was asked for.

    Args:
        spark: whether this machine must run the commands that need Spark.
        master: start a session there and run tasks in it; None: do not.
        python: what executors are to run as their Python; None: what they have.
        connect: opens the store that must be reachable; None: none was named.
        progress: called with how many of how many checks are done.
    """
    installation: list[Callable[[], list[Check]]] = [
        lambda: [_python()],
        lambda: list(_packages(_requirements(), spark=spark)),
        lambda: [*_owners(), _one_place()],
        _try_clients,
        lambda: [_java(spark=spark)],
    ]
    tasks: list[Callable[[], list[Check]]] = [
        *([lambda: [_describe_file()]] if getattr(sys, "frozen", False) else installation),
        lambda: [_open_files(), _temporary(Path(tempfile.gettempdir()))],
    ]
    if connect is not None:
        tasks.append(lambda: _store(connect))
    checks: list[Check] = []
    for number, task in enumerate(tasks):
        checks += task()
        progress(number + 1, len(tasks) + 1)
    missing = any(c.state is CheckState.MISSING for c in checks)
    if master is not None and missing:
        checks.append(Check("Spark session", CheckState.SKIPPED, "not started", "install what is missing first"))
    elif master is not None:
        checks += _session(master, python)
    progress(len(tasks) + 1, len(tasks) + 1)
    return checks


def _describe_file() -> Check:
    """Say what one file has in it that needs no installation; it runs none of the commands that need Spark."""
    version = platform.python_version()
    return Check(DISTRIBUTION, CheckState.OK, f"{__version__}, packed into one file with Python {version}")


def _python() -> Check:
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Check("Python", CheckState.MISSING, version, f"use Python {oldest} or newer")
    return Check("Python", CheckState.OK, f"{version} ({sys.executable})")


@dataclass(frozen=True, slots=True)
class Requirement:
    """A distribution that ours names: its limits as (operator, version), and the extra that wants it."""

    name: str
    limits: tuple[tuple[str, tuple[int, ...]], ...]
    extra: str | None


def parse_requirement(text: str) -> Requirement | None:
    """Read one line of a distribution's requirements; None where it has another form."""
    match = _REQUIREMENT.match(text)
    if match is None:
        return None
    limits = tuple((operator, _numbers(version)) for operator, version in _LIMIT.findall(match[2]))
    return Requirement(match[1], limits, match[3])


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; a suffix such as rc1 ends them."""
    numbers = []
    for part in version.split("."):
        digits = re.match(r"\d+", part)
        if digits is None:
            break
        numbers.append(int(digits[0]))
        if digits[0] != part:
            break
    return tuple(numbers)


def satisfies(version: str, limits: Sequence[tuple[str, tuple[int, ...]]]) -> bool:
    """Whether a version is within all limits; only its numbers are compared."""
    for operator, limit in limits:
        width = max(len(limit), len(_numbers(version)))
        have, want = (((*n, *[0] * width))[:width] for n in (_numbers(version), limit))
        agrees = {
            ">=": have >= want,
            "<=": have <= want,
            "==": have == want,
            "!=": have != want,
            "<": have < want,
            ">": have > want,
        }[operator]
        if not agrees:
            return False
    return True


def _requirements() -> list[Requirement]:
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [requirement for line in lines if (requirement := parse_requirement(line))]


def _packages(requirements: Sequence[Requirement], *, spark: bool) -> Iterator[Check]:
    installed = _version(DISTRIBUTION)
    if installed is None:
        remedy = "install it, so that its own requirements can be checked: pip install ."
        yield Check(DISTRIBUTION, CheckState.MISSING, "run from a folder, not installed", remedy)
    else:
        yield Check(DISTRIBUTION, CheckState.OK, installed)
    for wanted in requirements:
        version = _version(wanted.name)
        span = ",".join(f"{operator}{'.'.join(map(str, limit))}" for operator, limit in wanted.limits)
        install = f"pip install '{wanted.name}{span}'"
        if wanted.extra is not None:
            install = f"pip install '{DISTRIBUTION}[{wanted.extra}]'"
        if version is not None and satisfies(version, wanted.limits):
            yield Check(wanted.name, CheckState.OK, version)
        elif wanted.extra is not None and version is None and not (wanted.extra == _SPARK and spark):
            yield Check(wanted.name, CheckState.SKIPPED, f"not installed, and optional: {DISTRIBUTION}[{wanted.extra}]")
        else:
            yield Check(
                wanted.name, CheckState.MISSING, f"{version or 'not installed'}, needed: {span or 'any'}", install
            )


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _owners() -> list[Check]:
    # Asked for once: it reads the list of files of every distribution.
    owners = importlib.metadata.packages_distributions()
    # An editable install lists no packages of its own: then nobody else may list the name either.
    return [_owner(name, owners.get(name, [DISTRIBUTION])) for name in OURS]


def _owner(name: str, owners: Sequence[str]) -> Check:
    strangers = sorted({*owners} - {DISTRIBUTION})
    if strangers:
        remedy = (
            f"use an environment of our own: pip uninstall {' '.join(strangers)}, then install {DISTRIBUTION} again"
        )
        return Check(f"import {name}", CheckState.MISSING, f"also owned by {', '.join(strangers)}", remedy)
    return Check(f"import {name}", CheckState.OK, f"of {DISTRIBUTION} alone")


def _one_place() -> Check:
    places = {}
    for name in OURS:
        spec = importlib.util.find_spec(name)
        places[name] = Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
    if len(set(places.values())) == 1:
        return Check("our packages", CheckState.OK, f"all from {places[OURS[0]]}")
    listed = ", ".join(f"{name} from {place or 'nowhere'}" for name, place in places.items())
    return Check(
        "our packages", CheckState.MISSING, listed, "one shadows ours: run from another folder, unset PYTHONPATH"
    )


def _try_clients() -> list[Check]:
    """Say whether the libraries that reach stores work as they are installed: versions alone do not show that.

    Each is loaded by a process of its own, because a broken one may end its process.
    """
    checks = []
    for kind in KINDS:
        words = [sys.executable, "-c", _TRY_CLIENT, kind.name.lower()]
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
        name = f"client of {kind.name}"
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"its process ended with {done.returncode}"]
            checks.append(Check(name, CheckState.MISSING, lines[-1], _AGAIN))
        else:
            checks.append(Check(name, CheckState.OK, "loads"))
    return checks


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FEWEST_FILES:
        return Check("open files", CheckState.OK, f"up to {'any number' if soft == resource.RLIM_INFINITY else soft}")
    enough = hard == resource.RLIM_INFINITY or hard >= FEWEST_FILES
    remedy = f"ulimit -n {FEWEST_FILES}" if enough else f"let root raise the hard limit of {hard}"
    return Check("open files", CheckState.MISSING, f"up to {soft}, needed: {FEWEST_FILES}", remedy)


def _temporary(folder: Path) -> Check:
    name = "temporary files"
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"bkmeta")
            file.flush()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(
            name, CheckState.MISSING, f"{folder}: {error.strerror}", "point TMPDIR to a folder that can be written"
        )
    if free < LEAST_TEMPORARY:
        text = f"{folder} has {free >> 20} MiB free, needed: {LEAST_TEMPORARY >> 20} MiB"
        return Check(name, CheckState.MISSING, text, "free space, or point TMPDIR to another disk")
    return Check(name, CheckState.OK, f"{folder}, {free >> 30} GiB free")


def _java(*, spark: bool) -> Check:
    problem = java_problem()
    if problem is None:
        return Check("Java", CheckState.OK, find_java() or "")
    if not spark:
        return Check("Java", CheckState.SKIPPED, f"{problem}; {_ONLY_SPARK}")
    return Check("Java", CheckState.MISSING, problem, "install Java 17 or newer, or point JAVA_HOME to it")


def _store(connect: Callable[[], OpenStore]) -> list[Check]:
    try:
        with connect() as opened:
            name = f"store {opened.uri}"
            ways = [_describe_ways(opened)]
            if opened.store.get(opened.root) is None:
                return [Check(name, CheckState.OK, f"answers; it has no {opened.root}"), *ways]
            layout = opened.store.get(opened.root + store.places(opened.layout_hint).layout)
    except BackendError as error:
        remedy = "start it, or fix the URI, the network or the credentials"
        return [
            Check("store", CheckState.MISSING, str(error), remedy),
            Check(_WAYS, CheckState.SKIPPED, "; ".join((*(kind.ways_in for kind in KINDS), _BOOKIE_WAYS))),
        ]
    there = f"answers; {opened.root} is there, {'with' if layout else 'without'} LAYOUT"
    return [Check(name, CheckState.OK, there), *ways]


def _describe_ways(opened: OpenStore) -> Check:
    """Say how a store and its bookies can be entered, and how not; keys that belong to SASL's users show a want."""
    ways = f"{kind_of(opened.layout_hint).ways_in}; {_BOOKIE_WAYS}"
    if not isinstance(opened.store, AccessControl):
        return Check(_WAYS, CheckState.OK, ways)
    try:
        acl = opened.store.get_acl(opened.root)
    except AccessDeniedError:
        # Who may not even see whose it is learns that from the store's own check.
        acl = None
    entries = [] if acl is None else parse_acl(acl.text)
    unknown = sorted({entry.scheme for entry in entries} - _SCHEMES)
    if unknown and not any(entry.scheme in _SCHEMES and "w" in entry.perms for entry in entries):
        ways_found = f"{opened.root} has rights of the scheme {list_names(unknown)}, which is not supported; {ways}"
        remedy = "have rights of another scheme added for who runs bkmeta, as digest's, before they are needed"
        return Check(_WAYS, CheckState.MISSING, ways_found, remedy)
    owners = [entry.name for entry in entries if entry.scheme == _SASL]
    if not owners:
        return Check(_WAYS, CheckState.OK, ways)
    ways_found = f"{opened.root} belongs to {_SASL}:{list_names(owners)}; {ways}"
    remedy = "have BKMETA_ZK_SASL, or BKMETA_ZK_KERBEROS and a keytab, at hand for one of these, and try it now"
    return Check(_WAYS, CheckState.OK, ways_found, remedy)


@dataclass(frozen=True, slots=True)
class _WorkerFacts:
    """What a task says about the process that it runs in; picklable."""

    distributions: tuple[str, ...]

    def __call__(self, _buckets: range) -> Mapping[str, Any]:
        return {
            "host": platform.node(),
            "python": ".".join(platform.python_version_tuple()[:2]),
            "versions": {name: _version(name) for name in self.distributions},
        }


def _session(master: str, python: Path | None) -> list[Check]:
    try:
        with session(master, python=python) as spark:
            return examine_session(spark, master)
    except Exception as error:  # noqa: BLE001 - whatever keeps Spark from running a task is what was asked for
        lines = str(error).strip().splitlines() or [type(error).__name__]
        remedy = "see what it says; executors need what is here, or an environment that is sent along"
        return [Check("Spark session", CheckState.MISSING, f"{master}: {lines[-1]}", remedy)]


def examine_session(spark: "SparkSession", master: str) -> list[Check]:
    """Run tasks in a session with a master, and compare what they find with what is here."""
    wanted = {DISTRIBUTION, *(r.name for r in _requirements() if r.extra in (None, _SPARK))}
    if has_executors(master):
        wanted -= {DISTRIBUTION, _PYSPARK}  # these come with the session, and with Spark
    task = _WorkerFacts(tuple(sorted(wanted)))
    own = task(range(0))
    tasks = max(2, spark.sparkContext.defaultParallelism * 2)
    answers = over_buckets(spark, task, [range(n, n + 1) for n in range(tasks)])
    hosts = sorted({answer["host"] for answer in answers})
    checks = [Check("Spark session", CheckState.OK, f"{master} ran {len(answers)} tasks on {len(hosts)} hosts")]
    return checks + _differences(own, answers)


def _differences(own: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Compare what the tasks saw with what the driver sees."""
    wrong = sorted(
        {
            f"{answer['host']}: {name} {executor_value or 'missing'}, here {own_value or 'missing'}"
            for answer in answers
            for name, executor_value, own_value in [
                ("Python", answer["python"], own["python"]),
                *((name, answer["versions"].get(name), version) for name, version in own["versions"].items()),
            ]
            if executor_value != own_value
        }
    )
    if not wrong:
        return [Check("executors", CheckState.OK, "the same Python and packages as here")]
    shown = "; ".join(wrong[:5]) + (f"; and {len(wrong) - 5} more" if len(wrong) > 5 else "")
    return [
        Check(
            "executors",
            CheckState.MISSING,
            shown,
            "give executors what is here: an environment that is sent along, or one container",
        )
    ]
