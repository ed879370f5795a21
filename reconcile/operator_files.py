"""Files that operators write and name: read whole, with the types of their keys, or an error that says why not."""

import json
import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from recovery.errors import InputError

_ABSENT: Final = re.compile(r"Object missing required field `(.+)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.+)`")

_PLAIN: Final = {
    " | null": "",
    "`array`": "a list",
    "`object`": "a table",
    "`str`": "a text",
    "`int`": "a whole number",
    "`float`": "a number",
    "`bool`": "true or false",
}
"""How messages call types, in place of the library's names."""

_T = TypeVar("_T")


class Line(str):
    """Text of one line, not empty."""

    __slots__ = ()


class OperatorTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table that an operator writes: a key that it does not have is refused."""


def read_operator_file(path: Path) -> bytes:
    """Return what a file holds.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "name a file that you can read") from error


def read_operator_text(path: Path, form: str) -> str:
    """Return the text of a file; its lines end as those of any system do.

    Args:
        path: of the file.
        form: what to write there, should it be no text.

    Raises:
        InputError: it cannot be read, or is not a text.
    """
    try:
        text = read_operator_file(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"is not text: no UTF-8 at byte {error.start}", form) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_toml(path: Path, form: str) -> dict[str, Any]:
    """Return the values of a file of TOML.

    Args:
        path: of the file.
        form: what to write there, should it be none.

    Raises:
        InputError: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(read_operator_text(path, form))
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(path), f"is not TOML: {error}", form) from error


def read_json(path: Path, form: str) -> Any:  # noqa: ANN401 - what JSON has
    """Return the value of a file of JSON, likewise.

    Raises:
        InputError: it cannot be read, or is not JSON.
    """
    try:
        return json.loads(read_operator_file(path))
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"is not JSON ({error})", form) from error


def convert_values(
    values: object,
    kind: type[_T],
    path: Path,
    form: str,
    *,
    table: str = "",
    strict: bool = True,
    own: Callable[[type, Any], Any] | None = None,
) -> _T:
    """Return values of TOML or JSON as a type, each of its keys checked.

    Args:
        values: of the file, or of one table of it.
        kind: the type: an `OperatorTable`, or what `msgspec.convert` knows.
        path: of the file.
        form: what to write there.
        table: of the file that has the values; empty: the whole.
        strict: a number in quotes is not a number.
        own: makes values of further types: type, value → value; it raises a ValueError that says what is wrong.

    Raises:
        InputError: a key that is missing or unknown, or a value of another type.
    """

    def make(wanted: type, value: Any) -> Any:  # noqa: ANN401 - what the file has
        if wanted is not Line:
            return own(wanted, value) if own else value
        if not isinstance(value, str) or not value or "\n" in value or "\0" in value:
            raise ValueError("is not text of one line")
        return Line(value)

    try:
        return msgspec.convert(values, kind, strict=strict, dec_hook=make)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        names = [table, place.rstrip("`").lstrip(".")]
        for pattern, text in ((_ABSENT, "is missing"), (_UNKNOWN, "is unknown")):
            if match := pattern.fullmatch(problem):
                names.append(match[1])
                problem = text
        key = ".".join(filter(None, names))
        problem = problem[0].lower() + problem[1:]
        for name, plain in _PLAIN.items():
            problem = problem.replace(name, plain)
        raise InputError(f"{path}, {key}" if key else str(path), problem, form) from error


def find_cache_folder() -> Path:
    """Return the user's folder of kept captures: below `$XDG_CACHE_HOME`, else below `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "bkmeta" / "impact"
