r"""Cookie: which bookie a disk belongs to, and its folders in order (``VERSION``, and ``cookies/<bookie id>``).

Text, UTF-8, lines end with LF; CR LF and CR are read too, as Java does, and of a repeated field the last one.

    line  layout 3                  layouts 4 and 5
    1     3                         layout version
    2     bookie id                 protobuf text of CookieFormat (proto/recovery/codecs/_pb/cookie.proto):
    3     journal folders           bookieHost, journalDir, ledgerDirs as in layout 3, then where not empty
    4     ledger folders            instanceId and (from layout 5 on) indexDirs

    journal folders           joined with ","
    ledger and index folders  their number in decimal, then a TAB and the path for each; in text TAB is written \t

A list without a TAB that is not a number is read, too, as a bookie reads it: BookKeeper's shell before 4.10 wrote the
folders joined with "," and no number.

Layout 1 has no file; layout 2 is the number alone and names no bookie. Layouts above 5 are read as 5.

Source: apache/bookkeeper 9590a97, bookie/Cookie; issue 2145; docs/formats/bookie-storage.md.
"""

import re
from dataclasses import dataclass
from typing import Final

from google.protobuf import text_format

from recovery.codecs._pb.cookie_pb2 import CookieFormat
from recovery.errors import FormatError, Reason
from recovery.model.ids import is_bookie_id

RAW_LAYOUT: Final = 3
_SHOWN: Final = 100
"""Characters that no id has."""
_LAYOUT: Final = re.compile(r"[0-9]{1,9}")
_LINE_END: Final = re.compile(r"\r\n?")
_ESCAPE: Final = re.compile(r"\\(?:[0-7]{3}|.)", re.DOTALL)
_NO_ESCAPE: Final = re.compile(r"\\(?:[4-7][0-7]{2}|[^0-7abfnrtvxuU\\'\"])", re.DOTALL)
_JAVA_ESCAPES: Final = {r"\007": r"\a", r"\010": r"\b", r"\013": r"\v", r"\014": r"\f"}
"""Escapes of Java where Python writes octal digits."""


@dataclass(frozen=True, slots=True)
class Cookie:
    """The identity of a bookie's disks.

    Attributes:
        layout_version: 3 or more.
        bookie_id: as ensembles name the bookie.
        journal_dirs: in configured order, without ``current``.
        ledger_dirs: the same.
        index_dirs: the same; None: the ledger folders.
        instance_id: of the cluster; None if the cookie names none.
    """

    layout_version: int
    bookie_id: str
    journal_dirs: tuple[str, ...]
    ledger_dirs: tuple[str, ...]
    index_dirs: tuple[str, ...] | None = None
    instance_id: str | None = None


def decode(raw: bytes | memoryview) -> Cookie:
    """Return a cookie.

    Raises:
        FormatError: not a cookie, or one that names no bookie that BookKeeper accepts.
    """
    if not raw:
        raise FormatError(Reason.EMPTY, "cookie", 0)
    try:
        text = bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise FormatError(Reason.BAD_VALUE, "cookie", error.start, "not UTF-8") from error
    first, _, rest = _LINE_END.sub("\n", text).partition("\n")
    if not _LAYOUT.fullmatch(first):
        raise FormatError(Reason.BAD_MAGIC, "cookie", 0, "the first line is not a layout version")
    layout = int(first)
    if layout < RAW_LAYOUT:
        raise FormatError(Reason.BAD_VERSION, "cookie", 0, f"layout {layout} names no bookie")
    cookie = _decode_lines(rest) if layout == RAW_LAYOUT else _decode_text(layout, rest)
    if not is_bookie_id(cookie.bookie_id):
        raise FormatError(Reason.BAD_VALUE, "cookie", 0, f"not a bookie id: {cookie.bookie_id[:_SHOWN]!r}")
    return cookie


def _decode_lines(text: str) -> Cookie:
    lines = text.split("\n")
    if len(lines) < 3:
        raise FormatError(Reason.TRUNCATED, "cookie", len(text) + 2, "layout 3 has three lines after the first")
    return Cookie(RAW_LAYOUT, lines[0], tuple(lines[1].split(",")), _folders(lines[2], "ledger folders"))


def _decode_text(layout: int, text: str) -> Cookie:
    if any(_NO_ESCAPE.match(escape[0]) for escape in _ESCAPE.finditer(text)):
        raise FormatError(Reason.BAD_VALUE, "cookie", 2, "an escape that is none")
    try:
        message = text_format.Merge(text, CookieFormat(), allow_unknown_field=True)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        raise FormatError(Reason.BAD_VALUE, "cookie", 2, f"not CookieFormat as text: {error}") from error
    if not message.IsInitialized():
        raise FormatError(Reason.TRUNCATED, "cookie", len(text), "a required field is not there")
    return Cookie(
        layout,
        _text(message.bookieHost, "bookie id"),
        tuple(_text(message.journalDir, "journal folders").split(",")),
        _folders(_text(message.ledgerDirs, "ledger folders"), "ledger folders"),
        _folders(_text(message.indexDirs, "index folders"), "index folders") if message.indexDirs else None,
        _text(message.instanceId, "instance id") or None,
    )


def _text(raw: bytes, noun: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise FormatError(Reason.BAD_VALUE, "cookie", 0, f"{noun} not UTF-8") from error


def _folders(text: str, noun: str) -> tuple[str, ...]:
    count, *paths = text.split("\t")
    if count and not paths and not count.isdecimal():
        return tuple(count.split(","))
    if count != str(len(paths)):
        raise FormatError(Reason.BAD_LENGTH, "cookie", 0, f"{noun}: {count!r} announced, {len(paths)} there")
    return tuple(paths)


def encode(cookie: Cookie) -> bytes:
    """Return the bytes of a cookie.

    Raises:
        ValueError: layout 2 or less, or layout 3 with an instance id or index folders.
    """
    if cookie.layout_version < RAW_LAYOUT:
        raise ValueError(f"layout {cookie.layout_version}")
    journals, ledgers = ",".join(cookie.journal_dirs), _join(cookie.ledger_dirs)
    if cookie.layout_version == RAW_LAYOUT:
        if cookie.instance_id is not None or cookie.index_dirs is not None:
            raise ValueError("layout 3 has neither instance id nor index folders")
        return f"{RAW_LAYOUT}\n{cookie.bookie_id}\n{journals}\n{ledgers}\n".encode()
    message = CookieFormat(
        bookieHost=cookie.bookie_id.encode(), journalDir=journals.encode(), ledgerDirs=ledgers.encode()
    )
    if cookie.instance_id is not None:
        message.instanceId = cookie.instance_id.encode()
    if cookie.index_dirs is not None:
        message.indexDirs = _join(cookie.index_dirs).encode()
    text = _ESCAPE.sub(lambda match: _JAVA_ESCAPES.get(match[0], match[0]), text_format.MessageToString(message))
    return f"{cookie.layout_version}\n{text}".encode()


def _join(folders: tuple[str, ...]) -> str:
    return "\t".join((str(len(folders)), *folders))
