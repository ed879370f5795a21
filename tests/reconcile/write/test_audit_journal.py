"""The journal says what it was told, in order, and shows whether somebody changed it."""

import hashlib
import json
import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.errors import JournalError
from reconcile.jobs.diagnose.audit import read_journal
from reconcile.write.audit_journal import JOURNAL, Approval, AuditJournal, JournalLine, Torn, scan
from reconcile.write.journal_events import AnnouncedWrite, ApplyEnd, Done, Intent, append_event
from tests.support.plans import clock

BINDING = {"plan": "p"}


def opened(folder: Path, *, resume: bool = False, **named: Any) -> AuditJournal:
    """Open a journal; what is replayed goes nowhere."""
    return AuditJournal.open(folder, BINDING, resume=resume, now=clock(), **{"replay": lambda _: None, **named})


def written(folder: Path, lines: int = 5) -> Path:
    """Write a journal of a few lines."""
    with opened(folder) as journal:
        for n in range(lines):
            journal.append("intent", {"batch": n, "text": "ünïcode \n \0"})
        journal.sync()
    return folder / JOURNAL


def test_records_come_back_in_order(tmp_path: Path) -> None:
    """Each has its number, its time and its fields, and names the one before it."""
    records = list(scan(written(tmp_path)))
    assert all(isinstance(record, JournalLine) for record in records)
    kept = [record for record in records if isinstance(record, JournalLine)]
    assert [(r.number, r.event, r.fields.get("batch")) for r in kept] == [
        (0, "begin", None), *((n + 1, "intent", n) for n in range(5)),
    ]  # fmt: skip
    assert [r.fields["prev"] for r in kept] == ["", *(r.hash for r in kept[:-1])]
    assert kept[1].fields["text"] == "ünïcode \n \0"


def test_each_line_is_json(tmp_path: Path) -> None:
    """A person can read it with any tool."""
    raw = written(tmp_path).read_bytes()
    assert raw.isascii()
    lines = raw.decode().splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(6))


