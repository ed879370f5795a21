"""Ed25519 signatures over canonical JSON: of certificates, and of approvals.

signature     algorithm, public_key, value; the last two are base64
canonical     RFC 8785
"""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from recovery.errors import InputError

_ALGORITHM: Final = "Ed25519"
_EXTRA: Final = "install it with the signatures: pip install 'bkmeta[signatures]'"


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature, and the public key that it claims to be by.

    Attributes:
        value: 64 bytes.
        public_key: 32 bytes.
    """

    value: bytes
    public_key: bytes

    def holds(self, raw: bytes) -> bool:
        """Whether the private key of its public key signed these bytes.

        Raises:
            InputError: the library is not installed.
        """
        try:
            from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise InputError("the signature", "cannot be checked without cryptography", _EXTRA) from error
        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(self.value, raw)
        except (InvalidSignature, ValueError):
            return False
        return True

    def to_json(self) -> dict[str, str]:
        """Return it as a file has it."""
        return {
            "algorithm": _ALGORITHM,
            "public_key": base64.b64encode(self.public_key).decode(),
            "value": base64.b64encode(self.value).decode(),
        }


def canonicalize(body: object) -> bytes:
    """Return the canonical JSON of a value, as RFC 8785 has it.

    Raises:
        ValueError: a number or a text that it has no form for.
    """
    import rfc8785  # noqa: PLC0415 - only who makes or checks a certificate needs it

    try:
        return bytes(rfc8785.dumps(body))  # type: ignore[arg-type]  # its type of JSON values is private
    except rfc8785.CanonicalizationError as error:
        raise ValueError(str(error)) from error


def sign(raw: bytes, path: Path) -> Signature:
    """Return the signature of bytes by the private key of a PEM file.

    Raises:
        InputError: the key cannot be used.
    """
    key = _load_key(path, is_private=True)
    return Signature(key.sign(raw), key.public_key().public_bytes_raw())


def read_public_key(path: Path) -> bytes:
    """Return the 32 bytes of the public key of a PEM file.

    Raises:
        InputError: the key cannot be used.
    """
    return bytes(_load_key(path, is_private=False).public_bytes_raw())


def _load_key(path: Path, *, is_private: bool) -> Any:  # noqa: ANN401 - of a library that may be absent
    """Return an Ed25519 key of a PEM file.

    Raises:
        InputError: it cannot be read, or is none.
    """
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise InputError(str(path), "cannot be used without cryptography", _EXTRA) from error
    kind = "private" if is_private else "public"
    remedy = "make one: openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out pub.pem"
    try:
        raw = path.read_bytes()
        if is_private:
            key: Any = serialization.load_pem_private_key(raw, None)
        else:
            key = serialization.load_pem_public_key(raw)
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", remedy) from error
    except (ValueError, TypeError) as error:
        raise InputError(str(path), f"is not a PEM file of a {kind} key without a password", remedy) from error
    wanted = ed25519.Ed25519PrivateKey if is_private else ed25519.Ed25519PublicKey
    if not isinstance(key, wanted):
        raise InputError(str(path), f"is not an Ed25519 {kind} key", remedy)
    return key
