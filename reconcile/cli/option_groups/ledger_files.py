"""Ledgers that a file names."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.options import parse_ledger
from reconcile.operator_files import read_operator_text
from recovery.errors import InputError

if TYPE_CHECKING:
    from recovery.model.ids import LedgerId

_ABOVE: Final = 1 << 64
_REMEDY: Final = 'write one ledger a line: 123, scope:123, 32 hex digits, or {"ledger": 123}'


def read_ledger_file(path: Path, scope: str | None) -> "tuple[LedgerId, ...]":
    """Return the ledgers that a file names, one a line; of a scope where a line has a number alone.

    Raises:
        InputError: the file cannot be read, or has a line that names no ledger.
    """
    return tuple(ledger for ledger, _ in read_ledger_rows(path, scope))


def read_ledger_rows(path: Path, scope: str | None) -> "list[tuple[LedgerId, dict[str, Any]]]":
    """Return the ledger that each line names, and the JSON that it is; empty where it is none.

    Raises:
        InputError: the file cannot be read, or has a line that names no ledger.
    """
    lines = read_operator_text(path, _REMEDY).splitlines()
    rows = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            row = json.loads(text) if text.startswith("{") else {}
            rows.append((parse_ledger(_name_ledger(row) if row else text, scope), row))
        except (ValueError, KeyError, TypeError, click.BadParameter) as error:
            raise InputError(f"{path}, line {number}", "names no ledger", _REMEDY) from error
    return rows


def _name_ledger(row: dict[str, Any]) -> str:
    """Return the text form of the ledger that JSON names; its numbers may be signed, as columns have them."""
    halves = [row["scope"], row["ledger"]] if row.get("scope") else [row["ledger"]]
    return ":".join(
        str(half + _ABOVE) if type(half) is int and -_ABOVE // 2 <= half < 0 else str(half) for half in halves
    )