@given(st.data())
def test_a_changed_byte_is_seen(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever byte of it is changed, removed or added: it is altered, or torn at its very end, never believed."""
    file = written(tmp_path_factory.mktemp("journal"))
    raw = file.read_bytes()
    at = data.draw(st.integers(0, len(raw) - 1))
    other = data.draw(st.binary(max_size=2).filter(lambda b: b != raw[at : at + 1]))
    file.write_bytes(raw[:at] + other + raw[at + 1 :])
    try:
        records = list(scan(file))
    except JournalError:
        return
    assert all(isinstance(record, JournalLine) for record in records[:-1])
    assert isinstance(records[-1], Torn)


def test_lines_that_were_swapped_or_taken_out_are_seen(tmp_path: Path) -> None:
    """Every line agrees with itself, and yet they are not what was written."""
    file = written(tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    for order in ([0, 2, 1, 3, 4, 5], [0, 1, 3, 4, 5], [1, 2, 3], [0, 1, 1, 2]):
        file.write_bytes(b"".join(lines[n] for n in order))
        with pytest.raises(JournalError, match="altered"):
            list(scan(file))


@pytest.mark.parametrize(("field", "other"), [("n", 9), ("prev", "0" * 64)])
def test_a_line_that_does_not_follow_is_seen(tmp_path: Path, field: str, other: object) -> None:
    """Though it agrees with itself: another number, or another line before it."""
    file = written(tmp_path)
    *lines, last = file.read_bytes().splitlines(keepends=True)
    content = {**json.loads(last), field: other}
    del content["hash"]
    body = json.dumps(content, separators=(",", ":")).encode()
    digest = hashlib.sha256(body).hexdigest().encode()
    file.write_bytes(b"".join(lines) + body[:-1] + b',"hash":"' + digest + b'"}\n')
    with pytest.raises(JournalError, match="line 6 was altered"):
        list(scan(file))


def test_a_byte_around_the_hash_is_seen(tmp_path: Path) -> None:
    """Those that no hash covers: its name, and the end of the line, which is torn without a newline."""
    file = written(tmp_path)
    raw = file.read_bytes()
    start = raw.rindex(b',"hash":"')
    file.write_bytes(raw[:start] + raw[start:].replace(b"hash", b"hasH"))
    with pytest.raises(JournalError, match="line 6 was altered"):
        list(scan(file))
    file.write_bytes(raw[:-1] + b"x")
    assert isinstance(list(scan(file))[-1], Torn)


def test_a_torn_end_is_cut_off_and_told(tmp_path: Path) -> None:
    """What a kill or a loss of power leaves at the end is cut off; the next line follows the last whole one."""
    file = written(tmp_path)
    whole = file.read_bytes()
    for end in (b'{"n":6,"prev"', bytes(300), b"{" + bytes(200) + b"\n", b"x"):
        file.write_bytes(whole + end)
        assert list(scan(file))[-1] == Torn(len(whole), len(end))
        replayed: list[JournalLine] = []
        opened(tmp_path, resume=True, replay=replayed.append).close()
        assert len(replayed) == 6
        last = list(scan(file))[-1]
        assert isinstance(last, JournalLine)
        assert (last.event, last.number, last.fields["torn"]) == ("resume", 6, len(end))


def test_one_process_at_a_time(tmp_path: Path) -> None:
    """A journal that is being written cannot be opened a second time."""
    with opened(tmp_path), pytest.raises(JournalError, match="another process"):
        opened(tmp_path, resume=True)
    opened(tmp_path, resume=True).close()


def test_no_journal_is_an_error(tmp_path: Path) -> None:
    """A missing journal is not an empty one."""
    with pytest.raises(JournalError, match="no journal"):
        list(scan(tmp_path / JOURNAL))


def test_a_full_disk_is_an_error_of_ours(tmp_path: Path) -> None:
    """What cannot be recorded ends the run by name."""

    def full(_handle: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with pytest.raises(JournalError, match="No space left"):
        opened(tmp_path, write=full)


def test_a_write_in_pieces_is_whole(tmp_path: Path) -> None:
    """An operating system that takes some bytes at a time gets them all."""
    with opened(tmp_path, write=lambda handle, data: os.write(handle, data[:7])) as journal:
        journal.append("end", {"counts": {}})
    assert [record.event for record in scan(tmp_path / JOURNAL) if isinstance(record, JournalLine)] == ["begin", "end"]


def mode_of(path: Path) -> int:
    """The permission bits of a file or folder."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_journal_that_others_could_write_is_made_its_owners(tmp_path: Path) -> None:
    """One of mode 0666 in a folder of mode 0777 is gone on with as 0600 in 0700; nobody can add to it any more."""
    file = written(tmp_path / "j")
    file.chmod(0o666)
    file.parent.chmod(0o777)
    with opened(file.parent, resume=True):
        assert mode_of(file) == 0o600
        assert mode_of(file.parent) == 0o700


def test_a_folder_that_others_only_read_stays_as_it_is(tmp_path: Path) -> None:
    """A folder that somebody named may hold other things: it is closed only where that protects the journal."""
    tmp_path.chmod(0o755)
    written(tmp_path)
    assert mode_of(tmp_path) == 0o755
    assert mode_of(tmp_path / JOURNAL) == 0o600


@pytest.mark.parametrize("target", ["there", "not there"])
def test_a_symbolic_link_in_place_of_a_journal_is_refused(target: str, tmp_path: Path) -> None:
    """Nothing is made or written where it points to."""
    other = tmp_path / "other"
    if target == "there":
        other.write_text("mine")
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / JOURNAL).symlink_to(other)
    with pytest.raises(JournalError, match="is a symbolic link"):
        opened(tmp_path / "j", resume=True)
    assert other.exists() is (target == "there")
    assert target == "not there" or other.read_text() == "mine"


