"""A backup in its folder: what is sealed is there, whatever breaks off, and two do not write it at once."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from recovery.backup import chain
from recovery.backup.chain import KEPT, BackupTakenError, BackupWriter, open_backup
from recovery.backup.seals import hash_seal
from recovery.backup.store import BackupStore
from recovery.errors import DatasetError, InputError
from tests.support.backups import (
    BINDING,
    FollowedMemory,
    list_states,
    make_backup,
    name_ledger,
    seal_all,
    write_base,
)

CALLS = ("fsync", "replace", "link", "unlink", "mkdir", "open")
"""How files get to a disk."""


class KilledError(BaseException):
    """The process is gone: nothing that it would still do is done."""


@contextmanager
def killed(at: int, *, afterwards: bool) -> Iterator[list[int]]:
    """End a process at one of its calls, before it is made or right behind it; give how many calls there were."""
    real = {name: getattr(os, name) for name in CALLS}
    calls = [0]

    def wrap(name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            calls[0] += 1
            if calls[0] > at + 1 or (calls[0] == at + 1 and not afterwards):
                raise KilledError
            made = real[name](*arguments, **named)
            if calls[0] == at + 1:
                raise KilledError
            return made

        return call

    for name in CALLS:
        setattr(os, name, wrap(name))
    try:
        yield calls
    finally:
        for name in CALLS:
            setattr(os, name, real[name])


def test_what_is_sealed_is_shown(tmp_path: Path) -> None:
    """Base and changes give the store as it is, and as it was at each seal."""
    writer, store = make_backup(tmp_path / "b")
    shown = BackupStore(open_backup(tmp_path / "b"))
    assert list_states(shown) == list_states(store)
    assert shown.point().txn == store.txn
    assert shown.point().gaps == ()
    assert shown.get(name_ledger(19)) is not None
    assert shown.get(name_ledger(9)) is None
    assert writer.manifest.through == store.txn
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "b").rglob("*")} == {0}
    shown.close()


def test_a_follower_that_is_killed_anywhere_loses_only_what_was_not_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each call by which files get to a disk: the chain opens, shows a moment that was, and is gone on with."""
    monkeypatch.setattr(chain, "_MERGED", 2)
    step = 1 if os.environ.get("BKMETA_SOAK_BACKUP") else 29
    for afterwards in (False, True):
        at, calls = 0, 1
        while at < calls:
            place = tmp_path / f"{at}-{afterwards}"
            store, moments, sealed = FollowedMemory(), dict[int, Any](), 0
            with killed(at, afterwards=afterwards) as counted:
                try:
                    writer = BackupWriter(place, BINDING)
                    moments[store.txn] = list_states(store)
                    write_base(writer, store)
                    sealed = store.txn
                    for number in range(5):
                        store.put(name_ledger(number), b"x")
                        store.put(name_ledger(number), b"y")
                        moments[store.txn] = list_states(store)
                        if number == 3:
                            write_base(writer, store, "a test")
                        else:
                            seal_all(writer, store)
                        sealed = store.txn
                    calls = at
                except KilledError:
                    calls = at + step + 1
                assert counted[0] > at or calls == at
            if sealed:
                shown = BackupStore(open_backup(place))
                assert shown.point().txn in {txn for txn in moments if txn >= sealed}
                assert list_states(shown) == moments[shown.point().txn or 0]
            after = BackupWriter(place, BINDING)
            if not after.has_base:
                write_base(after, store)
            seal_all(after, store)
            assert list_states(BackupStore(open_backup(place))) == list_states(store)
            at += step


def test_small_segments_become_large_ones_and_the_chain_stays(tmp_path: Path) -> None:
    """Merged files have the hash of the last seal in them, and every seal's is computed from their rows."""
    store, writer = FollowedMemory(), BackupWriter(tmp_path / "b", BINDING)
    write_base(writer, store)
    hashes = []
    for number in range(40):
        store.put(name_ledger(number), b"%d" % number)
        seal_all(writer, store)
        hashes.append(writer.manifest.hash)
    backup = open_backup(tmp_path / "b")
    assert [link.seals for link in backup.manifest.segments] == [16, 16, *[1] * 8]
    assert [link.hash for link in backup.manifest.segments[:2]] == [hashes[15], hashes[31]]
    previous = backup.manifest.bases[0].hash
    for table in backup.read_changes(backup.manifest.segments):
        for seal in sorted(set(table["seal"].to_pylist())):
            rows = table.filter([value == seal for value in table["seal"].to_pylist()])
            previous = hash_seal(previous, seal, rows)
    assert previous == backup.manifest.hash
    assert len(list((tmp_path / "b" / "manifests").iterdir())) == KEPT


