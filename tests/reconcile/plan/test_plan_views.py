"""Plans shown, compared and cut: nothing is missed, nothing secret is shown, and a new plan is another plan."""

import dataclasses
import shutil
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.errors import PlanError
from reconcile.plan import plan_glance, plan_reader
from reconcile.plan.actions import PlanPhase, phase_of
from reconcile.plan.edits import Edits, edit_plan
from reconcile.plan.manifest import read_plan_manifest
from reconcile.plan.plan_hash import with_ids
from reconcile.plan.upper_layers.node_edits import NodeWrite
from reconcile.plan.views.differences import compare_plans
from reconcile.plan.waves import parse_waves, split_plan
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, DatasetWriter, open_dataset, write_manifest, write_part
from recovery.errors import DatasetError
from recovery.model import tables
from recovery.model.ids import BUCKETS, LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.plan_folder import Ledger, write_plan

pytestmark = pytest.mark.long

NAMES = ("b1", "b2", "b3")
SECRET = b"hunter2"
LEDGERS = (
    *(Ledger(n, [(0, NAMES)], last=n, length=10 * n, password=SECRET) for n in range(1, 60)),
    *(Ledger(n, [(0, NAMES[:2])], reason="HOLE") for n in range(60, 64)),
)


@pytest.fixture
def made(tmp_path: Path) -> Dataset:
    """A plan of 59 restored and 4 held ledgers."""
    return write_plan(tmp_path / "plan", LEDGERS)


def _with_actions(folder: Path, dataset: Dataset, actions: pa.Table) -> Dataset:
    """Put other actions under the old manifest, as one who edits a plan by hand would."""
    part = write_part(folder, "actions", "edited", [actions], secret=True)
    old = dataset.manifest
    others = {name: dataset.parts(name) for name in ("findings", "reconstruction")}
    extra = {name: old[name] for name in ("hash_version", "hash", "counts", "reasons", "prior")}
    parts = {"actions": [part], **others}
    write_manifest(folder, "plan", parts, binding=old["binding"], coverage=old["coverage"], secret=True, extra=extra)
    return open_dataset(folder, "plan")


def test_an_untouched_plan_is_what_its_hash_says(made: Dataset) -> None:
    """The hash is the same when it is made again from the files, and every action is counted once."""
    found = plan_reader.overview(made, shown=3)
    assert found.hash == made.manifest["hash"]
    assert (found.altered, found.problems) == (0, ())
    assert {phase: dict(ops) for phase, ops in found.phases.items()} == {
        PlanPhase.GENERATORS: {"raise": 1},
        PlanPhase.LEDGERS: {"create": 59, "hold": 4},
        PlanPhase.LAYOUT: {"create": 1},
        PlanPhase.INSTANCE_ID: {"create": 1},
    }
    assert found.waves == {0: 66}


def test_the_first_actions_are_those_that_are_written_first(made: Dataset) -> None:
    """What is shown first is in the order of the phases, ledgers by their ids, and says what must be there before."""
    found = plan_reader.overview(made, shown=3)
    assert [line.kind for line in found.first] == ["generator", "ledger", "ledger"]
    keys = sorted(row["key"] for row in made.read("actions").to_pylist() if row["kind"] == "ledger")
    assert [line.key for line in found.first][1:] == keys[:2]
    assert all("if absent" in str(line) for line in found.first)


def test_holds_are_shown_with_reason_and_holders(made: Dataset) -> None:
    """Each hold names its ledger, why it is not restored, and who holds its data."""
    found = plan_reader.overview(made, shown=10)
    assert {hold.ledger for hold in found.holds} == {LedgerId(0, n) for n in range(60, 64)}
    assert {(hold.reason, hold.holders) for hold in found.holds} == {("HOLE", NAMES[:2])}


