"""Ways in which restores went wrong elsewhere, and what happens here."""

from pathlib import Path

import pyarrow as pa
import pytest

from backends.protocols import Write
from reconcile.errors import GuardRefusedError, PlanError
from reconcile.findings.refusal_texts import REASONS
from reconcile.write.apply import ApplyOptions, apply
from recovery.codecs import store as keys
from recovery.codecs.store import Layout, layout_bytes
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.dataset import open_dataset
from recovery.infer import reconstruct as infer
from recovery.infer.prior import Prior, count_shapes
from recovery.infer.refusal import Refusal
from tests.simulation.bookie_dir import make_bookie
from tests.support import plans
from tests.support.command import run
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger, write_plan
from tests.support.plans import action, clock, plan_of, restore_of, state_of

ROOT = "/ledgers"


def test_a_plan_is_never_applied_to_another_cluster(tmp_path: Path) -> None:
    """Wrong era: another instance id or layout than the plan's: refused with 5, nothing written, no journal begun.

    HBase's repair of a cluster with another version's tool dropped its regions.
    """
    made = write_plan(tmp_path / "plan", [Ledger(n, [(0, ["b1", "b2", "b3"])]) for n in range(4)])
    for key, value in (("/INSTANCEID", b"of cluster B"), ("/LAYOUT", layout_bytes(Layout.FLAT))):
        store = MemoryStore()
        store.write([Write(ROOT + key, value)])
        before = state_of(store)
        with pytest.raises(GuardRefusedError, match="another cluster") as refused:
            apply(lambda: made.batches("actions"), store, ROOT, tmp_path / "j", ApplyOptions("h"), now=clock())
        assert refused.value.exit_code == 5
        assert state_of(store) == before
        assert not (tmp_path / "j").exists()


def test_ids_go_on_past_all_that_bookies_hold(tmp_path: Path) -> None:
    """A store that counts from 5,000 while bookies hold up to 5,900: the next id is above, and never goes back.

    A store that was restored from an old snapshot gave ids out twice.
    """
    store = MemoryStore()
    store.raise_counter(f"{ROOT}/idgen", 5_000)
    rows = [action("generator", "raise", "/idgen", b"5900"), *restore_of(3)[1:]]
    for number, beyond in enumerate((5_901, 5_901)):
        apply(lambda: [plan_of(rows)], store, ROOT, tmp_path / f"{number}", ApplyOptions("h"), now=clock())
        held = store.get(f"{ROOT}/idgen")
        assert held is not None
        assert held.children_created == beyond
    store.raise_counter(f"{ROOT}/idgen", 70_000)
    apply(lambda: [plan_of(rows)], store, ROOT, tmp_path / "late", ApplyOptions("h"), now=clock())
    held = store.get(f"{ROOT}/idgen")
    assert held is not None
    assert held.children_created == 70_001


