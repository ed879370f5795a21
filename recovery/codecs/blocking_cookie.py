"""Cookies of our own that keep a bookie from starting: they parse, and no folder and no configuration matches them.

What a bookie does with one was seen on real bookies: docs/operations/bookies.md.
"""

from dataclasses import replace
from typing import Final

from recovery.codecs import cookie
from recovery.codecs.cookie import Cookie
from recovery.errors import FormatError

_NO_FOLDER: Final = "no folder: bkmeta keeps this bookie from starting (docs/operations/bookies.md)"
"""In place of the journal folders of a cookie. BookKeeper compares them in every mode."""
_LAYOUT: Final = 5


def make_blocking(bookie: str, instance_id: str | None, own: bytes | None) -> bytes:
    """Return a cookie of a bookie that parses, and that none of its folders and no configuration matches.

    Args:
        bookie: its id.
        instance_id: of the cluster; None: not known.
        own: its own cookie, copied except for the journal folders; None: not known.
    """
    made = Cookie(_LAYOUT, bookie, (), (_NO_FOLDER,), None, instance_id) if own is None else cookie.decode(own)
    return cookie.encode(replace(made, journal_dirs=(_NO_FOLDER,)))


def is_blocking(raw: bytes) -> bool:
    """Whether `make_blocking` made a cookie."""
    try:
        return ",".join(cookie.decode(raw).journal_dirs) == _NO_FOLDER
    except FormatError:
        return False
