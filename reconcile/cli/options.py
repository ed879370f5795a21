"""Options that several commands share, and the files that operators write for them."""

import base64
import binascii
import functools
import re
import shlex
import stat
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

from reconcile.cli.access import EnvironmentAccess
from reconcile.cli.incident import OPTION as INCIDENT
from reconcile.cli.incident import incident_file, is_typed, read_incident
from reconcile.cli.output import Output
from reconcile.operator_files import read_operator_file, read_operator_text
from recovery.codecs.store_kind import KINDS
from recovery.errors import InputError
from recovery.place import DatasetPlace, is_remote, to_place

if TYPE_CHECKING:
    from reconcile.jobs.context import Context
    from recovery.model.ids import LedgerId

_BASE64: Final = "base64:"
_LONGEST_REASON: Final = 500
_FEW_DISKS: Final = 8
"""Bookies that a next command names one by one, at most."""
LAYOUTS: Final = tuple(layout for kind in KINDS for layout in kind.layouts)
TAILS: Final = ("inclusive", "acknowledged", "open")
"""`recovery.infer.search.Tail`, likewise."""

P = ParamSpec("P")
R = TypeVar("R")


class LocalPath(click.Path):
    """A file or folder of this machine: file:// at most, and no other store."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's
        """Return the path."""
        return super().convert(_require_path(value), param, ctx)


FOLDER = LocalPath(file_okay=False, path_type=Path)
FILE = LocalPath(dir_okay=False, path_type=Path)


class PlaceType(click.ParamType[DatasetPlace]):
    """A folder of this machine, or of a store: s3://, gs://, hdfs://, file://."""

    name = "directory"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> DatasetPlace:
        """Return the place."""
        place = to_place(str(value))
        return Path(FOLDER.convert(str(place), param, ctx)) if isinstance(place, Path) else place


PLACE = PlaceType()


def _require_path(value: str | Path) -> Path:
    place = to_place(str(value))
    if not isinstance(place, Path):
        raise click.BadParameter(f"{value} is in a store: name a folder or file of this machine")
    return place


def now() -> datetime:
    """Return the time, with its zone: the program's only clock."""
    return datetime.now(UTC)


def quote_command(*words: object) -> str:
    """Return a command as a shell takes it."""
    return " ".join(shlex.quote(str(word)) for word in words)


def output_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add --json, --short and --progress."""
    command = click.option(
        "--progress",
        type=click.Choice(["auto", "json", "none"]),
        default="auto",
        show_default=True,
        help="A bar on a terminal, JSON events on stderr, or nothing.",
    )(command)
    command = click.option("--short", is_flag=True, help="The verdict alone: one line.")(command)
    return click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")(command)


csv_option = click.option(
    "--csv", "as_csv", is_flag=True, help="The rows as CSV, with the columns' names; the verdict goes to stderr."
)


ops_option = click.option(
    "--max-ops-s",
    "ops_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Read at most N nodes (etcd: keys) of a live store in a second; a value, a list of names and rights count "
    "one each.",
)


master_option = click.option(
    "--master",
    help="Spark's, as spark-submit takes it. [default: this process; for more than some seconds of work that of "
    "Spark's own settings, else local[*]]",
)


def executor_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add --executor-python: what executors of a cluster run the program with."""
    return click.option(
        "--executor-python",
        "python",
        type=FILE,
        help="For a --master with executors: a file that is sent to them and run as their Python; scripts/pack makes "
        "one.",
    )(command)


def scope_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add --ledger-scope-id: the scope of ledgers that are named by a number alone."""
    return click.option(
        "--ledger-scope-id", "scope", metavar="SCOPE", help="The scope of a ledger that is named by a number alone."
    )(command)


def list_scope_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add --ledger-scope-id to a command that lists; see `parse_scope`."""
    return click.option("--ledger-scope-id", "scope", metavar="SCOPE", help="List this scope. [default: 0]")(command)


