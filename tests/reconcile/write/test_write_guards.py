"""What each guard refuses before anything is written, just inside of its bound and just outside."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from backends.bookie import frames
from backends.protocols import Write
from reconcile.errors import Advice, GuardRefusedError, Remedy
from reconcile.write.guards import (
    OPEN_ACL,
    choose_acl,
    require_admin,
    require_creation,
    require_room_for_locks,
    require_same_root,
    require_stopped,
    require_unused,
)
from reconcile.write.plan_actions import Action
from recovery.codecs.replication_lock import MAX_LOCKS
from tests.support.failing_stores import FaultyStore
from tests.support.memory_store import MemoryStore

BASE = "/ledgers"


def filled(**nodes: bytes) -> MemoryStore:
    """Return a store with nodes below the root, by key."""
    store = MemoryStore()
    store.write([Write(BASE + key, value) for key, value in nodes.items()])
    return store


def layout_action(op: str, value: bytes | None, before: bytes | None = None) -> Action:
    """Return an action of LAYOUT."""
    return Action(1, op, "layout", b"id", "/LAYOUT", value, None, None, before)


@pytest.mark.parametrize(
    ("op", "value", "before", "is_refused"),
    [
        ("create", b"2\nours", None, True),
        ("create", b"2\ntheirs", None, False),
        ("replace", b"2\nours", b"2\ntheirs", False),
        ("replace", b"2\nours", b"2\nothers", True),
        ("create", b"2\nours", b"2\ntheirs", True),
        ("remove", None, b"2\nothers", True),
    ],
)
def test_a_layout_that_is_not_the_plans(
    op: str, value: bytes | None, before: bytes | None, *, is_refused: bool
) -> None:
    """Only a person's own replacement names what stands there; whoever is refused is shown both values."""
    store = filled(**{"/LAYOUT": b"2\ntheirs"})
    if not is_refused:
        require_same_root([layout_action(op, value, before)], store, BASE)
        return
    with pytest.raises(GuardRefusedError) as refused:
        require_same_root([layout_action(op, value, before)], store, BASE)
    assert "2\\ntheirs" in str(refused.value)
    assert repr((value or b"").decode()) in str(refused.value)


@pytest.mark.parametrize(("running", "named"), [(1, 1), (5, 5), (6, 5)])
def test_running_bookies_are_named_up_to_five(running: int, named: int) -> None:
    """Of more than five the rest is dots; the root of all of a store is its root."""
    store = MemoryStore()
    store.write([Write(f"/available/b{n}:3181", b"") for n in range(running)])
    with pytest.raises(GuardRefusedError) as refused:
        require_unused(store, "/")
    said = str(refused.value)
    assert sum(f"b{n}:3181" in said for n in range(running)) == named
    assert ("…" in said) == (running > named)
    assert refused.value.subject == "/"


def test_who_cannot_freeze_is_not_advised_to() -> None:
    """A store without rights has nothing to freeze: bookies are to be stopped."""
    store = filled(**{"/available/b0:3181": b""})
    for used, advice in (
        (store, Advice.FREEZE_OR_ACCEPT_UNFROZEN),
        (FaultyStore(store, lambda _: None), Advice.STOP_OR_ACCEPT_UNFROZEN),
    ):
        with pytest.raises(GuardRefusedError) as refused:
            require_unused(used, BASE)
        assert refused.value.remedy == Remedy(advice)
        assert refused.value.subject == BASE


