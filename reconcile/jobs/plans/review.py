"""What plans say: one of them for people, its ledgers one by one, and how two of them differ."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from reconcile.errors import PlanError
from reconcile.plan.manifest import PlanManifest, read_plan_manifest
from reconcile.plan.plan_glance import survey_plan
from reconcile.plan.plan_reader import Overview, open_whole
from reconcile.plan.views.candidates import Candidate, list_candidates
from reconcile.plan.views.deletions import SessionDeletions, group_by_session
from reconcile.plan.views.differences import Difference, compare_plans
from reconcile.plan.views.ledger_lists import LedgerFilter, LedgerLine, list_guarded_by, list_ledgers, list_reuse_locked
from recovery.dataset import Dataset, open_dataset
from recovery.model.ids import LedgerId
from recovery.place import DatasetPlace


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan for people.

    Attributes:
        plan: the dataset.
        manifest: what it says about itself.
        overview: what its files say.
        deletions: what each session deleted.
        candidates: topics that the first ledgers may be of which no topic names.
    """

    plan: Dataset
    manifest: PlanManifest
    overview: Overview
    deletions: tuple[SessionDeletions, ...]
    candidates: tuple[Candidate, ...]


def show_plan(path: DatasetPlace, shown: int, *, every_row: bool = False) -> ShownPlan:
    """Read a plan, every byte of it.

    Args:
        path: its folder.
        shown: how many writes and how many holds are given one by one.
        every_row: whether every row of a large plan is hashed, too.

    Raises:
        DatasetError: it is not a whole plan.
        PlanError: it was made by another version.
    """
    plan = open_dataset(path, "plan")
    plan.verify()
    manifest, content = read_plan_manifest(plan), survey_plan(plan, shown=shown, every_row=every_row)
    return ShownPlan(plan, manifest, content, group_by_session(plan), list_candidates(plan, shown))


@dataclass(frozen=True, slots=True)
class PlanDifferences:
    """How two plans differ.

    Attributes:
        first, second: what each says about itself.
        first_actions, second_actions: how many each has.
        only_in_first, only_in_second: keys that only one of them writes.
        differing: keys that they write differently.
        listed: the first differences.
    """

    first: PlanManifest
    second: PlanManifest
    first_actions: int
    second_actions: int
    only_in_first: int
    only_in_second: int
    differing: int
    listed: tuple[Difference, ...]

    @property
    def total(self) -> int:
        """How many keys they do not write alike."""
        return self.only_in_first + self.only_in_second + self.differing


def diff_plans(first: DatasetPlace, second: DatasetPlace, shown: int) -> PlanDifferences:
    """Compare two whole plans key by key.

    Args:
        first: folder of one.
        second: folder of the other.
        shown: how many differences are given one by one.

    Raises:
        DatasetError: one is not a whole plan.
        PlanError: one is not what its hash was made of.
    """
    left, right = open_whole(first)[0], open_whole(second)[0]
    differences = compare_plans(left, right)
    listed = tuple(itertools.islice(differences, shown))
    only_in_first = only_in_second = differing = 0
    for difference in itertools.chain(listed, differences):
        only_in_first += difference.second is None
        only_in_second += difference.first is None
        differing += difference.first is not None and difference.second is not None
    return PlanDifferences(
        read_plan_manifest(left),
        read_plan_manifest(right),
        left.rows("actions"),
        right.rows("actions"),
        only_in_first,
        only_in_second,
        differing,
        listed,
    )


def list_plan_ledgers(path: DatasetPlace, choice: LedgerFilter) -> Iterator[LedgerLine]:
    """Yield ledgers of a plan in the order of their ids.

    Raises:
        DatasetError: it is not a whole plan.
    """
    return list_ledgers(open_dataset(path, "plan"), choice)


def list_guarded_ledgers(path: DatasetPlace, bookie: str) -> Iterator[LedgerId]:
    """Yield the ledgers that a plan guards and that name a bookie.

    Raises:
        DatasetError: it is not a whole plan.
        PlanError: it knows no such bookie.
    """
    plan = open_dataset(path, "plan")
    named = iter(list_guarded_by(plan, bookie))
    first = next(named, None)
    coverage = read_plan_manifest(plan).coverage
    if first is None and bookie not in (*coverage.scanned, *coverage.not_scanned, *coverage.lost):
        known = ", ".join(sorted({*coverage.scanned, *coverage.not_scanned, *coverage.lost})) or "none"
        raise PlanError(plan.path, f"names no bookie {bookie} (known: {known})", "name it as its cookie does")
    return named if first is None else itertools.chain([first], named)


def list_reused_ledgers(path: DatasetPlace) -> Iterator[LedgerId]:
    """Yield the ledgers whose id two ledgers have, and that a lock keeps workers from repairing.

    Raises:
        DatasetError: it is not a whole plan.
    """
    return list_reuse_locked(open_dataset(path, "plan"))