def test_what_cannot_be_opened_is_said_with_its_reason(tmp_path: Path) -> None:
    """A folder in place of the journal."""
    (tmp_path / JOURNAL).mkdir()
    with pytest.raises(JournalError, match=r"cannot be opened \(Is a directory\)"):
        opened(tmp_path)


def test_a_journal_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a folder that others cannot write in."""
    written(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(JournalError, match="not a file of your own"):
        opened(tmp_path, resume=True)


def test_approvals_stand_in_the_journal(tmp_path: Path) -> None:
    """Who approved what; without any nothing is said of them."""
    for approvals in ([Approval("ann", "ab")], []):
        with opened(tmp_path, resume=True, approvals=approvals):
            pass
    records = [record for record in scan(tmp_path / JOURNAL) if isinstance(record, JournalLine)]
    assert [record.fields.get("approved") for record in records] == [[{"by": "ann", "hash": "ab"}], None]


def test_a_journal_of_two_names_or_of_no_file_is_refused(tmp_path: Path) -> None:
    """A hard link to something else, or a pipe that would be waited for: said, and nothing is written."""
    (tmp_path / "other").write_text("mine")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / JOURNAL).hardlink_to(tmp_path / "other")
    (tmp_path / "piped").mkdir()
    os.mkfifo(tmp_path / "piped" / JOURNAL)
    for name in ("linked", "piped"):
        with pytest.raises(JournalError, match="not a file of your own"):
            opened(tmp_path / name)
    assert (tmp_path / "other").read_text() == "mine"


def test_a_folder_of_somebody_else_that_others_write_in_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as /tmp: anybody who writes there could put another journal in place of this one."""
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(JournalError, match="others can write there"):
        opened(tmp_path)
    assert not (tmp_path / JOURNAL).exists()


def test_a_reason_stands_in_the_journal(tmp_path: Path) -> None:
    """Of the first run and of each that goes on, bound like every line; none is none, not an empty one."""
    for reason in ("INC-4711: restore after the loss", None, "INC-4711, second half"):
        with opened(tmp_path, resume=True, reason=reason):
            pass
    records = [record for record in scan(tmp_path / JOURNAL) if isinstance(record, JournalLine)]
    assert [record.event for record in records] == ["begin", "resume", "resume"]
    assert [record.fields.get("reason") for record in records] == [
        "INC-4711: restore after the loss", None, "INC-4711, second half"
    ]  # fmt: skip
    told = read_journal(tmp_path / JOURNAL, ())
    assert [run.reason for run in told.runs] == [record.fields.get("reason") for record in records]


@given(
    keys=st.lists(
        st.one_of(st.text(max_size=12), st.sampled_from(['[7,"remove",', ',[8,"create","x', '\\"],[9,"hold",', "[1,"])),
        min_size=1,
        max_size=6,
    ),
    data=st.data(),
)
def test_batches_are_counted_as_their_json_has_them(
    keys: list[str], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever stands in their texts: ops are found without decoding whole lines, in the order of the writes."""
    folder = tmp_path_factory.mktemp("journal")
    ops = [data.draw(st.sampled_from(["create", "replace", "remove", "hold", "lock"])) for _ in keys]
    writes = [
        AnnouncedWrite(n, op, key, key, data.draw(st.sampled_from([None, n])), None, data.draw(st.sampled_from(keys)))
        for n, (op, key) in enumerate(zip(ops, keys, strict=True))
    ]
    versions = [data.draw(st.sampled_from([None, 3])) for _ in keys]
    with opened(folder) as journal:
        append_event(journal, Intent(0, "ledger", writes))
        append_event(journal, Done(0, versions, (), ()))
        append_event(journal, ApplyEnd({}, 0))
    account = read_journal(folder / JOURNAL, ())
    expected = Counter(op for op, version in zip(ops, versions, strict=True) if version is not None)
    assert (account.runs[0].writes, account.runs[0].ended, account.records) == (expected, "ended", 4)
