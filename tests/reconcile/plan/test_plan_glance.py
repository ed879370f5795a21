"""Large plans: what is shown and changed is hashed, the rest told by its files; all else is as of a small one."""

import dataclasses
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reconcile import topics
from reconcile.errors import PlanError
from reconcile.plan import plan_glance
from reconcile.plan.edits import Edits, edit_plan
from reconcile.plan.plan_glance import survey_plan
from reconcile.plan.plan_hash import read_hashes
from reconcile.plan.plan_reader import open_whole, overview
from recovery.dataset import MANIFEST, Dataset, open_dataset, write_manifest, write_part
from recovery.errors import DatasetError
from recovery.manifest import Part, digest_of
from recovery.model.ids import LedgerId
from tests.support.command import run
from tests.support.plan_folder import Ledger, write_plan

pytestmark = pytest.mark.long

NAMES = ("b1", "b2", "b3")
LEDGERS = (
    *(Ledger(n, [(0, NAMES)], last=n, length=10 * n, owner=f"topic-{n}") for n in range(1, 60)),
    *(Ledger(n, [(0, NAMES[:2])], reason="HOLE", owner=f"topic-{n}") for n in range(60, 64)),
)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A plan of 59 restored and 4 held ledgers, which counts as large."""
    monkeypatch.setattr(plan_glance, "MOST_ROWS", 0)
    monkeypatch.setattr(topics, "_LARGE", 0)
    return write_plan(tmp_path / "plan", LEDGERS)


def _with_rows(made: Dataset, table: str, rows: list[dict[str, Any]], **others: object) -> Dataset:
    """Put other rows into a plan under a manifest that names their file, and still has the plan's hash."""
    table_of = pa.Table.from_pylist(rows, schema=made.read(table).schema)
    return _with_parts(made, {table: [write_part(Path(made.path), table, "other", [table_of], secret=True)]}, **others)


def _with_parts(made: Dataset, parts: dict[str, list[Part]], **others: object) -> Dataset:
    folder, old = Path(made.path), made.manifest
    parts = {name: made.parts(name) for name in old["tables"]} | parts
    binding, coverage = old["binding"], old["coverage"]
    written = ("kind", "schema_version", "tool_version", "secret", "tables", "binding", "coverage", "digest")
    extra = {name: value for name, value in old.items() if name not in written} | others
    write_manifest(folder, "plan", parts, binding=binding, coverage=coverage, secret=True, extra=extra)
    return open_dataset(folder, "plan")


@pytest.mark.parametrize("shown", [0, 3, 200])
def test_a_glance_says_what_reading_every_row_says(made: Dataset, shown: int) -> None:
    """The same hash, counts, first writes and holds with their topics; only that not every row was hashed."""
    glanced, read = survey_plan(made, shown=shown), survey_plan(made, shown=shown, every_row=True)
    assert (glanced.is_whole, read.is_whole) == (False, True)
    assert dataclasses.replace(glanced, is_whole=True) == read == overview(made, shown=shown)
    assert len(glanced.holds) == min(shown, 4)
    assert all(hold.topic == f"topic-{hold.ledger.ledger}" for hold in glanced.holds)


def test_what_a_manifest_without_hashes_of_buckets_has_is_read_whole(made: Dataset) -> None:
    """An earlier version's manifest has none: every row is hashed, whatever the plan's size."""
    old = dict(made.manifest)
    del old["bucket_hashes"], old["digest"]
    old["digest"] = digest_of(old)
    (Path(made.path) / MANIFEST).write_text(json.dumps(old))
    assert survey_plan(open_dataset(made.path, "plan"), shown=3).is_whole


