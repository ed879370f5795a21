"""Whose folders these are: configuration files, which folder is which, what tells one life of a bookie from another."""

import shutil
from pathlib import Path

import pytest

from recovery.collect.disk.bookie_conf import parse_properties, read_conf
from recovery.collect.disk.folders import FolderRole, match_names, survey
from recovery.errors import InputError
from tests.simulation.bookie_dir import make_bookie, write_journal


def conf(tmp_path: Path, text: str) -> Path:
    """Write a configuration file."""
    path = tmp_path / "bk_server.conf"
    path.write_text(text)
    return path


def test_a_configuration_names_the_folders(tmp_path: Path) -> None:
    """Lists, comments, continued lines, blanks around, another separator."""
    found = read_conf(
        conf(
            tmp_path,
            "# journalDirectories=/no\n"
            "! ledgerDirectories=/no\n"
            "journalDirectories = /j1, /j2\n"
            "ledgerDirectories:/d1,\\\n"
            "    /d2\n"
            "indexDirectories /i1,/i2\n"
            "bookieId=bookie-a\n",
        )
    )
    assert found.journal_dirs == (Path("/j1"), Path("/j2"))
    assert found.ledger_dirs == (Path("/d1"), Path("/d2"))
    assert found.index_dirs == (Path("/i1"), Path("/i2"))
    assert found.bookie_id == "bookie-a"


def test_what_a_configuration_leaves_out_is_bookkeepers_default(tmp_path: Path) -> None:
    """The old name of the journal folder counts where the new one is not there."""
    assert read_conf(conf(tmp_path, "")).ledger_dirs == (Path("/tmp/bk-data"),)
    assert read_conf(conf(tmp_path, "")).journal_dirs == (Path("/tmp/bk-txn"),)
    assert read_conf(conf(tmp_path, "")).index_dirs == ()
    assert read_conf(conf(tmp_path, "bookieId=")).bookie_id is None
    assert read_conf(conf(tmp_path, "journalDirectory=/old")).journal_dirs == (Path("/old"),)
    assert read_conf(conf(tmp_path, "journalDirectory=/old\njournalDirectories=/new")).journal_dirs == (Path("/new"),)


@pytest.mark.parametrize(
    ("text", "expands", "stamps"),
    [
        ("", False, False),
        ("allowStorageExpansion=true", True, False),
        ("allowStorageExpansion = TRUE # no comment", None, False),
        ("allowStorageExpansion=off", False, False),
        ("on=Yes\nallowStorageExpansion=${on}", True, False),
        ("allowStorageExpansion=${nowhere}\ndataIntegrityChecking=${nowhere}", None, False),
        ("dataIntegrityChecking=true", False, False),
        ("dataIntegrityStampMissingCookies=true", False, False),
        ("dataIntegrityChecking=true\ndataIntegrityStampMissingCookies=true", False, True),
        ("dataIntegrityChecking=true\ndataIntegrityStampMissingCookies=perhaps", False, None),
    ],
)
def test_a_configuration_says_what_undoes_a_cookie(
    text: str,
    expands: bool | None,
    stamps: bool | None,
    tmp_path: Path,
) -> None:
    """BookKeeper's defaults where nothing is said; what cannot be read is not known, and stops no collection."""
    found = read_conf(conf(tmp_path, text))
    assert (found.expands_storage, found.stamps_cookies) == (expands, stamps)


def test_variables_of_the_file_are_replaced(tmp_path: Path) -> None:
    """Also where one stands for a list; one that is not defined, or goes round, is refused if it is needed."""
    text = "base=/data\nall=${base}/1,${base}/2\nledgerDirectories=${all}\nother=${nowhere}\n"
    assert read_conf(conf(tmp_path, text)).ledger_dirs == (Path("/data/1"), Path("/data/2"))
    for bad in ("ledgerDirectories=${nowhere}", "a=${b}\nb=${a}\nledgerDirectories=${a}"):
        with pytest.raises(InputError, match="name its ledger, index and journal folders"):
            read_conf(conf(tmp_path, bad))


def test_a_configuration_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """With the way out."""
    with pytest.raises(InputError, match="name its ledger, index and journal folders"):
        read_conf(tmp_path / "none.conf")


def test_properties_with_escapes() -> None:
    """Escaped commas and separators are text; unicode and tabs are read; a key may stand twice."""
    found = parse_properties("a\\ b=1\\,2\nc=\\u0041\\t\nd=1\nd=2\ne\n")
    assert found == {"a b": ["1,2"], "c": ["A\t"], "d": ["1", "2"], "e": [""]}