def test_a_second_follower_goes_on_and_the_first_one_stops(tmp_path: Path) -> None:
    """Whoever was taken over from writes nothing into the chain any more."""
    first, store = make_backup(tmp_path / "b")
    second = BackupWriter(tmp_path / "b", BINDING)
    store.put(name_ledger(30), b"second")
    seal_all(second, store)
    store.put(name_ledger(31), b"first")
    with pytest.raises(BackupTakenError, match="another follower"):
        seal_all(first, store)
    with pytest.raises(BackupTakenError):
        first.begin_base()
    seal_all(second, store)
    assert list_states(BackupStore(open_backup(tmp_path / "b"))) == list_states(store)


def test_a_follower_that_was_held_up_for_long_stops(tmp_path: Path) -> None:
    """Its next number is free again, as earlier manifests go: it is not written, and the head stays the other's."""
    first, store = make_backup(tmp_path / "b")
    second = BackupWriter(tmp_path / "b", BINDING)
    for number in range(KEPT + 1):
        store.put(name_ledger(30 + number), b"second")
        seal_all(second, store)
    with pytest.raises(BackupTakenError, match="another follower"):
        seal_all(first, store)
    assert open_backup(tmp_path / "b").manifest == second.manifest
    assert list_states(BackupStore(open_backup(tmp_path / "b"))) == list_states(store)


def test_a_damaged_head_or_manifest_is_passed_over(tmp_path: Path) -> None:
    """The head is a hint; of manifests the last whole one counts, and the damaged one is named."""
    writer, _ = make_backup(tmp_path / "b")
    head = tmp_path / "b" / "head.json"
    for raw in (b"", b"{}", b'{"number": 2}', json.dumps({"number": 10**6}).encode()):
        head.write_bytes(raw)
        assert open_backup(tmp_path / "b").manifest.hash == writer.manifest.hash
    head.unlink()
    assert open_backup(tmp_path / "b").manifest.number == writer.manifest.number
    last = tmp_path / "b" / "manifests" / f"{writer.manifest.number:010d}.json"
    last.write_bytes(last.read_bytes()[:-9])
    opened = open_backup(tmp_path / "b")
    assert opened.damaged == (writer.manifest.number,)
    assert opened.manifest.number == writer.manifest.number - 1


def test_a_follower_goes_on_behind_a_damaged_manifest(tmp_path: Path) -> None:
    """Its number stays taken: what it had sealed is sealed again under the next one."""
    writer, store = make_backup(tmp_path / "b")
    store.put(name_ledger(30), b"sealed last")
    seal_all(writer, store)
    last = tmp_path / "b" / "manifests" / f"{writer.manifest.number:010d}.json"
    last.write_bytes(last.read_bytes()[:-9])
    after = BackupWriter(tmp_path / "b", BINDING)
    assert after.manifest.through < store.txn
    seal_all(after, store)
    backup = open_backup(tmp_path / "b")
    assert (backup.manifest.number, backup.damaged) == (writer.manifest.number + 1, ())
    assert list_states(BackupStore(backup)) == list_states(store)


def test_a_manifest_of_another_version_is_not_passed_over(tmp_path: Path) -> None:
    """An older program neither shows what was before it, nor writes behind it."""
    writer, _ = make_backup(tmp_path / "b")
    last = tmp_path / "b" / "manifests" / f"{writer.manifest.number:010d}.json"
    body = json.loads(last.read_bytes())
    last.write_text(json.dumps(body | {"schema_version": [body["schema_version"][0] + 1, 0]}))
    for open_ in (open_backup, lambda place: BackupWriter(place, BINDING)):
        with pytest.raises(DatasetError, match="has schema version"):
            open_(tmp_path / "b")


