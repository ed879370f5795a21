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
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from reconcile.cli.incident import read_values
from reconcile.operator_files import read_operator_text
from recovery.errors import InputError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,62}")
_REACHED: Final = ("name", "transport", "host", "command")
_OF_BOOKIE: Final = (*_REACHED, "id", "conf", "process", "start", "program", "copy")
_OF_SERVER: Final = (*_REACHED, "folders")
_NOT_HERE: Final = ("store", "inventories", "lost", "disks")
"""Keys of an incident file that `rescue` writes itself."""
_SCRIPT: Final = "{script}"
_REMEDY: Final = "correct it; docs/operations/rescue.md has every key"


class Transport(StrEnum):
    """How a host is reached."""

    LOCAL = "local"
    SSH = "ssh"
    KUBECTL = "kubectl"
    COMMAND = "command"


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


def read_hosts(path: Path) -> Hosts:
    """Read a file of hosts.

    Raises:
        InputError: unreadable, no TOML, a key that means nothing here or is missing, or a name twice.
    """
    try:
        values = tomllib.loads(read_operator_text(path, "write TOML"))
    except ValueError as error:
        raise InputError(str(path), f"is not TOML: {error}", "correct it; write text in quotes") from error
    _require_keys(path, values, ("incident", "bookie", "server"), "the file")
    rows = {name: _take_rows(path, values, name) for name in ("bookie", "server")}
    if not rows["bookie"]:
        raise InputError(str(path), "names no bookie", "write a [[bookie]] for each of the cluster's")
    bookies = tuple(_take_bookie(path, row) for row in rows["bookie"])
    servers = tuple(_take_server(path, row) for row in rows["server"])
    names = [*(bookie.name for bookie in bookies), *(server.host.name for server in servers)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(str(path), f"has the name {twice[0]!r} twice", "give each host a name of its own")
    incident = values.get("incident", {})
    if not isinstance(incident, dict) or (unknown := sorted(set(incident) & set(_NOT_HERE))):
        problem = f"has {', '.join(unknown)} in [incident]" if isinstance(incident, dict) else "has no table [incident]"
        raise InputError(str(path), problem, "leave it out: rescue writes that itself")
    return Hosts(bookies, servers, read_values(path.absolute(), incident))


def _take_rows(path: Path, values: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = values.get(name, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(str(path), f"has a {name} that is not a table", f"write [[{name}]] above each")
    return rows


def _take_bookie(path: Path, row: Mapping[str, Any]) -> BookieHost:
    host = _take_host(path, row, _OF_BOOKIE)
    conf = _take_text(path, row, "conf", host.name)
    copy = _take_optional(path, row, "copy", host.name)
    return BookieHost(
        host,
        _take_optional(path, row, "id", host.name),
        conf,
        _take_optional(path, row, "process", host.name) or conf,
        _take_optional(path, row, "start", host.name),
        _take_optional(path, row, "program", host.name) or "bkmeta",
        None if copy is None else path.absolute().parent / copy,
    )


def _take_server(path: Path, row: Mapping[str, Any]) -> ServerHost:
    host = _take_host(path, row, _OF_SERVER)
    folders = row.get("folders")
    if not isinstance(folders, list) or not folders or not all(isinstance(item, str) and item for item in folders):
        raise InputError(f"{path}, {host.name}", "has no folders", "name its dataDir and dataLogDir")
    return ServerHost(host, tuple(folders))


def _take_host(path: Path, row: Mapping[str, Any], keys: tuple[str, ...]) -> Host:
    name = _take_text(path, row, "name", "a host")
    if not _NAME.fullmatch(name):
        raise InputError(f"{path}, {name!r}", "is not a name", "use letters, digits and _ . - for it")
    _require_keys(path, row, keys, name)
    text = _take_text(path, row, "transport", name)
    if text not in list(Transport):
        raise InputError(f"{path}, {name}", f"has transport {text!r}", f"the transports are {', '.join(Transport)}")
    transport = Transport(text)
    needs_host = transport in (Transport.SSH, Transport.KUBECTL)
    host = _take_text(path, row, "host", name) if needs_host else ""
    if host.startswith("-"):
        raise InputError(f"{path}, {name}", f"has host {host!r}", "a host does not begin with a dash")
    command = _take_text(path, row, "command", name) if transport is Transport.COMMAND else ""
    if command and _SCRIPT not in command:
        problem = f"has a command without {_SCRIPT}"
        raise InputError(f"{path}, {name}", problem, f"write it: docker exec bk1 sh -c {_SCRIPT}")
    return Host(name, transport, host, command)


def _require_keys(path: Path, row: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    if unknown := sorted(set(row) - set(keys)):
        raise InputError(f"{path}, {where}", f"has a key {unknown[0]!r}", f"the keys are {', '.join(keys)}")


def _take_text(path: Path, row: Mapping[str, Any], key: str, where: str) -> str:
    value = _take_optional(path, row, key, where)
    if value is None:
        raise InputError(f"{path}, {where}", f"has no {key}", _REMEDY)
    return value


def _take_optional(path: Path, row: Mapping[str, Any], key: str, where: str) -> str | None:
    value = row.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value or "\n" in value or "\0" in value:
        raise InputError(f"{path}, {where}", f"has a {key} that is not text of one line", _REMEDY)
    return value
