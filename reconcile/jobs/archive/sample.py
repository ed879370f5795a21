"""Some of the ledgers that archive marks name, read back from the places of these marks: `delete verify`.

a mark that is drawn               is
of an archive of ours              read back: every entry, digest and hash; the mark's checksum and the ledger's record
                                   in the store compared: a copy of another end or history is none of this ledger
of a place where nothing is        not read: an archive that is gone is no other application's copy
of another application's copy      passed over: nothing here can read it
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from reconcile.deletes.records import ArchiveMark
from recovery.archive.objects import ARCHIVE_FILE, RUNS, list_names
from recovery.archive.reader import find_ledger, prove_ledger, read_about, unreadable
from recovery.errors import DatasetError, InputError
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerMetadata
from recovery.place import DatasetPlace, to_place

_COPY_AGAIN: Final = "remove the ledger's mark (bkmeta archive unmark), and archive it again, into another place"
_IDENTITY: Final = ("last_entry", "length", "digest", "ctime", "password")


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


def prove_sample(
    marks: Mapping[LedgerId, ArchiveMark], records: Mapping[LedgerId, LedgerMetadata], count: int
) -> ArchiveSample:
    """Read back a random sample of the ledgers with a mark that names an archive of bkmeta's.

    Args:
        marks: of ledgers.
        records: of these ledgers in the store; without a record, only the copy itself is checked.
        count: how many are read.
    """
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
            _prove(mark, records.get(mark.ledger), sample)
    return sample


def _is_ours(where: str) -> bool | str:
    """Whether an archive of ours is at a place; or why that cannot be seen."""
    if not where:
        return False
    try:
        place = to_place(where)
        return read_about(place) is not None or _find_loss(place)
    except (DatasetError, InputError) as error:
        return str(error)


def _find_loss(place: DatasetPlace) -> bool | str:
    """Return what is gone of a place without an `archive.json`; False: another application's copy may be there."""
    try:
        if place.is_file():
            return False
        names = list_names(place)
    except OSError as error:
        raise unreadable(str(place), error) from error
    if not names:
        return f"{place}: nothing is there: see that it is mounted, or {_COPY_AGAIN}"
    if RUNS not in names:
        return False
    return f"{place}: {ARCHIVE_FILE} is missing: put it back, or {_COPY_AGAIN}"


def _prove(mark: ArchiveMark, record: LedgerMetadata | None, sample: ArchiveSample) -> None:
    place = to_place(mark.place)
    try:
        ledger = find_ledger(place, mark.ledger)
    except DatasetError as error:
        sample.unread[mark.ledger] = str(error)
        return
    if ledger is None:
        sample.bad[mark.ledger] = f"{place} does not have it"
        return
    problem = (
        ""
        if record is None or _is_same(ledger.record, record)
        else "it has another end or history than the store's record"
    )
    problem = problem or prove_ledger(place, ledger).problem
    if not problem and mark.checksum and mark.checksum != f"sha256:{ledger.sha256}":
        problem = "the checksum of its mark is of other bytes"
    if problem:
        sample.bad[mark.ledger] = problem
    else:
        sample.proven += 1


def _is_same(one: LedgerMetadata, other: LedgerMetadata) -> bool:
    """Whether two records say the same, as far as a closed ledger's never changes."""
    return all(getattr(one, name) == getattr(other, name) for name in _IDENTITY)
