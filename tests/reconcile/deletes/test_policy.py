"""A cluster's policy: what it asks for, how it is kept, and what counts as asking for less."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from backends.protocols import Write
from reconcile.deletes._pb import tombstones_pb2
from reconcile.deletes.own_root import make_own_root, open_log, read_policy, write_policy
from reconcile.deletes.policy import (
    NO_POLICY,
    Approver,
    DeletePolicy,
    decode_policy,
    hash_change,
    list_loosened,
    read_policy_file,
    require_possible,
)
from reconcile.deletes.verification.verdicts import Rules, set_breaker
from reconcile.errors import GuardRefusedError
from reconcile.write.audit_journal import JOURNAL
from recovery.errors import FormatError, InputError
from tests.support.memory_store import MemoryStore
from tests.support.plans import clock

ANN, BOB, EVE = (Approver(name, name.encode() * 10 + b"xx") for name in ("ann", "bob", "eve"))
STRICT = DeletePolicy(True, 1000, 2000, 50, 1, (ANN, BOB))
ROOT = "/ledgers"


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (replace(STRICT, archived=False), ["no archive mark is required"]),
        (replace(STRICT, soak_ms=999), ["the least soak is weaker"]),
        (replace(STRICT, min_age_ms=1999), ["the least age is weaker"]),
        (replace(STRICT, most_in_a_day=51), ["the breaker is weaker"]),
        (replace(STRICT, approvals=0), ["the number of approvals is weaker"]),
        (replace(STRICT, approvers=(ANN, BOB, EVE)), ["eve may approve"]),
        (replace(STRICT, approvers=(ANN, replace(EVE, name="bob"))), ["bob may approve"]),
        (replace(STRICT, soak_ms=1001, min_age_ms=2001, most_in_a_day=49, approvals=2), []),
        (replace(STRICT, approvers=(ANN,)), []),
        (STRICT, []),
    ],
)
def test_what_asks_for_less_is_named(after: DeletePolicy, said: list[str]) -> None:
    """A further key, too: with one's own key in it a person would approve what that person made."""
    assert list(list_loosened(STRICT, after)) == said


def test_what_was_never_asked_for_is_not_loosened() -> None:
    """A cluster without a policy, or without the rule of archives, gets another rule."""
    assert list(list_loosened(DeletePolicy(), DeletePolicy(soak_ms=1))) == []


@pytest.mark.parametrize(
    "policy",
    [
        replace(STRICT, approvals=2),
        replace(STRICT, approvers=()),
        replace(STRICT, approvers=(ANN, replace(ANN, name="bob"))),
        replace(STRICT, approvers=(ANN, replace(BOB, name="ann"))),
        replace(STRICT, approvers=(ANN, Approver("bob", b"short"))),
        replace(STRICT, soak_ms=-1),
    ],
)
def test_a_policy_that_could_never_be_kept_is_refused(policy: DeletePolicy) -> None:
    """One approval takes two people; a person or a key twice would be one person who counts as two."""
    require_possible(STRICT, "it")
    with pytest.raises(InputError):
        require_possible(policy, "it")


class Unasked(MemoryStore):
    """A store that may not be asked: what is beside its root is no key."""

    def get(self, key: str) -> NoReturn:
        """Say so."""
        raise AssertionError(key)


def test_it_is_kept_beside_the_tombstones(tmp_path: Path) -> None:
    """Journalled, with who set it; what another process set meanwhile is not written over."""
    store = MemoryStore()
    store.write([Write(ROOT, b"")])
    assert read_policy(store, ROOT) is None
    assert read_policy(Unasked(), "/") is None
    with open_log(tmp_path, store, ROOT, clock()) as log:
        own = make_own_root(store, ROOT, log)
        write_policy(store, own, None, STRICT.encode(7, "op"), log)
        stored = read_policy(store, ROOT)
        assert stored is not None
        assert (stored.policy, stored.at_ms, stored.by) == (STRICT, 7, "op")
        with pytest.raises(GuardRefusedError, match="was set meanwhile"):
            write_policy(store, own, None, NO_POLICY.encode(8, "eve"), log)
        write_policy(store, own, stored, NO_POLICY.encode(8, "op"), log)
    # What was replaced is kept there.
    assert base64.b64encode(stored.raw).decode() in (tmp_path / JOURNAL).read_text()
    again = read_policy(store, ROOT)
    assert again is not None
    assert again.policy == NO_POLICY


