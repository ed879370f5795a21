"""A bookie's configuration file: the folders that `bk_server.conf` names.

Java properties; lists are split at commas, and ``${key}`` means another value of the file.

    key                                              default
    journalDirectories, journalDirectory (older)     /tmp/bk-txn
    ledgerDirectories                                /tmp/bk-data
    indexDirectories                                 the ledger directories
    bookieId                                         the address
    allowStorageExpansion                            false
    dataIntegrityChecking                            false
    dataIntegrityStampMissingCookies                 false; counts with dataIntegrityChecking

Source: apache/bookkeeper 9590a97, conf/ServerConfiguration; java.util.Properties for the lines, commons-configuration
for lists and variables.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from recovery.errors import InputError

_DEFAULTS: Final = {"journalDirectories": "/tmp/bk-txn", "ledgerDirectories": "/tmp/bk-data"}  # noqa: S108 - BookKeeper's
_SEPARATOR: Final = re.compile(r"(?<!\\)((?:\\\\)*)(\s*[=:]\s*|\s+)")
_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SWITCHES: Final = {
    **dict.fromkeys(("true", "yes", "on", "y", "t", "1"), True),
    **dict.fromkeys(("", "false", "no", "off", "n", "f", "0"), False),
}
_REMEDY: Final = "name its ledger, index and journal folders one by one"
_DEPTH: Final = 16
"""Variables within variables that are followed."""


@dataclass(frozen=True, slots=True)
class BookieConf:
    """A bookie's folders in `bk_server.conf`; without `indexDirectories` the ledger folders have the index.

    Attributes:
        ledger_dirs, index_dirs, journal_dirs: its folders.
        bookie_id: None: its address.
        expands_storage: it starts with folders that its cookie does not name; None: the value cannot be read.
        stamps_cookies: it starts with any cookie in the store, and writes another one there; None: the same.
    """

    ledger_dirs: tuple[Path, ...]
    index_dirs: tuple[Path, ...]
    journal_dirs: tuple[Path, ...]
    bookie_id: str | None
    expands_storage: bool | None = False
    stamps_cookies: bool | None = False


def read_conf(path: Path) -> BookieConf:
    """Return the folders of a `bk_server.conf`, with BookKeeper's defaults for missing keys.

    Raises:
        InputError: the file cannot be read, or a folder depends on a variable that it does not define.
    """
    keys_read = ("ledgerDirectories", "indexDirectories", "journalDirectories", "journalDirectory", "bookieId")
    properties = _read_properties(path, _REMEDY)
    named = _pick_values(path, properties, keys_read, _REMEDY)

    def values(*keys: str) -> list[str]:
        return next((named[key] for key in keys if named[key]), [])

    def folders(*keys: str) -> tuple[Path, ...]:
        return tuple(map(Path, values(*keys) or filter(None, [_DEFAULTS.get(keys[0])])))

    def is_on(key: str) -> bool | None:
        try:
            return _SWITCHES.get(next(iter(_resolve(key, properties)), "").lower())
        except ValueError:
            return None

    checks, stamps = is_on("dataIntegrityChecking"), is_on("dataIntegrityStampMissingCookies")
    return BookieConf(
        folders("ledgerDirectories"),
        folders("indexDirectories"),
        folders("journalDirectories", "journalDirectory"),
        next(iter(values("bookieId")), None),
        is_on("allowStorageExpansion"),
        False if False in (checks, stamps) else None if None in (checks, stamps) else True,
    )


def read_values(path: Path, keys: Iterable[str], remedy: str) -> dict[str, list[str]]:
    """Return the values of some keys of a configuration file, variables replaced; a missing key has no value.

    Args:
        path: the file.
        keys: the keys.
        remedy: advice if the file cannot be used.

    Raises:
        InputError: the file cannot be read, or a value depends on a variable that it does not define.
    """
    return _pick_values(path, _read_properties(path, remedy), keys, remedy)


def _read_properties(path: Path, remedy: str) -> dict[str, list[str]]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}", remedy) from error
    try:
        return parse_properties(raw.decode())
    except UnicodeDecodeError:
        return parse_properties(raw.decode("latin-1"))


def _pick_values(
    path: Path, properties: Mapping[str, list[str]], keys: Iterable[str], remedy: str
) -> dict[str, list[str]]:
    try:
        return {key: _resolve(key, properties) for key in keys}
    except ValueError as error:
        raise InputError(str(path), str(error), remedy) from error


def parse_properties(text: str) -> dict[str, list[str]]:
    """Return the values of each key of a properties file: lists are split at their commas, variables are unchanged.

    A repeated key has the values of both.
    """
    properties: dict[str, list[str]] = {}
    for line in _join_lines(text):
        match = _SEPARATOR.search(line)
        key = line[: match.end(1)] if match else line
        value = line[match.end() :] if match else ""
        properties.setdefault(_unescape(key), []).extend(_split(value))
    return properties


def _join_lines(text: str) -> Iterator[str]:
    joined = ""
    for line in re.split(r"\r\n|\n|\r", text):
        stripped = line.lstrip(" \t\f")
        if not joined and (not stripped or stripped[0] in "#!"):
            continue
        joined += stripped
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
        else:
            yield joined
            joined = ""
    if joined:
        yield joined


def _split(value: str) -> list[str]:
    """Split a list at its unescaped commas, and remove the escapes."""
    return [_unescape(part.strip()) for part in re.split(r"(?<!\\),", value)]


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        name = match[1]
        return chr(int(name[1:], 16)) if len(name) > 1 else _LETTERS.get(name, name)

    return _ESCAPE.sub(plain, text)


def _resolve(key: str, properties: Mapping[str, list[str]], depth: int = 0) -> list[str]:
    """Return the values of a key with every variable replaced; a variable with a list gives a list."""
    if depth > _DEPTH:
        raise ValueError(f"the variables of {key} go round in a circle")
    values: list[str] = []
    for value in properties.get(key, ()):
        match = _VARIABLE.search(value)
        if not match:
            values.append(value)
            continue
        if match[1] not in properties:
            raise ValueError(f"{key} needs {match[0]}, which the file does not define")
        inner = ",".join(_resolve(match[1], properties, depth + 1))
        whole = value[: match.start()] + inner + value[match.end() :]
        values += _resolve(key, {**properties, key: _split(whole)}, depth + 1)
    return [value for value in values if value]
