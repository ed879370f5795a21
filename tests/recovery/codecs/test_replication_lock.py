"""Locks of ledgers: their keys as BookKeeper names them, and whose they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.codecs import replication_lock
from recovery.codecs.store import kind_of
from recovery.model.ids import LedgerId

LOCKS = "/underreplication/locks/"
signed = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(
    ("ledger", "name"),
    [
        (LedgerId(0, 1), "urL0000000001"),
        (LedgerId(0, 9999), "urL0000009999"),
        (LedgerId(0, 2147483648), "urL2147483648"),
        (LedgerId(0, (1 << 63) - 1), "urL9223372036854775807"),
        (LedgerId(7, 12345), "urS00000000000000070000000000003039"),
    ],
)
def test_keys_are_those_of_the_specification(ledger: LedgerId, name: str) -> None:
    """As ZooKeeper listed them for a real worker; scoped ones as docs/formats/store-keys.md has them."""
    assert replication_lock.lock_key(ledger) == LOCKS + name
    assert replication_lock.ledger_of_lock(LOCKS + name) == ledger
    assert kind_of(LOCKS + name) == "lock"


@given(scope=signed, ledger=signed)
def test_a_key_leads_back_to_its_ledger(scope: int, ledger: int) -> None:
    """Every id that a lock can be of has one key of its own."""
    if scope == 0 and ledger < 0:
        with pytest.raises(ValueError, match="no lock"):
            replication_lock.lock_key(LedgerId(scope, ledger))
    else:
        key = replication_lock.lock_key(LedgerId(scope, ledger))
        assert replication_lock.ledger_of_lock(key) == LedgerId(scope, ledger)


@pytest.mark.parametrize(
    "name",
    [
        "urL1",
        "urL00000000001",
        "urL9223372036854775808",
        "urS0000000000000007000000000000303",
        "urS00000000000000000000000000003039",
        "urL0000000001/x",
        "urL0000000001\n",
        "x",
    ],
)
def test_other_names_are_of_no_ledger(name: str) -> None:
    """Each ledger has exactly one name."""
    assert replication_lock.ledger_of_lock(LOCKS + name) is None
    assert replication_lock.ledger_of_lock("/underreplication/ledgers/urL0000000001") is None


def test_a_guard_is_told_from_a_worker() -> None:
    """By its name, and because it stays when its session ends; anybody who holds a lock can be named."""
    ours, worker = replication_lock.encode_guard("ab" * 32), b'bookieId: "worker-1"\n'
    assert ours == b'bookieId: "bkmeta-guard abababababababab"\n'
    assert replication_lock.is_guard(ours, 0)
    assert not replication_lock.is_guard(ours, 7)
    assert not replication_lock.is_guard(worker, 0)
    assert replication_lock.decode_holder(worker) == "worker-1"
    assert replication_lock.decode_holder(b"") is None
    assert replication_lock.decode_holder(b'bookieId: "a') is None
