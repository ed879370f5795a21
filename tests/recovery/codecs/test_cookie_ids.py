"""Ids of bookies are checked where they enter, and what others wrote steers no terminal and no page."""

from pathlib import Path

import pytest

from reconcile.clusters import open_inventories
from reconcile.report.pages import write_page
from reconcile.words import printable, printable_line
from recovery.codecs import cookie
from recovery.codecs.cookie import Cookie
from recovery.dataset import REPORT
from recovery.errors import FormatError, InputError
from recovery.model.ids import is_bookie_id
from tests.simulation.bookie_dir import BookieDir, make_bookie
from tests.support.collecting import look
from tests.support.command import run
from tests.support.inventories import write_inventory

EVIL = ("../../evil:3181", "..", ".", "a/b", "", "read\x1b[2Jonly", "ReadOnly", "b\u0301", "b 1", "b1\n")


def folders(made: BookieDir) -> list[object]:
    """The options that name a bookie's folders."""
    return [word for path in made.ledger_dirs for word in ("--ledger-dir", path)]


@pytest.mark.parametrize("evil", EVIL)
def test_a_cookie_of_no_bookie_is_damage(evil: str, tmp_path: Path) -> None:
    """What BookKeeper would not take for an id never becomes a key; whose folders these are must be said."""
    assert not is_bookie_id(evil)
    raw = cookie.encode(Cookie(4, evil, ("/j",), ("/l",)))
    with pytest.raises(FormatError):
        cookie.decode(raw)
    made = make_bookie(tmp_path / "bookie", {5: [0, 1]})
    for folder in made.all_dirs:
        (folder / "current" / "VERSION").write_bytes(raw)
    with pytest.raises(InputError, match="no VERSION file that can be read"):
        look(made, tmp_path)
    seen = look(made, tmp_path, bookie_id="10.0.0.1:3181")
    assert not seen.bookie["complete"]
    assert seen.bookie["cookie"] is None


@pytest.mark.parametrize("evil", EVIL[:4])
def test_an_id_that_a_person_names_is_checked(evil: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Options and files say which id is none, and what one looks like; nothing is begun."""
    made = make_bookie(tmp_path / "bookie", {5: [0, 1]})
    names = tmp_path / "names.txt"
    names.write_text(f"b1:3181\n{evil}\n")
    out = tmp_path / "out"
    for words in (
        ["collect", *folders(made), "--bookie-id", evil, "--out", out],
        ["collect", "--wire", "--metadata", "zk://127.0.0.1:1/ledgers", "--bookies", evil, "--out", out],
        ["recover", "--inventory", tmp_path, "--expect-bookies", names, "--layout", "flat", "--out", out],
        ["recover", "--disk", f"{evil}={made.ledger_dirs[0]}", "--layout", "flat", "--out", out],
    ):
        done = run(capsys, *words)
        assert (done.code, done.out) == (2, ""), words
        assert "not a bookie id" in done.err, words
        assert not out.exists()


def test_an_inventory_of_no_bookie_is_refused(tmp_path: Path) -> None:
    """Anybody who made it: its id would become the name of a cookie."""
    write_inventory(tmp_path / "inventory", EVIL[0], range(3), instance="one")
    with pytest.raises(InputError, match="no bookie id"):
        open_inventories([str(tmp_path / "inventory")])


def test_names_of_files_steer_no_terminal_and_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file whose name clears the screen or ends a line is named, written out; in the report as well."""
    made = make_bookie(tmp_path / "bookie", {5: [0, 1]})
    (made.ledger_dirs[0] / "current" / "\x1b[2J\nall is well\u202e").write_bytes(b"")
    done = run(capsys, "collect", *folders(made), "--out", tmp_path / "out")
    assert "unknown file" in done.out
    page = (tmp_path / "out" / REPORT).read_text()
    for text in (done.out, done.err, page):
        assert not {"\x1b", "\u202e"} & {*text}
    assert r"\x1b[2J\nall is well\u202e" in done.out
    write_page(tmp_path, lambda: "a\x1b[2J\nb")
    assert (tmp_path / REPORT).read_text() == "a\\x1b[2J\nb"


def test_what_is_no_text_is_written_out() -> None:
    """Bytes that are no UTF-8 do not end the program while it says where they stand; ordinary text stays as it is."""
    assert printable("\udcff\x9b\x7f").encode() == rb"\udcff\x9b\x7f"
    assert printable("a\tb\nWörter 試験") == "a\tb\nWörter 試験"
    assert printable_line("a\nb") == r"a\nb"
