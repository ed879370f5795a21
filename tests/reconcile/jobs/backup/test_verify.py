"""A backup is verified: what is whole is not called altered, wherever a base or a gap lies."""

from datetime import UTC, datetime
from pathlib import Path

from reconcile.cli.output import Output
from reconcile.jobs.backup.verify import verify_backup
from reconcile.jobs.context import Context
from reconcile.stores import NOBODY
from recovery.backup.chain import BackupWriter
from tests.support.backups import BINDING, FollowedMemory, make_backup, name_ledger, seal_all, write_base

CONTEXT = Context(NOBODY, Output(as_json=True, progress="none"), lambda: datetime.now(UTC))


def _begin_ahead(place: Path) -> tuple[BackupWriter, FollowedMemory, int]:
    """Return a backup whose last base shows more than was sealed when it was added."""
    writer, store = make_backup(place)
    store.put(name_ledger(40), b"in the base before it is sealed")
    write_base(writer, store)
    return writer, store, store.txn


def test_a_base_ahead_of_what_was_sealed_becomes_the_first_one(tmp_path: Path) -> None:
    """All before it is pruned: the changes behind it overlap with it, and nothing is missing."""
    writer, store, base = _begin_ahead(tmp_path / "b")
    store.put(name_ledger(41), b"behind it")
    seal_all(writer, store)
    assert verify_backup(tmp_path / "b", None, CONTEXT).problems == []
    assert writer.drop_before(base, store.now_ms) > 0
    assert verify_backup(tmp_path / "b", str(base), CONTEXT).problems == []


def test_a_base_inside_of_a_gap_is_not_what_the_next_one_is_made_of(tmp_path: Path) -> None:
    """A base was captured while the feed was behind, and then came a gap around it."""
    writer, store, _ = _begin_ahead(tmp_path / "b")
    store.put(name_ledger(41), b"in the gap")
    write_base(writer, store, "etcd compacted it")
    assert verify_backup(tmp_path / "b", None, CONTEXT).problems == []


def test_changes_that_are_missing_are_found(tmp_path: Path) -> None:
    """Behind a first base, too: a segment must begin where it ends, or before."""
    store, writer = FollowedMemory(), BackupWriter(tmp_path / "b", BINDING)
    write_base(writer, store)
    for number in (1, 2):
        store.put(name_ledger(number), b"x")
        seal_all(writer, store)
    writer.manifest.links.pop(1)  # type: ignore[attr-defined]  # a list
    store.put(name_ledger(3), b"x")
    seal_all(writer, store)
    assert any("begins behind" in problem for problem in verify_backup(tmp_path / "b", None, CONTEXT).problems)
