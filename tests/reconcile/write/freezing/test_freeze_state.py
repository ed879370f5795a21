"""Whether a store is frozen, and the rights of what is made while it is."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from backends.errors import AccessDeniedError, UnavailableError
from backends.protocols import Versioned, Write, parse_acl
from reconcile.write.freezing.freeze_state import (
    KEPT,
    FreezeExtent,
    RefusalProof,
    choose_kept_acl,
    join_key,
    prove_refusals,
    read_freeze_state,
)
from recovery.codecs.store import Layout
from tests.reconcile.write.freezing.test_freeze import OPEN, OURS, ROOT, _cluster, _freeze
from tests.support.memory_store import MemoryStore

MINE = "digest:somebody:else:cdrwa,world:anyone:rc"


def test_what_is_made_in_a_frozen_store_is_closed_as_the_freeze_closes(tmp_path: Path) -> None:
    """The nodes that a freeze closes, and no others; what nobody gave rights has those of a store without any."""
    store = _cluster()
    for key in (*KEPT, "/00/0000/L0001"):
        assert [choose_kept_acl(store, ROOT, key, acl) for acl in (None, MINE)] == [None, MINE]
    _freeze(store, tmp_path)
    for key, keep in KEPT.items():
        rights = store.get_acl(join_key(ROOT, key))
        assert choose_kept_acl(store, ROOT, key, None) == choose_kept_acl(store, ROOT, key, OPEN)
        assert rights is None or choose_kept_acl(store, ROOT, key, None) == rights.text
        others = choose_kept_acl(store, ROOT, key, MINE)
        read = ",world:anyone:r" if "r" in keep else ""
        assert others == f"digest:somebody:else:{''.join(p for p in 'cdrwa' if p in keep)}{read},{OURS}:cdrwa"
    for key in ("/00/0000/L0001", "/LAYOUT", "/available"):
        assert [choose_kept_acl(store, ROOT, key, acl) for acl in (None, MINE)] == [None, MINE]


def test_a_store_without_rights_gives_none() -> None:
    """What has no rights is never frozen."""

    class Plain:
        """Has nothing but what every store has."""

        def __init__(self, store: MemoryStore) -> None:
            self.get, self.get_many, self.children = store.get, store.get_many, store.children

    assert choose_kept_acl(Plain(_cluster()), ROOT, "/idgen", None) is None  # type: ignore[arg-type]  # reads only


def test_what_may_not_be_read_is_not_taken_for_closed_or_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights of the root that are hidden say nothing of who reads it: the state is not known, and nothing is open."""
    store = _cluster()
    _freeze(store, tmp_path)
    inner = store.get_acl

    def hidden(key: str) -> object:
        if key == ROOT:
            raise AccessDeniedError(key)
        return inner(key)

    monkeypatch.setattr(store, "get_acl", hidden)
    state = read_freeze_state(store, ROOT)
    assert (state.state, state.open) == (FreezeExtent.UNKNOWN, ())


def test_where_nobody_may_register_it_is_nobody_in_particular(tmp_path: Path) -> None:
    """Only an identity that is the freeze's, and alone may register, would be the bookies' own."""
    store = _cluster()
    _freeze(store, tmp_path)
    available = join_key(ROOT, "/available")
    rights = store.get_acl(available)
    assert rights is not None
    store.set_acl(available, "world:anyone:r", expected=rights.version)
    assert read_freeze_state(store, ROOT).state is FreezeExtent.FROZEN
    store.set_acl(available, f"{OURS}:cdrwa", expected=rights.version + 1)
    assert read_freeze_state(store, ROOT).state is FreezeExtent.UNKNOWN


TAKEN = ("/00", "/000", "/underreplication/locks", "/idgen", "/idgen-long", "")
OTHER = "digest:other:b3RoZXI="


def made(rights: str, keys: tuple[str, ...] = TAKEN) -> MemoryStore:
    """Return a store without LAYOUT whose nodes all have the same rights."""
    store = MemoryStore()
    store.write([Write(ROOT + key, b"") for key in keys if key])
    for key in keys:
        store.set_acl(ROOT + key, rights, expected=0)
    return store


@pytest.mark.parametrize(
    ("rights", "state", "identity"),
    [
        (f"{OURS}:cdrwa,world:anyone:a", FreezeExtent.FROZEN, OURS),
        (f"{OURS}:cdrwa,{OTHER}:cdrwa", FreezeExtent.PARTLY, None),
        (f"{OURS}:cdrwa,world:anyone:cdrwa", FreezeExtent.THAWED, None),
        ("world:anyone:wa", FreezeExtent.FROZEN, None),
    ],
)
def test_a_freeze_is_of_one_identity(rights: str, state: FreezeExtent, identity: str | None) -> None:
    """One that all closed nodes name; not one of two, not one beside all others, and none where nobody is left."""
    store = made(rights)
    if identity is not None:  # else nobody could read it: then the bookies are that identity
        store.set_acl(ROOT, f"{OURS}:cdrwa,world:anyone:r", expected=1)
    found = read_freeze_state(store, ROOT)
    assert (found.state, found.identity) == (state, identity)


@pytest.mark.parametrize(
    ("root", "has_tree", "is_flat"),
    [
        (f"{OURS}:cdrwa,world:anyone:a", False, True),
        (f"{OURS}:cdrwa,{OTHER}:r,world:anyone:a", False, True),
        (f"{OURS}:cdrwa,world:anyone:a", True, False),
        ("world:anyone:wa", False, False),
        (f"{OURS}:cdrwa,world:anyone:ra", False, False),
        ("world:anyone:r", False, False),
    ],
)
def test_without_a_layout_only_a_closed_root_is_a_flat_one(root: str, *, has_tree: bool, is_flat: bool) -> None:
    """Where digests alone read it, and no tree of ledgers is below it: else the trees are what must be closed."""
    store = made(root, ("/00", "") if has_tree else ("/idgen", ""))
    said = read_freeze_state(store, ROOT).open
    assert any(line.startswith("/000 ") for line in said) == (not is_flat)


