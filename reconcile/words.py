"""Counts in sentences: one ledger, two ledgers."""


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