@contextmanager
def answering(size: bytes) -> Iterator[str]:
    """Give the address of a server that answers whoever connects with these bytes, and closes."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(64)
            self.request.sendall(size)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("size", "is_bookie"),
    [
        ((1).to_bytes(4), True),
        (frames.LARGEST_FRAME.to_bytes(4), True),
        ((frames.LARGEST_FRAME + 1).to_bytes(4), False),
        ((0).to_bytes(4), False),
        (b"\0\0\1", False),
        (b"", False),
    ],
)
def test_only_what_speaks_a_bookies_protocol_runs(size: bytes, *, is_bookie: bool) -> None:
    """The size of a frame that a bookie could send; a proxy that closes, or says something else, is none."""
    with answering(size) as address:
        if not is_bookie:
            require_stopped([address, "a-name"])
            return
        with pytest.raises(GuardRefusedError, match="1 bookie is running") as refused:
            require_stopped([address, "a-name"])
    assert refused.value.subject == address


def test_where_nothing_listens_no_bookie_runs() -> None:
    """A refused connection is no answer."""
    with answering(b"") as address:
        pass
    require_stopped([address])


def test_locks_are_counted_with_those_that_are_there() -> None:
    """As many as one listing holds are taken, one more is not; a plan without locks is not asked."""
    there, planned = MAX_LOCKS // 2, MAX_LOCKS - MAX_LOCKS // 2
    store = filled(**{"/underreplication/locks": b""})
    names = [f"urL{n:010d}" for n in range(there)]
    store.children = lambda key: names  # type: ignore[method-assign]  # noqa: ARG005 - more than it would list
    locks = [f"/underreplication/locks/urL{n:010d}" for n in range(there, there + planned)]
    require_room_for_locks([*locks, "/underreplication/locks/urL0000000000"], store, BASE)
    with pytest.raises(GuardRefusedError, match=f"holds {there} locks"):
        require_room_for_locks([*locks, "/underreplication/locks/urL9999999999"], store, BASE)
    names += [f"urL{n:010d}" for n in range(there, MAX_LOCKS + 1)]
    require_room_for_locks([], store, BASE)


@pytest.mark.parametrize("root", ["/", "/ledgers", "/cluster/ledgers"])
def test_who_secured_a_store_has_to_name_the_rights(root: str) -> None:
    """Rights of the root, wherever it is, say that somebody secured it; a root that is open gives open ones."""
    store = MemoryStore()
    if root != "/":
        store.write([Write(f"{root}/LAYOUT", b"2\nl")])
    assert choose_acl(store, root) == OPEN_ACL
    store.set_acl(root, "digest:x:y:cdrwa", expected=0)
    with pytest.raises(GuardRefusedError, match="digest:x:y:cdrwa") as refused:
        choose_acl(store, root)
    assert refused.value.subject == root


def test_a_root_that_is_absent_is_as_secured_as_what_is_above_it() -> None:
    """The lowest key above it that is there, and no other, says whether somebody secured it."""
    store = MemoryStore()
    store.write([Write("/top/cluster", b"")])
    store.set_acl("/top", "digest:x:y:cdrwa", expected=0)
    assert choose_acl(store, "/top/cluster/ledgers") == OPEN_ACL
    store.set_acl("/top/cluster", "digest:z:y:cdrwa", expected=0)
    with pytest.raises(GuardRefusedError, match="digest:z:y:cdrwa") as refused:
        choose_acl(store, "/top/cluster/ledgers")
    assert "digest:x" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "root", "replication", "is_refused"),
    [
        ("/idgen", "world:anyone:c", None, False),
        ("/idgen", "world:anyone:rw", None, True),
        ("/idgen", "digest:me:cdrwa", "digest:other:cdrwa", False),
        ("/idgen", "digest:other:cdrwa", "digest:me:cdrwa", True),
        ("/underreplication/locks", "digest:me:cdrwa", "digest:other:cdrwa", True),
        ("/underreplication/locks", "digest:other:cdrwa", "digest:me:cdrwa", False),
        ("/underreplication/locks", "digest:me:cdrwa", None, False),
        ("/underreplication/locks", "digest:other:cdrwa", None, True),
        ("/idgen", None, None, False),
    ],
)
def test_a_node_is_made_by_whoever_may_create_above_it(
    key: str, root: str | None, replication: str | None, *, is_refused: bool
) -> None:
    """Locks below the folder of replication where that is there, all else below the root; none of both: not judged."""
    store = MemoryStore()
    for above, rights in (("", root), ("/underreplication", replication)):
        if rights is not None:
            store.write([Write(BASE + above, b"")])
            store.set_acl(BASE + above, rights, expected=0)
    with pytest.raises(GuardRefusedError, match="CREATE above it") if is_refused else nullcontext():
        require_creation(store, BASE, key, "digest:me")


@pytest.mark.parametrize(
    ("rights", "is_refused"),
    [
        ("digest:me:a", False),
        ("digest:me:cdrw", True),
        ("world:anyone:a", False),
        ("digest:other:cdrwa", True),
        ("digest:me:a,digest:other:x:r", True),
        ("digest:me:a,x509:CN=other:x:r", False),
    ],
)
def test_who_may_change_rights(rights: str, *, is_refused: bool) -> None:
    """Whoever is named with ADMIN, or all are; a store that masks who has which could not be given them back."""
    with pytest.raises(GuardRefusedError, match="ADMIN") if is_refused else nullcontext():
        require_admin(BASE, "/idgen", rights, "digest:me")
    if not rights.endswith("x:r"):
        require_admin(BASE, "/idgen", rights, "digest:super:secret")
