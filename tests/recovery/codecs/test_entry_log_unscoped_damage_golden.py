"""What real entry logs and journals give, whole and mangled, did not change when records of scopes came to be read."""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator

import pytest

from recovery.codecs import entry_log, journal
from recovery.codecs.entry_log import EntryAt
from recovery.codecs.journal import JournalEntry
from recovery.errors import Damage
from tests.support import bookie_files
from tests.support.cases import NAMES

pytestmark = pytest.mark.long

SEED = 7
MANGLED = 12
"""Of each file."""
KEPT = 40_000
"""Bytes of a file that are looked at: more only take longer."""
LOGS = "5f952c85b43b0ff20e41630ffbcd5d5ceab5daabc162838b723b4d5465d3ac38"
JOURNALS = "8a7a42354a12350e3956420b2b4c30634b29510450c8669fba6e1779b0502ce2"
"""Taken from the codecs as they were before they knew of scopes. What changes them on purpose takes them anew: of
journals since bytes behind damage are no special record of an unknown kind any more, which hid five entries."""


def mangled(raw: bytes, luck: random.Random) -> bytes:
    """Return the bytes with a few places changed, cut out, put in or zeroed, and perhaps the end cut off."""
    out = bytearray(raw)
    for _ in range(luck.randint(1, 4)):
        at, size = luck.randrange(len(out)), luck.choice((1, 4, 9, 33, 200))
        match luck.randrange(5):
            case 0:
                out[at] ^= 1 << luck.randrange(8)
            case 1:
                out[at : at + size] = luck.randbytes(size)
            case 2:
                del out[at : at + size]
            case 3:
                out[at:at] = luck.randbytes(size)
            case _:
                out[at : at + size] = bytes(len(out[at : at + size]))
    return bytes(out[: luck.randint(len(out) // 2, len(out))] if luck.random() < 0.25 else out)


def _told(parts: Iterable[object]) -> Iterator[str]:
    for part in parts:
        match part:
            case EntryAt(ledger, number, position, size):
                yield f"{ledger} {number} {position} {size}"
            case JournalEntry(at, size, ledger, number):
                yield f"{ledger} {number} {at} {size}"
            case Damage():
                yield f"{part.offset} {part.length} {part.reason} {part.detail}"
            case _:
                yield f"{type(part).__name__} {getattr(part, 'at', None)} {getattr(part, 'ledger', None)}"


def _digest(files: Iterable[bytes], scans: Iterable[Callable[[bytes], Iterable[object]]]) -> str:
    luck, found = random.Random(SEED), hashlib.sha256()
    for raw in files:
        front = raw[:KEPT]
        for some in (front, *(mangled(front, luck) for _ in range(MANGLED))):
            for scan in scans:
                found.update("\n".join(_told(scan(some))).encode())
    return found.hexdigest()


def _whole_header(raw: bytes) -> bytes:
    """A journal whose version is mangled is refused: the rest of it says nothing here."""
    return b"BKLG\0\0\0\6" + raw[8:]


def test_entry_logs_give_what_they_gave() -> None:
    """The same entries and the same damage, with and without ledgers that are known."""
    files = [path.read_bytes() for case in NAMES for path in bookie_files.entry_logs(case)]
    files = [raw for raw in files if raw]
    assert len(files) > 10
    scans = [lambda raw, known=known: entry_log.scan(raw, known=known) for known in ((), range(40))]
    assert _digest(files, scans) == LOGS


def test_journals_give_what_they_gave() -> None:
    """The same records and the same damage."""
    files = [path.read_bytes() for case in NAMES for path in bookie_files.journals(case)]
    assert len(files) > 10
    assert _digest(files, [lambda raw: journal.scan(_whole_header(raw))]) == JOURNALS
