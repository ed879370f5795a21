"""Options and words that the commands of deletes share."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from reconcile.cli.approval import read_local_policy
from reconcile.cli.option_groups.ledger_files import read_ledger_rows
from reconcile.cli.option_groups.wire import take_wire, wire_options
from reconcile.cli.options import (
    DURATION,
    FILE,
    FOLDER,
    inventory_options,
    names_options,
    parse_ledgers,
    read_aliases,
)
from reconcile.id_files import try_write_ids
from recovery.errors import InputError

if TYPE_CHECKING:
    from reconcile.deletes.tombstones import Tombstone
    from reconcile.jobs.deletes.clusters import DeleteTarget
    from reconcile.jobs.deletes.looks import Looks
    from recovery.model.ids import LedgerId

R = TypeVar("R")

SHOWN: Final = 20
"""Ledgers that are named to people; --json names all."""
_COPY_REMEDY: Final = 'write {"ledger": 123, "to": "s3://bucket/123", "checksum": "9b1c42d0"}'


def target_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add --metadata, --journal and --acl; `take_target` takes them out again."""
    command = click.option(
        "--acl", metavar="SPEC", help="Rights of bkmeta's own root where it is made. [default: the ledgers root's]"
    )(command)
    command = click.option(
        "--journal", type=FOLDER, help="Where every change is recorded. [default: ./bkmeta-deletes-HOST-ROOT]"
    )(command)
    return metadata_option(command)


def metadata_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add --metadata."""
    return click.option("--metadata", "uri", required=True, metavar="URI", help="The store of the ledgers.")(command)


def ledger_arguments(command: Callable[..., R]) -> Callable[..., R]:
    """Add LEDGER..., --from and what names ledgers of a scope; `take_ledgers` takes them out again."""
    command = names_options(command)
    command = click.option(
        "--from", "source", type=FILE, help='Ledgers, one a line; or JSON lines with "ledger", as orphans writes them.'
    )(command)
    return click.argument("ledgers", metavar="[LEDGER]...", nargs=-1)(command)


def look_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add --inventory, --inventory-dir, --wire and its options; `take_looks` takes them out again."""
    command = wire_options(command)
    command = click.option("--wire", is_flag=True, help="Ask the running bookies about these ledgers.")(command)
    return inventory_options("One bookie's inventory; give one for each bookie.")(command)


def retention_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add --retention."""
    return click.option(
        "--retention",
        type=DURATION,
        default="30d",
        show_default=True,
        help="How long tombstones are kept, at least; a bookie that is away longer is named.",
    )(command)


def take_target(values: dict[str, Any]) -> "DeleteTarget":
    """Take the options of `target_options` out of a command's arguments.

    Raises:
        InputError: the policy of this host cannot be used.
    """
    from backends.protocols import parse_acl
    from reconcile.jobs.deletes.clusters import DeleteTarget

    acl = values.pop("acl")
    try:
        if acl is not None:
            parse_acl(acl)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--acl") from error
    return DeleteTarget(values.pop("uri"), values.pop("journal"), acl, read_local_policy())


def take_ledgers(values: dict[str, Any], *, may_be_none: bool = False) -> "tuple[LedgerId, ...]":
    """Take the ledgers that were named out of a command's arguments, each once.

    Raises:
        InputError: a file cannot be read, or has a line that names no ledger.
    """
    return tuple(_take_rows(values, may_be_none=may_be_none))


def take_copies(values: dict[str, Any], place: str, checksum: str) -> "dict[LedgerId, tuple[str, str]]":
    """Take the ledgers likewise, each with the place of its copy and its checksum.

    Args:
        values: of the command; a line of --from that is JSON may have "to" and "checksum" beside "ledger".
        place: where a line says none.
        checksum: likewise.

    Raises:
        InputError: as `take_ledgers`; or a line has no text for either.
    """
    source = str(values["source"])
    copies = {}
    for ledger, row in _take_rows(values).items():
        texts = (row.get("to", place), row.get("checksum", checksum))
        if not all(isinstance(text, str) for text in texts):
            raise InputError(source, f"has a copy or checksum of ledger {ledger} that is not text", _COPY_REMEDY)
        copies[ledger] = texts
    return copies


def _take_rows(values: dict[str, Any], *, may_be_none: bool = False) -> "dict[LedgerId, dict[str, Any]]":
    """Take ledgers out of a command's arguments, each with the JSON that names it in a file, if any does.

    The file is read once: it may be a pipe.
    """
    named, source, scope = values.pop("ledgers"), values.pop("source"), values.pop("scope")
    rows: dict[LedgerId, dict[str, Any]] = {
        ledger: {} for ledger in parse_ledgers(named, scope, values.pop("qualified"))
    }
    if source is not None:
        rows |= dict(read_ledger_rows(source, scope))
    if not rows and not may_be_none:
        raise click.UsageError("name ledgers, or a file of them: --from FILE")
    return rows


def take_looks(values: dict[str, Any]) -> "Looks":
    """Take the options of `look_options` out of a command's arguments."""
    from reconcile.jobs.deletes.looks import Looks

    aliases = read_aliases(values["aliases"])
    wire = take_wire(values, wire=values.pop("wire"), without=frozenset({"aliases"}))
    return Looks(tuple(values.pop("inventories")), wire, aliases=aliases)


