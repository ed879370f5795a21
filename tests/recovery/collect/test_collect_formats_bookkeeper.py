"""Odd files as BookKeeper's own readers see them and as ours do, and odd logs that its own logger writes."""

import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from recovery.codecs import cookie, entry, entry_log, index_file, journal
from recovery.codecs.entry import EntryHeader
from recovery.codecs.entry_log import EntryAt, LogHeader
from recovery.errors import Damage, FormatError
from recovery.inspect.byte_account import account_for
from recovery.model.metadata import Digest
from tests.simulation.bookie_dir import make_bookie, write_index
from tests.support import jars
from tests.support.collecting import look

pytestmark = pytest.mark.real

RECORDS: Final = [
    entry.encode(EntryHeader(ledger, n, n - 1, 5 * n + 5), b"hello", Digest.CRC32C)
    for ledger in (5, 6)
    for n in range(4)
]
KEY: Final = entry.master_key(b"")
LAC: Final = entry.encode_lac_record(5, 2, Digest.CRC32C)
SPECIAL: Final = {
    "key": journal.encode_master_key(5, KEY),
    "an empty key": journal.encode_master_key(5, b""),
    "a fence": journal.encode_fence(5),
    "a force marker": struct.pack(">qq", 5, -0x4000),
    "a LAC": journal.encode_lac(5, LAC),
    "a later kind": struct.pack(">qq", 5, -0x10000) + b"abcdef",
}


def framed(*records: bytes) -> bytes:
    """Records with their sizes in front."""
    return b"".join(struct.pack(">i", len(record)) + record for record in records)


def log_map(*rows: tuple[int, int]) -> bytes:
    """A record of a ledgers map."""
    return struct.pack(">iqqi", 20 + 16 * len(rows), -1, -2, len(rows)) + b"".join(struct.pack(">qq", *r) for r in rows)


