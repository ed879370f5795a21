"""The promises of the store protocols as tests: an adapter subclasses them and gives its store."""

from abc import ABC, abstractmethod

import pytest

from backends.errors import NotEmptyError, TooLargeError, UnavailableError, VersionConflictError
from backends.protocols import ControlledStore, MetadataStore, Write


class MetadataStoreContract(ABC):
    """Every promise of `MetadataStore`; give a `store` fixture."""

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
            held = store.get(key)
            assert held is not None
            assert (held.value, held.version) == (value, version)

    def test_missing_parents_are_made_empty(self, store: MetadataStore) -> None:
        """A key deep below nothing can be created; the keys above it are then there, without a value."""
        store.write([Write("/a/b/c/d", b"x"), Write("/a/b/e", b"y")])
        for parent in ("/a", "/a/b", "/a/b/c"):
            held = store.get(parent)
            assert held is not None
            assert held.value == b""
        assert store.children("/a/b") == ["c", "e"]

    def test_a_parent_of_the_same_batch_is_made_by_it(self, store: MetadataStore) -> None:
        """A key and what is below it come at once, the key with the value that the batch gives it; or none does."""
        store.write([Write("/r", b"root"), Write("/r/a", b"1"), Write("/r/a/b", b"2")])
        held = [store.get(key) for key in ("/r", "/r/a", "/r/a/b")]
        assert [one.value if one else None for one in held] == [b"root", b"1", b"2"]
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
        for at in range(0, 2_400, 100):
            store.write([Write(f"/many/{n}", b"%d" % n) for n in range(at, at + 100) if n % 7])
        keys = [f"/many/{n}" for n in reversed(range(2_400))]
        found = [(key, held.value if held else None) for key, held in store.get_many(keys)]
        assert found == [(key, key[6:].encode() if int(key[6:]) % 7 else None) for key in keys]

    def test_a_creation_never_replaces(self, store: MetadataStore) -> None:
        """A key that exists is left as it is, whoever made it."""
        store.write([Write("/k", b"old")])
        with pytest.raises(VersionConflictError) as refused:
            store.write([Write("/k", b"new")])
        assert refused.value.key == "/k"
        held = store.get("/k")
        assert held is not None
        assert held.value == b"old"

    def test_of_two_writers_one_wins(self, store: MetadataStore) -> None:
        """The second write that names the same version is refused, and changes nothing."""
        [read] = store.write([Write("/k", b"old")])
        [first] = store.write([Write("/k", b"first", read)])
        with pytest.raises(VersionConflictError):
            store.write([Write("/k", b"second", read)])
        held = store.get("/k")
        assert held is not None
        assert (held.value, held.version) == (b"first", first)

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
        held = store.get("/p")
        assert held is not None
        with pytest.raises(NotEmptyError) as refused:
            store.write([Write("/p", None, held.version)])
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
        [one, two] = store.write([Write("/b/1", b""), Write("/b/2", b"")])
        made, changed, removed = store.write(
            [Write("/b/3", b"new"), Write("/b/1", b"changed", one), Write("/b/2", None, two)]
        )
        assert removed == -1
        for key, version in (("/b/3", made), ("/b/1", changed)):
            held = store.get(key)
            assert held is not None
            assert held.version == version
        assert store.children("/b") == ["1", "3"]

    def test_no_change_is_no_write(self, store: MetadataStore) -> None:
        """An empty batch is done at once."""
        assert store.write([]) == []

    def test_parents_that_vanished_are_made_again(self, store: MetadataStore) -> None:
        """A parent that was seen once and removed by somebody is no reason to fail."""
        [version] = store.write([Write("/p/c", b"")])
        store.write([Write("/p/c", None, version)])
        held = store.get("/p")
        assert held is not None
        store.write([Write("/p", None, held.version)])
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
        held = store.get("/gen/ids")
        assert held is not None
        assert held.children_created == 4_712
        assert store.children("/gen/ids") == []

    def test_a_counter_is_never_lowered(self, store: MetadataStore) -> None:
        """Raised again to less it stays, and raised to the same nothing is spent."""
        store.raise_counter("/gen", 100)
        assert store.raise_counter("/gen", 7) == 101
        assert store.raise_counter("/gen", 100) == 101
        assert store.raise_counter("/gen", 101) == 102

    def test_a_counter_counts_every_creation(self, store: MetadataStore) -> None:
        """Children count when they are created, whatever becomes of them."""
        versions = store.write([Write(f"/gen/{n}", b"") for n in range(3)])
        store.write([Write("/gen/0", None, versions[0])])
        held = store.get("/gen")
        assert held is not None
        assert held.children_created in (3, None)
        assert store.raise_counter("/gen", 0) == 3

    def test_rights_come_back_as_text(self, store: MetadataStore) -> None:
        """A key that was created with rights has them, and its new parents too; a pipelined read leaves them out."""
        store.write([Write("/s/k", b"", acl="world:anyone:cdrwa,digest:bob:aGFzaA==:r"), Write("/open", b"")])
        for key in ("/s/k", "/s"):
            held = store.get(key)
            assert held is not None
            assert held.acl in ("world:anyone:cdrwa,digest:bob:aGFzaA==:r", None)
        held = store.get("/open")
        assert held is not None
        assert held.acl in ("world:anyone:cdrwa", None)
        assert all(held is not None and held.acl is None for _, held in store.get_many(["/s/k", "/open"]))

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
        """Absence is an answer of its own, and no rights can be given to what is not there."""
        assert store.get_acl("/a") is None
        with pytest.raises(VersionConflictError):
            store.set_acl("/a", self.OPEN, expected=0)
        assert store.get("/a") is None

    def test_rights_are_replaced_and_nothing_else(self, store: ControlledStore) -> None:
        """New rights come back as they were given; the value, its version and what stands below stay."""
        [version] = store.write([Write("/k", b"value")])
        store.write([Write("/k/below", b"")])
        before = store.get_acl("/k")
        assert before is not None
        assert before.acl == self.OPEN
        after = store.set_acl("/k", self.MORE, expected=before.version)
        rights, held = store.get_acl("/k"), store.get("/k")
        assert rights is not None
        assert held is not None
        assert (rights.acl, rights.version, held.acl) == (self.MORE, after, self.MORE)
        assert (held.value, held.version, store.children("/k")) == (b"value", version, ["below"])
        below = store.get_acl("/k/below")
        assert below is not None
        assert below.acl == self.OPEN

    def test_of_two_changes_of_rights_one_wins(self, store: ControlledStore) -> None:
        """The second change that names the same version is refused, and changes nothing."""
        store.write([Write("/k", b"")])
        before = store.get_acl("/k")
        assert before is not None
        store.set_acl("/k", self.MORE, expected=before.version)
        with pytest.raises(VersionConflictError) as refused:
            store.set_acl("/k", self.OPEN, expected=before.version)
        assert refused.value.key == "/k"
        rights = store.get_acl("/k")
        assert rights is not None
        assert rights.acl == self.MORE

    def test_a_changed_value_leaves_the_version_of_the_rights(self, store: ControlledStore) -> None:
        """Rights read before a change of the value can be replaced after it."""
        [version] = store.write([Write("/k", b"old")])
        before = store.get_acl("/k")
        assert before is not None
        store.write([Write("/k", b"new", version)])
        store.set_acl("/k", self.MORE, expected=before.version)
        held = store.get("/k")
        assert held is not None
        assert (held.value, held.acl) == (b"new", self.MORE)

    def test_what_is_no_right_is_a_mistake_of_the_caller(self, store: ControlledStore) -> None:
        """Text that is not rights never reaches the store."""
        store.write([Write("/k", b"")])
        with pytest.raises(ValueError, match="scheme:id:perms"):
            store.set_acl("/k", "nonsense", expected=0)
        held = store.get("/k")
        assert held is not None
        assert held.acl == self.OPEN

    def test_after_close_no_rights_are_told(self, store: ControlledStore) -> None:
        """A closed store says so, in its own error."""
        store.close()
        with pytest.raises(UnavailableError):
            store.get_acl("/k")
        with pytest.raises(UnavailableError):
            store.set_acl("/k", self.OPEN, expected=0)
