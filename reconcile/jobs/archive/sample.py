"""Some of the ledgers that archive marks name, read back from the places of these marks: `delete verify`.

a mark that is drawn               is
of an archive of ours              read back: every entry, digest and hash, and the mark's checksum compared
of another application's copy      passed over: nothing here can read it
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from reconcile.deletes.records import ArchiveMark
from recovery.archive.reader import find_ledger, prove_ledger, read_about
from recovery.errors import DatasetError, InputError
from recovery.model.ids import LedgerId
from recovery.place import to_place


@dataclass(slots=True)
class ArchiveSample:
    """What came of it.

    Attributes:
        proven: ledgers that were read back whole.
        bad: those that were not, each with what is wrong.
        unread: those whose place could not be read, each with why.
    """

    proven: int = 0
    bad: dict[LedgerId, str] = field(default_factory=dict)
    unread: dict[LedgerId, str] = field(default_factory=dict)


def prove_sample(marks: Mapping[LedgerId, ArchiveMark], count: int) -> ArchiveSample:
    """Read so many ledgers back, drawn anew from those whose mark is of an archive of ours."""
    sample = ArchiveSample()
    is_ours: dict[str, bool | str] = {}
    drawn = np.random.default_rng(secrets.randbits(64)).permutation(len(marks))
    named = list(marks.values())
    for mark in (named[number] for number in drawn.tolist()):
        if sample.proven + len(sample.bad) + len(sample.unread) >= count:
            break
        if mark.place not in is_ours:
            is_ours[mark.place] = _is_ours(mark.place)
        known = is_ours[mark.place]
        if isinstance(known, str):
            sample.unread[mark.ledger] = known
        elif known:
            _prove(mark, sample)
    return sample


def _is_ours(place: str) -> bool | str:
    """Whether an archive of ours is at a place; or why that cannot be seen."""
    try:
        return bool(place) and read_about(to_place(place)) is not None
    except (DatasetError, InputError) as error:
        return str(error)


def _prove(mark: ArchiveMark, sample: ArchiveSample) -> None:
    place = to_place(mark.place)
    try:
        ledger = find_ledger(place, mark.ledger)
    except DatasetError as error:
        sample.unread[mark.ledger] = str(error)
        return
    if ledger is None:
        sample.bad[mark.ledger] = f"{place} does not have it"
        return
    problem = prove_ledger(place, ledger).problem
    if not problem and mark.checksum and mark.checksum != f"sha256:{ledger.sha256}":
        problem = "the checksum of its mark is of other bytes"
    if problem:
        sample.bad[mark.ledger] = problem
    else:
        sample.proven += 1
