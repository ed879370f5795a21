"""Plans written again: which files are read, and which are taken over as they are."""

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconcile.plan import rewriting as plan_rewriting
from reconcile.plan.edits import Edits, edit_plan
from reconcile.plan.manifest import PlanManifest
from reconcile.plan.plan_hash import Hashes
from reconcile.plan.plan_reader import list_subtree_ranges
from reconcile.plan.rewriting import Rewriting
from reconcile.plan.waves import parse_waves, split_plan
from recovery.dataset import open_dataset, prepare, write_manifest, write_part
from recovery.manifest import Part
from recovery.model import tables
from recovery.model.ids import BUCKETS, LedgerId
from tests.support.plan_folder import Ledger, write_plan


class _Parts:
    """What lists the files of a table; of each its rows, and its first and last bucket."""

    def __init__(self, *bounds: tuple[int, int | None, int | None]) -> None:
        self.all = [Part(f"{n}", rows, 0, "", first, last) for n, (rows, first, last) in enumerate(bounds)]

    def parts(self, _table: str) -> Sequence[Part]:
        """Return them."""
        return self.all


WHOLE = [(0, BUCKETS, None)]


@pytest.mark.parametrize(
    ("bounds", "stretches"),
    [
        ([], WHOLE),
        ([(5, 0, 9), (5, 10, BUCKETS - 1)], [(0, 10, "0"), (10, BUCKETS, "1")]),
        ([(5, 3, 9), (5, 12, 20)], [(0, 12, "0"), (12, BUCKETS, "1")]),
        ([(5, 7, 7)], [(0, BUCKETS, "0")]),
        ([(5, 0, 0)], [(0, BUCKETS, "0")]),
        # Of the system, of no rows, of no buckets, of upper layers' nodes: of no ledger.
        ([(1, -1, -1), (0, 2, 2), (4, None, None), (5, 0, 9), (3, BUCKETS, 5000)], [(0, BUCKETS, "3")]),
        ([(4, None, 2), (4, 2, None), (5, 0, 9)], [(0, BUCKETS, "2")]),
        ([(1, -1, -1), (3, BUCKETS, BUCKETS)], WHOLE),
        # Two have rows of one bucket: no cut is between them.
        ([(5, 0, 9), (5, 9, 20)], WHOLE),
        ([(5, 0, 9), (5, 10, 20), (5, 20, 30)], WHOLE),
        ([(5, 10, 20), (5, 0, 9)], WHOLE),
    ],
)
def test_stretches_cover_all_buckets_with_one_file_each(
    bounds: Sequence[tuple[int, int | None, int | None]], stretches: Sequence[tuple[int, int, str | None]]
) -> None:
    """Where files of ledgers follow each other; else one stretch that is of no file."""
    found = plan_rewriting._list_stretches(_Parts(*bounds), "actions")  # type: ignore[arg-type]  # what of a dataset is asked
    assert [(r.start, r.stop, part and part.file) for r, part in found] == stretches


def test_ranges_of_nodes_are_those_behind_all_ledgers() -> None:
    """One a file that has rows, the first bucket behind the ledgers' among them."""
    parts = _Parts(
        (1, -1, -1), (5, 0, 9), (4, None, 5000), (4, 5000, None), (3, BUCKETS, 5000), (0, 6000, 6001), (2, 7000, 7000)
    )
    found = list_subtree_ranges(parts)  # type: ignore[arg-type]  # what of a dataset is asked
    assert found == [range(BUCKETS, 5001), range(7000, 7001)]


def test_candidates_of_ledgers_that_have_a_node_now_are_dropped(tmp_path: Path) -> None:
    """A file that had one is written again without it, another is taken over; the counts are of the others."""
    folder, out = tmp_path / "plan", tmp_path / "out"
    rows = [
        {"bucket": LedgerId(0, n).bucket, "scope": 0, "ledger": n, "use": "topic", "evidence": evidence, "detail": "d"}
        for n, evidence in ((1, "record"), (1, "order"), (2, "none"), (3, "record"))
    ]
    prepare(folder, "plan", secret=True)
    parts = {
        "candidates": [
            write_part(folder, "candidates", name, [pa.Table.from_pylist(some, schema=tables.CANDIDATES)], secret=True)
            for name, some in (("part-0", rows[:3]), ("part-1", rows[3:]))
        ]
    }
    empty = PlanManifest()
    binding, coverage = empty.binding.to_json(), empty.coverage.to_json()
    write_manifest(
        folder,
        "plan",
        parts,
        binding=binding,
        coverage=coverage,
        secret=True,
        extra=empty.to_json(),
        sign=Hashes().sign,
    )
    prepare(out, "plan", secret=True)
    rewriting = Rewriting(open_dataset(folder, "plan"), out, Hashes())
    assert rewriting.drop_candidates({LedgerId(0, 1)}) == {"ledgers": 2, "record": 1, "none": 1}
    first, second = (out / part.file for part in rewriting.parts["candidates"])
    names = [part.file for part in rewriting.parts["candidates"]]
    assert names == [part.file for part in parts["candidates"]]
    assert [part.rows for part in rewriting.parts["candidates"]] == [1, 1]
    assert second.samefile(folder / names[1])
    assert not first.samefile(folder / names[0])


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_plan_that_is_made_of_another_is_private(
    is_copied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds passwords: nobody else may look into its folders, or read its files, taken over or not."""
    made = write_plan(tmp_path / "plan", [Ledger(n, [(0, ["b1", "b2", "b3"])]) for n in range(8)])

    def refuse(*_: Any) -> None:
        raise OSError

    if is_copied:
        monkeypatch.setattr(Path, "hardlink_to", refuse)
    edit_plan(made, Edits(drop=frozenset({LedgerId(0, 3)})), tmp_path / "edited")
    split_plan(made, parse_waves("canary,rest"), tmp_path / "cut")
    for folder in (tmp_path / "edited", tmp_path / "cut"):
        paths = [folder, *folder.rglob("*")]
        assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()} == {0o700}
        assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()} == {0o600}
