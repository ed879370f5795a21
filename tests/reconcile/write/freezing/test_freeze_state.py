"""Whether a store is frozen, and the rights of what is made while it is."""

from pathlib import Path

from backends.memory import MemoryStore
from reconcile.write.freezing.freeze_state import KEPT, choose_kept_acl, join_key
from tests.reconcile.write.freezing.test_freeze import OPEN, OURS, ROOT, _cluster, _freeze

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