def test_folders_are_matched_by_path_then_by_its_end_then_by_order() -> None:
    """A copy mounted elsewhere keeps the end of the path; where that says nothing, the order counts."""

    def match(names: list[str], given: list[str]) -> list[int | None]:
        return match_names(names, [Path(path) for path in given], [True] * len(given))

    assert match(["/d1", "/d2"], ["/d2", "/d1/current"]) == [1, 0]
    assert match(["/d1/bk", "/d2/bk"], ["/mnt/d2/bk", "/mnt/d1/bk"]) == [1, 0]
    assert match(["/a/bk", "/b/bk"], ["/x/bk", "/y/bk"]) == [0, 1]
    assert match(["/d1/bk", "/d2/bk"], ["/mnt/d2/bk"]) == [None, 0]
    assert match(["/a", "/b"], ["/x"]) == [0, None]
    assert match_names(["/j"], [Path("/x"), Path("/y")], [False, True]) == [1]


def test_a_folder_of_another_role_is_taken_only_by_its_own_path() -> None:
    """A journal folder whose path ends as a ledger folder's does is not taken for it."""
    assert match_names(["/j1/bk"], [Path("/mnt/d1/bk")], [False]) == [None]
    assert match_names(["/j1/bk"], [Path("/j1/bk")], [False]) == [0]


def test_folders_are_numbered_as_the_cookie_has_them(tmp_path: Path) -> None:
    """Whatever order they are given in."""
    made = make_bookie(tmp_path, {}, ledger_dirs=3, journal_dirs=2)
    disks = survey(made.ledger_dirs[::-1], (), made.journal_dirs[::-1], None)
    assert [place.name for place in disks.list_places(FolderRole.LEDGER)] == [str(path) for path in made.ledger_dirs]
    assert [place.name for place in disks.list_places(FolderRole.JOURNAL)] == [str(path) for path in made.journal_dirs]
    assert disks.complete


def test_a_folder_given_twice_is_one(tmp_path: Path) -> None:
    """By a link, or with and without `current/`."""
    made = make_bookie(tmp_path, {})
    link = tmp_path / "link"
    link.symlink_to(made.ledger_dirs[0])
    given = (*made.ledger_dirs, link, made.ledger_dirs[0] / "current")
    disks = survey(given, (), made.journal_dirs, None)
    assert [place.role for place in disks.places].count(FolderRole.LEDGER) == 1
    assert disks.complete


def test_cookies_that_list_other_folders_are_a_conflict(tmp_path: Path) -> None:
    """After a storage expansion that did not end: the longest list counts, and nothing is complete."""
    made = make_bookie(tmp_path / "new", {}, ledger_dirs=2)
    old = make_bookie(tmp_path / "old", {})
    (made.journal_dirs[0] / "current" / "VERSION").write_bytes(
        (old.journal_dirs[0] / "current" / "VERSION").read_bytes().replace(b"old", b"new")
    )
    disks = survey(made.ledger_dirs, (), made.journal_dirs, None)
    assert disks.cookie is not None
    assert len(disks.cookie.ledger_dirs) == 2
    assert [found.reason for found in disks.damage] == ["conflict"]
    assert not disks.complete


def test_a_copy_is_the_same_incarnation_and_a_new_cluster_is_another(tmp_path: Path) -> None:
    """Neither paths and times of a copy nor trimmed journals change it; instance and id do."""
    made = make_bookie(tmp_path / "one", {5: [0]})
    first = survey(made.ledger_dirs, (), made.journal_dirs, None)
    write_journal(made, 0x18BCFE56801, [])
    later = survey(made.ledger_dirs, (), made.journal_dirs, None)
    assert ("journal_first", "18bcfe56801") in later.evidence
    shutil.copytree(tmp_path / "one", tmp_path / "copy", copy_function=shutil.copyfile)
    copy = survey([tmp_path / "copy" / "ledgers0"], (), [tmp_path / "copy" / "journal0"], None)
    assert copy.complete
    assert first.incarnation == later.incarnation == copy.incarnation
    for other in (
        make_bookie(tmp_path / "instance", {5: [0]}, instance="other"),
        make_bookie(tmp_path / "bookie", {5: [0]}, bookie="10.0.0.9:3181"),
    ):
        assert survey(other.ledger_dirs, (), other.journal_dirs, None).incarnation != first.incarnation


def test_version_files_are_listed_as_the_file_system_has_them(tmp_path: Path) -> None:
    """Inode and time tell a folder that was made anew."""
    made = make_bookie(tmp_path, {})
    disks = survey(made.ledger_dirs, (), made.journal_dirs, None)
    path = made.ledger_dirs[0] / "current" / "VERSION"
    (found,) = [file for file in disks.version_files if file.path == str(path)]
    assert found.inode == path.stat().st_ino
    assert found.mtime.timestamp() == pytest.approx(path.stat().st_mtime, abs=1e-5)


def test_layout_without_a_cookie_is_told_by_the_dirty_file_alone(tmp_path: Path) -> None:
    """A DIRTY file is proof; without one only a bookie that would have made it is clean."""
    for name, layout, dirty, told in (
        ("a", 5, False, False),
        ("b", 5, True, True),
        ("c", 4, False, None),
        ("d", 4, True, True),
    ):
        made = make_bookie(tmp_path / name, {}, layout=layout, dirty=dirty)
        assert survey(made.ledger_dirs, (), made.journal_dirs, None).dirty is told
