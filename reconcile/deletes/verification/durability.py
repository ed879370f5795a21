"""Ledgers whose entries have fewer copies than were acknowledged, by all that is known of copies.

A scrutiny, an impact check and `explain` judge copies by the same function: `CopyEvidence.see` of `reconcile/check`.
What it cannot judge is undecided here, and is never taken for whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.evidence import RECORD_COLUMNS, CopyEvidence, ScrutinyRun, SeenCopies
from reconcile.deletes.verification.evidence import read_looks
from reconcile.deletes.verification.wanted import WantedLedgers
from reconcile.rules.segments.faults import Fault
from reconcile.rules.segments.member_names import rename_members
from reconcile.words import list_names
from recovery.dataset import Dataset

_MISPLACED: Final = (Fault.MISPLACED, Fault.MISPLACED_ALL)
_BREACHES: Final = pa.array([int(fault) for fault in (Fault.BELOW_ACK_QUORUM, Fault.LOST, *_MISPLACED)], pa.int8())


@dataclass(frozen=True, slots=True)
class Durability:
    """What is known of the copies of wanted ledgers, by their numbers.

    Attributes:
        breaches: ledgers with an entry of fewer copies than were acknowledged, each with what it lacks, in words.
        undecided: ledgers of which not every copy can be judged.
    """

    breaches: Mapping[int, str]
    undecided: frozenset[int]


def judge_copies(
    wanted: WantedLedgers,
    capture: Dataset,
    inventories: Sequence[Dataset],
    runs: Sequence[ScrutinyRun],
    aliases: Mapping[str, str],
) -> Durability:
    """Return what is known of the copies of wanted ledgers.

    Args:
        wanted: ledgers.
        capture: of the store, from before bookies were looked at.
        inventories: each of one bookie; the last of each bookie counts.
        runs: of scrutinies.
        aliases: other names of bookies.

    Raises:
        DatasetError: a file is gone or damaged.
    """
    evidence = CopyEvidence.gather([inventory for _, inventory in read_looks(inventories)], runs, capture)
    breaches: dict[int, str] = {}
    undecided: set[int] = set()
    for rows, numbers in wanted.read(capture, "ledgers", RECORD_COLUMNS):
        stored = rename_members(rows.select(list(RECORD_COLUMNS)), aliases)
        edge = pc.min_max(stored["bucket"]).as_py()
        seen = evidence.see(stored, range(edge["min"], edge["max"] + 1))
        breaches |= {int(numbers[row]): words for row, words in find_breaches(stored, seen)}
        undecided |= set(numbers[seen.faults.undecided].tolist())
    return Durability(breaches, frozenset(undecided))


def find_breaches(stored: pa.Table, seen: SeenCopies) -> Iterator[tuple[int, str]]:
    """Yield the rows of ledgers with such entries, each with what it lacks, in words.

    Args:
        stored: CATALOG_LEDGERS.
        seen: of these.
    """
    faults = seen.faults.faults
    for fault in faults.filter(pc.is_in(faults["fault"], value_set=_BREACHES)).to_pylist():
        acks = stored["ack_quorum"][fault["row"]].as_py()
        # Entries that others hold as well are no breach while enough copies stand where readers ask for them.
        if fault["fault"] in _MISPLACED and (fault["least"] >= acks or fault["dark"]):
            continue
        first = min(group["first"] for group in fault["groups"])
        detail = (
            f"entry {first} is known to lack copies on {list_names(fault['lacking'])}: fewer than the "
            f"{acks} that were acknowledged are left"
        )
        yield fault["row"], detail
