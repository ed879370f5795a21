"""The manifest of a plan: read and written again it is the same, and what it is not is named."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reconcile.plan.bookie_starts import BookieSource, KnownBookie, StoredCookie, decide_start
from reconcile.plan.manifest import (
    COOKIES_WAIT,
    HistorySource,
    InputDataset,
    PlanBinding,
    PlanCounts,
    PlanManifest,
    ReferenceCounts,
    UnreferencedLedger,
    WaveBuckets,
    read_plan_manifest,
)
from recovery.dataset import MANIFEST, open_dataset
from recovery.errors import DatasetError
from recovery.infer.prior import PriorShape
from recovery.infer.prior import ShapeSource as PriorSource
from recovery.manifest import digest_of
from recovery.model.coverage import Coverage
from recovery.model.ids import LedgerId
from tests.support.plan_folder import Ledger, write_plan

FULL = PlanManifest(
    binding=PlanBinding(
        instance_ids=("one",),
        layout="flat",
        root="/ledgers",
        bookies=(("b1:3181", 17), ("b2:3181", None)),
        cookies_held_back=True,
        made="2030-01-01T00:00:00+00:00",
        inputs=(InputDataset("inventory", "inv/b1", "ab"),),
        options={"tail": "inclusive"},
        split_from="cd",
        waves=(WaveBuckets(1, 0, 40), WaveBuckets(2, 41, 4095)),
        edited_from="ef",
        edits=("dropped 7",),
    ),
    coverage=Coverage(scanned=("b1:3181",), not_scanned=("b2:3181",)),
    counts=PlanCounts(
        ledgers=5,
        restored=2,
        held=1,
        waiting=1,
        in_store_already=1,
        looked_at=5,
        clean=1,
        skipped=1,
        undecided=1,
        with_findings=2,
        actions=4,
    ),
    reasons={"two_keys": 1},
    sides={"bookies_only": 5},
    found={"HELD": 1},
    references=ReferenceCounts(
        3, 1, 1, (UnreferencedLedger(0, 7, "ab", ("a (6)",)),), (LedgerId(0, 9),), unreadable=1, gaps=2
    ),
    mass_deletion=True,
    mass_let_go=True,
    prior=(PriorShape(3, 2, 0.5, PriorSource.CLUSTER),),
    histories=(HistorySource("zk://h", 7, chosen=True),),
    settings={"--tail": {"value": "inclusive", "from": "default"}},
    candidates={"ledgers": 2, "record": 2},
    bookies=(KnownBookie("b1:3181", BookieSource.DISKS, complete=True, planned=StoredCookie.OWN),),
)


@pytest.mark.parametrize("manifest", [FULL, PlanManifest()])
def test_what_is_written_is_read_again(manifest: PlanManifest) -> None:
    """Every field comes back from JSON as it was."""
    values = manifest.to_json() | {"binding": manifest.binding.to_json(), "coverage": manifest.coverage.to_json()}
    assert PlanManifest.from_json(json.loads(json.dumps(values))) == manifest


def test_a_plan_that_nobody_edited_or_cut_has_no_keys_of_that() -> None:
    """The hash covers every key: those that came later stand only where they say something."""
    assert not {"edited_from", "edits", "split_from", "waves", "inputs"} & PlanBinding().to_json().keys()
    assert "accepted_loss" not in PlanCounts().to_json()
    assert PlanCounts(accepted_loss=1).to_json()["accepted_loss"] == 1
    assert PlanCounts().to_json()["held"] == 0
    assert not {"candidates", "bookies"} & PlanManifest().to_json().keys()
    assert {"candidates", "bookies"} < FULL.to_json().keys()


def test_a_plan_that_says_nothing_promises_nothing() -> None:
    """No cookie waits, and nothing was deleted or let go of in masses, unless it is said."""
    empty = PlanManifest()
    assert (empty.mass_deletion, empty.mass_let_go, empty.binding.cookies_held_back) == (False, False, False)
    known = KnownBookie("b1")
    assert (known.complete, known.lost, known.is_only_journals, known.is_index_gone) == (False,) * 4


@pytest.mark.parametrize(
    ("waits", "stored", "planned", "may_start"),
    [
        (False, StoredCookie.NONE, StoredCookie.OWN, True),
        (False, StoredCookie.OWN, StoredCookie.OTHER, False),
        (True, StoredCookie.OWN, StoredCookie.OWN, False),
    ],
)
def test_a_bookie_starts_by_the_cookie_that_the_plan_leaves(
    waits: bool, stored: StoredCookie, planned: StoredCookie, may_start: bool
) -> None:
    """That of the store when cookies wait, else the one that is written."""
    known = KnownBookie("b1", BookieSource.DISKS, complete=True, stored=stored, planned=planned)
    manifest = PlanManifest(binding=PlanBinding(cookies_held_back=waits), bookies=(known,))
    (start,) = manifest.decide_starts()
    assert start.may_start == may_start
    assert start == decide_start(known, stored if waits else planned, COOKIES_WAIT if waits else "")


_SUMMED = ("ledgers", "restored", "held", "waiting", "deleted", "in_store_already", "looked_at", "clean", "skipped",
           "undecided", "with_findings")  # fmt: skip


@pytest.mark.parametrize("name", _SUMMED)
def test_sums_that_do_not_add_up_are_seen(name: str) -> None:
    """A ledger that was counted nowhere, or twice."""
    assert FULL.counts.add_up
    assert not replace(FULL.counts, **{name: getattr(FULL.counts, name) + 1}).add_up


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prior", [{"ensemble": 3}]),
        ("histories", [7]),
        ("sides", 7),
        ("references", {"gaps": 1, "some_not_found": [1]}),
    ],
)
def test_a_value_of_another_type_is_named(name: str, value: object, tmp_path: Path) -> None:
    """One error with the file, no fault of the program, even where the digest agrees."""
    plan = write_plan(tmp_path / "plan", [Ledger(5, [(0, ("b1",))], last=0, length=1)])
    path = Path(plan.path) / MANIFEST
    manifest = json.loads(path.read_text()) | {name: value}
    path.write_text(json.dumps(manifest | {"digest": digest_of(manifest)}))
    with pytest.raises(DatasetError, match="is not a manifest of a plan"):
        read_plan_manifest(open_dataset(plan.path, "plan"))
