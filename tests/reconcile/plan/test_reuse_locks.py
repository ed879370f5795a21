"""Locks of ids that two ledgers have, beside those of guards: each bucket has a share of one listing."""

from reconcile.plan.reuse_locks import LockRoom


def test_locks_of_reused_ids_count_in_the_share_of_each_bucket() -> None:
    """The guards' locks come first; what is left of a bucket's share is for reused ids, and no other bucket has it."""
    room = LockRoom(3, [5, 5, 6, 6, 6, 6])
    assert [room.take(bucket) for bucket in (5, 5, 6, 7, 7, 7, 7)] == [True, False, False, True, True, True, False]
    assert not LockRoom(0, []).take(5)
