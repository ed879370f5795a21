"""Real disks as public reports describe them: each is collected, and what is odd about it is named."""

import shutil
import struct
from pathlib import Path
from typing import Final

import pytest

from recovery.codecs import cookie
from recovery.codecs.cookie import Cookie
from recovery.errors import InputError
from tests.simulation.bookie_dir import INSTANCE, BookieDir, make_bookie, write_log
from tests.support.cases import DATA
from tests.support.collecting import look

pytestmark = pytest.mark.long

TRUE_INSTANCE: Final = "803cad5e-abe7-4714-905c-a69ee58ab195"
EDITED_INSTANCE: Final = "52088892-8876-4c1c-b6fa-cf00e487d985"
FIELD: Final = DATA / "field"


def found(name: str, tmp_path: Path) -> BookieDir:
    """A copy of one of the disks, to be changed."""
    shutil.copytree(FIELD / name, tmp_path / name)
    return BookieDir((tmp_path / name / "ledgers",), (), (tmp_path / name / "journal",))


def put_fields(log: Path, offset: int, ledgers: int, rest: bytes = b"") -> None:
    """Put a place and a number of a ledgers map into a log's header, and bytes behind them."""
    raw = bytearray(log.read_bytes())
    fields = struct.pack(">qi", offset, ledgers) + rest
    raw[8 : 8 + len(fields)] = fields
    log.write_bytes(raw)


def test_garbage_in_a_logs_header_hides_nothing(tmp_path: Path) -> None:
    """The bookie is complete with all its entries; the header is named, with what such a bookie may have done."""
    seen = look(found("garbage-log-header", tmp_path), tmp_path)
    assert (seen.bookie["complete"], seen.bookie["ledgers"], seen.bookie["entries"]) == (True, 11, 254)
    [row] = seen.damage
    assert (row["reason"], row["offset"], row["hides"]) == ("bad_value", 8, "nothing")
    assert "4.16.7" in row["detail"]
    assert "deleted entry logs" in row["detail"]


@pytest.mark.parametrize("offset", [-1, -(1 << 63), 1, 20, 1023, 1024, 1500, 57_000, 57_131, 60_000, 1 << 30, 1 << 62])
@pytest.mark.parametrize("ledgers", [-7, 0, 1, 11, 1 << 30])
def test_a_map_is_believed_only_where_one_is(tmp_path: Path, offset: int, ledgers: int) -> None:
    """Whatever place and number the garbage makes: the log is gone through to its end, and nothing is hidden."""
    made = found("garbage-log-header", tmp_path)
    put_fields(made.log(), offset, ledgers, b"\xee" * 1004)
    seen = look(made, tmp_path)
    assert (seen.bookie["complete"], seen.bookie["entries"]) == (True, 254)
    assert [(row["reason"], row["hides"]) for row in seen.damage] == [("bad_value", "nothing")]


def test_several_such_headers_say_nothing_of_the_disk(tmp_path: Path) -> None:
    """A bookie of such a release leaves one with each crash: its disk is not suspect."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    for number in range(1, 6):
        write_log(made, number, [(5, 0), (5, 1)])
        put_fields(made.log(number), 0x6D69_6768_7420_6868, 7)
    seen = look(made, tmp_path)
    assert seen.reasons() == {("bad_value", None, False)}
    assert seen.bookie["complete"]


@pytest.mark.parametrize("cut", [1, 20, 40])
def test_a_crash_that_cut_such_a_log_hides_nothing_either(tmp_path: Path, cut: int) -> None:
    """Its last record is in the journal, as of any log that was being written."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    write_log(made, 1, [(5, 0), (5, 1), (9, 0)])
    put_fields(made.log(1), -5, 7)
    made.log(1).write_bytes(made.log(1).read_bytes()[:-cut])
    seen = look(made, tmp_path)
    assert seen.reasons() == {("bad_value", None, False)}
    assert seen.bookie["complete"]


@pytest.mark.parametrize("keep", [1024, 1024 + 60, 1024 + 60 * 2 - 1])
def test_a_rotated_log_that_lost_its_end_hides_what_was_there(tmp_path: Path, keep: int) -> None:
    """Its header fits a larger log, and its last record is cut, or none is left: ledgers may be hidden."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    write_log(made, 1, [(9, number) for number in range(5)], rotated=True)
    made.log(1).write_bytes(made.log(1).read_bytes()[:keep])
    seen = look(made, tmp_path)
    assert ("truncated", None, True) in seen.reasons()
    assert not seen.bookie["complete"]


def edit_cookie(folder: Path, **changes: object) -> bytes:
    """Change what a folder's VERSION file says, and return its new bytes."""
    path = folder / "current" / "VERSION"
    whole = cookie.decode(path.read_bytes())
    fields = {name: getattr(whole, name) for name in Cookie.__slots__}
    path.write_bytes(cookie.encode(Cookie(**{**fields, **changes})))
    return path.read_bytes()


