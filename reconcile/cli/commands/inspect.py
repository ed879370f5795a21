"""`inspect`: one file of a bookie by itself, or what each byte of many files is."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import make_context, make_output, output_options
from reconcile.cli.output import Output, Result

if TYPE_CHECKING:
    from recovery.inspect.account import Account, File, Region

_WIDTH: Final = 22


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "read to its end, no damage; with --account: every byte is explained",
        Exit.USAGE: "no such file, or no file of a bookie",
        Exit.FOUND: "damage; the rest was read; with --account: bytes or files that nobody can explain",
    },
    epilog="""Example: bkmeta inspect /mnt/bk1/ledgers/current/1f.log

    With --account, folders can be named, too: bkmeta inspect --account /mnt/bk1""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--account", is_flag=True, help="Say what each byte is, of files and of all in and below folders.")
@output_options
def inspect(files: tuple[Path, ...], *, account: bool, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Read one FILE of a bookie, or a RocksDB folder, by itself: kind, header, counts, ranges, damage.

    The kind is found by name and content. Payload, passwords and master keys are never shown.
    """
    if len(files) > 1 and not account:
        raise click.UsageError("several files only with --account; one at a time else")
    output = make_output(shared)
    sys.exit(output.show(_account_files(list(files), output) if account else _inspect_file(files[0], output)))


def _inspect_file(file: Path, output: Output) -> Result:
    from reconcile.jobs.diagnose.inspect import inspect_file
    from recovery.inspect.file_kinds import Kind
    from recovery.inspect.file_notes import LISTED

    found = inspect_file(file, make_context(output))
    counted = ", ".join(_describe_counts(count, name) for name, count in found.counts.items())
    damage = f"damaged in {_describe_counts(found.damaged, 'places')}" if found.damaged else "no damage"
    verdict = f"{found.kind}, {found.size} bytes" + (f": {counted}" if counted else "") + f"; {damage}"
    unit = "row" if found.kind in (Kind.LOCATIONS, Kind.LEDGERS, Kind.CACHED_MAPS) else "byte"
    details = [f"{name:<{_WIDTH}}{text}" for name, text in found.header.items()]
    details += [f"{name:<{_WIDTH}}{text}" for name, text in (("first", found.first), ("last", found.last)) if text]
    details += found.ranges
    details += [f"note: {note}" for note in found.notes]
    details += [
        f"damage at {unit} {part.offset}, {part.length or 'unknown'} bytes: {part.reason}"
        + (f" ({part.detail})" if part.detail else "")
        for part in found.damage
    ]
    if found.damaged > LISTED:
        details.append(f"and {found.damaged - LISTED} more pieces of damage")
    return Result(
        "inspect",
        verdict,
        Exit.FOUND if found.damaged else 0,
        counts={**found.counts, "damaged": found.damaged},
        coverage={"file": str(file), "bytes": found.size, "complete": True},
        details=details,
        facts={
            "kind": str(found.kind),
            "header": found.header,
            "first": found.first,
            "last": found.last,
            "ranges": list(found.ranges),
            "notes": list(found.notes),
            "damage": [asdict(part) for part in found.damage],
        },
    )


def _account_files(paths: list[Path], output: Output) -> Result:
    from reconcile.jobs.diagnose.inspect import account_files
    from recovery.inspect.file_notes import LISTED

    found = account_files(paths, make_context(output))
    files, size = found.files.total(), found.bytes.total()
    counted = f"{_describe_counts(files, 'files')}, {size} bytes"
    if found.odd_files:
        verdict = (
            f"{counted}; {found.unexplained} bytes in {_describe_counts(found.odd_files, 'files')} are not explained"
        )
    else:
        verdict = f"{counted}: every byte is explained"
    details = list(_kinds(found))
    for file in found.named:
        details += [f"{file.path}, {file.kind}, {file.size} bytes", *_regions(file.regions, file.more)]
    for file in found.odd:
        problem = f": {file.why}" if file.why else ""
        details.append(f"not explained: {file.unexplained} of {file.size} bytes of {file.path}{problem}")
        if file not in found.named:
            details += _regions([region for region in file.regions if not region.explained], 0)
    if found.odd_files > LISTED:
        details.append(f"and {found.odd_files - LISTED} more files that are not wholly explained")
    return Result(
        "inspect",
        verdict,
        Exit.FOUND if found.odd_files else 0,
        counts={"files": files, "bytes": size, "unexplained": found.unexplained, "odd_files": found.odd_files},
        coverage={"files": [str(path) for path in paths], "bytes": size, "complete": True},
        details=details,
        facts={
            "kinds": {
                kind: {"files": found.files[kind], "bytes": found.bytes[kind], "parts": dict(found.parts[kind])}
                for kind in sorted(found.files)
            },
            "accounts": [_as_json(file) for file in found.named],
            "odd": [_as_json(file) for file in found.odd],
        },
    )


def _kinds(found: "Account") -> Iterator[str]:
    for kind in sorted(found.files):
        parts = ", ".join(f"{what} {size}" for what, size in found.parts[kind].most_common())
        line = f"{kind:<{_WIDTH}}{_describe_counts(found.files[kind], 'files')}, {found.bytes[kind]} bytes"
        yield f"{line}: {parts}" if parts else line


def _regions(regions: "list[Region]", more: int) -> Iterator[str]:
    for region in regions:
        parts = [
            f"{items} {what}, {size}" if items else f"{what} {size}" for what, (items, size) in region.parts.items()
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
                    {"what": what, "items": items, "bytes": size} for what, (items, size) in region.parts.items()
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
