"""Counts and names in sentences: one ledger, two ledgers; the first names, and how many more."""

from collections.abc import Sequence
from typing import Final

_SHOWN: Final = 10


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    Args:
        number: how many.
        noun: of one.
        plural: of several; empty: the noun with an s.
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def is_or_are(number: int) -> str:
    """Return the verb of so many."""
    return "is" if number == 1 else "are"


def count_released_holds(number: int) -> str:
    """Return what becomes of so many holds of an earlier plan."""
    return "1 hold is replaced by its record" if number == 1 else f"{number} holds are replaced by their records"


def list_names(names: Sequence[str], shown: int = _SHOWN) -> str:
    """Return the first names, and how many more there are.

    Args:
        names: all of them.
        shown: how many are named.
    """
    more = f", and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
