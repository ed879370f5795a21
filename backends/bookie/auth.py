"""Ways to authenticate with bookies: the rounds of an exchange whose payloads belong to a plug-in.

    client                                  bookie
    AUTH plug-in name, first payload   →
                                       ←    EOK, plug-in name, payload: another round, or it is over
                                       ←    EOK, AuthDisabledPlugin: nothing is asked for, or no more
                                       ←    EUA: another plug-in is wanted, or this was not enough (then it closes)

Source: docs/formats/wire.md; apache/bookkeeper 9590a97, auth/ClientAuthProvider.
"""

import importlib
from typing import Final, Protocol

from backends.errors import UnsupportedAuthError

_UNSUPPORTED: Final = "sasl"


class Exchange(Protocol):
    """One authentication on one connection."""

    def first(self) -> bytes:
        """Return the payload that the exchange begins with."""
        ...

    def answer(self, payload: bytes) -> bytes | None:
        """Return the payload that follows a bookie's; None: the exchange is over, and the bookie is content."""
        ...


class Mechanism(Protocol):
    """A way to authenticate; made once, used for every connection. Travels to other processes by its name only."""

    plugin: str
    """Name that the bookie's plug-in has."""

    def begin(self) -> Exchange:
        """Return a new exchange."""
        ...


def load_mechanism(name: str) -> Mechanism:
    """Return the mechanism that ``MODULE:NAME`` names: NAME is called without arguments.

    Raises:
        UnsupportedAuthError: SASL, or there is nothing of that name.
    """
    if name.lower().startswith(_UNSUPPORTED):
        raise UnsupportedAuthError("SASL is not supported; a mechanism of your own is named as MODULE:NAME")
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise UnsupportedAuthError(f"{name!r} is not MODULE:NAME")
    try:
        made: Mechanism = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise UnsupportedAuthError(f"{name} cannot be loaded ({error})") from error
    if not isinstance(getattr(made, "plugin", None), str) or not callable(getattr(made, "begin", None)):
        raise UnsupportedAuthError(f"{name} is no mechanism: it needs `plugin` and `begin`")
    return made