@pytest.mark.parametrize("column", ["value", "key", "op"])
def test_an_edited_action_is_seen(made: Dataset, column: str) -> None:
    """Anybody who changes what an action writes, where, or how, without making its id anew, is found out."""
    actions = made.read("actions")
    rows = actions.to_pylist()
    at = next(n for n, row in enumerate(rows) if row["op"] == "create")
    rows[at][column] = {"value": b"other", "key": "/00/0000/L9999", "op": "replace"}[column]
    edited = _with_actions(Path(made.path), made, pa.Table.from_pylist(rows, schema=actions.schema))
    found = plan_reader.overview(edited, shown=0)
    assert found.altered == 1
    assert found.hash != made.manifest["hash"]
    assert found.problems


def test_an_action_taken_out_is_seen(made: Dataset) -> None:
    """A plan with an action less has another hash, and its manifest's counts do not fit."""
    edited = _with_actions(Path(made.path), made, made.read("actions").slice(0, 60))
    found = plan_reader.overview(edited, shown=0)
    assert found.altered == 0
    assert any("hash" in problem for problem in found.problems)
    assert any("in its manifest" in problem for problem in found.problems)


def _signed_again(folder: Path, dataset: Dataset, **tables_: pa.Table) -> Dataset:
    """Put other tables into a plan under a manifest that agrees with them, as one who knows how plans are made."""
    parts = {name: dataset.parts(name) for name in dataset.manifest["tables"]}
    parts |= {name: [write_part(folder, name, "other", [rows], secret=True)] for name, rows in tables_.items()}
    old = dataset.manifest
    extra = {name: old[name] for name in ("hash_version", "hash", "counts", "reasons", "prior")}
    write_manifest(folder, "plan", parts, binding=old["binding"], coverage=old["coverage"], secret=True, extra=extra)
    return open_dataset(folder, "plan")


@pytest.mark.parametrize("bucket", [-2, -3000, BUCKETS, 30_000, 7])
def test_no_action_hides_in_a_bucket_that_nobody_looks_at(made: Dataset, bucket: int) -> None:
    """Outside -1 … 4095, or in a bucket that is not its ledger's: a problem, and refused by all that use a plan."""
    rows = made.read("actions").to_pylist()
    hidden = next(row for row in rows if row["kind"] == "ledger" and row["bucket"] != bucket)
    rows[rows.index(hidden)] = {**hidden, "bucket": bucket}
    edited = _signed_again(Path(made.path), made, actions=pa.Table.from_pylist(rows, schema=tables.ACTIONS))
    assert any("where no reader looks" in problem for problem in plan_reader.overview(edited, shown=0).problems)
    with pytest.raises(PlanError, match="make the plan again"):
        plan_reader.open_whole(made.path)


def test_no_action_hides_behind_a_manifest(made: Dataset) -> None:
    """A part whose buckets the manifest has otherwise would be left out by readers of a range, and written by apply."""
    parts = {name: made.parts(name) for name in made.manifest["tables"]}
    parts["actions"][1] = dataclasses.replace(parts["actions"][1], first_bucket=0, last_bucket=0)
    kept = {name: made.manifest[name] for name in ("hash_version", "hash", "counts", "reasons")}
    binding, coverage = made.manifest["binding"], made.manifest["coverage"]
    write_manifest(Path(made.path), "plan", parts, binding=binding, coverage=coverage, secret=True, extra=kept)
    with pytest.raises(PlanError, match="where no reader looks"):
        plan_reader.open_whole(made.path)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("actions", "acl", "world:anyone:r"),
        ("actions", "acl", ""),
        ("actions", "before", b"other"),
        ("actions", "wave", 3),
        ("actions", "choice", 1),
        ("actions", "alternatives", [{"label": "restore", "value": b"x", "reads_as": "OPEN"}]),
        ("reconstruction", "outcome", "deleted"),
        ("reconstruction", "reason", "OTHER"),
        ("reconstruction", "holders", ["b9"]),
        ("reconstruction", "alternatives", [{"field": "length", "value": "7", "reads_as": "", "weight": 1.0}]),
    ],
)
def test_everything_that_is_chosen_from_is_in_the_hash(made: Dataset, table: str, column: str, value: object) -> None:
    """Rights, what is replaced, what can be chosen instead, why a ledger is held: other ones make another plan."""
    rows = made.read(table)
    listed = rows.to_pylist()
    listed[5][column] = value
    edited = pa.Table.from_pylist(listed, schema=rows.schema)
    edited = with_ids(edited) if table == "actions" else edited
    found = plan_reader.overview(_signed_again(Path(made.path), made, **{table: edited}), shown=0)
    assert found.altered == 0
    assert found.hash != made.manifest["hash"]
    assert found.problems


