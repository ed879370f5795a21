"""What a reconstruction is worth on histories whose truth is known: guarantees, holds, grades, class by class.

    python -m tests.simulation.judge [CLASS[/SCAN…][@EVIDENCE]…] [--count N] [--seed S] [--show K]

A guarantee that is broken is a `Violation`, with what was true and what was claimed; the same class, seed and ledger
bring it back. The guarantees (`docs/design` has the theory and the table that this prints):

    G1    an entry that a scanned bookie serves, not above the end, has a holder in its write set
    G2    nothing acknowledged is above the end of a closed ledger; what nobody scanned has is said to be open
    G5    where the end or the length is not the true one, the true one is among the alternatives
    told  what bookies serve above an end is among the alternatives
    grade what is called observed or verified is true
    shape where E or W is not the true one, the true shape is among the alternatives, if the cluster or a snapshot
          has it
    earlier where a snapshot's record or a reference supplied what is not true, nothing in the inventory contradicts it,
          or the truth is among the alternatives (`tests.simulation.contradictions`)
    hold  what is not restored names exactly the bookies that serve entries
    law7  what the inventory shows to be two ledgers under one id is not restored as one; what some bookie or a
          reference shows to be deleted is not restored
    clean a ledger to which nothing happened comes back as it was; with its own closed record, byte for byte
    ends  whatever is seen and known, the reconstruction comes to an end
    rows  every ledger of the inventory has one row, and it is well formed
"""

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from recovery.infer.prior import Prior, count_shapes
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.infer.search import Tail
from tests.simulation import evidence as others
from tests.simulation import histories, inventories, nasty
from tests.simulation.cluster_judge import ClusterJudge, Quorums
from tests.simulation.evidence import Evidence
from tests.simulation.inventories import Inventory
from tests.simulation.nasty import NASTY
from tests.simulation.profiles import CLASSES, SCANS, profile_of
from tests.simulation.protocol import World
from tests.simulation.row_truth import PASSWORDS
from tests.simulation.tally import (
    HEAD,
    Tally,
    Violation,
    line,
    row_of,
    write_calibration,
    write_inferred,
    write_reasons,
)

NASTY_LEDGERS: Final = 100
"""Ledgers that share a cluster in the histories of `nasty`."""
_ELSEWHERE: Final = 1_000_003
"""How far the seed of another cluster is from this one's."""


class Reconstruct(Protocol):
    """What is judged."""

    def __call__(
        self, inventory: Inventory, *, tail: Tail = ..., quorums: Quorums | None = ..., evidence: Evidence = ...
    ) -> pa.Table:
        """Return RECONSTRUCTION; quorums: (E, W, A) to ledgers, as a snapshot has them."""


NOTHING: Final = Evidence()


def reconstruct_alone(
    inventory: Inventory,
    *,
    tail: Tail = Tail.INCLUSIVE,
    quorums: Quorums | None = None,
    evidence: Evidence = NOTHING,
) -> pa.Table:
    """Reconstruct with what the cluster itself shows, and the passwords that an operator has."""
    shapes = count_shapes(inventory.copies, inventory.bookies)
    prior = Prior.build(shapes, quorums, unscanned=inventory.unscanned)
    options = InferOptions(passwords=PASSWORDS, unscanned_bookies=inventory.unscanned, tail=tail)
    known = (evidence.catalog(), evidence.reference_table())
    return reconstruct(inventory.copies, inventory.bookies, inventory.damage, prior, options, *known)


def reconstruct_rest(
    inventory: Inventory,
    *,
    tail: Tail = Tail.INCLUSIVE,
    quorums: Quorums | None = None,
    evidence: Evidence = NOTHING,
) -> pa.Table:
    """Reconstruct where somebody states that all that was not seen is gone for good."""
    shapes = count_shapes(inventory.copies, inventory.bookies)
    partly = pc.filter(inventory.bookies["bookie"], pc.invert(inventory.bookies["complete"])).to_pylist()
    lost = tuple(sorted({*inventory.unscanned, *partly, *inventory.damage["bookie"].to_pylist()}))
    prior = Prior.build(shapes, quorums, unscanned=inventory.unscanned)
    options = InferOptions(passwords=PASSWORDS, lost_bookies=lost, tail=tail)
    known = (evidence.catalog(), evidence.reference_table())
    return reconstruct(inventory.copies, inventory.bookies, inventory.damage, prior, options, *known)


def run(
    name: str,
    count: int,
    seed: int = 0,
    *,
    tail: Tail = Tail.INCLUSIVE,
    is_snapshot_known: bool = False,
    reconstruct: Reconstruct = reconstruct_alone,
) -> Tally:
    """Judge so many histories of a class, in clusters of the size that the class has; see `judge`."""
    tally, left = Tally(), count
    history = name.partition("@")[0]
    size = NASTY_LEDGERS if history in NASTY else profile_of(history).ledgers
    while left > 0:
        size_now = min(left, size)
        tally.add(judge(name, seed, size_now, tail=tail, is_snapshot_known=is_snapshot_known, reconstruct=reconstruct))
        left, seed = left - size_now, seed + 1
    return tally