@pytest.mark.parametrize(("most", "is_whole"), [(66 + 63, True), (66 + 62, False)])
def test_of_a_small_plan_every_row_is_hashed(
    most: int, is_whole: bool, made: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the bound, actions and ledgers together: whoever alters one that is not shown is seen."""
    monkeypatch.setattr(plan_glance, "MOST_ROWS", most)
    rows = made.read("actions").to_pylist()
    next(row for row in rows if row["ledger"] == 60)["value"] = b"x"
    found = survey_plan(_with_rows(made, "actions", rows), shown=0)
    assert (found.is_whole, bool(found.problems)) == (is_whole, is_whole)


@pytest.mark.parametrize(("table", "column", "value"), [("actions", "value", b"x"), ("reconstruction", "reason", "NO")])
def test_a_row_that_is_shown_is_hashed(made: Dataset, table: str, column: str, value: object) -> None:
    """One that was altered under a new manifest is a problem as soon as its bucket is shown, and hinders every use."""
    rows = made.read(table).to_pylist()
    at = next(n for n, row in enumerate(rows) if row["ledger"] == 60)
    rows[at][column] = value
    altered = _with_rows(made, table, rows)
    assert not survey_plan(altered, shown=0).problems
    [problem] = survey_plan(altered, shown=200).problems
    assert f"bucket {LedgerId(0, 60).bucket} " in problem
    with pytest.raises(PlanError, match="make the plan again"):
        open_whole(altered.path)
    with pytest.raises(PlanError, match="make the plan again"):
        edit_plan(altered, Edits(drop=frozenset({LedgerId(0, 60)})), Path(made.path).with_name("out"))


def test_counts_and_hashes_that_do_not_agree_are_seen_at_a_glance(made: Dataset) -> None:
    """Fewer rows than the manifest says; hashes of buckets that do not give the plan's hash."""
    rows = made.read("actions").to_pylist()
    fewer = survey_plan(_with_rows(made, "actions", rows[:-1]), shown=0)
    assert any("in its manifest" in problem for problem in fewer.problems)
    buckets = made.manifest["bucket_hashes"]
    first = next(iter(buckets["actions"]))
    wrong = {**buckets, "actions": {**buckets["actions"], first: "0" * 64}}
    other = _with_rows(made, "actions", rows, bucket_hashes=wrong)
    assert any("the buckets give the hash" in problem for problem in survey_plan(other, shown=0).problems)
    with pytest.raises(PlanError, match="the buckets give the hash"):
        edit_plan(other, Edits(drop=frozenset({LedgerId(0, 1)})), Path(made.path).with_name("out"))
    assert "its buckets have other hashes than it says" in overview(other, shown=0).problems


@pytest.mark.parametrize("shown", range(6))
def test_the_smallest_rows_are_those_of_sorting_all(shown: int) -> None:
    """Whatever the batches, equal rows among them."""
    random = np.random.default_rng(7)
    rows = random.integers(-2, 3, (60, 4))
    kept = plan_glance._Smallest(shown, 4)
    for batch in np.split(rows, [1, 1, 20, 57]):
        kept.add(*batch.T)
    assert kept.rows.tolist() == sorted(rows.tolist())[:shown]


def _in_parts(made: Dataset, count: int) -> Dataset:
    """Cut the actions of ledgers, and what is said of them, into files of bucket ranges, as tasks do."""
    folder, parts = Path(made.path), {}
    for table in ("actions", "reconstruction"):
        rows = made.read(table)
        bucket = rows["bucket"].to_numpy()
        edges = np.linspace(0, 4096, count + 1).astype(int).tolist()
        pieces = [
            write_part(folder, table, f"b{low:04d}", [rows.filter(pa.array((bucket >= low) & (bucket < high)))])
            for low, high in itertools.pairwise(edges)
        ]
        outside = [part for part in made.parts(table) if part.first_bucket == -1]
        parts[table] = [*outside[:1], *pieces, *outside[1:]]
    return _with_parts(made, parts)


@pytest.mark.parametrize(
    "edits",
    [
        Edits(drop=frozenset({LedgerId(0, 3)})),
        Edits(accept_loss=frozenset({LedgerId(0, 60), LedgerId(0, 61)})),
        Edits(drop=frozenset(LedgerId(0, n) for n in range(1, 60))),
        Edits(acl="world:anyone:cdrwa"),
    ],
)
def test_an_edited_plan_is_the_same_however_large(
    made: Dataset, edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In many files or in one, hashed whole or not: the same hash and the same rows, and a whole plan."""
    edit_plan(made, edits, tmp_path / "one")
    shutil.copytree(made.path, tmp_path / "copy")
    many = _in_parts(open_dataset(tmp_path / "copy", "plan"), 8)
    edit_plan(many, edits, tmp_path / "many")
    monkeypatch.setattr(plan_glance, "MOST_ROWS", 1000)
    edit_plan(many, edits, tmp_path / "small")
    plans = [open_whole(path)[0] for path in (tmp_path / "one", tmp_path / "many", tmp_path / "small")]
    assert len({plan.manifest["hash"] for plan in plans}) == 1
    assert plans[0].manifest["hash"] != made.manifest["hash"]
    for table in ("actions", "reconstruction", "sides", "findings"):
        assert plans[1].read(table).equals(plans[0].read(table)), table
    assert read_hashes(plans[1].manifest) == read_hashes(plans[0].manifest)


def test_files_in_which_nothing_changes_are_taken_over(made: Dataset, tmp_path: Path) -> None:
    """Not written again: names of the same files, and only those of one bucket range are new."""
    plan = _in_parts(made, 8)
    edit_plan(plan, Edits(drop=frozenset({LedgerId(0, 3)})), tmp_path / "out")
    edited = open_dataset(tmp_path / "out", "plan")
    for table, new in (("actions", 3), ("reconstruction", 1), ("sides", 0)):
        before = {part.file: part for part in plan.parts(table)}
        files = [part.file for part in edited.parts(table)]
        taken = [
            file for file in files if file in before and (tmp_path / "out" / file).samefile(Path(plan.path) / file)
        ]
        assert len(files) - len(taken) == new, table
        assert all(before[part.file] == part for part in edited.parts(table) if part.file in taken)


def test_what_is_taken_over_where_no_second_name_can_be_is_a_copy_that_was_hashed(
    made: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another file system: a file that is not the one that was written is not taken."""

    def refuse(_self: Path, _target: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    plan = _in_parts(made, 8)
    edits = Edits(drop=frozenset({LedgerId(0, 3)}))
    edit_plan(plan, edits, tmp_path / "out")
    edited, seen = open_whole(tmp_path / "out")
    assert not seen.problems
    part = edited.parts("sides")[0]
    assert not (tmp_path / "out" / part.file).samefile(Path(plan.path) / part.file)
    file = Path(plan.path) / part.file
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
    with pytest.raises(DatasetError, match="is not the file that the manifest lists"):
        edit_plan(plan, edits, tmp_path / "again")


def test_as_it_is_shown(made: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    """A large plan says that not every row was hashed, and by what they are; --every-row hashes them."""
    done = run(capsys, "plan", "show", made.path)
    assert done.code == 0
    assert "--every-row" in done.out
    assert "--every-row" not in run(capsys, "plan", "show", made.path, "--every-row").out
    for words, whole in (((), False), (("--every-row",), True)):
        assert run(capsys, "plan", "show", made.path, "--json", *words).result["every_row"] is whole
