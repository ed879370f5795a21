"""Names in a sentence: the first of them, and how many more there are."""

from collections.abc import Sequence
from typing import Final

SHOWN: Final = 10


def list_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