def test_who_was_not_looked_at_is_in_the_hash(made: Dataset) -> None:
    """A plan whose coverage somebody mended is another plan: the hash that was reviewed does not confirm it."""
    parts = {name: made.parts(name) for name in made.manifest["tables"]}
    kept = {name: made.manifest[name] for name in ("hash_version", "hash", "counts", "reasons", "prior")}
    coverage = {**made.manifest["coverage"], "scanned": ["b1", "b2"]}
    binding = made.manifest["binding"]
    write_manifest(Path(made.path), "plan", parts, binding=binding, coverage=coverage, secret=True, extra=kept)
    with pytest.raises(PlanError, match="the manifest says"):
        plan_reader.open_whole(made.path)


def test_a_plan_of_an_earlier_version_is_made_again(made: Dataset) -> None:
    """Its hash covers less: said so, with the version that made it, before anything is done with it."""
    parts = {name: made.parts(name) for name in made.manifest["tables"]}
    kept = {name: made.manifest[name] for name in ("hash", "counts", "reasons", "prior")}
    binding, coverage = made.manifest["binding"], made.manifest["coverage"]
    write_manifest(Path(made.path), "plan", parts, binding=binding, coverage=coverage, secret=True, extra=kept)
    with pytest.raises(PlanError, match="make it again with this version"):
        plan_reader.open_whole(made.path)


def test_files_that_are_swapped_after_a_plan_was_looked_at_are_not_read(made: Dataset, tmp_path: Path) -> None:
    """Files of another plan, of the same size as well: what is read afterwards is what was hashed, or an error."""
    dataset, _ = plan_reader.open_whole(made.path)
    part = Path(made.path) / dataset.parts("actions")[1].file
    whole = part.read_bytes()
    other = write_plan(tmp_path / "other", LEDGERS, secrets=9)
    for swapped in ((Path(other.path) / other.parts("actions")[1].file).read_bytes(), whole[:-9] + bytes(9)):
        part.write_bytes(swapped)
        with pytest.raises(DatasetError, match="is not the file"):
            list(dataset.batches("actions"))
    part.write_bytes(whole)
    assert sum(rows.num_rows for rows in dataset.batches("actions")) == dataset.rows("actions")


def test_other_rights_are_a_difference(made: Dataset, tmp_path: Path) -> None:
    """Two plans that write the same under other rights do not write the same."""
    edit_plan(made, Edits(acl="world:anyone:r"), tmp_path / "closed")
    found = list(compare_plans(made, open_dataset(tmp_path / "closed", "plan")))
    assert len(found) == made.rows("actions")
    assert all("acl absent → world:anyone:r" in str(difference) for difference in found)


def test_plans_of_the_same_ledgers_do_not_differ(made: Dataset, tmp_path: Path) -> None:
    """Random passwords of holds make another hash, and no difference."""
    again = write_plan(tmp_path / "again", LEDGERS, secrets=9)
    assert again.manifest["hash"] != made.manifest["hash"]
    assert list(compare_plans(made, again)) == []


