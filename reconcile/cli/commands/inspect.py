"""`inspect`: one file of a bookie by itself, or what each byte of many files is."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import LocalPath, make_context, make_output, output_options
from reconcile.cli.output import Output, Result

if TYPE_CHECKING:
    from recovery.inspect.byte_account import Account, File, Region

_WIDTH: Final = 22


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "read to its end, no damage; with --account: every byte is explained",
        Exit.USAGE: "no such file, or no file of a bookie",
        Exit.FOUND: "damage; the rest was read; with --account: bytes or files without an explanation",
    },
    epilog="""Example: bkmeta inspect /mnt/bk1/ledgers/current/1f.log

    With --account, folders can be named, too: bkmeta inspect --account /mnt/bk1""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=LocalPath(path_type=Path))
@click.option("--account", is_flag=True, help="Say what each byte is, of files and of all in and below folders.")
@output_options
def inspect(files: tuple[Path, ...], *, account: bool, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Read one FILE of a bookie, or a RocksDB folder, by itself: kind, header, counts, ranges, damage.

    The kind is found by name and content. Payload, passwords and master keys are never shown.
    """
    if len(files) > 1 and not account:
        raise click.UsageError("name one file, or add --account for several")
    output = make_output(shared)
    sys.exit(output.show(_account_files(list(files), output) if account else _inspect_file(files[0], output)))


def _inspect_file(file: Path, output: Output) -> Result:
    from reconcile.jobs.diagnose.inspect import inspect_file
    from recovery.inspect.file_kinds import FileKind
    from recovery.inspect.file_notes import LISTED

    inspected = inspect_file(file, make_context(output))
    counted = ", ".join(_describe_counts(count, name) for name, count in inspected.counts.items())
    damage = f"damaged in {_describe_counts(inspected.damaged, 'places')}" if inspected.damaged else "no damage"
    verdict = f"{inspected.kind}, {inspected.size} bytes" + (f": {counted}" if counted else "") + f"; {damage}"
    unit = "row" if inspected.kind in (FileKind.LOCATIONS, FileKind.LEDGERS, FileKind.CACHED_MAPS) else "byte"
    details = [f"{name:<{_WIDTH}}{text}" for name, text in inspected.header.items()]
    details += [
        f"{name:<{_WIDTH}}{text}" for name, text in (("first", inspected.first), ("last", inspected.last)) if text
    ]
    details += inspected.ranges
    details += [f"note: {note}" for note in inspected.notes]
    details += [
        f"damage at {unit} {part.offset}, {part.length or 'unknown'} bytes: {part.reason}"
        + (f" ({part.detail})" if part.detail else "")
        for part in inspected.damage
    ]
    if inspected.damaged > LISTED:
        details.append(f"and {inspected.damaged - LISTED} more pieces of damage")
    return Result(
        "inspect",
        verdict,
        Exit.FOUND if inspected.damaged else 0,
        counts={**inspected.counts, "damaged": inspected.damaged},
        coverage={"file": str(file), "bytes": inspected.size, "complete": True},
        details=details,
        facts={
            "kind": str(inspected.kind),
            "header": inspected.header,
            "first": inspected.first,
            "last": inspected.last,
            "ranges": list(inspected.ranges),
            "notes": list(inspected.notes),
            "damage": [asdict(part) for part in inspected.damage],
        },
    )


def _account_files(paths: list[Path], output: Output) -> Result:
    from reconcile.jobs.diagnose.inspect import account_files
    from recovery.inspect.file_notes import LISTED

    account = account_files(paths, make_context(output))
    files, size = account.files.total(), account.bytes.total()
    counted = f"{_describe_counts(files, 'files')}, {size} bytes"
    if account.odd_files:
        odd = f"{account.unexplained} bytes in {_describe_counts(account.odd_files, 'files')}"
        verdict = f"{counted}; {odd} are not explained"
    else:
        verdict = f"{counted}: every byte is explained"
    details = list(_kinds(account))
    for file in account.named:
        details += [f"{file.path}, {file.kind}, {file.size} bytes", *_regions(file.regions, file.more)]
    for file in account.odd:
        problem = f": {file.why}" if file.why else ""
        details.append(f"not explained: {file.unexplained} of {file.size} bytes of {file.path}{problem}")
        if file not in account.named:
            details += _regions([region for region in file.regions if not region.explained], 0)
    if account.odd_files > LISTED:
        details.append(f"and {account.odd_files - LISTED} more files that are not wholly explained")
    return Result(
        "inspect",
        verdict,
        Exit.FOUND if account.odd_files else 0,
        counts={"files": files, "bytes": size, "unexplained": account.unexplained, "odd_files": account.odd_files},
        coverage={"files": [str(path) for path in paths], "bytes": size, "complete": True},
        details=details,
        facts={
            "kinds": {
                kind: {"files": account.files[kind], "bytes": account.bytes[kind], "parts": dict(account.parts[kind])}
                for kind in sorted(account.files)
            },
            "accounts": [_as_json(file) for file in account.named],
            "odd": [_as_json(file) for file in account.odd],
        },
    )


def _kinds(account: "Account") -> Iterator[str]:
    for kind in sorted(account.files):
        parts = ", ".join(f"{noun} {size}" for noun, size in account.parts[kind].most_common())
        line = f"{kind:<{_WIDTH}}{_describe_counts(account.files[kind], 'files')}, {account.bytes[kind]} bytes"
        yield f"{line}: {parts}" if parts else line


def _regions(regions: "list[Region]", more: int) -> Iterator[str]:
    for region in regions:
        parts = [
            f"{items} {noun}, {size}" if items else f"{noun} {size}" for noun, (items, size) in region.parts.items()
        ]
        yield f"  {region.offset:>14} {region.length:>14}  {region.name}: {'; '.join(parts)}"
    if more:
        yield f"  and {_describe_counts(more, 'regions')} more"


def _as_json(file: "File") -> dict[str, Any]:
    return {
        "path": str(file.path),
        "kind": file.kind,
        "bytes": file.size,
        "unexplained": file.unexplained,
        "why": file.why,
        "more": file.more,
        "regions": [
            {
                "offset": region.offset,
                "length": region.length,
                "name": region.name,
                "explained": region.explained,
                "parts": [
                    {"what": noun, "items": items, "bytes": size} for noun, (items, size) in region.parts.items()
                ],
            }
            for region in file.regions
        ],
    }


def _describe_counts(count: int, plural: str) -> str:
    words = plural.replace("_", " ")
    if count == 1:
        words = words.removesuffix("ies") + "y" if words.endswith("ies") else words.removesuffix("s")
    return f"{count} {words}"
