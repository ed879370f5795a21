"""Whatever a server answers to a question for rights: rights, an error code, or a connection that is given up."""

import socket
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.protocols import Acl, parse_acl
from backends.zookeeper.acl_stream import AclStream

PERMS = "cdrwa"
BITS = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}
NAMES = st.text(st.characters(exclude_characters=":,", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
ENTRIES = st.lists(
    st.tuples(st.sampled_from(["world", "digest", "sasl", "ip", "x509"]), NAMES, st.sets(st.sampled_from(PERMS))),
    min_size=1,
    max_size=4,
)


def text(raw: str) -> bytes:
    """Return a string as ZooKeeper writes it."""
    return struct.pack(">i", len(raw.encode())) + raw.encode()


def answer(number: int, entries: list[tuple[str, str, set[str]]], version: int) -> bytes:
    """Return an answer as a server writes it."""
    body = struct.pack(">iqi", number, 77, 0) + struct.pack(">i", len(entries))
    for scheme, name, perms in entries:
        body += struct.pack(">i", sum(BITS[p] for p in perms)) + text(scheme) + text(name)
    body += bytes(40) + struct.pack(">i", version) + bytes(24)
    return struct.pack(">i", len(body)) + body


def told(data: bytes, count: int) -> list[Acl | int]:
    """Return what a stream makes of answers that end with the connection."""
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    stream = AclStream(ours)
    try:
        stream.ask([f"/k/{n}" for n in range(count)])
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        return stream.answers(count)
    finally:
        stream.close()
        theirs.close()


@given(st.lists(st.tuples(ENTRIES, st.integers(0, 1 << 31 - 1)), min_size=1, max_size=4))
def test_rights_come_as_they_are(given_rights: list[tuple[list[tuple[str, str, set[str]]], int]]) -> None:
    """Every entry with its scheme, name and permissions, in the server's order, in a form that parses to the same."""
    data = b"".join(answer(n, entries, version) for n, (entries, version) in enumerate(given_rights, 1))
    for (entries, version), rights in zip(given_rights, told(data, len(given_rights)), strict=True):
        assert isinstance(rights, Acl)
        assert rights.version == version
        parsed = [(right.scheme, right.name, set(right.perms)) for right in parse_acl(rights.text)]
        assert parsed == entries


@given(st.binary(max_size=300))
@example(struct.pack(">iiqi", 16, 1, 5, -101))
@example(struct.pack(">i", 1 << 30))
def test_any_bytes(data: bytes) -> None:
    """An error code, or the end of the connection."""
    try:
        found = told(data, 1)
    except OSError:
        return
    assert isinstance(found[0], int | Acl)


@given(ENTRIES, st.integers(0, 400), st.integers(0, 255), st.integers(0, 1))
def test_mutated_answers(entries: list[tuple[str, str, set[str]]], at: int, byte: int, cut: int) -> None:
    """A byte that is another one, and an answer that ends early: rights, or the end of the connection."""
    data = bytearray(answer(1, entries, 3))
    if cut:
        with pytest.raises(OSError, match=r"."):
            told(bytes(data[: at % len(data)]), 1)
        return
    data[at % len(data)] = byte
    try:
        told(bytes(data), 1)
    except OSError:
        return
