"""Columns of etcd's keys are what the generated messages say, of any bytes that those read."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from backends.etcd import columns, rpc

NUMBERS = st.one_of(st.integers(0, 300), st.integers(-(1 << 63), (1 << 63) - 1))
KVS = st.builds(
    rpc.KeyValue,
    key=st.binary(max_size=200),
    create_revision=NUMBERS,
    mod_revision=NUMBERS,
    version=NUMBERS,
    value=st.binary(max_size=200),
    lease=NUMBERS,
)
EVENTS = st.builds(rpc.Event, type=st.sampled_from([0, 1]), kv=KVS, prev_kv=st.none() | KVS)


def rows(keys: columns.PageKeys) -> list[tuple[Any, ...]]:
    """Return keys, one a row."""
    numbers = (keys.created, keys.modified, keys.version, keys.lease)
    every = (keys.key.to_pylist(), keys.value.to_pylist(), *(column.tolist() for column in numbers))
    return list(zip(*every, strict=True))


def row(kv: Any) -> tuple[Any, ...]:
    """Return what the generated message says."""
    return kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease


@given(st.lists(KVS, max_size=30))
def test_keys_are_read_as_the_messages_read_them(kvs: list[Any]) -> None:
    """Every number and every byte string, whichever fields are left out."""
    raws = [kv.SerializeToString() for kv in kvs]
    assert rows(columns.read_keys(raws)) == [row(kv) for kv in kvs]


@given(st.lists(EVENTS, max_size=30))
def test_events_are_read_as_the_messages_read_them(events: list[Any]) -> None:
    """The key after a write, whether it was removed, and the value before, where one is said."""
    found = columns.read_events([event.SerializeToString() for event in events])
    assert rows(found.keys) == [row(event.kv) for event in events]
    assert found.deleted.tolist() == [event.type == rpc.Event.DELETE for event in events]
    before = [event.prev_kv.value if event.HasField("prev_kv") else None for event in events]
    assert found.before.to_pylist() == before


@st.composite
def damaged(draw: st.DrawFn) -> list[bytes]:
    """Real messages with bytes changed, cut, or joined, and arbitrary bytes among them."""
    raws = [event.SerializeToString() for event in draw(st.lists(EVENTS | KVS, min_size=1, max_size=4))]
    raws += draw(st.lists(st.binary(max_size=40), max_size=2))
    raw = bytearray(raws[0])
    for _ in range(draw(st.integers(0, 3))):
        if raw:
            raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return [bytes(raw[: draw(st.integers(0, len(raw)))]), *raws[1:], bytes(raw) + raws[-1]]


@given(damaged())
def test_any_bytes_are_read_as_the_messages_read_them_or_refused_with_them(raws: list[bytes]) -> None:
    """Whatever the generated messages read, the columns say the same; what they refuse is refused."""
    for raw in [*([one] for one in raws), raws]:
        try:
            wanted = [row(rpc.KeyValue.FromString(one)) for one in raw]
        except DecodeError:
            with pytest.raises(DecodeError):
                columns.read_keys(raw)
        else:
            assert rows(columns.read_keys(raw)) == wanted
        try:
            events = [rpc.Event.FromString(one) for one in raw]
        except DecodeError:
            with pytest.raises(DecodeError):
                columns.read_events(raw)
        else:
            assert rows(columns.read_events(raw).keys) == [row(event.kv) for event in events]
