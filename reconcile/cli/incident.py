"""The incident file: what the commands of one incident are told, written once, in TOML.

    key          stands for          is
    store        --metadata          the store's URI
    bookies      --expect-bookies    the ids of all bookies of the cluster, or the file that names them
    inventories  --inventory-dir     a folder with the bookies' inventories, or several
    passwords    --passwords         the file of candidates
    quorums      --default-quorum    "E/W/A"
    quorums_file --quorums           the file that says what some ledgers were written with
    snapshots    --snapshot          what the store held earlier: a URI or a folder, or several
    references   --references        what upper layers know: a file or a URI, or several
    disks        --disk              a table: a bookie's id = its folder, or several
    lost         --lost              disks that are gone for good: a bookie, or BOOKIE=DIR, or several

A path is relative to the file. What is typed on the command line takes the place of what the file says.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from reconcile.operator_files import read_toml
from recovery.errors import InputError
from recovery.place import to_place

OPTION: Final = "--incident"
FIELDS: Final[Mapping[str, str]] = {
    "store": "--metadata",
    "bookies": "--expect-bookies",
    "inventories": "--inventory-dir",
    "passwords": "--passwords",
    "quorums": "--default-quorum",
    "quorums_file": "--quorums",
    "snapshots": "--snapshot",
    "references": "--references",
    "disks": "--disk",
    "lost": "--lost",
}
"""Key → the option that it stands for."""
_META: Final = "bkmeta.incident"
_PULSAR: Final = "metadata-store:"


def incident_option(command: click.Command, left_out: frozenset[str]) -> click.Option | None:
    """Return --incident for a command that takes something of an incident file; None: it takes nothing.

    Args:
        command: with its options.
        left_out: options of it that mean something else than the file does.
    """
    taken = {
        key: parameter
        for parameter in command.params
        for key, option in FIELDS.items()
        if option in parameter.opts and option not in left_out
    }
    if not taken:
        return None

    def read(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        if value is None:
            return
        incident = read_incident(_require_file(value))
        defaults = {str(taken[key].name): given for key, given in incident.items() if key in taken}
        context.default_map = {**(context.default_map or {}), **defaults}
        context.meta[_META] = value

    return click.Option(
        [OPTION],
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=read,
        help=f"TOML file with options that are not typed: {', '.join(key for key in FIELDS if key in taken)}.",
    )


def _require_file(text: str) -> Path:
    place = to_place(text)
    if not isinstance(place, Path):
        raise click.BadParameter(f"{text} is in a store: name a file of this machine", param_hint=OPTION)
    return place


def incident_file(context: click.Context) -> str | None:
    """Return the incident file that the command was given."""
    file: str | None = context.meta.get(_META)
    return file


def is_typed(name: str) -> bool:
    """Say whether an argument of the running command was typed, rather than read of the incident file or left out."""
    context = click.get_current_context()
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def read_incident(path: Path) -> dict[str, Any]:
    """Read an incident file: key → what the option that it stands for would be given.

    Raises:
        InputError: unreadable, no TOML, or with keys or values that mean nothing here.
    """
    return read_values(path, read_toml(path, "write TOML; text is in quotes"))


def read_values(path: Path, incident: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an incident file's keys and values mean: key → what the option that it stands for would be given.

    Args:
        path: of the file; paths in it are relative to it.
        incident: the keys and values.

    Raises:
        InputError: a key or a value that means nothing here.
    """
    unknown = sorted(set(incident) - set(FIELDS))
    if unknown:
        raise InputError(str(path), f"has a key {unknown[0]!r}", f"the keys are {', '.join(FIELDS)}")
    return {key: _VALUES[key](_Entry(path, key), value) for key, value in incident.items()}


class _Entry:
    """One key of the file."""

    def __init__(self, path: Path, key: str) -> None:
        self._path = path
        self._key = key

    def text(self, value: object) -> str:
        """Return a value that must be text."""
        if not isinstance(value, str) or not value:
            raise self._wrong("text in quotes")
        return value

    def texts(self, value: object) -> list[str]:
        """Return a value that is text or a list of texts."""
        if isinstance(value, str):
            return [self.text(value)]
        if not isinstance(value, list) or not value:
            raise self._wrong("text, or a list of texts")
        return [self.text(item) for item in value]

    def file(self, value: object) -> str:
        """Return a path; a URI as it is, which the option takes or refuses."""
        text = self.text(value)
        return text if "://" in text else str(self._path.parent / text)

    def files(self, value: object) -> list[str]:
        """Return paths, likewise."""
        return [self.file(text) for text in self.texts(value)]

    def places(self, value: object) -> list[str]:
        """Return URIs, and paths among them."""
        texts = self.texts(value)
        return [text if text.startswith(_PULSAR) else self.file(text) for text in texts]

    def bookies(self, value: object) -> str | Sequence[str]:
        """Return the file that names the bookies, or their ids."""
        return tuple(self.texts(value)) if isinstance(value, list) else self.file(value)

    def disks(self, value: object) -> list[str]:
        """Return ID=DIR, an id as often as it has folders."""
        if not isinstance(value, dict) or not value:
            raise self._wrong('a table: "bk1:3181" = "/mnt/bk1"')
        return [f"{bookie}={folder}" for bookie, folders in value.items() for folder in self.files(folders)]

    def _wrong(self, wanted: str) -> InputError:
        return InputError(f"{self._path}, {self._key}", f"is not {wanted}", "fix it")


_VALUES: Final = {
    "store": _Entry.text,
    "bookies": _Entry.bookies,
    "inventories": _Entry.places,
    "passwords": _Entry.file,
    "quorums": _Entry.text,
    "quorums_file": _Entry.file,
    "snapshots": _Entry.places,
    "references": _Entry.places,
    "disks": _Entry.disks,
    "lost": _Entry.texts,
}