def test_every_difference_is_named(made: Dataset, tmp_path: Path) -> None:
    """A ledger more, one less, another end, another password, a hold that became a ledger: each is one difference."""
    changed = {ledger.ledger: ledger for ledger in LEDGERS}
    del changed[1]
    changed[99] = Ledger(99, [(0, NAMES)])
    changed[2] = dataclasses.replace(changed[2], last=7)
    changed[3] = dataclasses.replace(changed[3], password=b"secret")
    changed[60] = dataclasses.replace(changed[60], reason=None)
    changed[4] = dataclasses.replace(changed[4], segments=[(0, NAMES), (2, ("b1", "b2", "b4"))])
    other = write_plan(tmp_path / "other", changed.values())
    found = {difference.key: difference for difference in compare_plans(made, other)}
    said = {key.removeprefix("/00/0000/L"): str(difference) for key, difference in found.items()}
    assert set(said) == {"0001", "0099", "0002", "0003", "0060", "0004"}
    assert "only the first" in said["0001"]
    assert "only the second" in said["0099"]
    assert "last_entry 2 → 7" in said["0002"]
    assert "another password" in said["0003"]
    assert "op hold → create" in said["0060"]
    assert "segments 0:[b1,b2,b3] → 0:[b1,b2,b3] 2:[b1,b2,b4]" in said["0004"]


def test_no_password_is_ever_shown(made: Dataset, tmp_path: Path) -> None:
    """Neither the overview nor a difference has the bytes of a password in it."""
    other = write_plan(tmp_path / "other", [dataclasses.replace(LEDGERS[0], password=b"")])
    shown = repr(plan_reader.overview(made, shown=100)) + repr([*compare_plans(made, other)])
    assert SECRET.decode() not in shown


@pytest.mark.parametrize(
    ("spec", "edges"),
    [
        ("rest", [0]),
        ("100%", [0]),
        ("1%,10%,rest", [0, 41, 451]),
        ("0.001%,rest", [0, 1]),
        ("25%, 25%, 50%", [0, 1024, 2048]),
        ("canary,rest", [0, 1]),
        ("canary,50%,rest", [0, 1, 2049]),
    ],
)
def test_waves_are_shares_of_the_buckets(spec: str, edges: list[int]) -> None:
    """Shares follow each other and cover every bucket once; the smallest is one bucket."""
    found = parse_waves(spec)
    assert [r.start for r in found] == edges
    assert [r.stop for r in found] == [*edges[1:], BUCKETS]


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "1",
        "1%",
        "1%,canary,rest",
        "canary",
        "50%,49%",
        "0%,rest",
        "-1%,rest",
        "60%,60%",
        "100%,rest",
        "rest,1%",
        "a,b",
        "%",
    ],
)
def test_shares_that_are_none_are_refused(spec: str) -> None:
    """What leaves ledgers out, or counts them twice, is no cut."""
    with pytest.raises(ValueError, match=r"share"):
        parse_waves(spec)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("60%,60%", "the shares come to 120 %"),
        ("60%,60%,rest", "the shares come to 120 %, which leaves no rest"),
        ("100%,rest", "the shares come to 100 %, which leaves no rest"),
        ("60%", "the shares come to 60 % only; end with rest"),
    ],
)
def test_shares_that_do_not_add_up_are_told(spec: str, problem: str) -> None:
    """What they come to; and that nothing is left for the rest, where there shall be one."""
    with pytest.raises(ValueError, match=f"^{problem}$"):
        parse_waves(spec)


def test_there_are_no_more_waves_than_buckets() -> None:
    """Each has a bucket at least: 4096 that end with the last one, and not one more."""
    whole = ",".join(["0.01%"] * (BUCKETS - 1))
    assert [len(wave) for wave in parse_waves(f"{whole},rest")] == [1] * BUCKETS
    with pytest.raises(ValueError, match="more waves than 4096 buckets"):
        parse_waves(f"{whole},0.01%,rest")


@given(st.text(alphabet="0123456789.%,rest ", max_size=30))
def test_any_text_is_a_cut_of_all_buckets_or_refused(spec: str) -> None:
    """Whatever is typed: either every bucket is in exactly one wave, or a ValueError."""
    try:
        found = parse_waves(spec)
    except ValueError:
        return
    assert [bucket for r in found for bucket in r] == list(range(BUCKETS))


