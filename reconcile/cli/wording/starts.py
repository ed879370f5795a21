"""Which bookies may start, a line each."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from reconcile.words import count_noun

if TYPE_CHECKING:
    from reconcile.plan.bookie_starts import BookieStart


AFTER_THAW: Final = "only after bkmeta thaw, for no bookie can read a frozen root of the flat layout"


def list_starts(starts: "Sequence[BookieStart]", when: str) -> Iterator[str]:
    """Yield how many bookies may start, then a line for each bookie, those that must not first.

    Args:
        starts: of every bookie that is known; none: nothing is yielded.
        when: they may.
    """
    if starts:
        allowed = sum(start.may_start for start in starts)
        yield f"{allowed} of {count_noun(len(starts), 'bookie')} may start {when}:"
        yield from (f"  {start}" for start in starts)