def test_a_policy_that_cannot_be_read_is_not_passed_over() -> None:
    """Of a later version, or no message of ours: refused, for it may ask for more."""
    store = MemoryStore()
    for raw in (b"\xff", STRICT.encode(1, "op").replace(b"\x08\x01", b"\x08\x02", 1), b""):
        with pytest.raises(FormatError):
            decode_policy(raw, 0)
    store.write([Write(f"{ROOT}-bkmeta/policy", b"\xff")])
    with pytest.raises(GuardRefusedError, match="cannot be read"):
        read_policy(store, ROOT)


def test_a_change_has_a_hash_of_its_own() -> None:
    """Of the cluster, of what is replaced and of what takes its place: none is approved for another."""
    asked = ("one", ROOT, b"before", STRICT)
    digest = hash_change(*asked)
    assert digest == hash_change("one", ROOT, b"before", replace(STRICT, approvers=(BOB, ANN)))
    others = [("two", *asked[1:]), ("one", "/l", *asked[2:]), ("one", ROOT, b"", STRICT), (*asked[:3], NO_POLICY)]
    assert digest not in {hash_change(*other) for other in others}


def test_a_file_has_the_policy_of_a_lost_cluster(tmp_path: Path) -> None:
    """As it is shown; anything else is refused."""
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(STRICT.to_json()))
    assert read_policy_file(path) == STRICT
    for wrong in ("{}", "[]", "x", json.dumps({**STRICT.to_json(), "approvers": [{"name": "ann", "key": "?"}]})):
        path.write_text(wrong)
        with pytest.raises(InputError):
            read_policy_file(path)


def test_options_are_only_stricter() -> None:
    """The rules of a verification, and the breaker, which may be below what is never too many without a policy."""
    assert Rules(5, 6, archived=False).tighten(STRICT) == Rules(2000, 6, archived=True, most_in_a_day=50)
    assert Rules(5000, 6, archived=True).tighten(NO_POLICY) == Rules(5000, 6, archived=True)
    assert [set_breaker(asked, 0, 10**6, 3).is_tripped for asked in (3, 4)] == [False, True]
    assert [set_breaker(asked, 0, 10**6, 2000).is_tripped for asked in (1000, 1001)] == [False, True]


def test_a_quarantine_is_kept_and_bounded(tmp_path: Path) -> None:
    """In the store and in a file; where none is said a thousand ledgers at a time; it cannot be for no ledger."""
    assert (DeletePolicy().archived, DeletePolicy().quarantine_ms, DeletePolicy().quarantine_most) == (False, 0, 1000)
    kept = DeletePolicy(quarantine_ms=5, quarantine_most=1)
    assert decode_policy(kept.encode(1, "op"), 0).policy == kept
    require_possible(kept, "here")
    with pytest.raises(InputError, match="lets no ledger be in quarantine"):
        require_possible(replace(kept, quarantine_most=0), "here")
    message = tombstones_pb2.Policy(version=1, at_ms=1, by="op")
    assert decode_policy(message.SerializeToString(), 0).policy.quarantine_most == 1000
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(kept.to_json()))
    assert read_policy_file(path) == kept
    bad = {**kept.to_json(), "approvers": [{"name": "ann", "key": "%" + base64.b64encode(bytes(32)).decode()}]}
    path.write_text(json.dumps(bad))
    with pytest.raises(InputError, match=r"approvers\[0\].key: invalid base64"):
        read_policy_file(path)
    for shorter in (replace(kept, quarantine_ms=4), replace(kept, quarantine_most=2)):
        assert len(list(list_loosened(kept, shorter))) == 1