def test_a_plan_in_waves_writes_the_same(made: Dataset, tmp_path: Path) -> None:
    """Cutting changes no action but its wave, keeps the other tables, and gives another hash."""
    before = {path: path.read_bytes() for path in Path(made.path).rglob("*") if path.is_file()}
    manifest, cuts = split_plan(made, parse_waves("10%,20%,rest"), tmp_path / "cut")
    cut = open_dataset(tmp_path / "cut", "plan")
    assert read_plan_manifest(cut) == manifest
    for table in ("findings", "reconstruction"):
        assert cut.read(table) == made.read(table)
    old, new = made.read("actions"), cut.read("actions")
    assert new.drop_columns(["wave"]) == old.drop_columns(["wave"])
    assert Counter(new["wave"].to_pylist()) == {wave.number: wave.actions for wave in cuts if wave.actions}
    assert sum(wave.ledgers for wave in cuts) == len(LEDGERS)
    assert manifest.hash not in (made.manifest["hash"], "")
    assert manifest.binding.split_from == made.manifest["hash"]
    assert plan_reader.overview(cut, shown=0).problems == ()
    assert {path: path.read_bytes() for path in before} == before


def test_waves_keep_the_order_of_a_restore(made: Dataset, tmp_path: Path) -> None:
    """Counters are raised in the first wave, LAYOUT and what is after it comes in the last."""
    split_plan(made, parse_waves("10%,rest"), tmp_path / "cut")
    seen: dict[PlanPhase, set[int]] = {}
    for row in open_dataset(tmp_path / "cut", "plan").read("actions").to_pylist():
        seen.setdefault(phase_of(row["seq"]), set()).add(row["wave"])
    assert seen[PlanPhase.GENERATORS] == {1}
    assert seen[PlanPhase.LEDGERS] == {1, 2}
    assert seen[PlanPhase.LAYOUT] == seen[PlanPhase.INSTANCE_ID] == {2}


def _write_store(folder: Path, **coverage: object) -> str:
    """Write a catalog of an empty store, and return its digest."""
    with DatasetWriter(folder, "catalog", binding={"root": "/ledgers"}, secret=True) as out:
        return str(out.close(coverage=coverage)["digest"])


def test_another_store_than_the_one_that_a_plan_was_made_of_is_refused(made: Dataset, tmp_path: Path) -> None:
    """What an edit looks up there, versions to replace and holds to remove, is bound by the hash as well."""
    digest = _write_store(Path(made.path) / "store")
    hashes = plan_reader.overview(made, shown=0).hashes
    parts = {name: made.parts(name) for name in made.manifest["tables"]}
    binding = {**made.manifest["binding"], "inputs": [{"kind": "store", "name": "s", "digest": digest}]}
    kept = {name: made.manifest[name] for name in ("counts", "reasons", "prior")}
    coverage = made.manifest["coverage"]
    folder = Path(made.path)
    write_manifest(folder, "plan", parts, binding=binding, coverage=coverage, secret=True, extra=kept, sign=hashes.sign)
    bound, _ = plan_reader.open_whole(made.path)
    assert bound.manifest["hash"] != made.manifest["hash"]
    edits = Edits(drop=frozenset({LedgerId(0, 1)}))
    edit_plan(bound, edits, tmp_path / "edited")
    shutil.rmtree(folder / "store")
    _write_store(folder / "store", complete=True)
    for name, use in (
        ("edit", lambda out: edit_plan(bound, edits, out)),
        ("split", lambda out: split_plan(bound, parse_waves("rest"), out)),
    ):
        with pytest.raises(PlanError, match="not the catalog that the plan was made of"):
            use(tmp_path / name)


