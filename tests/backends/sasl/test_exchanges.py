"""Rounds of SASL with odd servers, which want more than a proof or prove nothing themselves, and without a Kerberos."""

import hashlib
import re
from collections.abc import Iterator
from typing import ClassVar, Final

import pytest

from backends.errors import UnsupportedAuthError
from backends.sasl import exchanges, gssapi
from backends.sasl.exchanges import KerberosProof, PasswordProof, SaslRefusedError
from backends.sasl.gssapi import KerberosError

CHALLENGE: Final = b'realm="bookkeeper",nonce="n0nce",charset=utf-8,algorithm=md5-sess,qop="auth"'


class Context:
    """A context that stands after one round, and signs by a byte before the message."""

    closed: ClassVar[list[str]] = []

    def __init__(self, service: str, host: str) -> None:
        self.is_complete = False
        self.name = f"{service}@{host}"

    def step(self, token: bytes) -> bytes:
        """Begin, and end with the server's answer."""
        self.is_complete = bool(token)
        return b"" if token else b"begin"

    def wrap(self, message: bytes) -> bytes:
        """Sign."""
        return b"!" + message

    def unwrap(self, message: bytes) -> bytes:
        """Refuse what is not signed."""
        if not message.startswith(b"!"):
            raise KerberosError("not signed")
        return message[1:]

    def close(self) -> None:
        """Note that it was forgotten."""
        self.closed.append(self.name)


@pytest.fixture(autouse=True)
def context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts of real realms are in test_sasl_real.py."""
    Context.closed = []
    monkeypatch.setattr(exchanges, "SecurityContext", Context)


def begun() -> KerberosProof:
    """A proof that waits for the ways of the server."""
    proof = KerberosProof("bookkeeper", "bk1")
    assert [proof.answer(b""), proof.answer(b"theirs")] == [b"begin", b""]
    assert not proof.is_over
    return proof


def test_of_several_ways_the_one_without_signatures_is_taken() -> None:
    """The answer names it and no size, signed; the context is forgotten."""
    proof = begun()
    assert proof.answer(b"!\x07\x00\xff\xff") == b"!\x01\x00\x00\x00"
    assert (proof.is_over, Context.closed) == (True, ["bookkeeper@bk1"])


@pytest.mark.parametrize("ways", [b"!\x06\x00\xff\xff", b"!\x01", b"!", b"\x01\x00\x00\x00"])
def test_a_server_that_wants_more_or_proves_nothing_is_refused(ways: bytes) -> None:
    """Signed or encrypted messages only, odd sizes, and what nobody signed; the bookie is named."""
    proof = begun()
    with pytest.raises(SaslRefusedError, match="Kerberos, bookkeeper/bk1: "):
        proof.answer(ways)
    assert (proof.is_over, Context.closed) == (False, ["bookkeeper@bk1"])


def _digest(*parts: bytes) -> bytes:
    return hashlib.md5(b":".join(parts), usedforsecurity=False).hexdigest().encode()


def test_the_server_must_know_the_password_too() -> None:
    """The proof is that of RFC 2831, and over only when the server's own is right."""
    proof = PasswordProof("bookkeeper", "bookkeeper", "bob", "hunter2")
    assert proof.answer(b"") == b""
    said = proof.answer(CHALLENGE)
    given = {key: value.strip(b'"') for key, value in re.findall(rb'([a-z-]+)=("[^"]*"|[^,]+)', said)}
    assert (given[b"username"], given[b"digest-uri"]) == (b"bob", b"bookkeeper/bookkeeper")
    assert b"hunter2" not in said
    secret = hashlib.md5(b"bob:bookkeeper:hunter2", usedforsecurity=False).digest()
    key = _digest(secret, b"n0nce", given[b"cnonce"])
    rounds = (b"n0nce", given[b"nc"], given[b"cnonce"], b"auth")
    assert given[b"response"] == _digest(key, *rounds, _digest(b"AUTHENTICATE", b"bookkeeper/bookkeeper"))
    with pytest.raises(SaslRefusedError, match="DIGEST-MD5"):
        proof.answer(b"rspauth=" + b"0" * 32)
    assert not proof.is_over
    assert proof.answer(b"rspauth=" + _digest(key, *rounds, _digest(b"", b"bookkeeper/bookkeeper"))) == b""
    assert proof.is_over


@pytest.mark.parametrize("challenge", [CHALLENGE.replace(b'"auth"', b'"auth-conf"'), b'nonce="x",qop="auth"'])
def test_a_challenge_that_cannot_be_answered_is_refused(challenge: bytes) -> None:
    """Encryption only, or no realm."""
    with pytest.raises(SaslRefusedError, match="DIGEST-MD5"):
        PasswordProof("bookkeeper", "bookkeeper", "bob", "hunter2").answer(challenge)


@pytest.fixture
def _no_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gssapi, "_LIBRARY", "libgssapi_krb5.so.not-here")
    gssapi._library.cache_clear()
    yield
    gssapi._library.cache_clear()


@pytest.mark.usefixtures("_no_library")
def test_a_machine_without_kerberos_says_what_to_install() -> None:
    """The package, by the names of two systems."""
    with pytest.raises(UnsupportedAuthError, match=r"libgssapi-krb5-2.*krb5-libs"):
        gssapi.name_principal()
