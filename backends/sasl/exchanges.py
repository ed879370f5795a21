"""The rounds of a proof by SASL, for any carrier.

    DIGEST-MD5   →  nothing                     GSSAPI   →  token of the context, until both have proved themselves
                 ←  realm, nonce, ways                   ←  its answer
                 →  proof of the password                →  nothing, or the last token
                 ←  proof of the server                  ←  signed: one byte of ways, three of a size
                                                         →  signed: 1 (no way but this proof), 0, 0, 0

Only who one is, is proved: what follows on the connection is neither signed nor encrypted by SASL. TLS does that.

Source: RFC 2831 (by puresasl), RFC 4752; what bookies take: apache/bookkeeper 9590a97, sasl/SaslClientState.
"""

from typing import Final, Protocol

from puresasl import QOP, SASLError, SASLProtocolException
from puresasl.client import SASLClient

from backends.errors import BackendError
from backends.sasl.gssapi import KerberosError, SecurityContext

_ONLY_PROOF: Final = 1
"""The way of a connection that is not changed by SASL; its bit."""
_WAYS: Final = 4
"""Bytes of the server's last message."""


class SaslRefusedError(BackendError):
    """A proof cannot be made, or the server's proof is wrong; the argument says why, without a secret."""


class SaslExchange(Protocol):
    """One exchange on one connection."""

    @property
    def is_over(self) -> bool:
        """Whether the exchange has no further message to send."""

    def answer(self, challenge: bytes) -> bytes:
        """Return the next message after a server's message; the first one follows none.

        Raises:
            SaslRefusedError: nothing does.
            UnsupportedAuthError: the machine has no Kerberos.
        """
        ...


class PasswordProof:
    """By DIGEST-MD5: the password is not sent, and the server proves that it knows it too.

    Args:
        service, host: names of the server that both sides take for granted.
        user, password: whom to be taken for.
    """

    def __init__(self, service: str, host: str, user: str, password: str) -> None:
        self._client = SASLClient(
            host, service=service, mechanism="DIGEST-MD5", qops=(QOP.AUTH,), username=user, password=password
        )

    @property
    def is_over(self) -> bool:
        return bool(self._client.complete)

    def answer(self, challenge: bytes) -> bytes:
        try:
            return bytes(self._client.process(challenge) or b"") if challenge else b""
        except (SASLError, SASLProtocolException, ValueError) as error:
            raise SaslRefusedError(f"DIGEST-MD5: {error}") from error


class KerberosProof:
    """By GSSAPI, with the ticket of the environment.

    Args:
        service, host: the server's principal.
    """

    def __init__(self, service: str, host: str) -> None:
        self._name = f"{service}/{host}"
        self._context: SecurityContext | None = None
        self._names = service, host
        self.is_over = False

    def answer(self, challenge: bytes) -> bytes:
        try:
            if self._context is None:
                self._context = SecurityContext(*self._names)
            if not self._context.is_complete:
                return self._context.step(challenge)
            _require_only_proof(self._context.unwrap(challenge))
            answer = self._context.wrap(bytes((_ONLY_PROOF, 0, 0, 0)))
        except KerberosError as error:
            self.close()
            raise SaslRefusedError(f"Kerberos, {self._name}: {error}") from error
        self.is_over = True
        self.close()
        return answer

    def close(self) -> None:
        """Forget the ticket."""
        if self._context is not None:
            self._context.close()
            self._context = None


def _require_only_proof(ways: bytes) -> None:
    if len(ways) != _WAYS or not ways[0] & _ONLY_PROOF:
        raise KerberosError("the server wants every message signed or encrypted by SASL; use TLS")