def test_what_a_plan_was_compared_with_goes_along(made: Dataset, tmp_path: Path) -> None:
    """The catalog of the store that belongs to a plan belongs to its waves too, and stays as private as it was."""
    _write_store(Path(made.path) / "store")
    split_plan(made, parse_waves("rest"), tmp_path / "cut")
    files = [path for path in (tmp_path / "cut").rglob("*") if path.is_file()]
    assert tmp_path / "cut" / "store" / "manifest.json" in files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_an_altered_plan_is_not_cut(made: Dataset, tmp_path: Path) -> None:
    """A plan that is not what its hash says gets no new hash by being cut, and no folder that looks like a plan."""
    edited = _with_actions(Path(made.path), made, made.read("actions").slice(0, 60))
    with pytest.raises(PlanError, match="hash"):
        split_plan(edited, parse_waves("rest"), tmp_path / "cut")
    assert not (tmp_path / "cut" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("key", "expects", "text"),
    [
        ("/LAYOUT", None, "create node /LAYOUT if absent"),
        ("//admin/x", 3, "create node /admin/x if version 3"),
        ("/a//b", 0, "create node /a//b if version 0"),
    ],
)
def test_an_action_says_where_and_on_which_condition(key: str, expects: int | None, text: str) -> None:
    """Below the root, or anywhere in the store; if it is absent, or has a version, 0 among them."""
    assert str(plan_reader.ActionLine(0, 0, "create", "node", key, expects)) == text


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A plan of three ledgers, two of other scopes, one id that two ledgers have, and of two nodes of upper layers."""
    ledgers = [Ledger(n, [(0, NAMES)], scope=scope) for n, scope in ((3, 0), (1, 2), (2, 1))]
    folder = tmp_path_factory.mktemp("layered")
    made = write_plan(folder / "ledgers", ledgers, reused=[LedgerId(0, 5)])
    edit_plan(made, Edits(nodes={"/a": NodeWrite(b"1"), "/a/b": NodeWrite(b"2")}), folder / "layered")
    return open_dataset(folder / "layered", "plan")


def test_what_is_shown_is_in_the_order_of_a_restore(layered: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers by scope and id, with locks among them, then nodes of upper layers, then what is of no ledger."""
    monkeypatch.setattr(plan_glance, "MOST_ROWS", 0)
    found = plan_reader.overview(layered, shown=20)
    assert found.problems == ()
    kinds = [line.kind for line in found.first]
    assert kinds == ["generator", "ledger", "reuse_lock", "ledger", "ledger", "subtree", "subtree", "layout",
                     "instance_id"]  # fmt: skip
    ledgers = {row["key"]: (row["scope"], row["ledger"]) for row in layered.read("actions").to_pylist()}
    assert [ledgers[line.key] for line in found.first[1:5]] == [(0, 3), (0, 5), (1, 2), (2, 1)]
    assert plan_glance.survey_plan(layered, shown=20).first == found.first
    assert plan_glance.survey_plan(layered, shown=7).first == found.first[:7]


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        ("ledger", "key", lambda _: "/00/0000/L9999"),
        ("reuse_lock", "key", lambda _: "/00/0000/L0005"),
        ("reuse_lock", "ledger", lambda _: 6),
        ("subtree", "bucket", lambda bucket: bucket + 1),
        ("subtree", "seq", lambda seq: seq + (1 << 32)),
        ("layout", "bucket", lambda _: 4),
        ("layout", "ledger", lambda _: 4),
        ("layout", "seq", lambda seq: seq + (1 << 48)),
        ("ledger", "seq", lambda seq: seq + (1 << 48)),
        ("ledger", "ledger", lambda _: None),
    ],
)
def test_an_action_that_is_not_where_its_kind_and_key_say_is_seen(
    layered: Dataset, kind: str, name: str, change: Callable[[Any], object]
) -> None:
    """Bucket, phase, place in the order, and the key that its ledger has in this layout."""
    rows = layered.read("actions").to_pylist()
    layout = Layout.HIERARCHICAL
    assert plan_reader._count_misplaced(pa.Table.from_pylist(rows, schema=tables.ACTIONS), layout) == 0
    row = next(row for row in rows if row["kind"] == kind)
    row[name] = change(row[name])
    assert plan_reader._count_misplaced(pa.Table.from_pylist(rows, schema=tables.ACTIONS), layout) == 1


