"""The hosts of an incident: how each bookie, and each server of the store, is reached, and what is there.

    [incident]                        what incident.toml has, but for store, inventories, lost and disks
    [[bookie]]
    name       of it here: of folders and questions
    id         as ledger metadata names it; wanted only where its disks cannot be read
    transport  local, ssh, kubectl, command
    host       ssh: as ssh takes it; kubectl: namespace/pod or namespace/pod/container
    command    command: a shell command, {script} in it stands for one word that `sh -c` takes
    conf       its bk_server.conf, on its host
    process    a text that only its own Java's command line has there [default: conf]
    start      a shell command that starts it, on its host; without it a person does
    program    bkmeta on its host [default: bkmeta]
    copy       a file of this machine that is copied there and run in its place: the program in one file

    [[server]]                        a server of ZooKeeper whose files are copied before anything else
    name, transport, host, command    as of a bookie
    folders                           its dataDir and dataLogDir

Paths of `[incident]` and `copy` are relative to the file.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from reconcile.cli.incident import read_values
from reconcile.operator_files import Line, OperatorTable, convert_values, read_toml
from recovery.errors import InputError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,62}")
_NOT_HERE: Final = ("store", "inventories", "lost", "disks")
"""Keys of an incident file that `rescue` writes itself."""
_SCRIPT: Final = "{script}"


class Transport(StrEnum):
    """How a host is reached."""

    LOCAL = "local"
    SSH = "ssh"
    KUBECTL = "kubectl"
    COMMAND = "command"


_REMEDY: Final = f"correct it; docs/operations/rescue.md has every key, the transports are {', '.join(Transport)}"


@dataclass(frozen=True, slots=True)
class Host:
    """Where something runs.

    Attributes:
        name: of it here.
        transport: how it is reached.
        host: for ssh and kubectl.
        command: for `Transport.COMMAND`.
    """

    name: str
    transport: Transport
    host: str
    command: str


@dataclass(frozen=True, slots=True)
class BookieHost:
    """A bookie and its host; see the module.

    Attributes:
        host: where it runs.
        bookie: its id; None: its disks say it.
        conf, process, start, program, copy: as in the file.
    """

    host: Host
    bookie: str | None
    conf: str
    process: str
    start: str | None
    program: str
    copy: Path | None

    @property
    def name(self) -> str:
        """Its name here."""
        return self.host.name


@dataclass(frozen=True, slots=True)
class ServerHost:
    """A server of the store: its host, and its folders."""

    host: Host
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hosts:
    """A file of hosts.

    Attributes:
        bookies, servers: in its order.
        incident: what `incident.toml` gets of it: key → text, or texts; paths are absolute.
    """

    bookies: tuple[BookieHost, ...]
    servers: tuple[ServerHost, ...]
    incident: Mapping[str, Any]


class _Row(OperatorTable, frozen=True, kw_only=True):
    name: Line
    transport: Transport
    host: Line | None = None
    command: Line | None = None


class BookieTable(_Row, frozen=True, kw_only=True):
    """A [[bookie]] as the file has it."""

    conf: Line
    id: Line | None = None
    process: Line | None = None
    start: Line | None = None
    program: Line = Line("bkmeta")
    copy: Line | None = None


class ServerTable(_Row, frozen=True, kw_only=True):
    """A [[server]] as the file has it."""

    folders: Annotated[tuple[Line, ...], msgspec.Meta(min_length=1)]


class _File(OperatorTable, frozen=True):
    incident: dict[str, Any] = msgspec.field(default_factory=dict)
    bookie: tuple[BookieTable, ...] = ()
    server: tuple[ServerTable, ...] = ()


def read_hosts(path: Path) -> Hosts:
    """Read a file of hosts.

    Raises:
        InputError: unreadable, no TOML, a key that means nothing here or is missing, or a name twice.
    """
    file = convert_values(read_toml(path, _REMEDY), _File, path, _REMEDY)
    if not file.bookie:
        raise InputError(str(path), "names no bookie", "write a [[bookie]] for each of the cluster's")
    bookies = tuple(_take_bookie(path, row) for row in file.bookie)
    servers = tuple(ServerHost(_take_host(path, row), row.folders) for row in file.server)
    names = [*(bookie.name for bookie in bookies), *(server.host.name for server in servers)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(str(path), f"has the name {twice[0]!r} twice", "give each host a name of its own")
    if unknown := sorted(set(file.incident) & set(_NOT_HERE)):
        problem = f"has {', '.join(unknown)} in [incident]"
        raise InputError(str(path), problem, "leave it out: rescue writes that itself")
    return Hosts(bookies, servers, read_values(path.absolute(), file.incident))


def _take_bookie(path: Path, row: BookieTable) -> BookieHost:
    copy = None if row.copy is None else path.absolute().parent / row.copy
    return BookieHost(_take_host(path, row), row.id, row.conf, row.process or row.conf, row.start, row.program, copy)


def _take_host(path: Path, row: _Row) -> Host:
    host, command = row.host or "", row.command or ""
    if not _NAME.fullmatch(row.name):
        raise InputError(f"{path}, {row.name!r}", "is not a name", "use letters, digits and _ . - for it")
    if row.transport in (Transport.SSH, Transport.KUBECTL) and not host:
        raise InputError(f"{path}, {row.name}", "has no host", _REMEDY)
    if host.startswith("-"):
        raise InputError(f"{path}, {row.name}", f"has host {host!r}", "a host does not begin with a dash")
    if row.transport is Transport.COMMAND and _SCRIPT not in command:
        problem = f"has a command without {_SCRIPT}" if command else "has no command"
        raise InputError(f"{path}, {row.name}", problem, f"write it: docker exec bk1 sh -c {_SCRIPT}")
    return Host(row.name, row.transport, host, command)
