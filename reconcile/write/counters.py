"""Counters of ids raised: the one write that compares nothing, for their numbers only grow."""

from contextlib import suppress

from backends.errors import OutcomeUnknownError, VersionConflictError
from backends.protocols import MetadataStore, Write
from reconcile.write.freezing.freeze_state import choose_kept_acl
from reconcile.write.plan_actions import Action, read_counter
from reconcile.write.writer import ChangeOutcome


def raise_counter(
    action: Action, store: MetadataStore, base: str, key: str, *, acl: str | None, was_announced: bool
) -> ChangeOutcome:
    """Raise a counter, and read it back; a repetition costs some numbers at most.

    Args:
        action: says past which number.
        store: writable.
        base: key of the ledgers root.
        key: of the counter, below the root or wherever the run writes it.
        acl: of a counter that is made.
        was_announced: an earlier run announced it: what stands is that run's.

    Raises:
        BackendError: the store failed.
    """
    target = read_counter(action)
    stored = store.get(key)
    if stored is None:  # raising makes it if it is still absent afterwards
        with suppress(VersionConflictError, OutcomeUnknownError):
            store.write([Write(key, b"", None, choose_kept_acl(store, base, action.key, acl))])
    elif action.is_made(stored):
        return ChangeOutcome(version=stored.version if was_announced else None)
    reached = store.raise_counter(key, target)
    stored = store.get(key)
    if stored is None or reached <= target or not action.is_made(stored):
        return ChangeOutcome(conflict="it did not keep the number that it was raised to")
    return ChangeOutcome(version=stored.version)
