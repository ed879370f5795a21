"""What a plan's deletions are said to be, and what undoes them: lines for people, each command ready to be copied."""

from collections.abc import Iterator, Sequence
from typing import Final

from reconcile.cli.options import quote_command
from reconcile.plan.deletions import LISTED, SessionDeletions, find_capture_before
from recovery.dataset import Dataset
from recovery.place import to_place

_OUT: Final = "plan-2"


def deletion_lines(plan: Dataset, deletions: Sequence[SessionDeletions]) -> list[str]:
    """Return the sessions that deleted most, in the order of their transactions, each with what can be done.

    Args:
        plan: that they are of.
        deletions: of its sessions, in that order.
    """
    most = sorted(deletions, key=lambda session: (-session.undecided, -session.ledgers))[:LISTED]
    listed = [session for session in deletions if session in most]
    if not listed:
        return []
    more = len(deletions) - len(listed)
    return [
        "deleted, by session, in the order of their transactions:",
        *(f"  {line}" for session in listed for line in _lines(plan, session)),
        *([f"  and {more} sessions that deleted fewer"] if more else []),
    ]


def _lines(plan: Dataset, session: SessionDeletions) -> Iterator[str]:
    yield str(session)
    if not session.undecided:
        return
    edit = ["bkmeta", "plan", "edit", plan.path]
    to = ["--out", to_place(plan.path).with_name(_OUT)]
    restore = quote_command(*edit, "--restore-deleted-by", session.name, *to)
    accept = quote_command(*edit, "--accept-deleted-by", session.name, *to)
    earlier = find_capture_before(plan, session)
    if earlier is None:
        yield f"  it was wanted, and bookies may delete them: {accept}"
        yield f"  it was not: {restore}"
        return
    yield f"  it was a mistake: {restore}"
    capture = quote_command(
        "bkmeta", "capture", "--metadata", earlier.uri, "--at", earlier.at, "--out", f"before-{session.name}"
    )
    yield f"  or take the whole store as it was before: {capture}"
    yield f"    and recover again with --snapshot before-{session.name} in place of the later one"
    yield f"  it was wanted: {accept}"
