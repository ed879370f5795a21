"""Every file that real bookies wrote is read alone: its kind, its counts, no damage, nothing secret."""

import base64
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.codecs import entry, entry_log
from recovery.inspect.bookie_file import look
from recovery.inspect.file_kinds import FileKind
from recovery.inspect.file_notes import FileReport
from tests.support import cases

KINDS = {
    "VERSION": FileKind.COOKIE,
    "lastId": FileKind.LAST_ID,
    "DIRTY": FileKind.DIRTY,
    "ledgers": FileKind.LEDGERS,
    "locations": FileKind.LOCATIONS,
}
SUFFIXES = {".idx": FileKind.INDEX, ".log": FileKind.LOG, ".txn": FileKind.JOURNAL}


def _files(name: str) -> Iterator[Path]:
    for path in sorted((cases.case_dir(name) / "bookies").rglob("*")):
        if (path / "CURRENT").exists() or (path.is_file() and not (path.parent / "CURRENT").exists()):
            yield path


def _expected(path: Path) -> FileKind:
    if path.name.startswith("lastMark"):
        return FileKind.LAST_MARK
    return KINDS[path.name] if path.name in KINDS else SUFFIXES[path.suffix]


@pytest.fixture(scope="module", params=cases.NAMES)
def seen(request: pytest.FixtureRequest) -> tuple[str, list[FileReport]]:
    """All files of one case, looked at."""
    return request.param, [look(path) for path in _files(request.param)]


def test_every_file_is_what_its_name_says(seen: tuple[str, list[FileReport]]) -> None:
    """Nothing that a bookie keeps is unknown, and nothing is taken for something else."""
    assert [found.kind for found in seen[1]] == [_expected(found.path) for found in seen[1]]
    assert seen[1]


def test_files_of_real_bookies_have_no_damage(seen: tuple[str, list[FileReport]]) -> None:
    """What a running, stopped or killed bookie leaves is normal."""
    assert [found for found in seen[1] if found.damaged] == []


def test_entries_are_counted_as_they_are_held(seen: tuple[str, list[FileReport]]) -> None:
    """Indexes and journals know every entry that a client could read; the indexes of a clean case W times."""
    name, found = seen
    counted: Counter[FileKind] = Counter()
    for one in found:
        counted[one.kind] += one.counts.get("entries", 0)
    rows = [row for row in cases.truth(name)["ledgers"] if row["state"] == "CLOSED"]
    in_index = counted[FileKind.INDEX] + counted[FileKind.LOCATIONS]
    assert in_index + counted[FileKind.JOURNAL] >= sum(row["client_saw"]["readable"] for row in rows)
    if "clean" in name:
        assert counted[FileKind.LOG] >= in_index == sum((row["last"] + 1) * row["W"] for row in rows)


def test_nothing_secret_is_said(seen: tuple[str, list[FileReport]]) -> None:
    """Neither a password nor payload nor a whole master key stands in what is shown."""
    name, found = seen
    text = repr(found)
    truth = cases.truth(name)
    passwords = {base64.b64decode(row["password"] or "") for row in truth["ledgers"]} - {b""}
    assert [p for p in passwords if p.decode() in text or entry.master_key(p).hex() in text] == []
    for log in (one.path for one in found if one.kind is FileKind.LOG):
        for part in entry_log.scan(log.read_bytes()):
            if isinstance(part, entry_log.EntryAt) and part.size > 100:
                payload = log.read_bytes()[part.position + 52 : part.position + part.size]
                assert payload.decode("latin-1")[:20] not in text
                break


def test_looking_changes_nothing(tmp_path: Path) -> None:
    """Whatever is read, no file is written, made or touched beside it."""
    folder = cases.copy_of("c09", tmp_path)

    def state() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}

    before = state()
    for path in sorted((folder / "bookies").rglob("*")):
        if (path / "CURRENT").exists() or (path.is_file() and not (path.parent / "CURRENT").exists()):
            look(path)
    assert state() == before
