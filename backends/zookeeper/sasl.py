"""SASL of a ZooKeeper: kazoo's own DIGEST-MD5, and GSSAPI, for which kazoo would need another library."""

from typing import Any, Final

from puresasl import SASLProtocolException
from puresasl.mechanisms import Mechanism, mechanisms

from backends.errors import BackendError
from backends.protocols import Kerberos, Sasl
from backends.sasl.exchanges import KerberosProof

_GSSAPI: Final = "GSSAPI"
_FAILURES: Final = "failures"


class _KerberosMechanism(Mechanism):  # type: ignore[misc]  # puresasl has no types
    """The mechanism that puresasl creates for each connection."""

    name = _GSSAPI

    def __init__(self, sasl: Any, failures: list[str], **_props: object) -> None:  # noqa: ANN401  # puresasl has no types
        super().__init__(sasl)
        self._proof = KerberosProof(sasl.service, sasl.host)
        self._failures = failures

    def process(self, challenge: bytes | None = None) -> bytes:
        try:
            answer = self._proof.answer(challenge or b"")
        except BackendError as error:
            # kazoo does not report the reason; the code that waits for the session does.
            self._failures.append(str(error))
            raise SASLProtocolException(str(error)) from error
        self.complete = self._proof.is_over
        return answer

    def dispose(self) -> None:
        self._proof.close()


mechanisms[_GSSAPI] = _KerberosMechanism


def make_sasl_options(sasl: Sasl | None) -> dict[str, Any] | None:
    """Return the SASL settings of kazoo's client."""
    if sasl is None:
        return None
    if isinstance(sasl, Kerberos):
        return {"mechanism": _GSSAPI, "service": sasl.service, _FAILURES: []}
    return {"mechanism": "DIGEST-MD5", "username": sasl[0], "password": sasl[1]}


def describe_refusal(options: dict[str, Any] | None) -> str:
    """Return why there is no session for a client that was made with these options of SASL."""
    if options is None or options["mechanism"] != _GSSAPI:
        return "user and password were refused"
    failures: list[str] = options[_FAILURES]
    return failures[-1] if failures else "the Kerberos ticket was refused"