BODY: Final = framed(*RECORDS)
ONE: Final = len(BODY) // len(RECORDS)
ROWS: Final = ((5, len(BODY) // 2), (6, len(BODY) // 2))
END: Final = 1024 + len(BODY)


def log(rest: bytes, map_offset: int = 0, ledgers: int = 0, version: int = 1) -> bytes:
    """An entry log."""
    return entry_log.encode_header(LogHeader(version, map_offset, ledgers)) + rest


def direct(*blocks: bytes, reserved: int) -> bytes:
    """A log of the direct I/O logger."""
    filler = struct.pack(">iq", 3068, -1).ljust(3072, b"\0")
    return log(filler + b"".join(block + b"\xf0" * (-len(block) % 4096) for block in blocks) + bytes(reserved))


def of_size(size: int) -> bytes:
    """An entry that takes so many bytes with its size in front."""
    return framed(entry.encode(EntryHeader(9, 0, -1, size), bytes(size - 40), Digest.CRC32C))


LOGS: Final = {
    "whole": log(BODY + log_map(*ROWS), END, 2),
    "a map in two records": log(BODY + log_map(ROWS[0]) + log_map(ROWS[1]), END, 2),
    "a map that is cut": log(BODY + log_map(*ROWS)[:-3], END, 2),
    "a map in an entry": log(BODY + log_map(*ROWS), 1034, 2),
    "a map behind the end": log(BODY, 99_999, 2),
    "an empty map": log(BODY + log_map(), END, 0),
    "a map that was lengthened": log(
        BODY + log_map(*ROWS) + framed(RECORDS[0]) + log_map(*ROWS), END + len(log_map(*ROWS)) + ONE, 2
    ),
    "records behind the map": log(BODY + log_map(*ROWS) + framed(RECORDS[0]), END, 2),
    "version 0": log(BODY, version=0),
    "a header alone": log(b""),
    "no record": log(b"", 1024, 0),
    "zeros behind": log(BODY + bytes(4096)),
    "zeros between": log(BODY[:ONE] + bytes(300) + BODY[ONE:]),
    "twice the same": log(BODY[:ONE] * 2 + BODY[ONE:]),
    "no payload": log(framed(entry.encode(EntryHeader(5, 0, -1, 0), b"", Digest.DUMMY))),
    "large ids": log(framed(entry.encode(EntryHeader((1 << 63) - 1, 1 << 62, -1, 5), b"hello", Digest.CRC32C))),
    **{f"cut by {cut}": log(BODY[:-cut]) for cut in (1, 5, 17, 20, 35, 48)},
    "direct": direct(BODY, BODY, reserved=1 << 16),
    "direct, of nothing": direct(reserved=1 << 16),
    "direct, a full block": direct(of_size(4096), BODY, reserved=8192),
    **{f"direct, {left} bytes left": direct(of_size(4096 - left), BODY, reserved=8192) for left in (1, 2, 3, 4, 7)},
    "direct, over a block": direct(of_size(9000) + BODY, reserved=8192),
}


def _journals() -> Iterator[tuple[str, bytes]]:
    for version in range(1, 7):
        front = journal.encode([], version)
        for name, special in SPECIAL.items():
            yield f"{version}: {name}", front + framed(special, *RECORDS) + bytes(512)
            yield f"{version}: {name} at the end", front + framed(RECORDS[0], special)
        yield f"{version}: nothing", front
        yield f"{version}: reserved space", front + bytes(4096)
        yield f"{version}: cut", front + BODY[:-7]
        if version >= 5:
            for left in (8, 9, 7, 4, 511, 1, 5):
                size = -(len(front) + left) % 512
                padding = journal.encode([], version)  # whole already: what follows is padded by hand
                lead = of_size(size if size >= 60 else size + 512)
                rest = left - 8 if left >= 8 else left - 8 + 512
                tail = struct.pack(">ii", -256, rest) + bytes(rest) + BODY + bytes(700)
                yield f"{version}: padding of {left} bytes", padding + lead + tail


JOURNALS: Final = dict(_journals())


def index(version: int, key: bytes = KEY, state: int = 0, lac: bytes = b"", tail: int = 8192) -> bytes:
    """An index file without entries."""
    head = b"BKLE" + struct.pack(">ii", version, len(key)) + key + struct.pack(">i", state)
    head += struct.pack(">i", len(lac)) + lac if version else b""
    return head.ljust(1024, b"\0") + bytes(tail)


INDEXES: Final = {
    "version 0": index(0, state=1),
    "version 1": index(1, state=1, lac=LAC),
    "no key": index(1, key=b""),
    "a LAC up to the edge": index(1, key=bytes(1024 - 20 - 20), lac=LAC),
    "a LAC over the edge": index(1, key=bytes(1024 - 20 - 19), lac=LAC),
    "a key over the edge": index(0, key=bytes(1100)),
    "other bits": index(1, state=6),
    "later": index(2),
    "a short LAC": index(1, lac=bytes(15)),
    "the fields alone": index(1, lac=LAC, tail=0)[:60],
    "a part of the fields": index(1, lac=LAC, tail=0)[:50],
}
TEXT: Final = b'bookieHost: "b1:3181"\njournalDir: "/j"\nledgerDirs: "1\\t/d"\n'
COOKIES: Final = {
    "3": b"3\nb1:3181\n/j\n1\t/d\n",
    "3, other ends": b"3\r\nb1:3181\r\n/j\r\n1\t/d\r\n",
    "4": b"4\n" + TEXT,
    "5": b"5\n" + TEXT + b'instanceId: "i"\nindexDirs: "1\\t/i"\n',
    "any order": b'5\nindexDirs: "1\\t/i"\ninstanceId: "i"\n' + b"\n".join(TEXT.splitlines()[::-1]) + b"\n",
    "other ends": b"5\r\n" + TEXT.replace(b"\n", b"\r\n"),
    "no end": b"5\n" + TEXT[:-1],
    "one line": b"5\n" + TEXT.replace(b"\n", b" "),
    "a comment": b"5\n" + TEXT + b"# by hand\n\n",
    "twice the id": b'5\nbookieHost: "b0:3181"\n' + TEXT,
    "no id": b"5\n" + TEXT.partition(b"\n")[2],
    "no version": TEXT,
}


@dataclass(frozen=True, slots=True)
class Read:
    """What BookKeeper's reader gave of a file, and the error that ended it; "" if none did."""

    words: list[str]
    error: str


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all files."""
    return tmp_path_factory.mktemp("formats")


@pytest.fixture(scope="module")
def read(home: Path) -> Mapping[tuple[str, str], Read]:
    """What BookKeeper read of each file, by kind and name."""
    named: dict[tuple[str, str], str] = {}
    for kind, folder, ending, files in (
        ("log", "logs/current", ".log", LOGS),
        ("journal", "journals/current", ".txn", JOURNALS),
        ("index", "indexes", ".idx", INDEXES),
        ("cookie", "cookies", "", COOKIES),
    ):
        (home / folder).mkdir(parents=True)
        for number, (name, content) in enumerate(files.items(), 1):
            (home / folder / f"{number:x}{ending}").write_bytes(content)
            named[kind, f"{number:x}{ending}"] = name
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", jars.class_path(), "org.apache.bookkeeper.bookie.Formats"]
    done = subprocess.run([*command, str(home)], capture_output=True, text=True, check=True)
    found: dict[tuple[str, str], Read] = {}
    for line in done.stdout.splitlines():
        if line.startswith("FORMAT\t"):
            _, kind, file, words, error = line.split("\t")
            found[kind, named["log" if kind == "map" else kind, file]] = Read(words.split(), error)
    return found


@pytest.mark.parametrize("name", LOGS)
def test_entries_of_a_log_are_those_that_bookkeeper_reads(read: Mapping[tuple[str, str], Read], name: str) -> None:
    """Each with its place and size; and a map is believed only where BookKeeper believes it."""
    parts = list(entry_log.scan(LOGS[name]))
    ours = [f"{one.ledger}:{one.entry}:{one.position - 4}:{one.size}" for one in parts if isinstance(one, EntryAt)]
    assert ours == read["log", name].words
    header = entry_log.decode_header(LOGS[name])
    listed = entry_log.read_map(LOGS[name], header) if header.map_offset else None
    theirs = read["map", name]
    if listed and entry_log.lists_all(LOGS[name], header, listed):
        assert sorted(f"{ledger}:{size}" for ledger, size in listed.items()) == sorted(theirs.words)
    else:
        assert theirs.error or name == "a map that was lengthened"


@pytest.mark.parametrize("name", JOURNALS)
def test_records_of_a_journal_are_those_that_bookkeeper_reads(read: Mapping[tuple[str, str], Read], name: str) -> None:
    """Entries and special records of every kind, in every version, between padding at every place."""
    ours = []
    for part in journal.scan(JOURNALS[name]):
        match part:
            case journal.MasterKeyRecord():
                ours.append(f"5:{journal.MASTER_KEY_ID}")
            case journal.FenceRecord():
                ours.append(f"5:{journal.FENCE_ID}")
            case journal.LacRecordAt():
                ours.append(f"5:{journal.LAC_ID}")
            case Damage():
                assert name.endswith("cut")
            case _:
                ours.append(f"{part.ledger}:{part.entry}")
    assert ours == read["journal", name].words


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_header_says_what_bookkeeper_reads(read: Mapping[tuple[str, str], Read], name: str) -> None:
    """Fence, key and explicit LAC; what it refuses is refused."""
    try:
        header = index_file.decode_header(INDEXES[name][:1024])
    except FormatError:
        assert read["index", name].error
        return
    fields = [str(header.fenced).lower(), str(len(header.master_key)), str(len(header.explicit_lac or b""))]
    assert fields == read["index", name].words


@pytest.mark.parametrize("name", COOKIES)
def test_a_cookie_says_what_bookkeeper_reads(read: Mapping[tuple[str, str], Read], name: str) -> None:
    """Id and instance; what it refuses is refused."""
    try:
        found = cookie.decode(COOKIES[name])
    except FormatError:
        assert read["cookie", name].error
        return
    text = " ".join(read["cookie", name].words)
    assert found.bookie_id in text
    assert ("instanceId" in text) == (found.instance_id is not None)


@pytest.mark.parametrize(("kind", "ledgers"), [("empty", []), ("split", range(25_000)), ("twice", [1, 2])])
def test_odd_logs_that_bookkeeper_writes_are_whole(
    tmp_path: Path, home: Path, read: Mapping[tuple[str, str], Read], kind: str, ledgers: list[int]
) -> None:
    """Rotated before the first record, a map of three records, one made twice: no damage, nothing left over."""
    assert read
    folder = home / "made" / kind / "current"
    assert account_for([folder]).odd == []
    made = make_bookie(tmp_path / "bookie", {30_000: [0]})
    made.log(1).write_bytes((folder / "0.log").read_bytes())
    seen = look(made, tmp_path)
    assert (seen.damage, seen.bookie["complete"]) == ([], True)
    assert sorted(row["ledger"] for row in seen.copies if row["source"] == "log") == list(ledgers)


STATES: Final = {
    # state: the names of the compaction's log, and under which id an index that was switched finds it
    "compacting": ({"21.log.compacting"}, 0x1F),
    "compacted": ({"21.log.1f.compacted"}, 0x21),
    "linked": ({"21.log.1f.compacted", "21.log"}, 0x21),
    "restarted": ({"21.log.1f.compacted", "33.log"}, 0x21),  # a link with the decimal digits of 0x21
    "ended": ({"21.log"}, 0x21),
}


@pytest.mark.parametrize("state", STATES)
def test_a_compaction_is_read_wherever_it_ended(
    tmp_path: Path, home: Path, read: Mapping[tuple[str, str], Read], state: str
) -> None:
    """As BookKeeper leaves its files: entries are where the index says, none is read twice, no byte is left over."""
    assert read
    names, log_id = STATES[state]
    folder = home / "made" / state / "current"
    made = make_bookie(tmp_path / "bookie", {30_000: [0]})
    current = made.ledger_dirs[0] / "current"
    for path in folder.iterdir():
        if path.name != "33.log":
            shutil.copy(path, current / path.name)
    if "33.log" in names:
        (current / "33.log").hardlink_to(current / "21.log.1f.compacted")
    assert {path.name for path in folder.iterdir()} == {*names, "1f.log", "20.log", "lastId"}
    source = current / ("1f.log" if log_id == 0x1F else min(names, key=len))
    found = [one for one in entry_log.scan(source.read_bytes()) if isinstance(one, EntryAt) and one.ledger == 1]
    write_index(made, 1, {one.entry: entry_log.location(log_id, one.position) for one in found})
    if log_id != 0x1F:
        made.log(0x1F).unlink()  # the old one goes last
    seen = look(made, tmp_path)
    assert (seen.entries("index", 1), seen.damage) == ([0, 1], [])
    assert seen.entries("log", 2) == ([0] if log_id == 0x1F else [])
    assert account_for([current]).odd == []
