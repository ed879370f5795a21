"""The promises of the store protocols as tests: an adapter subclasses them and gives its store.

In one module because they are read as one list: what a new adapter has to keep.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pytest

from backends.errors import (
    NotEmptyError,
    OutcomeUnknownError,
    TooLargeError,
    UnavailableError,
    VersionConflictError,
)
from backends.protocols import ControlledStore, LiveStore, MetadataStore, WatchableStore, Write
from tests.support.failing_stores import Line


class MetadataStoreContract(ABC):
    """Every promise of `MetadataStore`; give a `store` fixture."""

    CHILDREN_COUNT: ClassVar[bool] = True
    """Whether the creation of any child takes a number of the counter; not on etcd, where a write of the key does."""

    @pytest.fixture
    @abstractmethod
    def store(self) -> MetadataStore:
        """Return an empty store."""

    def test_an_absent_key_is_none(self, store: MetadataStore) -> None:
        """Absence is an answer of its own, not an empty value and not an error."""
        assert store.get("/a") is None
        assert store.children("/a") is None
        assert list(store.get_many(["/a", "/a/b"])) == [("/a", None), ("/a/b", None)]

    def test_a_created_key_holds_its_bytes(self, store: MetadataStore) -> None:
        """The bytes come back as they were given, also none and all kinds."""
        for key, value in {"/empty": b"", "/all": bytes(range(256))}.items():
            [version] = store.write([Write(key, value)])
            node = store.get(key)
            assert node is not None
            assert (node.value, node.version) == (value, version)

    def test_missing_parents_are_made_empty(self, store: MetadataStore) -> None:
        """A key deep below nothing can be created; the keys above it are then there, without a value."""
        store.write([Write("/a/b/c/d", b"x"), Write("/a/b/e", b"y")])
        for parent in ("/a", "/a/b", "/a/b/c"):
            node = store.get(parent)
            assert node is not None
            assert node.value == b""
        assert store.children("/a/b") == ["c", "e"]

    def test_a_parent_of_the_same_batch_is_made_by_it(self, store: MetadataStore) -> None:
        """A key and what is below it come at once, the key with the value that the batch gives it; or none does."""
        store.write([Write("/r", b"root"), Write("/r/a", b"1"), Write("/r/a/b", b"2")])
        node = [store.get(key) for key in ("/r", "/r/a", "/r/a/b")]
        assert [item.value if item else None for item in node] == [b"root", b"1", b"2"]
        with pytest.raises(VersionConflictError):
            store.write([Write("/s", b""), Write("/s/a", b""), Write("/r", b"")])
        assert store.get("/s") is None

    def test_children_are_names_in_order(self, store: MetadataStore) -> None:
        """Only what is directly below, ascending; a key without children has none."""
        store.write([Write(f"/p/{name}", b"") for name in ("b", "a", "c/deep", "B")])
        assert store.children("/p") == ["B", "a", "b", "c"]
        assert store.children("/p/a") == []

    def test_many_keys_come_in_the_given_order(self, store: MetadataStore) -> None:
        """More keys than are ever in flight, absent ones among them, come as they were asked for."""
        for start in range(0, 2_400, 100):
            store.write([Write(f"/many/{n}", b"%d" % n) for n in range(start, start + 100) if n % 7])
        keys = [f"/many/{n}" for n in reversed(range(2_400))]
        nodes = [(key, node.value if node else None) for key, node in store.get_many(keys)]
        assert nodes == [(key, key[6:].encode() if int(key[6:]) % 7 else None) for key in keys]

    def test_a_creation_never_replaces(self, store: MetadataStore) -> None:
        """A key that exists is left as it is, no matter who made it."""
        store.write([Write("/k", b"old")])
        with pytest.raises(VersionConflictError) as refused:
            store.write([Write("/k", b"new")])
        assert refused.value.key == "/k"
        node = store.get("/k")
        assert node is not None
        assert node.value == b"old"

    def test_of_two_writers_one_wins(self, store: MetadataStore) -> None:
        """The second write that names the same version is refused, and changes nothing."""
        [read] = store.write([Write("/k", b"old")])
        [first] = store.write([Write("/k", b"first", read)])
        with pytest.raises(VersionConflictError):
            store.write([Write("/k", b"second", read)])
        node = store.get("/k")
        assert node is not None
        assert (node.value, node.version) == (b"first", first)

    def test_an_absent_key_has_no_version(self, store: MetadataStore) -> None:
        """Neither a change nor a removal of an absent key is taken for done."""
        [version] = store.write([Write("/other", b"")])
        for value in (b"x", None):
            with pytest.raises(VersionConflictError):
                store.write([Write("/k", value, version)])
        assert store.get("/k") is None

    def test_a_removal_needs_the_version(self, store: MetadataStore) -> None:
        """A key is removed at the version that was named, and not at another."""
        [old] = store.write([Write("/k", b"x")])
        [new] = store.write([Write("/k", b"y", old)])
        with pytest.raises(VersionConflictError):
            store.write([Write("/k", None, old)])
        assert store.get("/k") is not None
        assert store.write([Write("/k", None, new)]) == [-1]
        assert store.get("/k") is None

    def test_a_removal_without_a_version_is_a_mistake(self, store: MetadataStore) -> None:
        """Nothing can be removed blindly."""
        with pytest.raises(ValueError, match="version"):
            store.write([Write("/k", None)])

    def test_a_key_with_children_stays(self, store: MetadataStore) -> None:
        """A removal never takes what stands below."""
        store.write([Write("/p/c", b"")])
        node = store.get("/p")
        assert node is not None
        with pytest.raises(NotEmptyError) as refused:
            store.write([Write("/p", None, node.version)])
        assert refused.value.key == "/p"
        assert store.children("/p") == ["c"]

    def test_a_batch_is_whole_or_not_at_all(self, store: MetadataStore) -> None:
        """One failed expectation, named, and nothing of the batch is written."""
        store.write([Write("/b/1", b"there")])
        with pytest.raises(VersionConflictError) as refused:
            store.write([Write("/b/0", b"0"), Write("/b/1", b"1"), Write("/b/2", b"2")])
        assert refused.value.key == "/b/1"
        assert store.children("/b") == ["1"]

    def test_a_batch_answers_in_order(self, store: MetadataStore) -> None:
        """Each change has its version in the answer: creation, change and removal in one transaction."""
        [item, two] = store.write([Write("/b/1", b""), Write("/b/2", b"")])
        made, changed, removed = store.write(
            [Write("/b/3", b"new"), Write("/b/1", b"changed", item), Write("/b/2", None, two)]
        )
        assert removed == -1
        for key, version in (("/b/3", made), ("/b/1", changed)):
            node = store.get(key)
            assert node is not None
            assert node.version == version
        assert store.children("/b") == ["1", "3"]

    def test_no_change_is_no_write(self, store: MetadataStore) -> None:
        """An empty batch is done at once."""
        assert store.write([]) == []

    def test_parents_that_vanished_are_made_again(self, store: MetadataStore) -> None:
        """A parent that was seen once and removed by somebody is no reason to fail."""
        [version] = store.write([Write("/p/c", b"")])
        store.write([Write("/p/c", None, version)])
        node = store.get("/p")
        assert node is not None
        store.write([Write("/p", None, node.version)])
        store.write([Write("/p/d", b"")])
        assert store.children("/p") == ["d"]

    def test_too_much_for_a_transaction_is_refused_by_name(self, store: MetadataStore) -> None:
        """What the store cannot take never reaches it, and the connection goes on."""
        with pytest.raises(TooLargeError) as refused:
            store.write([Write("/small", b""), Write("/large", bytes(2_000_000))])
        assert refused.value.key == "/large"
        assert store.get("/small") is None

    def test_a_counter_is_raised_beyond(self, store: MetadataStore) -> None:
        """The next sequential child is numbered above the given number, also across transactions; no child stays."""
        assert store.raise_counter("/gen/ids", 4_711) == 4_712
        node = store.get("/gen/ids")
        assert node is not None
        assert node.children_created == 4_712
        assert store.children("/gen/ids") == []

    def test_a_counter_is_never_lowered(self, store: MetadataStore) -> None:
        """Raised again to less it stays, and raised to the same nothing is spent."""
        store.raise_counter("/gen", 100)
        assert store.raise_counter("/gen", 7) == 101
        assert store.raise_counter("/gen", 100) == 101
        assert store.raise_counter("/gen", 101) == 102

    def test_a_counter_counts_every_creation(self, store: MetadataStore) -> None:
        """Children count when they are created, whatever becomes of them; or none ever does."""
        store.write([Write("/gen", b"")])
        previous = store.get("/gen")
        assert previous is not None
        versions = store.write([Write(f"/gen/{n}", b"") for n in range(3)])
        store.write([Write("/gen/0", None, versions[0])])
        node = store.get("/gen")
        assert node is not None
        reached = (previous.children_created or 0) + (3 if self.CHILDREN_COUNT else 0)
        assert node.children_created in (reached, None)
        assert store.raise_counter("/gen", 0) == reached

    def test_rights_come_back_as_text(self, store: MetadataStore) -> None:
        """A key that was created with an ACL has it, and its new parents too; a pipelined read leaves it out."""
        store.write([Write("/s/k", b"", acl="world:anyone:cdrwa,digest:bob:aGFzaA==:r"), Write("/open", b"")])
        for key in ("/s/k", "/s"):
            node = store.get(key)
            assert node is not None
            assert node.acl in ("world:anyone:cdrwa,digest:bob:aGFzaA==:r", None)
        node = store.get("/open")
        assert node is not None
        assert node.acl in ("world:anyone:cdrwa", None)
        assert all(node is not None and node.acl is None for _, node in store.get_many(["/s/k", "/open"]))

    def test_after_close_nothing_answers(self, store: MetadataStore) -> None:
        """A closed store says so, in its own error."""
        store.close()
        with pytest.raises(UnavailableError):
            store.get("/k")
        with pytest.raises(UnavailableError):
            store.write([Write("/k", b"")])


class AccessControlContract(ABC):
    """Every promise of `AccessControl`; give a `store` fixture. Rights here leave anyone everything, so none refuse."""

    OPEN = "world:anyone:cdrwa"
    MORE = "world:anyone:cdrwa,digest:bob:aGFzaA==:r"

    @pytest.fixture
    @abstractmethod
    def store(self) -> ControlledStore:
        """Return an empty store."""

    def test_an_absent_key_has_no_rights(self, store: ControlledStore) -> None:
        """Absence is an answer of its own, and no ACL can be given to what is not there."""
        assert store.get_acl("/a") is None
        with pytest.raises(VersionConflictError):
            store.set_acl("/a", self.OPEN, expected=0)
        assert store.get("/a") is None

    def test_rights_are_replaced_and_nothing_else(self, store: ControlledStore) -> None:
        """A new ACL comes back as it was given; the value, its version and what stands below stay."""
        [version] = store.write([Write("/k", b"value")])
        store.write([Write("/k/below", b"")])
        previous = store.get_acl("/k")
        assert previous is not None
        assert previous.text == self.OPEN
        following = store.set_acl("/k", self.MORE, expected=previous.version)
        acl, node = store.get_acl("/k"), store.get("/k")
        assert acl is not None
        assert node is not None
        assert (acl.text, acl.version, node.acl) == (self.MORE, following, self.MORE)
        assert (node.value, node.version, store.children("/k")) == (b"value", version, ["below"])
        below = store.get_acl("/k/below")
        assert below is not None
        assert below.text == self.OPEN

    def test_of_two_changes_of_rights_one_wins(self, store: ControlledStore) -> None:
        """The second change that names the same version is refused, and changes nothing."""
        store.write([Write("/k", b"")])
        previous = store.get_acl("/k")
        assert previous is not None
        store.set_acl("/k", self.MORE, expected=previous.version)
        with pytest.raises(VersionConflictError) as refused:
            store.set_acl("/k", self.OPEN, expected=previous.version)
        assert refused.value.key == "/k"
        acl = store.get_acl("/k")
        assert acl is not None
        assert acl.text == self.MORE

    def test_a_changed_value_leaves_the_version_of_the_rights(self, store: ControlledStore) -> None:
        """An ACL read before a change of the value can be replaced after it."""
        [version] = store.write([Write("/k", b"old")])
        previous = store.get_acl("/k")
        assert previous is not None
        store.write([Write("/k", b"new", version)])
        store.set_acl("/k", self.MORE, expected=previous.version)
        node = store.get("/k")
        assert node is not None
        assert (node.value, node.acl) == (b"new", self.MORE)

    def test_what_is_no_right_is_a_mistake_of_the_caller(self, store: ControlledStore) -> None:
        """Text that is no ACL never reaches the store."""
        store.write([Write("/k", b"")])
        with pytest.raises(ValueError, match="scheme:id:perms"):
            store.set_acl("/k", "nonsense", expected=0)
        node = store.get("/k")
        assert node is not None
        assert node.acl == self.OPEN

    def test_after_close_no_rights_are_told(self, store: ControlledStore) -> None:
        """A closed store says so, in its own error."""
        store.close()
        with pytest.raises(UnavailableError):
            store.get_acl("/k")
        with pytest.raises(UnavailableError):
            store.set_acl("/k", self.OPEN, expected=0)


class WatchableStoreContract(ABC):
    """Every promise of `WatchableStore`; give a `store` fixture."""

    @pytest.fixture
    @abstractmethod
    def store(self) -> WatchableStore:
        """Return an empty store."""

    def test_names_are_yielded_each_time_that_they_change(self, store: WatchableStore) -> None:
        """Of keys that are absent, too; values that change are no names; every watch is set again."""
        keys = ["/watched/one", "/watched/two"]
        watched = store.watch_names(keys)
        assert next(watched) == frozenset()
        [version] = store.write([Write("/watched/one/a", b"1")])
        assert next(watched) == {"/watched/one/a"}
        store.write([Write("/watched/one/a", b"2", version)])
        store.write([Write("/watched/two/b", b"1")])
        assert next(watched) == {"/watched/one/a", "/watched/two/b"}
        held = store.get("/watched/one/a")
        assert held is not None
        store.write([Write("/watched/one/a", None, held.version)])
        assert next(watched) == {"/watched/two/b"}


class LiveStoreContract(ABC):
    """Every promise of `LiveStore`; give a `store` fixture."""

    @pytest.fixture
    @abstractmethod
    def store(self) -> LiveStore:
        """Return an empty store."""

    def test_transactions_are_numbered(self, store: LiveStore) -> None:
        """What was written lies between the numbers from before and from after it; reading, once begun, moves none."""
        previous = store.latest_txn()
        store.write([Write("/k", b"")])
        list(store.get_acls(["/k"]))  # may open a session, which some stores count
        following = store.latest_txn()
        node = store.get("/k")
        assert node is not None
        assert node.created_txn is not None
        assert previous < node.created_txn <= following
        list(store.get_many(["/k"]))
        list(store.get_acls(["/k"]))
        store.children("/k")
        assert store.latest_txn() == following

    def test_a_change_among_children_shows_in_the_parent(self, store: LiveStore) -> None:
        """Every creation and removal of a child moves its number, a change of a child's value does not."""
        [item] = store.write([Write("/p/1", b"")])
        seen = [self._children_txn(store)]
        store.write([Write("/p/2", b"")])
        seen.append(self._children_txn(store))
        store.write([Write("/p/1", b"changed", item)])
        assert self._children_txn(store) == seen[-1]
        store.write([Write("/p/2", None, 0)])
        seen.append(self._children_txn(store))
        assert seen == sorted(set(seen))

    @staticmethod
    def _children_txn(store: LiveStore) -> int:
        node = store.get("/p")
        [(_, read)] = store.get_many(["/p"])
        assert node is not None
        assert read is not None
        assert node.children_txn == read.children_txn
        assert node.children_txn is not None
        return node.children_txn

    def test_rights_of_many_come_in_the_given_order(self, store: LiveStore) -> None:
        """More keys than are ever in flight, absent ones among them, with different rights."""
        rest = "world:anyone:cdrwa,digest:bob:aGFzaA==:r"
        for start in range(0, 2_400, 100):
            store.write(
                [Write(f"/r/{n}", b"", acl=rest if n % 3 else None) for n in range(start, start + 100) if n % 7]
            )
        keys = [f"/r/{n}" for n in reversed(range(2_400))]
        acls = [(key, acl and acl.text) for key, acl in store.get_acls(keys)]
        expected = [None if not n % 7 else rest if n % 3 else "world:anyone:cdrwa" for n in reversed(range(2_400))]
        assert acls == list(zip(keys, expected, strict=True))
        # A read that is not ended spoils nothing for the next one.
        begun = store.get_acls(keys)
        assert next(iter(begun))[0] == keys[0]
        del begun
        assert [(key, acl and acl.text) for key, acl in store.get_acls(keys[1:])] == acls[1:]


