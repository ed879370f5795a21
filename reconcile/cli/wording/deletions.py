"""What a plan's deletions are said to be, and what undoes them: lines for people, each command ready to be copied."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from reconcile.cli.options import quote_command
from reconcile.plan.deletions import LISTED, SessionDeletions, find_capture_before
from recovery.dataset import Dataset

_OUT: Final = "plan-2"


def deletion_lines(plan: Dataset, deletions: Sequence[SessionDeletions]) -> list[str]:
    """Return the sessions that deleted most, in the order of their transactions, each with what can be done.

    Args:
        plan: that they are of.
        deletions: of its sessions, in that order.
    """
    most = sorted(deletions, key=lambda one: (-one.undecided, -one.ledgers))[:LISTED]
    listed = [one for one in deletions if one in most]
    if not listed:
        return []
    more = len(deletions) - len(listed)
    return [
        "deleted, by session, in the order of their transactions:",
        *(f"  {line}" for one in listed for line in _lines(plan, one)),
        *([f"  and {more} sessions that deleted fewer"] if more else []),
    ]


def _lines(plan: Dataset, one: SessionDeletions) -> Iterator[str]:
    yield str(one)
    if not one.undecided:
        return
    edit = ["bkmeta", "plan", "edit", plan.path]
    to = ["--out", Path(plan.path).with_name(_OUT)]
    restore = quote_command(*edit, "--restore-deleted-by", one.name, *to)
    accept = quote_command(*edit, "--accept-deleted-by", one.name, *to)
    past = find_capture_before(plan, one)
    if past is None:
        yield f"  it was wanted, and bookies may delete them: {accept}"
        yield f"  it was not: {restore}"
        return
    yield f"  it was a mistake: {restore}"
    capture = quote_command("bkmeta", "capture", "--metadata", past.uri, "--at", past.at, "--out", f"before-{one.name}")
    yield f"  or take the whole store as it was before: {capture}"
    yield f"    and recover again with --snapshot before-{one.name} in place of the later one"
    yield f"  it was wanted: {accept}"