def test_what_is_no_backup_is_said_to_be_none(tmp_path: Path) -> None:
    """An empty folder, one that is not there, and a dataset of another kind."""
    with pytest.raises(DatasetError, match="holds no backup"):
        open_backup(tmp_path)
    with pytest.raises(DatasetError, match="holds no backup"):
        open_backup(tmp_path / "none")
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "0000000001.json").write_text('{"kind": "plan"}')
    with pytest.raises(DatasetError, match="holds no whole manifest"):
        open_backup(tmp_path)


def test_a_backup_of_something_else_is_not_gone_on_with(tmp_path: Path) -> None:
    """Another root, another cluster, or with another encryption."""
    make_backup(tmp_path / "b")
    for other in ({"root": "/other"}, {"tops": ["/ledgers", "/managed-ledgers"]}):
        with pytest.raises(DatasetError, match="another"):
            BackupWriter(tmp_path / "b", BINDING | other)


def test_a_gap_has_both_ends_and_nothing_is_shown_inside(tmp_path: Path) -> None:
    """What is before it and what is behind it can be shown, and each at its own moment."""
    writer, store = make_backup(tmp_path / "b")
    before, states = store.txn, list_states(store)
    store.put(name_ledger(50), b"in the gap")
    store.put(name_ledger(51), b"in the gap")
    write_base(writer, store, "etcd compacted it")
    store.put(name_ledger(52), b"behind it")
    seal_all(writer, store)
    backup = open_backup(tmp_path / "b")
    [gap] = backup.manifest.gaps
    assert (gap.after, gap.until, gap.why) == (before, store.txn - 1, "etcd compacted it")
    assert list_states(BackupStore(backup)) == list_states(store)
    assert list_states(BackupStore(backup, str(before))) == states
    with pytest.raises(InputError, match="has a gap there: etcd compacted it"):
        BackupStore(backup, str(before + 1))
    assert any("history has a gap" in note for note in BackupStore(backup).point().notes)


def test_a_time_inside_of_a_gap_is_refused(tmp_path: Path) -> None:
    """What was there at that time is not known; the state at the gap's begin is not given out for it."""
    writer, store = make_backup(tmp_path / "b")
    begin_ms = store.now_ms
    for number in (50, 51):
        store.put(name_ledger(number), b"in the gap")
    write_base(writer, store, "etcd compacted it")
    store.put(name_ledger(52), b"behind it")
    seal_all(writer, store)
    backup = open_backup(tmp_path / "b")

    def show(ms: int) -> int | None:
        return BackupStore(backup, datetime.fromtimestamp(ms / 1000, UTC).isoformat()).point().txn

    [gap] = backup.manifest.gaps
    assert (show(begin_ms), show(gap.until_ms)) == (gap.after, gap.until)
    with pytest.raises(InputError, match="has a gap there: etcd compacted it"):
        show(gap.until_ms - 1)


def test_what_is_pruned_is_gone_and_the_rest_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain begins with a base, has its earlier hash as its start, and files go when no reader can have them."""
    monkeypatch.setattr(chain, "_GRACE_MS", 0)
    writer, store = make_backup(tmp_path / "b")
    write_base(writer, store)
    base = store.txn
    store.put(name_ledger(60), b"later")
    seal_all(writer, store)
    stray = tmp_path / "b" / "segments" / "0000000001-ffffffff.parquet"
    stray.write_bytes(b"of a run that was killed")
    hash_before = writer.manifest.hash
    assert writer.drop_before(base, store.now_ms) > 0
    assert writer.remove_strays(store.now_ms + 1) >= 1
    backup = open_backup(tmp_path / "b")
    assert not stray.exists()
    assert backup.manifest.hash == hash_before
    assert list_states(BackupStore(backup)) == list_states(store)
    named = {link.part.file for link in backup.manifest.segments}
    assert {f"segments/{path.name}" for path in (tmp_path / "b" / "segments").iterdir()} == named
    with pytest.raises(InputError, match="begins at"):
        BackupStore(backup, str(base - 1))
