"""Disks are gone or damaged, and all records: what the Java client reads by the program's records, and the true ones.

    known                                          entries that the true records read on these disks, and ours do
    nothing; bookies collect, replication works    95 of 100, or more; 99 where only last entries are ragged
    what is gone is stated to be lost              99
    the store's complete files                     all

None is lost, wrong or invented, and no bookie deletes a copy that a true record names and that it could serve, but one
too many, and one that auto-recovery moved. Nothing is held.
"""

import json
import os
import shutil
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

import pytest
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from tests.support.cluster import ClientHangsError
from tests.support.disk_losses import STORAGES, Damage, Known, Losses, Reached, list_damages, write_history

pytestmark = pytest.mark.real

SEEDS: Final = int(os.environ.get("BKMETA_SOAK_DISKS", "0"))
"""So many clusters of each storage, with every damage; 0: the cases below."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is damaged of a cluster, and what else is known."""

    storage: str
    seed: int
    damage: Damage
    known: tuple[Known, ...] = tuple(Known)

    def __str__(self) -> str:
        return f"{self.storage}-{self.seed}-{self.damage.name.lower()}"


CASES: Final = (
    Case("db", 1, Damage.BOTH, (Known.NOTHING,)),
    Case("db", 1, Damage.LOCATIONS, (Known.LOST,)),
    Case("db", 1, Damage.LEDGERS, (Known.LOST,)),
    Case("db", 1, Damage.TAILS, (Known.NOTHING,)),
)
EVERY: Final = tuple(
    Case(storage, seed, damage)
    for seed, storage in product(range(1, SEEDS + 1), STORAGES)
    for damage in list_damages(storage)
)


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for clusters that lived, each written when it is first asked for."""
    return tmp_path_factory.mktemp("lived")


def demanded_share(damage: Damage, known: Known) -> float:
    """Return which share of the entries has to be read."""
    if known is Known.STORE:
        return 1.0
    return 0.99 if known is Known.LOST or damage is Damage.TAILS else 0.95


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=str(case), marks=pytest.mark.xdist_group(case.storage)) for case in EVERY or CASES],
)
def test_what_is_readable_on_damaged_disks(case: Case, lived: Path, tmp_path: Path) -> None:
    """As much as the table above says is read; no copy goes, and what is not read is kept."""
    home = lived / f"{case.storage}-{case.seed}"
    told = home.with_suffix(".json")
    if not told.exists():
        trying = Retrying(retry=retry_if_exception_type(ClientHangsError), stop=stop_after_attempt(3), reraise=True)
        told.write_text(json.dumps(trying(lambda: _write(home, case))))
    with Losses(home, json.loads(told.read_text()), case.damage, case.seed, tmp_path / "losses") as losses:
        assert losses.total > 100
        for known in case.known:
            found = losses.recover(known)
            sys.stdout.write(_describe(case, known, found))
            assert found.lost == {}
            assert (found.wrong, found.invented, found.deleted) == (set(), set(), set())
            assert found.held == {}
            assert found.reached >= demanded_share(case.damage, known) * losses.total, found.find_short()


def _write(home: Path, case: Case) -> dict[str, object]:
    shutil.rmtree(home, ignore_errors=True)
    return write_history(home, case.storage, case.seed)


def _describe(case: Case, known: Known, found: Reached) -> str:
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(Counter(found.outcomes.values()).items()))
    places = f"without an index {len(found.unindexed)}, too many {len(found.surplus)}, moved {len(found.moved)}"
    return f"{case}, {known}: {found.reached} of {found.total} entries; ledgers: {outcomes}; copies deleted: {places}\n"
