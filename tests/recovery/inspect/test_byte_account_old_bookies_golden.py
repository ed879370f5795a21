"""What released bookies of 4.0.0 to 4.18.0 wrote: each byte is explained, each entry is collected."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from recovery.codecs import cookie, entry_log, index_file, journal
from recovery.errors import FormatError
from recovery.inspect.byte_account import UNKNOWN, account_for
from tests.simulation.bookie_dir import BookieDir
from tests.support.cases import DATA, old_dir
from tests.support.collecting import Seen, look

TRUTH: Final[dict[str, dict[str, Any]]] = json.loads((DATA.parent / "bookkeeper-old" / "truth.json").read_text())
"""Release → ledger → what was written."""
PASSWORDS: Final = (b"hunter2", b"")
FIRST: Final = "4.0.0"
VERSIONS: Final = {
    # release: cookie, journals, index headers, entry logs
    "4.0.0": (None, {1}, {0}, {0}),
    "4.0.0-upgraded": (4, {1}, {0}, {0}),
    "4.1.0": (3, {3}, {0}, {0}),
    "4.2.3": (4, {4}, {0}, {0}),
    "4.3.2": (4, {4}, {0}, {0}),
    "4.4.0": (4, {4}, {0}, {1}),
    "4.14.5": (4, {6}, set(), {1}),
    "4.15.4": (4, {6}, set(), {1}),
    "4.16.6": (5, {6}, set(), {1}),
    "4.18.0": (5, {6}, set(), {1}),
}
CURRENT: Final = dict.fromkeys(VERSIONS, "*/current") | {FIRST: "*"}
FENCES_JOURNALLED: Final = 4
"""The first version of journals that has them."""


def folders(release: str) -> BookieDir:
    """The folders of a release's bookie."""
    return BookieDir((old_dir() / release / "ledgers",), (), (old_dir() / release / "journal",))


def files(release: str, pattern: str) -> list[Path]:
    """Files of a release's bookie that are no RocksDB's."""
    found = sorted((old_dir() / release).rglob(pattern))
    return [path for path in found if not (path.parent / "CURRENT").exists() and path.stat().st_size]


def collected(release: str, out: Path, **more: Any) -> Seen:
    """What is collected of a release's bookie; the first ones have no cookie that names them."""
    return look(folders(release), out, bookie_id="127.0.0.1:3181" if release == FIRST else None, **more)


def test_there_is_a_bookie_of_each_release() -> None:
    """What is listed here is what the archive holds."""
    assert TRUTH.keys() == VERSIONS.keys() == {path.name for path in old_dir().iterdir() if path.is_dir()}


@pytest.mark.parametrize("release", VERSIONS)
def test_every_byte_of_an_old_bookie_is_explained(release: str) -> None:
    """Files directly in the folder, headers without a fence, journals without a header among them."""
    found = account_for([old_dir() / release])
    assert [(str(file.path), file.why, file.regions) for file in found.odd] == []
    assert (found.unexplained, found.files[UNKNOWN]) == (0, 0)


def test_cookies_of_either_printer_are_read() -> None:
    """4.18.0 prints text in its own way: the same names, but what UTF-16 has in two parts becomes question marks."""
    printed: dict[str, list[bytes]] = {}
    for line in (DATA.parent / "bookkeeper-old" / "cookies.txt").read_text().splitlines():
        release, text = line.split()
        printed.setdefault(release, []).append(bytes.fromhex(text))
    old, new = printed["4.17.2"], printed["4.18.0"]
    names = [",".join(cookie.decode(text).journal_dirs) for text in old]
    assert names == ["/é€😀", "/q'\"\\x", "/" + "".join(map(chr, range(1, 128))).replace("\n", "")]
    assert [cookie.encode(cookie.decode(text)) for text in old] == old
    assert [",".join(cookie.decode(text).journal_dirs) for text in new] == ["/é€??", *names[1:]]
    assert old != new


@pytest.mark.parametrize("release", VERSIONS)
def test_each_release_wrote_these_versions(release: str) -> None:
    """So that the next tests are about them: cookie, journals, headers of indexes and of entry logs."""
    # What an upgrade leaves directly in the folders is not asked.
    [version] = {(folder / "VERSION").read_bytes() for folder in (old_dir() / release).glob(CURRENT[release])}
    layout = None
    if release == FIRST:
        with pytest.raises(FormatError, match="layout 1 names no bookie"):
            cookie.decode(version)
    else:
        layout = cookie.decode(version).layout_version
    journals = {journal.header_of(path.read_bytes())[0] for path in files(release, "*.txn")}
    indexes = {index_file.decode_header(path.read_bytes()).version for path in files(release, "*.idx")}
    logs = {entry_log.decode_header(path.read_bytes()).version for path in files(release, "*.log")}
    assert (layout, journals, indexes, logs) == VERSIONS[release]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("release", VERSIONS)
def test_every_entry_of_an_old_bookie_is_collected(tmp_path: Path, release: str, *, deep: bool) -> None:
    """By its index, or by its journals since it was killed; nothing else is, and nothing that is there is hidden."""
    seen = collected(release, tmp_path, passwords=PASSWORDS, deep=deep)
    assert {row["ledger"] for row in seen.copies} == set(map(int, TRUTH[release]))
    for ledger, written in TRUTH[release].items():
        held = {entry for source in ("index", "journal") for entry in seen.entries(source, int(ledger))}
        assert held == set(range(written["entries"]))
        rows = [row for row in seen.copies if row["ledger"] == int(ledger) and row["source"] in ("index", "journal")]
        assert {row["key_kind"] for row in rows if row["key_kind"] != "absent"} == {"set"}
        digests = {head["digest"] for row in rows for head in row["headers"] if head["digest"]}
        assert digests == {written["digest"]}
        if written["fenced"] and min(VERSIONS[release][1]) >= FENCES_JOURNALLED:
            assert any(row["fenced"] for row in rows)
    hiding = {(row["reason"], row["ledger"]) for row in seen.damage if row["hides_entries"]}
    if release == FIRST:
        assert hiding == {("bad_version", None)}  # its cookie names no bookie
        assert not seen.bookie["complete"]
    else:
        assert hiding == set()
        assert seen.bookie["complete"]
    # A kill may come when slots are written, and what they point to is not: the journal has it.
    assert {row["reason"] for row in seen.damage if not row["hides_entries"]} <= {"dangling"}
