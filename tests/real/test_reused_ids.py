"""A store was put back to an older state and gave ids again: what the plan keeps of the older ledgers is kept."""

from pathlib import Path

import pytest

from recovery.dataset import open_dataset
from tests.real.test_guards_settled import Commands
from tests.support.cluster import encoded
from tests.support.command import run
from tests.support.guarded_cluster import PASSWORD, SIZE, SPARE, GuardedCluster
from tests.support.kept_bytes import less
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.spark]

OLD, YOUNG = (0, 1), (2, 3)
"""Bookies of the older and of the younger ledgers."""
ENTRIES, YOUNG_ENTRIES = 8, 3


@pytest.mark.timeout(900)
def test_a_lock_keeps_the_older_copies_and_nothing_else_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All four ids are told in the first line, one whose loss is named is the control: its older copies go at once.

    The over-replicated check runs each second, the store was never frozen. What the younger ledger's deletion takes is
    taken under a lock, too.
    """
    there = GuardedCluster(tmp_path / "cluster", ("db", "interleaved", "sorted"))
    try:
        for _ in range(3):
            there.write((0, 1, 2, 3), 2)
        reused = [there.write(OLD, 2, ENTRIES) for _ in range(4)]
        for n in OLD:
            there.cluster("bookie_stop", n=n)
        rows = there.cluster.ledgers()
        there.cluster("zk_wipe", paths=[rows[ledger]["path"] for ledger in reused])
        members = [there.bookies[n].id for n in YOUNG]
        known = {"digest": "CRC32C", "password": encoded(PASSWORD), "custom": {}}
        for ledger in reused:
            there.cluster("create", E=2, W=2, A=2, members=members, id=ledger, **known)
            there.cluster("add", ledger=ledger, sizes=[SIZE] * YOUNG_ENTRIES, ids=list(range(YOUNG_ENTRIES)))
            there.cluster("close", ledger=ledger)
        for n in YOUNG:
            there.cluster("bookie_stop", n=n)
        there.lost = frozenset(reused)
        bkmeta = Commands(there, tmp_path, capsys)
        for n in range(SPARE):
            bkmeta.collect(n)
        made = bkmeta.recover("plan")
        assert (made["counts"]["ids_reused"], made["counts"]["reuse_locks"]) == (4, 4)
        assert "4 ids in the store have two ledgers (ID_REUSE)" in made["verdict"]
        shown = run(capsys, "plan", "show", tmp_path / "plan").out
        assert "xargs bkmeta export" in shown
        assert "no worker repairs the younger ledger" in shown.lower()
        disks = [f"{there.bookies[n].id}={there.cluster.home / there.bookies[n].ledgers[0]}" for n in OLD]
        words = [word for disk in disks for word in ("--disk", disk)]
        exported = run(capsys, "export", reused[0], *words, "--out", tmp_path / "saved", "--json")
        [saved] = exported.result["exported"]
        assert saved["entries"] == ENTRIES
        control, trimmed = reused[1], reused[2]
        bkmeta("plan", "edit", tmp_path / "plan", "--accept-loss", control, "--out", tmp_path / "edited")
        edited = open_dataset(tmp_path / "edited", "plan").manifest
        applied = bkmeta.apply("edited", {"hash": edited["hash"]})
        assert applied["counts"]["keep reuse_lock"]["written"] == 3
        before = there.kept()
        assert {(there.bookies[n].id, ledger) for n in OLD for ledger in reused} <= before.keys()
        for bookie in there.bookies[:SPARE]:
            there.cluster.start(bookie)
        there.check(*range(SPARE))
        gone = less(before, there.kept()).keys()
        assert gone == {(there.bookies[n].id, control) for n in OLD}
        assert there.locks() == set(reused) - {control}
        there.cluster("delete", ledger=trimmed)
        copies = {(bookie.id, trimmed) for bookie in there.bookies[:SPARE]}
        until(lambda: copies <= less(before, there.kept()).keys(), "collection takes older copies, locked or not")
        held = {(there.bookies[n].id, reused[0]) for n in (*OLD, *YOUNG)}
        assert held.isdisjoint(less(before, there.kept()).keys())
        again = bkmeta("verify", tmp_path / "edited", *bkmeta.store, "--wire", codes=(0, 3, 4))
        assert again["counts"]["guards"]["reuse_kept"] == 3
    finally:
        there.close()