def names_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add --ledger-scope-id and --ledger-qualified-name, beside ledgers that are named; see `parse_ledgers`."""
    return click.option(
        "--ledger-qualified-name",
        "qualified",
        multiple=True,
        metavar="NAME",
        help="A ledger, by its 32 hex digits.",
    )(scope_option(command))


def parse_ledgers(
    texts: Sequence[str], scope: str | None, qualified: Sequence[str], *, hint: str = "LEDGER"
) -> "tuple[LedgerId, ...]":
    """Return the ledgers that texts and qualified names name, each once, as `parse_ledger` does."""
    named = [parse_ledger(text, scope, hint=hint) for text in texts]
    named += [parse_ledger(name, scope, hint="--ledger-qualified-name") for name in qualified]
    return tuple(dict.fromkeys(named))


def parse_sessions(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[int | None, ...]:
    """Read sessions of a store as they are shown.

    Raises:
        click.BadParameter: one is none.
    """
    from reconcile.plan.views.deletions import parse_session

    try:
        return tuple(parse_session(value) for value in values)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def parse_ledger(text: str, scope: str | None = None, *, hint: str = "LEDGER") -> "LedgerId":
    """Return the ledger that a text names: a number, scope:number, or a qualified name of 32 hex digits.

    Args:
        text: as it was typed.
        scope: as --ledger-scope-id has it; None: not given.
        hint: what the error is about.
    """
    from recovery.model import ids

    try:
        named = ids.parse(text)
        if scope is None:
            return named
        whole = parse_scope(scope)
    except ValueError as error:
        raise click.BadParameter(f"{error}; write 123, scope:123 or 32 hex digits", param_hint=hint) from error
    if not ids.is_short(text) and named.scope != whole:
        raise click.BadParameter(f"{text} is of scope {ids.to_unsigned(named.scope)}, not {scope}", param_hint=hint)
    return ids.LedgerId(whole, named.ledger)


def parse_scope(scope: str | None) -> int:
    """Return the scope that --ledger-scope-id names; 0 where it is not given.

    Raises:
        click.BadParameter: it is not a scope.
    """
    from recovery.model import ids

    try:
        return ids.parse(f"{scope or 0}:0").scope
    except ValueError as error:
        raise click.BadParameter(f"{scope!r} is not a scope: write a number", param_hint="--ledger-scope-id") from error


def make_output(values: dict[str, Any]) -> Output:
    """Take --json, --short, --progress and, where a command has it, --csv out of its arguments."""
    short, as_csv, as_json = values.pop("short"), values.pop("as_csv", False), values.pop("as_json")
    if short and as_json:
        raise click.UsageError("--short is text: give it or --json")
    if as_csv and (short or as_json):
        raise click.UsageError(f"give --csv or {'--json' if as_json else '--short'}, not both")
    return Output(as_json=as_json, progress=values.pop("progress"), short=short, as_csv=as_csv)


def make_context(output: Output, identity: Path | None = None) -> "Context":
    """Return what a job needs besides its request: the environment's access, the output, and the clock.

    Args:
        output: of the command.
        identity: the file with the identity of a freeze, where the environment names none.
    """
    from reconcile.jobs.context import Context

    return Context(EnvironmentAccess(identity), output.trace(), now)


def _reason(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and not (text.strip() and text.isprintable() and len(text) <= _LONGEST_REASON):
        raise click.BadParameter(f"write one line of at most {_LONGEST_REASON} characters")
    return text


reason_option = click.option(
    "--reason", metavar="TEXT", callback=_reason, help="Why this is done: a ticket, a name; kept in the journal."
)


moment_option = click.option(
    "--at",
    "moment",
    metavar="TIME|TRANSACTION|before:SESSION",
    help="The moment of each backup:PLACE that is named. [default: the last one]",
)


def add_moment(names: Sequence[str], moment: str | None) -> tuple[str, ...]:
    """Return names of stores, those of backups with the moment that is shown of them.

    Raises:
        click.UsageError: a moment is named, and no backup.
    """
    from reconcile.stores import add_point, is_backup

    if moment is None:
        return tuple(names)
    if not any(is_backup(name) for name in names):
        raise click.UsageError("--at names a moment of a backup: name backup:PLACE")
    return tuple(add_point(name, moment) for name in names)


def read_passwords(path: Path | None) -> tuple[bytes, ...]:
    """Read candidate passwords: one a line, ``base64:`` before bytes that are not text; an empty line is the empty one.

    Raises:
        InputError: unreadable, readable by others, or a line that is not base64 after its prefix.
    """
    if path is None:
        return ()
    lines = read_operator_file(path).split(b"\n")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise InputError(str(path), f"holds passwords and has mode {mode:04o}", f"run: chmod 600 {path}")
    if lines[-1] == b"":
        lines.pop()
    passwords = []
    for number, raw in enumerate(lines, 1):
        line = raw.removesuffix(b"\r")
        if line.startswith(_BASE64.encode()):
            try:
                line = base64.b64decode(line[len(_BASE64) :], validate=True)
            except binascii.Error as error:
                raise InputError(f"{path}, line {number}", "is not base64 after its prefix", "fix the line") from error
        passwords.append(line)
    return tuple(passwords)


_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST: Final = timedelta(days=36_500)


class Duration(click.ParamType[timedelta]):
    """A number and a unit: 90s, 10m, 24h, 7d; a number alone may be meant as any of them."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return how long it is."""
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"([0-9]{1,10})([smhd])", str(value))
        if match is None:
            self.fail(f"{value!r} is not a duration; write 90s, 10m, 24h or 7d", param, ctx)
        duration = timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
        if duration > _LONGEST:
            self.fail(f"{value} is more than a hundred years", param, ctx)
        return duration


