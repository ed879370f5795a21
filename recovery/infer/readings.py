"""What the record of a ledger rests on: proof, what is likeliest, or nothing but who holds what."""

from enum import StrEnum


class Reading(StrEnum):
    """How a record was found; stored in plans, so a value is never renamed."""

    PROVED = "proved"
    """Nothing speaks against it, and nothing that may be hidden can change it."""
    LIKELIEST = "likeliest"
    """Every entry that is seen is readable by it; bookies or entries that nobody saw may belong to it, too."""
    UNIVERSAL = "universal"
    """One segment that names all who hold anything of the ledger, E = W = their number, A = 1."""