@pytest.mark.parametrize("kind", ["registration", "lock", "mark", "other"])
def test_nothing_that_lives_with_a_session_is_ever_written(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registrations, locks and marks are no kind of action: a plan that has one is none, and writes nothing.

    Tools that restored ephemeral nodes as permanent ones made dead servers look alive.
    """
    monkeypatch.setitem(plans.PHASES, kind, 3)
    store = MemoryStore()
    rows = [*restore_of(2), action(kind, "create", f"{keys.AVAILABLE}/bk1:3181", b"")]
    with pytest.raises(PlanError, match="kind is not known"):
        apply(lambda: [plan_of(rows)], store, ROOT, tmp_path / "j", ApplyOptions("h"), now=clock())
    assert store.dump() == {}


def test_a_restore_makes_no_bookie_look_alive(tmp_path: Path) -> None:
    """After it no bookie is registered, nothing is locked, and no ledger is marked, whatever was restored."""
    store = MemoryStore()
    apply(lambda: [plan_of(restore_of(9))], store, ROOT, tmp_path / "j", ApplyOptions("h"), now=clock())
    assert store.children(ROOT + keys.AVAILABLE) == ["readonly"]
    assert store.children(ROOT + keys.READ_ONLY) == []
    assert store.children(ROOT + keys.UNDERREPLICATION) is None
    for key in store.dump():
        held = store.get(key)
        assert held is not None
        assert held.owner == 0


def test_a_negative_of_a_wiped_bookie_shortens_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Entry 9 on one bookie, the second wiped, the third not looked at: guarded, with all ten; never closed at 8.

    What would settle it is named, and does: with the third bookie's inventory the ledger ends at 9, whether that has
    entry 9 or not. Bookies that had lost their disks answered that they had no such entry, and a ledger was closed
    below entries that somebody had been told were safe.
    """
    names = [f"10.0.0.{n}:3181" for n in (1, 2, 3)]
    (tmp_path / "bookies").write_text("\n".join(names))
    others = {n: list(range(10)) for n in range(100, 120)}
    held = {"one": {7: list(range(10)), **others}, "wiped": {}, "short": {7: list(range(9)), **others}}
    held["whole"] = held["one"]
    found = {}
    for folder, name in (("one", names[0]), ("wiped", names[1]), ("short", names[2]), ("whole", names[2])):
        disks = make_bookie(tmp_path / folder, held[folder], bookie=name)
        found[folder] = tmp_path / f"of-{folder}"
        given = ("--ledger-dir", disks.ledger_dirs[0], "--journal-dir", disks.journal_dirs[0])
        assert run(capsys, "collect", *given, "--out", found[folder]).code == 0
    asked = ["explain", "7", "--expect-bookies", tmp_path / "bookies", "--default-quorum", "3/3/2", "--json"]
    asked += ["--inventory", found["one"], "--inventory", found["wiped"]]
    open_one = run(capsys, *asked)
    assert (open_one.code, open_one.result["outcome"]) == (3, "guarded")
    assert open_one.result["reason"] == REASONS[Refusal.SOURCE_INCOMPLETE][0]
    assert open_one.result["settled_by"] == REASONS[Refusal.SOURCE_INCOMPLETE][1]
    assert open_one.result["coverage"]["not_scanned"] == [names[2]]
    assert [copy["ranges"] for copy in open_one.result["copies"]] == [["0 to 9"]]
    assert open_one.result["reconstruction"]["fields"] == []
    for third in ("short", "whole"):
        settled = run(capsys, *asked, "--inventory", found[third])
        assert settled.result["outcome"] == "restored", settled.out
        fields = {field["name"]: field["value"] for field in settled.result["reconstruction"]["fields"]}
        assert fields["last_entry"] == "9"


def test_one_id_with_two_master_keys_is_held(tmp_path: Path) -> None:
    """A restored store gave out an id again: what two bookies hold under two keys is held with both, not restored."""
    found, passwords = [], (b"before", b"after")
    for at, secret in enumerate(passwords):
        disks = make_bookie(tmp_path / f"b{at}", {5: range(4), 6 + at: [0]}, bookie=f"b{at}:3181", password=secret)
        folders = CollectOptions(
            disks.ledger_dirs, disks.index_dirs, disks.journal_dirs, passwords=(b"before", b"after")
        )
        out = tmp_path / f"inventory-{at}"
        collect(folders, out, now=clock(), progress=lambda _: None)
        found.append(open_dataset(out, "inventory"))
    copies, bookies, damage = (
        pa.concat_tables([one.read(table) for one in found]) for table in ("copies", "bookies", "damage")
    )
    options = infer.InferOptions(passwords=passwords)
    prior = Prior.build(count_shapes(copies, bookies), None, (1, 1, 1))
    rows = {r["ledger"]: r for r in infer.reconstruct(copies, bookies, damage, prior, options).to_pylist()}
    assert {ledger: row["outcome"] for ledger, row in rows.items()} == {5: "held", 6: "restored", 7: "restored"}
    assert (rows[5]["reason"], rows[5]["holders"]) == (Refusal.TWO_KEYS, ["b0:3181", "b1:3181"])
