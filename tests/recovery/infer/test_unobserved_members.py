"""Who is named for a position that nothing shows: as a loop over each position names them."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from recovery.infer import facts, unobserved_members
from recovery.infer.shape_fit import LedgerSegments
from recovery.infer.unobserved_members import name_members
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.simulation import simulator
from tests.simulation.simulator import copy_row

NAMES = [f"{name}:3181" for name in "abcdefg"]


def name_by_hand(members: Sequence[int], ledger: int, idle: Sequence[int], absent: Sequence[int]) -> list[int]:
    """Name who knows the ledger, then who was not read or is lost, then others from the ledger's own place on."""
    start = LedgerId(0, ledger).bucket
    others = [(start + n) % len(NAMES) for n in range(len(NAMES))]
    spare = iter([n for n in dict.fromkeys((*sorted(idle), *sorted(absent), *others)) if n not in members])
    return [next(spare) if member < 0 else member for member in members]


@pytest.mark.parametrize("pairs", [1 << 24, 10, 1])
@pytest.mark.parametrize(("unscanned", "lost"), [("", ""), ("g", ""), ("", "b"), ("fg", "af"), ("defg", "")])
def test_positions_that_nothing_shows_are_named_in_order(
    unscanned: str, lost: str, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No bookie twice, and only these positions; whatever the batch, and however much of it is laid out at a time."""
    monkeypatch.setattr(unobserved_members, "_PAIRS", pairs)
    rng = Random(len(unscanned))
    present = [n for n, name in enumerate("abcdefg") if name not in unscanned]
    idle = {ledger: rng.sample(present, rng.choice([0, 0, 1, 2, 3])) for ledger in range(40)}
    rows = [copy_row(ledger, NAMES[n], []) for ledger, own in idle.items() for n in own]
    rows += [copy_row(ledger, NAMES[present[0]], [0]) for ledger, own in idle.items() if present[0] not in own]
    known = facts.read(
        pa.Table.from_pylist(rows, schema=tables.COPIES),
        simulator.bookies([NAMES[n] for n in present]),
        unscanned=[f"{name}:3181" for name in unscanned],
        lost=[f"{name}:3181" for name in lost],
    )
    absent = [n for n, name in enumerate("abcdefg") if name in unscanned or name in lost]
    ledgers = sorted(rng.choices(range(known.count), k=60))
    ensembles = [rng.sample(range(7), rng.randint(1, 5)) for _ in ledgers]
    ensembles = [[n if rng.random() < 0.6 else -1 for n in members] for members in ensembles]
    zero = np.zeros(len(ledgers), np.int64)
    size = np.array([*map(len, ensembles)])
    named, was_named = name_members(
        known, LedgerSegments(np.array(ledgers), zero, zero, size, np.concatenate(ensembles))
    )
    ids = known.ledger.tolist()
    wanted = [
        name_by_hand(members, ids[number], idle[ids[number]], absent)
        for number, members in zip(ledgers, ensembles, strict=True)
    ]
    assert [own.tolist() for own in np.split(named.members, np.cumsum(size)[:-1])] == wanted
    assert was_named.tolist() == (np.concatenate(ensembles) < 0).tolist()
