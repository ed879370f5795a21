"""Text for people: counts and names in sentences, and what others wrote made fit for a terminal and a page.

Names of files and nodes may hold what steers a screen.
"""

import re
from collections.abc import Sequence
from typing import Final

_SHOWN: Final = 10
_STEERING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # all controls but tab and the end of a line
    "\u200e\u200f\u202a-\u202e\u2066-\u2069"  # turn the direction of writing around
    "\u2028\u2029\ud800-\udfff]"  # end lines; bytes that are no text
)


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


_UNITS: Final = (("days", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def list_names(names: Sequence[str], shown: int = _SHOWN) -> str:
    """Return the first names, and how many more there are.

    Args:
        names: all of them.
        shown: how many are named.
    """
    more = f", and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def printable(text: str) -> str:
    """Return a text with what steers a screen written out; ends of lines stay."""
    return _STEERING.sub(_write_out, text)


def printable_line(text: str) -> str:
    """Return a text that is one line, and stays one."""
    return printable(text).replace("\n", r"\n")


def _write_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode()


def describe_age(seconds: float) -> str:
    """Return an age in the largest unit that it has at least two of."""
    return next(f"{seconds / unit:.0f} {name}" for name, unit in _UNITS if seconds >= 2 * unit or name == "s")
