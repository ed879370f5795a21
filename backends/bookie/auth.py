"""Ways to authenticate with bookies: rounds of an exchange; a plug-in defines the payloads.

    client                                  bookie
    AUTH plug-in name, first payload   →
                                       ←    EOK, plug-in name, payload: another round, or it is over
                                       ←    EOK, AuthDisabledPlugin: no proof is needed, or no further one
                                       ←    EUA: another plug-in is wanted, or this was not enough (then it closes)
    AUTH sasl, last proof of GSSAPI    →    (no answer)
    AUTH sasl, a proof that is none    →    (no answer, and it stays open)

    a name                   is
    sasl-digest-md5          SASL with DIGEST-MD5, as the user:password of BKMETA_BOOKIE_SASL
    sasl-gssapi[:SERVICE]    SASL with GSSAPI, by the environment's Kerberos ticket; SERVICE/host is the bookie, and
                             SERVICE is bookkeeper where none is named
    MODULE:NAME              one of your own

Secrets are read where the connection is made: options that travel have none.

Source: docs/formats/wire.md; apache/bookkeeper 9590a97, auth/ClientAuthProvider, proto/AuthHandler, sasl/.
"""

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from backends.errors import UnsupportedAuthError
from backends.sasl.exchanges import KerberosProof, PasswordProof, SaslExchange

USER_VARIABLE: Final = "BKMETA_BOOKIE_SASL"
_PLUGIN: Final = "sasl"
_BY_DIGEST: Final = "sasl-digest-md5"
_BY_KERBEROS: Final = "sasl-gssapi"
_BOOKKEEPER: Final = "bookkeeper"
"""Service and host of bookies in DIGEST-MD5; both sides assume them."""


class Exchange(Protocol):
    """One authentication on one connection.

    One that has an attribute `is_over`, and it is true with a payload, ends with that: no answer is waited for.
    """

    def first(self) -> bytes:
        """Return the payload that the exchange begins with."""
        ...

    def answer(self, payload: bytes) -> bytes | None:
        """Return the payload that follows a bookie's; None: the exchange is over, and the bookie is content."""
        ...


class Mechanism(Protocol):
    """A way to authenticate; made once, used for every connection. Travels to other processes by its name only."""

    @property
    def plugin(self) -> str:
        """Name that the bookie's plug-in has."""

    def begin(self) -> Exchange:
        """Return a new exchange."""
        ...


class _SaslExchange:
    """One proof by SASL."""

    def __init__(self, proof: SaslExchange) -> None:
        self._proof = proof

    @property
    def is_over(self) -> bool:
        return self._proof.is_over

    def first(self) -> bytes:
        return self._proof.answer(b"")

    def answer(self, payload: bytes) -> bytes | None:
        following = self._proof.answer(payload)
        return None if self._proof.is_over and not following else following


@dataclass(frozen=True, slots=True)
class _Sasl:
    """BookKeeper's own plug-in for SASL."""

    prove: Callable[[], SaslExchange]
    plugin: str = _PLUGIN

    def begin(self) -> Exchange:
        return _SaslExchange(self.prove())


def _load_sasl(kind: str, service: str, host: str) -> Mechanism | None:
    if kind == _BY_DIGEST and not service:
        user, colon, password = os.environ.get(USER_VARIABLE, "").partition(":")
        if not (user and colon):
            raise UnsupportedAuthError(f"{kind} needs {USER_VARIABLE} set to user:password")
        return _Sasl(lambda: PasswordProof(_BOOKKEEPER, _BOOKKEEPER, user, password))
    if kind == _BY_KERBEROS:
        return _Sasl(lambda: KerberosProof(service or _BOOKKEEPER, host))
    return None


def load_mechanism(name: str, host: str = "") -> Mechanism:
    """Return the mechanism of a name; the NAME of ``MODULE:NAME`` is called without arguments.

    Args:
        name: of the table above.
        host: in the bookie's principal.

    Raises:
        UnsupportedAuthError: an unknown name, or a missing setting.
    """
    module, colon, attribute = name.partition(":")
    if (sasl := _load_sasl(module, attribute, host)) is not None:
        return sasl
    if not (module and colon and attribute):
        raise UnsupportedAuthError(f"{name!r} is none of {_BY_DIGEST}, {_BY_KERBEROS}[:SERVICE], MODULE:NAME")
    try:
        made: Mechanism = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise UnsupportedAuthError(f"{name} cannot be loaded ({error})") from error
    if not isinstance(getattr(made, "plugin", None), str) or not callable(getattr(made, "begin", None)):
        raise UnsupportedAuthError(f"{name} is not a mechanism: it needs `plugin` and `begin`")
    return made
