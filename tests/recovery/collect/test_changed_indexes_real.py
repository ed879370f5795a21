"""Collections of real bookies from earlier ones: told an explicit LAC, fenced, compacted, formatted anew."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from recovery.dataset import open_dataset
from tests.recovery.collect.test_incremental_real import PROPS, ROOT, STORAGES, Bookies
from tests.support.cluster import encoded

pytestmark = pytest.mark.real

MORE: Final = {
    **PROPS,
    "allowStorageExpansion": "true",
    "majorCompactionInterval": "3",
    "majorCompactionThreshold": "0.8",
}


class Changing(Bookies):
    """They take more folders, and compact logs of which less than 80 % is in use."""

    def start(self) -> None:
        """Start all."""
        self.bookies = [replace(bookie, props=MORE) for bookie in self.bookies]
        super().start()


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bookies]:
    """Three running bookies."""
    made = Changing(tmp_path_factory.mktemp("changes"))
    with made.cluster:
        yield made


def test_fences_whole_compactions_more_folders_and_formats(bookies: Bookies) -> None:
    """Each collection says what a whole one does; of a bookie formatted anew nothing is taken over."""
    every = range(len(STORAGES))
    bookies.write(10, size=3000)
    ids = [bookie.id for bookie in bookies.bookies]
    shape = {"E": 3, "W": 3, "A": 3, "members": ids, "explicit": True}
    left = bookies.cluster("create", **shape, digest="CRC32C", password=encoded(b""), custom={})
    for last in (4, 9):
        bookies.cluster("add", ledger=left, sizes=[100] * 5, ids=None)
        bookies.cluster("told", ledger=left, lac=last, bookies=ids)
        bookies.stop()
        for n in every:
            row = stored(bookies, n, left)
            assert (row["explicit_lac"], row["fenced"]) == (last, False)
        bookies.start()

    # A reader closes what its writer left, and so fences it; most of what was written is deleted and compacted away.
    bookies.cluster("recover", ledger=left, digest="CRC32C", password=encoded(b""))
    bookies.delete(7)
    bookies.stop()
    for n in every:
        assert stored(bookies, n, left)["fenced"]

    for n in every:
        bookie = bookies.bookies[n]
        bookies.bookies[n] = replace(bookie, ledgers=[*bookie.ledgers, f"b{n}/more"])
    bookies.start()
    bookies.write(4)
    bookies.stop()
    for n in every:
        seen = bookies.collected(n)
        assert seen.reused is not None
        assert ("cookie changed" if STORAGES[n] != "db" else "databases") in seen.reused.reason
        assert not seen.missing

    # The same ids of logs and journals, and other entries in them.
    for bookie in bookies.bookies:
        shutil.rmtree(bookies.work / "home" / f"b{bookie.n}")
    bookies.cluster("zk_wipe", paths=[f"{ROOT}/cookies/{bookie.id}" for bookie in bookies.bookies])
    bookies.start()
    bookies.write(3)
    bookies.stop()
    for n in every:
        seen = bookies.collected(n)
        assert seen.reused is not None
        assert (seen.reused.ledgers, seen.reused.files) == (0, 0)
        assert seen.complete
        assert bookies.collected(n).bytes_read == 0


def stored(bookies: Bookies, n: int, ledger: int) -> dict[str, Any]:
    """What a bookie's collection from the one before says of a ledger."""
    bookies.collected(n)
    rows = open_dataset(bookies.earlier[n], "inventory").read("copies").to_pylist()
    return next(row for row in rows if row["ledger"] == ledger)