def test_ledgers_that_stand_where_nobody_looks_are_seen(made: Dataset) -> None:
    """What is said of a ledger, in a bucket that is not its own: also where every action is where it belongs."""
    rows = made.read("reconstruction").to_pylist()
    rows[0]["bucket"] = (rows[0]["bucket"] + 1) % BUCKETS
    edited = pa.Table.from_pylist(rows, schema=tables.RECONSTRUCTION).sort_by("bucket")
    problems = plan_reader.overview(_signed_again(Path(made.path), made, reconstruction=edited), shown=0).problems
    assert "1 rows are where no reader looks for them" in problems


@pytest.mark.parametrize(("layout", "problem"), [(None, ""), ("cube", "was made for a layout 'cube'")])
def test_keys_are_those_of_the_layout(made: Dataset, layout: str | None, problem: str) -> None:
    """A plan of no layout has any; one of a layout that is not known is of another version."""
    folder, old = Path(made.path), made.manifest
    parts = {name: made.parts(name) for name in old["tables"]}
    extra = {name: old[name] for name in ("counts", "reasons", "prior")}
    hashes = plan_reader.overview(made, shown=0).hashes
    binding = old["binding"] | {"layout": layout}
    rest = {"coverage": old["coverage"], "secret": True, "extra": extra, "sign": hashes.sign}
    write_manifest(folder, "plan", parts, binding=binding, **rest)
    other = open_dataset(folder, "plan")
    if problem:
        with pytest.raises(PlanError, match=problem):
            plan_reader.overview(other, shown=0)
    else:
        assert plan_reader.overview(other, shown=0).problems == ()


def test_a_file_without_rows_is_no_contradiction(made: Dataset) -> None:
    """Nothing is altered in it, and nothing misplaced."""
    folder = Path(made.path)
    empty = write_part(folder, "actions", "none", [tables.ACTIONS.empty_table()], secret=True)
    parts = {name: made.parts(name) for name in made.manifest["tables"]}
    parts["actions"] = [empty, *parts["actions"]]
    extra = {name: made.manifest[name] for name in ("counts", "reasons", "prior")}
    hashes = plan_reader.overview(made, shown=0).hashes
    rest = {"coverage": made.manifest["coverage"], "secret": True, "extra": extra, "sign": hashes.sign}
    write_manifest(folder, "plan", parts, binding=made.manifest["binding"], **rest)
    found = plan_reader.overview(open_dataset(folder, "plan"), shown=0)
    assert (found.altered, found.problems) == (0, ())


RECORD = ledger_metadata.encode(
    LedgerMetadata(1, 1, 1, 1, LedgerState.CLOSED, 0, 1, (Segment(0, ("b1",)),), Digest.CRC32C, b"")
)


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (b"no record", RECORD, f"value 9 bytes → {len(RECORD)} other bytes"),
        (RECORD, b"no record", f"value {len(RECORD)} bytes → 9 other bytes"),
        (None, RECORD, f"value 0 bytes → {len(RECORD)} other bytes"),
        (RECORD, None, f"value {len(RECORD)} bytes → 0 other bytes"),
    ],
)
def test_what_is_no_record_differs_in_its_bytes(
    made: Dataset, first: bytes | None, second: bytes | None, text: str, tmp_path: Path
) -> None:
    """How many each has; also where one plan writes none."""

    def with_value(name: str, value: bytes | None) -> Dataset:
        shutil.copytree(made.path, tmp_path / name)
        rows = made.read("actions").to_pylist()
        row = next(row for row in rows if row["op"] == "create" and row["kind"] == "ledger")
        rows[rows.index(row)] = row | {"value": value}
        return _signed_again(tmp_path / name, made, actions=with_ids(pa.Table.from_pylist(rows, schema=tables.ACTIONS)))

    (difference,) = compare_plans(with_value("first", first), with_value("second", second))
    assert str(difference).endswith(f": {text}")


def test_a_field_that_is_only_named_has_no_sides(made: Dataset, tmp_path: Path) -> None:
    """A password is one: not even that one side has none."""
    other = write_plan(tmp_path / "other", [dataclasses.replace(LEDGERS[0], password=b"secret"), *LEDGERS[1:]])
    (difference,) = compare_plans(made, other)
    assert str(difference).endswith(": another password")