def test_an_instance_id_that_somebody_edited_is_a_conflict(tmp_path: Path) -> None:
    """Everything is collected; nothing counts as complete, and the inventory is of no cluster until it is settled."""
    seen = look(found("version-files-differ", tmp_path), tmp_path)
    assert (seen.bookie["bookie"], seen.bookie["ledgers"], seen.bookie["complete"]) == ("10.0.0.1:3181", 10, False)
    assert (seen.bookie["instance_id"], seen.bookie["entries"]) == (None, 223)
    [row] = seen.damage
    assert (row["reason"], row["hides"]) == ("conflict", "everything")
    assert TRUE_INSTANCE in row["detail"]
    assert EDITED_INSTANCE in row["detail"]


@pytest.mark.parametrize(("stated", "edited"), [(TRUE_INSTANCE, "ledgers"), (EDITED_INSTANCE, "journal")])
def test_a_stated_instance_id_settles_it(tmp_path: Path, stated: str, edited: str) -> None:
    """The bookie is complete with the cookie that names this id; the other file is still named."""
    made = found("version-files-differ", tmp_path)
    seen = look(made, tmp_path, instance_id=stated)
    assert (seen.bookie["instance_id"], seen.bookie["complete"]) == (stated, True)
    assert cookie.decode(seen.bookie["cookie"]).instance_id == stated
    [row] = seen.damage
    assert (row["reason"], row["hides"]) == ("conflict", "nothing")
    assert row["file"] == str(tmp_path / "version-files-differ" / edited / "current" / "VERSION")


def test_an_instance_id_that_all_files_have_wrong_can_be_stated(tmp_path: Path) -> None:
    """The cookie of the inventory has the stated one, all else of it as the files."""
    made = found("version-files-differ", tmp_path)
    seen = look(made, tmp_path, instance_id="another")
    assert (seen.bookie["instance_id"], seen.bookie["complete"], len(seen.damage)) == ("another", True, 2)
    whole = cookie.decode((made.ledger_dirs[0] / "current" / "VERSION").read_bytes())
    read = cookie.decode(seen.bookie["cookie"])
    assert (read.bookie_id, read.ledger_dirs, read.instance_id) == (whole.bookie_id, whole.ledger_dirs, "another")


def test_half_a_change_of_a_bookies_name_is_a_conflict(tmp_path: Path) -> None:
    """The name that most files have, until one is stated; either settles it, and no other is taken."""
    made = make_bookie(tmp_path / "b", {5: [0, 1]}, ledger_dirs=2)
    renamed = edit_cookie(made.journal_dirs[0], bookie_id="bookie-0.example:3181")
    seen = look(made, tmp_path / "without")
    assert (seen.bookie["bookie"], seen.bookie["complete"]) == ("10.0.0.1:3181", False)
    assert seen.reasons() == {("conflict", None, True)}
    assert seen.entries("index", 5) == [0, 1]
    for number, bookie in enumerate(("10.0.0.1:3181", "bookie-0.example:3181")):
        seen = look(made, tmp_path / str(number), bookie_id=bookie)
        assert (seen.bookie["bookie"], seen.bookie["complete"]) == (bookie, True)
        assert cookie.decode(seen.bookie["cookie"]).bookie_id == bookie
        assert {row["hides"] for row in seen.damage} == {"nothing"}
    assert seen.bookie["cookie"] == renamed
    with pytest.raises(InputError, match="VERSION says"):
        look(made, tmp_path / "other", bookie_id="10.0.0.9:3181")


