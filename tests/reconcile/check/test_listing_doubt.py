"""A listing that leaves something out is not believed: what bookies hold is asked for before it is called absent."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from backends.errors import AccessDeniedError
from backends.protocols import Versioned, Write
from reconcile.check.listing import list_ledgers, require_each
from recovery.codecs import store
from recovery.codecs.store import Layout
from recovery.model.ids import LedgerId
from tests.support.memory_store import MemoryStore

ROOT = "/ledgers"


class Short(MemoryStore):
    """A store whose listings leave out names, and that cannot list some of what it names."""

    left_out: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()

    def children(self, key: str) -> list[str] | None:
        """List, but for what is left out."""
        names = super().children(key)
        if key in self.lost or names is None:
            return None
        return [name for name in names if f"{key}/{name}" not in self.left_out]

    def get(self, key: str) -> Versioned | None:
        """Refuse, or answer."""
        if key in self.denied:
            raise AccessDeniedError(key)
        return super().get(key)

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        """Stop at the first refusal."""
        for key in keys:
            yield key, self.get(key)


@pytest.fixture
def short() -> Short:
    """A store with ledgers 0, 1, 10000, 20000."""
    made = Short()
    for ledger in (0, 1, 10_000, 20_000):
        made.write([Write(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)), b"")])
    return made


def ids(*ledgers: int) -> pa.Table:
    """Return ledgers of scope 0."""
    return pa.table({"scope": pa.array([0] * len(ledgers), pa.int64()), "ledger": pa.array(ledgers, pa.int64())})


def test_a_folder_that_is_named_and_not_there(short: Short) -> None:
    """The rest is listed, all of it, and the listing says that it is not whole."""
    short.lost = frozenset({f"{ROOT}/00/0001"})
    found = list_ledgers(short, ROOT, Layout.HIERARCHICAL)
    assert sorted(found.ids["ledger"].to_pylist()) == [0, 1, 20_000]
    assert (found.complete, found.lost) == (False, ("/00/0001",))


def test_a_folder_that_was_removed_is_no_gap(short: Short) -> None:
    """Where the folder above does not name it any more it is gone, and the listing is whole."""
    listed = short.children
    asked: set[str] = set()

    def children(key: str) -> list[str] | None:
        if key == f"{ROOT}/00/0001" and key not in asked:
            asked.add(key)
            short.left_out = frozenset({key})
            return None
        return listed(key)

    short.children = children  # type: ignore[method-assign]  # removed between two listings
    found = list_ledgers(short, ROOT, Layout.HIERARCHICAL)
    assert found.complete
    assert sorted(found.ids["ledger"].to_pylist()) == [0, 1, 20_000]


def test_ids_are_asked_for_by_key(short: Short) -> None:
    """What is there is there, whatever listings say; what may not be read counts as there; no place is no record."""
    short.left_out = frozenset({f"{ROOT}/00/0001", f"{ROOT}/00/0000/L0001"})
    short.denied = frozenset({ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, 30_000))})
    asked = ids(0, 1, 2, 10_000, 10_001, 30_000, -5)
    there = require_each(short, ROOT, Layout.HIERARCHICAL, asked)
    assert np.flatnonzero(there).tolist() == [0, 1, 3, 5]
    assert require_each(short, ROOT, Layout.HIERARCHICAL, ids()).tolist() == []