DURATION = Duration()


class Names(click.ParamType[Path | tuple[str, ...]]):
    """A file of names; an incident file may give the names themselves."""

    name = "file"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | tuple[str, ...]:
        """Return the path, or the names."""
        return value if isinstance(value, tuple) else Path(FILE.convert(str(value), param, ctx))


NAMES = Names()


def bookies_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add --expect-bookies."""
    return click.option(
        "--expect-bookies", type=NAMES, metavar="FILE", help="Ids of all bookies of the cluster, one a line."
    )(command)


def inventory_options(help_text: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Add --inventory and --inventory-dir; the command is given all of them, as `inventories`.

    Args:
        help_text: of --inventory.
    """

    def with_inventories(command: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(command)
        def expanded(
            *arguments: Any,  # noqa: ANN401 - the command's
            inventories: tuple[str, ...],
            inventory_dirs: tuple[str, ...],
            **options: Any,  # noqa: ANN401 - the command's
        ) -> R:
            from reconcile.jobs.collect.inventories import find_inventories

            typed = is_typed("inventory_dirs")
            if inventories and not typed:
                # What was typed takes the place of what the incident file says.
                inventory_dirs = ()
            # The file is written before the first bookie is collected.
            folders = find_inventories(inventory_dirs, may_be_missing=not typed)
            below = [path for path in folders if path not in inventories]
            return command(*arguments, inventories=(*inventories, *below), **options)

        expanded = click.option(
            "--inventory-dir", "inventory_dirs", multiple=True, metavar="DIR", help="All inventories below it."
        )(expanded)
        return click.option("--inventory", "inventories", multiple=True, metavar="PATH", help=help_text)(expanded)

    return with_inventories


def carry_options(*options: str) -> list[str]:
    """Return those of some options that the running command was given, as they would be typed for the next one.

    What an incident file said is said by naming it again.
    """
    context = click.get_current_context(silent=True)
    words: list[str] = []
    if context is None:
        # Called by a program, which typed nothing.
        return words
    file = incident_file(context)
    if file is not None:
        words += [INCIDENT, file]
    named = {option: parameter for parameter in context.command.params for option in parameter.opts}
    for option in options:
        name = str(named[option].name) if option in named else ""
        if name and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            words += [word for text in _retype(context.params[name]) for word in (option, text)]
    return words


def build_argv_disks(bookies: Sequence[str]) -> list[str]:
    """Return --disk for the next command, each bookie's id filled in; nothing where the incident file has the disks."""
    context = click.get_current_context(silent=True)
    file = None if context is None else incident_file(context)
    if file is not None and "disks" in read_incident(Path(file)):
        return []
    few = sorted(bookies) if 0 < len(bookies) <= _FEW_DISKS else ["BOOKIE-ID"]
    return [word for bookie in few for word in ("--disk", f"{bookie}=DIR")]


def describe_collect() -> str:
    """Return the command that collects each bookie to where the running command expects inventories."""
    folder = shlex.quote(find_inventories_folder())
    return f"on each bookie's host: bkmeta collect --bookie-conf bk_server.conf --out {folder}/BOOKIE"


def find_inventories_folder() -> str:
    """Return the folder of inventories: the first that was typed, else of the incident file, else `inventory`."""
    context = click.get_current_context()
    typed = context.params.get("inventory_dirs")
    file = incident_file(context)
    named = typed or (read_incident(Path(file)).get("inventories") if file else None)
    return str(named[0]) if named else "inventory"


def _retype(value: object) -> list[str]:
    """Return an option's value as it was typed, once for each time."""
    match value:
        case dict():
            return [f"{bookie}={folder}" for bookie, folders in value.items() for folder in folders]
        case (int(), int(), int()):
            return ["/".join(map(str, value))]
        case tuple():
            return [str(item) for item in value]
        case _:
            return [str(value)]


def read_names(path: Path | tuple[str, ...]) -> tuple[str, ...]:
    """Read one name a line; empty lines and lines that begin with # are passed over.

    Args:
        path: the file; or the names, where an incident file has them.

    Raises:
        InputError: unreadable, not text, without a name, or with one that is not a bookie's.
    """
    if isinstance(path, tuple):
        return tuple(dict.fromkeys(path))
    lines = read_operator_text(path, "write one bookie id a line").splitlines()
    names = tuple(dict.fromkeys(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")))
    if not names:
        raise InputError(str(path), "names nothing", "write one bookie id a line")
    require_bookie_ids(names, str(path))
    return names


def require_bookie_ids(names: Sequence[str], source: str) -> None:
    """Check that names are those of bookies.

    Raises:
        InputError: one is not.
    """
    from recovery.model.ids import is_bookie_id

    wrong = next((name for name in names if not is_bookie_id(name)), None)
    if wrong is not None:
        raise InputError(
            source, f"{wrong!r} is not a bookie id", "write ids as ledger metadata has them, e.g. host:3181"
        )


def parse_quorum(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[int, int, int] | None:
    """Read E/W/A."""
    if value is None:
        return None
    try:
        ensemble, write, ack = (int(part) for part in value.split("/"))
    except ValueError as error:
        raise click.BadParameter("write it as E/W/A, for example 3/2/2") from error
    if not ensemble >= write >= ack >= 1:
        raise click.BadParameter("E ≥ W ≥ A ≥ 1 must hold")
    return ensemble, write, ack


def _require_no_dataset(_context: click.Context, _option: click.Parameter, values: Sequence[str]) -> Sequence[str]:
    for value in values:
        if is_remote(value):
            raise click.BadParameter(f"{value} is in a store: name a file of this machine, or a metadata store")
    return values


def references_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add --references."""
    return click.option(
        "--references",
        multiple=True,
        metavar="FILE|URI",
        callback=_require_no_dataset,
        help="Ledgers that an upper layer knows: JSON lines or Parquet with ledger, scope, last_entry, length, "
        "deleted, owner; "
        "or the store, or a copy of one, that has Pulsar's /managed-ledgers.",
    )(command)


def evidence_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add --evidence."""
    return click.option(
        "--evidence",
        multiple=True,
        type=PLACE,
        metavar="RUN",
        help="Folder of a scrutiny's run: what bookies answered, what was missing, which bookies were wiped. Repeat "
        "the option for other shares.",
    )(command)


def by_bookie(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> dict[str, list[Path]]:
    """Read ID=DIR, an id as often as it has folders."""
    folders: dict[str, list[Path]] = {}
    for value in values:
        bookie, equals, folder = value.partition("=")
        if not (bookie and equals and folder):
            raise click.BadParameter(f"{value!r} is not ID=DIR, e.g. bk1.example.org:3181=/mnt/bk1")
        folders.setdefault(bookie, []).append(_require_path(folder))
    require_bookie_ids([*folders], "--disk")
    return folders


quorums_option = click.option(
    "--quorums",
    type=FILE,
    metavar="FILE",
    help="Quorums of some ledgers, a line each: FIRST..LAST E/W/A, or owner=NAME E/W/A. NAME is the owner in "
    "--references; NAME* is a prefix.",
)
lost_option = click.option(
    "--lost",
    "lost",
    multiple=True,
    metavar="BOOKIE[=DIR]",
    help="These disks are gone for good. Entries that only they had are given up, and no ledger is guarded or held "
    "because of them. Recorded in the plan.",
)
"""Of what decides of ledgers."""

aliases_option = click.option(
    "--aliases", type=FILE, help="Other names of bookies, as records have them: lines of `alias bookie-id`."
)
"""Of every command that holds records against bookies."""


def read_aliases(path: Path | None) -> dict[str, str]:
    """Read lines of ``alias bookie-id``; empty lines and lines that begin with # are passed over.

    Raises:
        InputError: unreadable, not text, another line, or an alias of two bookies.
    """
    if path is None:
        return {}
    lines = read_operator_text(path, "write lines of: alias bookie-id").splitlines()
    aliases: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise InputError(f"{path}, line {number}", "is not `alias bookie-id`", "fix the line")
        if aliases.setdefault(words[0], words[1]) != words[1]:
            raise InputError(f"{path}, line {number}", f"gives {words[0]} to a second bookie", "fix the line")
    require_bookie_ids([*aliases.values()], str(path))
    return aliases