@pytest.mark.parametrize("changes", [{"bookie_id": "10.0.0.2:3181"}, {"instance_id": EDITED_INSTANCE}])
@pytest.mark.parametrize("stated", [{}, {"bookie_id": "10.0.0.1:3181", "instance_id": INSTANCE}])
@pytest.mark.parametrize("given", ["all", "ledgers"])
def test_two_bookies_with_the_same_list_of_folders_are_never_one(
    tmp_path: Path, changes: dict[str, str], stated: dict[str, str], given: str
) -> None:
    """As containers of one image have it: more folders than any list has are refused, also where an id is stated."""
    one, other = make_bookie(tmp_path / "a", {5: [0, 1]}), make_bookie(tmp_path / "b", {6: [0]})
    lists = cookie.decode((one.ledger_dirs[0] / "current" / "VERSION").read_bytes())
    for folder in other.all_dirs:
        edit_cookie(folder, journal_dirs=lists.journal_dirs, ledger_dirs=lists.ledger_dirs, **changes)
    folders = {"ledger_dirs": (*one.ledger_dirs, *other.ledger_dirs)}
    folders["journal_dirs"] = (*one.journal_dirs, *other.journal_dirs) if given == "all" else ()
    with pytest.raises(InputError, match="has a place for all folders") as refused:
        look(one, tmp_path / "out", **folders, **stated)
    assert "one bookie at a time" in str(refused.value)
    assert not (tmp_path / "out" / "inventory").exists()


def test_folders_of_one_bookie_whose_lists_share_none_are_settled_by_a_stated_id(tmp_path: Path) -> None:
    """Name and folders were changed in one of them: it is refused until the id is stated, and then collected."""
    made = make_bookie(tmp_path / "b", {5: [0, 1]})
    edit_cookie(made.journal_dirs[0], bookie_id="bookie-0:3181", journal_dirs=("/new/j",), ledger_dirs=("/new/l",))
    with pytest.raises(InputError, match="name different ones of a bookie"):
        look(made, tmp_path / "without")
    seen = look(made, tmp_path / "with", bookie_id="10.0.0.1:3181")
    assert seen.entries("index", 5) == [0, 1]
    assert not seen.bookie["complete"]


def test_a_name_in_the_configuration_alone_is_named_and_hides_nothing(tmp_path: Path) -> None:
    """A new bookieId that no disk has yet: the disks' name counts. Where a disk has it, it settles the conflict."""
    made = make_bookie(tmp_path / "b", {5: [0, 1]}, ledger_dirs=2)
    seen = look(made, tmp_path / "one", configured_id="bookie-0.example:3181")
    assert (seen.bookie["bookie"], seen.bookie["complete"]) == ("10.0.0.1:3181", True)
    assert seen.reasons() == {("conflict", None, False)}
    edit_cookie(made.journal_dirs[0], bookie_id="bookie-0.example:3181")
    seen = look(made, tmp_path / "two", configured_id="bookie-0.example:3181")
    assert (seen.bookie["bookie"], seen.bookie["complete"]) == ("bookie-0.example:3181", True)


def test_cookies_that_bookkeepers_shell_made_are_read(tmp_path: Path) -> None:
    """Without the number of folders before them."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    for folder in made.all_dirs:
        path = folder / "current" / "VERSION"
        path.write_bytes(path.read_bytes().replace(b'"1\\t', b'"'))
    seen = look(made, tmp_path)
    assert (seen.bookie["complete"], seen.damage) == (True, [])


@pytest.mark.parametrize("named", [True, False])
def test_a_configured_folder_that_is_gone_is_reported(tmp_path: Path, *, named: bool) -> None:
    """The other folders are collected, also where no cookie names the one that is gone; nothing is complete."""
    made = make_bookie(tmp_path / "b", {5: [0], 6: [0]}, ledger_dirs=2)
    gone = made.ledger_dirs[1] if named else tmp_path / "never"
    if named:
        shutil.rmtree(gone)
    given = (made.ledger_dirs[0], gone) if named else (*made.ledger_dirs, gone)
    seen = look(made, tmp_path / "with", ledger_dirs=given, may_lack=True)
    assert seen.entries("index", 6) == [0]
    assert seen.reasons() == {("missing", None, True)}
    assert not seen.bookie["complete"]
    assert [folder["path"] for folder in seen.bookie["dirs"] if not folder["complete"]][:1] == [str(gone)]
    with pytest.raises(InputError, match="no such folder"):
        look(made, tmp_path / "without", ledger_dirs=given)


def test_folders_that_are_all_gone_are_refused(tmp_path: Path) -> None:
    """No inventory of nothing is made."""
    gone = {f"{role}_dirs": (tmp_path / role,) for role in ("ledger", "journal")}
    with pytest.raises(InputError, match="no such folder"):
        look(make_bookie(tmp_path / "b", {}), tmp_path / "out", **gone, may_lack=True)