class Stranger(MemoryStore):
    """What a client without any identity may do in a store, by the rights of its nodes."""

    def __init__(self, store: MemoryStore, silent: str = "") -> None:
        self._seen, self._silent = store, silent

    def _demand(self, perm: str, key: str) -> None:
        if key == self._silent:
            raise UnavailableError("memory:", "does not answer")
        rights = self._seen.get_acl(key)
        if rights is not None and not any(
            one.scheme == "world" and perm in one.perms for one in parse_acl(rights.text)
        ):
            raise AccessDeniedError(key)

    def get(self, key: str) -> Versioned | None:
        self._demand("r", key)
        return self._seen.get(key)

    def children(self, key: str) -> list[str] | None:
        self._demand("r", key)
        return self._seen.children(key)

    def write(self, changes: Iterable[Write]) -> list[int]:
        listed = list(changes)
        for change in listed:
            self._demand("d" if change.value is None else "c", change.key.rpartition("/")[0])
        return self._seen.write(listed)


def test_what_a_stranger_is_refused_proves_a_freeze(tmp_path: Path) -> None:
    """Each attempt of a bookie is refused, and it can start; after one right is open again that one is let pass."""
    store = _cluster()
    _freeze(store, tmp_path)
    locks = f"{ROOT}/underreplication/locks"
    refused = (
        f"list {ROOT}/00",
        f"list {ROOT}/000",
        f"create below {locks}",
        f"create below {ROOT}/idgen",
        f"create below {ROOT}",
    )
    assert prove_refusals(Stranger(store), store, ROOT, Layout.HIERARCHICAL) == RefusalProof(
        refused, (), (), starts=True
    )
    before = set(store.dump())
    for key in (f"{ROOT}/00", locks):
        rights = store.get_acl(key)
        assert rights is not None
        store.set_acl(key, OPEN, expected=rights.version)
    proof = prove_refusals(Stranger(store), store, ROOT, Layout.HIERARCHICAL)
    assert proof.allowed == (f"list {ROOT}/00", f"create below {locks}")
    assert proof.refused == tuple(line for line in refused if line not in proof.allowed)
    assert set(store.dump()) == before, "what was made to see whether it can be made is gone again"


def test_a_stranger_deletes_nothing_to_see_whether_it_may(tmp_path: Path) -> None:
    """Who may delete an empty folder of the root is found out without deleting it."""
    store = _cluster()
    _freeze(store, tmp_path, deletes_only=True)
    locks = f"{ROOT}/underreplication/locks"
    proof = prove_refusals(Stranger(store), store, ROOT, Layout.HIERARCHICAL, deletes_only=True)
    refused = (f"list {ROOT}/00", f"list {ROOT}/000", f"create below {locks}", f"delete below {ROOT}")
    assert proof == RefusalProof(refused, (), (), starts=True)
    rights = store.get_acl(ROOT)
    assert rights is not None
    store.set_acl(ROOT, OPEN, expected=rights.version)
    before = set(store.dump())
    proof = prove_refusals(Stranger(store), store, ROOT, Layout.HIERARCHICAL, deletes_only=True)
    assert proof.allowed == (f"delete below {ROOT}",)
    assert set(store.dump()) == before


@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_that_is_absent_tells_only_below_a_root_that_is_there(*, is_there: bool) -> None:
    """ZooKeeper asks for rights before it looks: of a root that is gone meanwhile it has none to ask for."""
    store = MemoryStore()
    if is_there:
        store.write([Write(f"{ROOT}/available/readonly", b"")])
    proof = prove_refusals(Stranger(store), store, ROOT, Layout.HIERARCHICAL, deletes_only=True)
    attempt = f"delete below {ROOT}"
    assert proof.allowed == ((attempt,) if is_there else ())
    assert (f"{attempt}: it is absent" in proof.failed) == (not is_there)


def test_a_proof_fails_where_it_saw_nothing(tmp_path: Path) -> None:
    """What is absent, and whoever does not answer, proves nothing; a generator that is absent can stay so."""
    store = MemoryStore()
    store.write([Write(f"{ROOT}/available/readonly", b"")])
    proof = prove_refusals(Stranger(store), store, ROOT, Layout.HIERARCHICAL)
    missing = (f"list {ROOT}/00", f"list {ROOT}/000", f"create below {ROOT}/underreplication/locks")
    assert proof.failed == tuple(f"{attempt}: it is absent" for attempt in missing)
    assert proof.allowed == (f"create below {ROOT}",)
    assert proof.starts
    store = _cluster()
    _freeze(store, tmp_path)
    proof = prove_refusals(Stranger(store, silent=ROOT), store, ROOT, Layout.HIERARCHICAL)
    assert [line.partition(":")[0] for line in proof.failed] == [f"create below {ROOT}", f"read {ROOT}"]
    assert not proof.starts


def test_of_a_flat_root_a_bookie_sees_nothing() -> None:
    """Its ledgers stand in the root, which is closed: no bookie can start, and no tree of ledgers is asked for."""
    store = made(f"{OURS}:cdrwa,world:anyone:a", ("/underreplication/locks", "/idgen", ""))
    proof = prove_refusals(Stranger(store), store, ROOT, Layout.FLAT)
    assert proof.refused == (
        f"create below {ROOT}/underreplication/locks",
        f"create below {ROOT}/idgen",
        f"create below {ROOT}",
        f"list {ROOT}",
    )
    assert (proof.allowed, proof.failed, proof.starts) == ((), (), False)