def to_ms(duration: timedelta) -> int:
    """Return a duration in milliseconds."""
    return int(duration.total_seconds() * 1000)


def show_time(at_ms: int | None) -> str | None:
    """Return a time as text; None where there is none."""
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def select_scope(tombstones: "Iterable[Tombstone]", scope: int) -> tuple[list["Tombstone"], dict[int, int]]:
    """Return the tombstones of one scope, and how many each other scope has."""
    from recovery.model.ids import to_unsigned

    chosen, unlisted = list["Tombstone"](), Counter[int]()
    for item in tombstones:
        if item.ledger.scope == scope:
            chosen.append(item)
        else:
            unlisted[to_unsigned(item.ledger.scope)] += 1
    return chosen, dict(sorted(unlisted.items()))


def describe_scopes(unlisted: Mapping[int, int]) -> list[str]:
    """Return a line that names scopes that were not listed; none where all were listed."""
    if not unlisted:
        return []
    named = ", ".join(f"{scope} ({count})" for scope, count in list(unlisted.items())[:SHOWN])
    more = f", and {len(unlisted) - SHOWN} more scopes" if len(unlisted) > SHOWN else ""
    return [f"not listed, of other scopes: {named}{more}; name one with --ledger-scope-id"]


TOMBSTONE_COLUMNS: Final = (
    *("ledger", "state", "since", "soak_end", "quarantine_end", "reason", "by", "reasons", "certificate"),
    *("members", "waiting", "holders", "steps"),
)
"""Keys of each row of `describe_tombstones`."""


def describe_tombstones(tombstones: "Iterable[Tombstone]", now_ms: int) -> list[dict[str, object]]:
    """Return tombstones as JSON has them; records, which may hold passwords, are never shown."""
    from reconcile.deletes.tombstones import find_quarantine_end, find_soak_end, find_state, list_waiting

    return [
        {
            "ledger": str(item.ledger),
            "state": find_state(item, now_ms).value,
            "since": show_time(item.since_ms),
            "soak_end": show_time(find_soak_end(item)),
            "quarantine_end": show_time(find_quarantine_end(item)) if item.hold else None,
            "reason": item.reason,
            "by": item.steps[0].by,
            "reasons": list(item.objections),
            "certificate": item.certificate or None,
            "members": list(item.members),
            "waiting": list(list_waiting(item)),
            "holders": [
                {
                    "bookie": holder.bookie,
                    "incarnation": str(holder.incarnation),
                    "seen": show_time(holder.seen_ms),
                    "released": show_time(holder.released_ms),
                    "release": holder.release or None,
                    "entries": holder.entries,
                }
                for holder in item.holders
            ],
            "steps": [{"state": step.state.value, "at": show_time(step.at_ms), "by": step.by} for step in item.steps],
        }
        for item in tombstones
    ]


def describe_state(row: "Mapping[str, object]") -> str:
    """Return a line of one tombstone, as `describe_tombstones` returns it."""
    until = f", until {row['quarantine_end']}" if row["state"] == "QUARANTINED" else ""
    return f"{row['ledger']}: {row['state']} since {row['since']}{until}, by {row['by']}"


def write_list(
    target: "DeleteTarget", name: str, title: str, ledgers: "Iterable[LedgerId]"
) -> tuple[Path | None, list[str]]:
    """Write ledgers into a file of the journal's folder, and return it with the lines that name it.

    The result stands already: a full disk does not hide it, but is said in such a line.
    """
    path, problem = try_write_ids(target.folder / name, ledgers)
    if problem:
        return None, [f"{title} could not be written into a file ({problem}): --json names all"]
    return path, [f"{title}: {path}; delete verify --from takes it"] if path else []


def name_ledgers(ledgers: "Sequence[LedgerId]") -> str:
    """Return some ledgers in words."""
    more = "" if len(ledgers) <= SHOWN else f", and {len(ledgers) - SHOWN} more"
    return ", ".join(map(str, ledgers[:SHOWN])) + more


def list_lines(rows: "Mapping[LedgerId, object]") -> list[str]:
    """Return a line for each of some ledgers."""
    lines = [f"{ledger}: {text}" for ledger, text in list(rows.items())[:SHOWN]]
    return [*lines, *([f"and {len(rows) - SHOWN} more: --json names all"] if len(rows) > SHOWN else [])]