@dataclass(frozen=True, slots=True)
class Troubled:
    """A store whose line to its server can be troubled.

    Attributes:
        store: on the line; its reads are tried again for at least 60 s.
        line: to be cut, slowed, split.
        other: another client of the same keys, straight to the server.
        impatient: on the line, too; gives up within seconds.
        expire: has the server forget the session of `store`; does nothing where there are no sessions.
    """

    store: MetadataStore
    line: Line
    other: MetadataStore
    impatient: MetadataStore
    expire: Callable[[], None] = lambda: None


class FaultContract(ABC):
    """What a store promises while its connection is cut, slow, or answers in pieces; give a `troubled` fixture."""

    KEYS = 2_400

    @pytest.fixture
    @abstractmethod
    def troubled(self) -> Troubled:
        """Return an empty store on a line."""

    def filled(self, troubled: Troubled) -> list[str]:
        """Return keys that hold their own number, every seventh of them absent."""
        for start in range(0, self.KEYS, 100):
            troubled.other.write([Write(f"/many/{n}", b"%d" % n) for n in range(start, start + 100) if n % 7])
        return [f"/many/{n}" for n in range(self.KEYS)]

    def require_all(self, store: MetadataStore, keys: list[str]) -> None:
        """Check that a pipelined read and a listing give what `filled` made."""
        nodes = [(key, node.value if node else None) for key, node in store.get_many(keys)]
        assert nodes == [(key, key[6:].encode() if int(key[6:]) % 7 else None) for key in keys]
        assert store.children("/many") == sorted(key[6:] for key in keys if int(key[6:]) % 7)
        if isinstance(store, LiveStore):
            acl = [(key, node is not None) for key, node in store.get_acls(keys)]
            assert acl == [(key, bool(int(key[6:]) % 7)) for key in keys]

    def test_a_creation_that_never_arrived(self, troubled: Troubled) -> None:
        """Its outcome is said to be unknown; nothing was made, not even later, and it can be made again."""
        troubled.store.write([Write("/k/0", b"")])
        troubled.line.cut_before(b"never-arrives")
        with pytest.raises(OutcomeUnknownError):
            troubled.store.write([Write("/k/1", b"never-arrives")])
        assert troubled.store.get("/k/1") is None
        assert troubled.store.children("/k") == ["0"]
        troubled.store.write([Write("/k/1", b"arrives")])
        node = troubled.other.get("/k/1")
        assert node is not None
        assert node.value == b"arrives"

    def test_a_creation_whose_answer_was_lost(self, troubled: Troubled) -> None:
        """It was made once, the same store sees it at once, and making it again is a conflict, not a second one."""
        troubled.line.cut_after(b"answer-lost", lambda: troubled.other.get("/k/1") is not None)
        with pytest.raises(OutcomeUnknownError):
            troubled.store.write([Write("/k/1", b"answer-lost")])
        node, seen = troubled.store.get("/k/1"), troubled.other.get("/k/1")
        assert node is not None
        assert seen is not None
        assert (node.value, node.version) == (b"answer-lost", seen.version)
        with pytest.raises(VersionConflictError):
            troubled.store.write([Write("/k/1", b"again")])

    def test_a_change_whose_answer_was_lost(self, troubled: Troubled) -> None:
        """It is not tried again behind the caller's back: what somebody else wrote since stays."""
        [version] = troubled.store.write([Write("/k", b"first")])

        def is_replaced() -> bool:
            node = troubled.other.get("/k")
            assert node is not None
            if node.value != b"second-lost":
                return node.value == b"third"
            troubled.other.write([Write("/k", b"third", node.version)])
            return True

        troubled.line.cut_after(b"second-lost", is_replaced)
        with pytest.raises(OutcomeUnknownError):
            troubled.store.write([Write("/k", b"second-lost", version)])
        node = troubled.store.get("/k")
        assert node is not None
        assert node.value == b"third"
        with pytest.raises(VersionConflictError):
            troubled.store.write([Write("/k", b"second-lost", version)])

    def test_a_batch_that_was_cut_is_whole_or_not_at_all(self, troubled: Troubled) -> None:
        """Creation, change and removal in one transaction: before the cut none of them, after it all."""
        [item, two] = troubled.store.write([Write("/b/1", b"old"), Write("/b/2", b"old")])
        batch = [Write("/b/3", b"batch-cut"), Write("/b/1", b"new", item), Write("/b/2", None, two)]
        troubled.line.cut_before(b"batch-cut")
        with pytest.raises(OutcomeUnknownError):
            troubled.store.write(batch)
        assert troubled.store.children("/b") == ["1", "2"]
        troubled.line.cut_after(b"batch-cut", lambda: troubled.other.get("/b/3") is not None)
        with pytest.raises(OutcomeUnknownError):
            troubled.store.write(batch)
        assert troubled.store.children("/b") == ["1", "3"]
        node = troubled.store.get("/b/1")
        assert node is not None
        assert node.value == b"new"

    def test_a_removal_whose_answer_was_lost(self, troubled: Troubled) -> None:
        """The key is gone; removing it again is a conflict."""
        [version, _] = troubled.store.write([Write("/gone-or-not", b"x"), Write("/stays", b"x")])
        troubled.line.cut_after(b"gone-or-not", lambda: troubled.other.get("/gone-or-not") is None)
        with pytest.raises(OutcomeUnknownError):
            troubled.store.write([Write("/gone-or-not", None, version)])
        assert troubled.store.get("/gone-or-not") is None
        with pytest.raises(VersionConflictError):
            troubled.store.write([Write("/gone-or-not", None, version)])

    @pytest.mark.parametrize("sizes", [[0, 1, 7], [100, 4_096, 50_000], [3, 20_000, 20_000, 20_000]])
    def test_reads_go_on_where_answers_were_cut(self, troubled: Troubled, sizes: list[int]) -> None:
        """Connections that end within answers, at any byte, cost no key and give none twice or wrong."""
        keys = self.filled(troubled)
        troubled.line.cut_answers(sizes)
        self.require_all(troubled.store, keys)

    def test_a_read_under_way_outlives_its_connection(self, troubled: Troubled) -> None:
        """A pipelined read that was begun before a cut goes on after it where it was."""
        keys = self.filled(troubled)
        under_way = troubled.store.get_many(keys)
        nodes = [next(under_way) for _ in range(50)]
        troubled.line.cut_answers([0])
        nodes += under_way
        assert [key for key, _ in nodes] == keys
        assert [node is not None for _, node in nodes] == [bool(n % 7) for n in range(self.KEYS)]

    @pytest.mark.parametrize(("size", "pause_s"), [(1, 0.0), (7, 0.0), (10_000, 0.02)])
    def test_answers_in_pieces_are_whole(self, troubled: Troubled, size: int, pause_s: float) -> None:
        """How answers are cut into packets, and how slowly those arrive, changes nothing."""
        troubled.store.children("/")
        keys = self.filled(troubled)[:: 20 if size == 1 else 1]
        troubled.line.split_answers(size, pause_s)
        nodes = [(key, node.value if node else None) for key, node in troubled.store.get_many(keys)]
        assert nodes == [(key, key[6:].encode() if int(key[6:]) % 7 else None) for key in keys]
        [version] = troubled.store.write([Write("/w", b"x")])
        node = troubled.store.get("/w")
        assert node is not None
        assert node.version == version

    def test_a_session_that_the_server_forgot(self, troubled: Troubled) -> None:
        """Reads go on, a read under way too; a write says that it cannot tell, or is made; the next one is made."""
        keys = self.filled(troubled)
        under_way = troubled.store.get_many(keys)
        nodes = [next(under_way)]
        troubled.expire()
        nodes += under_way
        assert [key for key, _ in nodes] == keys
        self.require_all(troubled.store, keys)
        troubled.expire()
        try:
            troubled.store.write([Write("/after", b"1")])
        except UnavailableError:
            node = troubled.store.get("/after")
            troubled.store.write([Write("/after", b"1", None if node is None else node.version)])
        node = troubled.other.get("/after")
        assert node is not None
        assert node.value == b"1"

    def test_a_counter_is_raised_over_a_cut(self, troubled: Troubled) -> None:
        """It ends beyond what was asked for, and never lower than it was."""
        troubled.store.raise_counter("/gen", 10)
        troubled.line.cut_answers([0, 2_000])
        assert troubled.store.raise_counter("/gen", 2_000) >= 2_001
        repeated = troubled.other.raise_counter("/gen", 0)
        assert repeated >= 2_001

    def test_a_server_that_was_away(self, troubled: Troubled) -> None:
        """While nobody can be reached a write says so; reads work as soon as somebody can be."""
        keys = self.filled(troubled)
        troubled.line.down()
        with pytest.raises(UnavailableError):
            troubled.impatient.write([Write("/k", b"")])
        assert troubled.other.get("/k") is None
        troubled.line.up()
        self.require_all(troubled.store, keys)