class Lived(NamedTuple):
    """A cluster's history, lived to its end.

    Attributes:
        world: what is true.
        inventory: what is seen of it.
        evidence: what is known beside.
        quorums: (E, W, A) to ledgers, as a snapshot states them; None: there is none.
    """

    world: World
    inventory: Inventory
    evidence: Evidence
    quorums: Quorums | None


def live(name: str, seed: int, ledgers: int, *, is_snapshot_known: bool = False) -> Lived:
    """Return one cluster's history; arguments as of `judge`."""
    history, _, kind = name.partition("@")
    make = nasty.make if history in NASTY else histories.make
    world, view = make(history, seed, ledgers)
    evidence = NOTHING
    if kind:
        evidence = others.make(kind, history, seed, world, lambda: make(history, seed + _ELSEWHERE, ledgers)[0])
    quorums = Counter((record.ensemble, record.write, record.ack) for record in world.records.values())
    stated = evidence.quorums() or (quorums if is_snapshot_known else None)
    return Lived(world, inventories.inventory(world, view), evidence, stated)


def judge(
    name: str,
    seed: int,
    ledgers: int,
    *,
    tail: Tail = Tail.INCLUSIVE,
    is_snapshot_known: bool = False,
    reconstruct: Reconstruct = reconstruct_alone,
) -> Tally:
    """Judge one cluster's history.

    Args:
        name: of the class, with the kind of evidence behind an ``@`` where there is some.
        seed: of the history.
        ledgers: how many.
        tail: the policy that is asked for.
        is_snapshot_known: a snapshot says how many ledgers have which quorums.
        reconstruct: what is judged.
    """
    world, inventory, evidence, stated = live(name, seed, ledgers, is_snapshot_known=is_snapshot_known)
    try:
        rows = reconstruct(inventory, tail=tail, quorums=stated, evidence=evidence).to_pylist()
    except Exception as error:  # noqa: BLE001 - whatever it is, the history that brings it back must be named
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__} in {place.filename}:{place.lineno}: {error}"
        return Tally(violations=[Violation("ends", name, seed, -1, text, "", "", "")])
    return ClusterJudge(name, seed, world, inventory, tail, evidence, stated or {}).judge_rows(rows)


def _is_history(name: str) -> bool:
    """Whether a class, with scans or without, or a history that is written by hand has this name."""
    own, *scans = name.split("/")
    return name in NASTY or (own in CLASSES and set(scans) <= SCANS.keys())


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge classes of histories and print the tables; 1 if a guarantee is broken."""
    # The others are judged where they are decided on: tests/reconcile/compare/test_decide_histories.py.
    kinds = ["", *(kind for kind in others.KINDS if kind not in others.DECIDED)]
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.judge", description="Judge the reconstruction.")
    parser.add_argument(
        "classes",
        nargs="*",
        metavar="CLASS[/SCAN…]",
        help=f"of {', '.join(CLASSES)}; with one /SCAN or more of {', '.join(SCANS)}; or of "
        f"{', '.join(NASTY)}; all with an @EVIDENCE of {', '.join(kinds[1:])}",
    )
    parser.add_argument("--count", type=int, default=1000, help="histories of each class")
    parser.add_argument("--seed", type=int, default=0, help="of the first cluster")
    parser.add_argument(
        "--show", type=int, default=2, help="violations of each guarantee that are shown, of each class"
    )
    parser.add_argument("--tail", type=Tail, choices=list(Tail), default=Tail.INCLUSIVE, help="the policy")
    parser.add_argument("--lost", action="store_true", help="all that was not seen is stated to be gone for good")
    parser.add_argument("--told", action="store_true", help="a snapshot says how many ledgers have which quorums")
    given = parser.parse_args(arguments)
    if unknown := sorted(
        n for n in given.classes if not _is_history(n.partition("@")[0]) or n.partition("@")[2] not in kinds
    ):
        decided = any(name.partition("@")[2] in others.DECIDED for name in unknown)
        hint = "; what `recover` decides of a store's history or generator: scripts/soak decisions" if decided else ""
        parser.error(f"no such class: {', '.join(unknown)}{hint}")
    tallies: dict[str, Tally] = {}
    sys.stdout.write(line(HEAD) + line(["---"] * len(HEAD)))
    for name in given.classes or CLASSES:
        made = reconstruct_rest if given.lost else reconstruct_alone
        tallies[name] = run(
            name, given.count, given.seed, tail=given.tail, is_snapshot_known=given.told, reconstruct=made
        )
        sys.stdout.write(line(row_of(name, tallies[name])))
        sys.stdout.flush()
    sys.stdout.write(f"\n{write_reasons(tallies)}\n{write_calibration(tallies)}\n\n{write_inferred(tallies)}")
    for name, tally in tallies.items():
        shown: Counter[str] = Counter()
        counts = Counter(violation.guarantee for violation in tally.violations)
        for violation in tally.violations:
            shown[violation.guarantee] += 1
            if shown[violation.guarantee] <= given.show:
                sys.stdout.write(f"\n{violation}\n")
        if counts:
            sys.stdout.write(f"\n{name}: {dict(counts)}\n")
    return 1 if any(tally.violations for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
