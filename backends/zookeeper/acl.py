"""ACLs of kazoo, and as text."""

from collections.abc import Iterable
from typing import Final

from kazoo.security import ACL, Id, make_digest_acl_credential

from backends.protocols import parse_acl

_PERMS: Final = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}


def make_acl(text: str) -> list[ACL]:
    """Return the ACL that a text form names.

    Raises:
        ValueError: the text is not ``scheme:id:perms`` joined with commas.
    """
    return [ACL(sum(_PERMS[p] for p in set(entry.perms)), Id(entry.scheme, entry.name)) for entry in parse_acl(text)]


def format_acl(entries: Iterable[ACL]) -> str:
    """Return the text form of an ACL."""
    return ",".join(
        f"{entry.id.scheme}:{entry.id.id}:{''.join(p for p, bit in _PERMS.items() if entry.perms & bit)}"
        for entry in entries
    )


def digest_principal(auth: tuple[str, str]) -> str:
    """Return how an ACL names every client that knows a user's password: ``digest:user:hash``."""
    return f"digest:{make_digest_acl_credential(*auth)}"
