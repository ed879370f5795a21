"""Whatever rights a node has, closing it takes what must go, gives nobody anything, and is seen as closed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.protocols import Write, parse_acl
from reconcile.errors import GuardRefusedError
from reconcile.write import guards
from reconcile.write.freezing import freeze, freeze_state
from recovery.codecs.store import LOCKS, ROOT
from tests.support.memory_store import MemoryStore

OURS = "digest:tool:aGFzaGhhc2g="
TAKEN = {"/00": "r", "/000": "r", LOCKS: "c", "/idgen": "c", "/idgen-long": "c", ROOT: "c"}

PERMS = st.sets(st.sampled_from("cdrwa")).map(lambda chosen: "".join(p for p in "cdrwa" if p in chosen))
PRINCIPALS = st.one_of(
    st.just("world:anyone"),
    st.just(OURS),
    st.just("x509:CN=bookie,O=a:b"),
    st.from_regex(r"(sasl|ip):[a-z0-9./@]{1,10}", fullmatch=True),
)
RIGHTS = st.lists(st.builds("{}:{}".format, PRINCIPALS, PERMS), min_size=1, max_size=4).map(",".join)


def _of(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for right in parse_acl(text):
        found.setdefault(f"{right.scheme}:{right.name}", set()).update(right.perms)
    return found


@given(RIGHTS, st.sampled_from(sorted(TAKEN)))
def test_closing_takes_and_never_gives(rights: str, key: str) -> None:
    """Only our identity may do what a freeze forbids; all others have at most what they had; again changes nothing."""
    after = freeze_state.close_acl(rights, freeze_state.KEPT[key], OURS)
    had, has = _of(rights), _of(after)
    assert has.pop(OURS) == set("cdrwa")
    for principal, perms in has.items():
        assert perms <= had[principal]
        assert TAKEN[key] not in perms
    assert freeze_state.close_acl(after, freeze_state.KEPT[key], OURS) == after


@given(st.lists(RIGHTS.map(lambda text: f"{text},world:anyone:cdrwa"), min_size=6, max_size=6), st.data())
def test_closed_everywhere_is_frozen_and_less_is_not(rights: list[str], data: st.DataObject) -> None:
    """All nodes closed count as frozen by us; any one of them as it was does not, and is named."""
    store = MemoryStore()
    store.write([Write(f"/ledgers{key}", b"") for key in TAKEN if key != ROOT])
    before = dict(zip(TAKEN, rights, strict=True))
    for key, text in before.items():
        store.set_acl(freeze_state.join_key("/ledgers", key), text, expected=0)
    assert not freeze_state.read_freeze_state(store, "/ledgers").frozen
    for change in freeze.propose_freeze(store, "/ledgers", OURS).changes:
        store.set_acl(freeze_state.join_key("/ledgers", change.key), str(change.after), expected=1)
    state = freeze_state.read_freeze_state(store, "/ledgers")
    assert (state.state, state.identity, state.open) == (freeze_state.FreezeExtent.FROZEN, OURS, ())
    key = data.draw(st.sampled_from(sorted(TAKEN)))
    store.set_acl(freeze_state.join_key("/ledgers", key), before[key], expected=2)
    state = freeze_state.read_freeze_state(store, "/ledgers")
    # Without these bookies cannot list either, and clients go on.
    deletes = key in ("/idgen", "/idgen-long")
    assert state.state is (freeze_state.FreezeExtent.DELETES if deletes else freeze_state.FreezeExtent.PARTLY)
    assert [line.split()[0] for line in state.open] == [key]


@given(RIGHTS.filter(lambda text: "c" in _of(text).get("world:anyone", set()) | _of(text).get(OURS, set())))
def test_a_root_that_is_made_never_locks_us_out(rights: str) -> None:
    """It gets the rights of what is above it, frozen, and has them again when thawed: too few of them are refused."""
    store = MemoryStore()
    store.write([Write("/cluster", b"")])
    store.set_acl("/cluster", rights, expected=0)
    lacking = guards.find_lacking_permissions(rights, (OURS,))
    if lacking:
        with pytest.raises(GuardRefusedError, match=f"without {lacking}"):
            freeze.propose_freeze(store, "/cluster/ledgers", OURS)
    else:
        made = freeze.propose_freeze(store, "/cluster/ledgers", OURS)
        assert not [one for one in made.changes if guards.find_lacking_permissions(str(one.after), (OURS,))]
