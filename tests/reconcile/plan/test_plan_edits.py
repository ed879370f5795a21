"""Plans that a person changes: what is written then, what waits, and that the hash tells."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from backends.protocols import Write
from reconcile.errors import GuardRefusedError, PlanError
from reconcile.plan import edits, plan_reader
from reconcile.plan.actions import Passwords, make_ledger_actions, select_released
from reconcile.plan.alternatives import GUARDED
from reconcile.plan.bookie_starts import BookieSource, KnownBookie, StoredCookie, hash_cookie
from reconcile.plan.edits import Edits, edit_plan
from reconcile.plan.manifest import read_plan_manifest
from reconcile.rules import diff
from reconcile.rules.holds import mark_guarded
from reconcile.write.apply import ApplyOptions, apply
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout, ledger_key
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.reconcile.rules.test_sides import catalog
from tests.support.command import run
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger, write_plan
from tests.support.plans import clock

pytestmark = pytest.mark.long

ROOT = "/ledgers"
SEGMENTS = [(0, ["b1", "b2", "b3"])]


@pytest.fixture
def made(tmp_path: Path) -> Dataset:
    """Eight ledgers; 6 and 7 are held."""
    ledgers = [Ledger(n, SEGMENTS, reason="hole" if n > 5 else None) for n in range(8)]
    return write_plan(tmp_path / "plan", ledgers)


def edited(made: Dataset, out: Path, **edits: Any) -> Dataset:
    """Edit, and open what came of it."""
    edit_plan(made, Edits(**edits), out)
    found = open_dataset(out, "plan")
    found.verify()
    assert plan_reader.overview(found, shown=0).problems == ()
    return found


def rows(dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Return the actions by key."""
    return {row["key"]: row for row in dataset.read("actions").to_pylist()}


def key(ledger: int) -> str:
    """Where a ledger's record stands."""
    return ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger))


def captured(made: Dataset, store: MemoryStore, **ledgers: bytes) -> None:
    """Put what a store had into the plan's folder, as `recover` does."""
    held = [
        {"path": path.removeprefix(ROOT), "kind": "other", "raw": one.value, "version": one.version, "owner": 0}
        for path in store.dump()
        if (one := store.get(path)) is not None and path != ROOT
    ]
    records = ledger_metadata.decode_columns(pa.array(list(ledgers.values()), pa.binary()))
    ids = [LedgerId(0, int(name[1:])) for name in ledgers]
    base = {
        "bucket": [x.bucket for x in ids], "scope": [0] * len(ids), "ledger": [x.ledger for x in ids],
        "raw": list(ledgers.values()), "version": [0] * len(ids),
    }  # fmt: skip
    columns = {
        field.name: pa.array(base[field.name], field.type)
        if field.name in base
        else records[field.name] if field.name in records.column_names
        else pa.nulls(len(ids), field.type)
        for field in tables.CATALOG_LEDGERS
    }  # fmt: skip
    with DatasetWriter(Path(made.path) / "store", "catalog", binding={}, secret=True) as writer:
        writer.append("nodes", pa.Table.from_pylist(held, schema=tables.CATALOG_NODES))
        writer.append("ledgers", pa.table(columns, schema=tables.CATALOG_LEDGERS))
        writer.close(coverage={})


def test_dropped_and_accepted_ledgers_are_not_written(made: Dataset, tmp_path: Path) -> None:
    """Both have no action; one waits and keeps the cookies back, the other is settled by a person; the hash is new."""
    waiting = edited(made, tmp_path / "a", drop=frozenset({LedgerId(0, 3)}))
    assert set(rows(made)) - set(rows(waiting)) == {key(3)}
    assert waiting.manifest["hash"] != made.manifest["hash"]
    assert waiting.manifest["binding"]["edited_from"] == made.manifest["hash"]
    assert (waiting.manifest["binding"]["cookies_held_back"], waiting.manifest["counts"]["waiting"]) == (True, 1)
    settled = edited(made, tmp_path / "b", accept_loss=frozenset({LedgerId(0, 7)}))
    assert set(rows(made)) - set(rows(settled)) == {key(7)}
    assert settled.manifest["binding"]["cookies_held_back"] is False
    assert settled.manifest["counts"]["held"] == 1
    outcome = {row["ledger"]: row["outcome"] for row in settled.read("reconstruction").to_pylist()}
    assert (outcome[7], outcome[6], outcome[1]) == ("accepted_loss", "held", "restored")
    again = edited(settled, tmp_path / "c", drop=frozenset({LedgerId(0, 1)}))
    assert len(again.manifest["binding"]["edits"]) == 2


@pytest.mark.parametrize(
    "edits",
    [
        {"drop": frozenset({LedgerId(0, 99)})},
        {"accept_loss": frozenset({LedgerId(0, 99)})},
        {"choose": {LedgerId(0, 1): "length=5"}},
        {"drop": frozenset({LedgerId(0, 1)}), "accept_loss": frozenset({LedgerId(0, 1)})},
        {"replace_instance_id": True},
        {"replace_cookies": frozenset({"b1"})},
    ],
)
def test_edits_of_what_is_not_there_are_refused(made: Dataset, tmp_path: Path, edits: dict[str, Any]) -> None:
    """A ledger, an alternative or a node that the plan does not have: named, and no plan is left behind."""
    with pytest.raises(PlanError):
        edit_plan(made, Edits(**edits), tmp_path / "new")
    assert not (tmp_path / "new" / "manifest.json").exists()


def test_rights_are_part_of_the_plan(made: Dataset, tmp_path: Path) -> None:
    """Every key that is created names them, and gets them."""
    found = edited(made, tmp_path / "a", acl="digest:me:x=:cdrwa")
    assert {row["acl"] for row in rows(found).values()} == {"digest:me:x=:cdrwa"}
    store = MemoryStore()
    apply(lambda: found.batches("actions"), store, ROOT, tmp_path / "j", ApplyOptions("h"), now=clock())
    held = store.get(ROOT + key(3))
    assert held is not None
    assert held.acl == "digest:me:x=:cdrwa"


def catalog_of(folder: Path, instance: str, ledgers: pa.Table | None = None) -> Path:
    """A capture of a store of a cluster, with open rights."""
    source: dict[str, Any] = {
        "kind": "zookeeper",
        "uri": "zk://x/y",
        "instance_id": instance,
        "root": "there",
        "gaps": [],
        "complete": True,
        "at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    node = {"path": "/LAYOUT", "kind": "layout", "raw": b"", "version": 0, "acl": "world:anyone:cdrwa"}
    with DatasetWriter(folder, "catalog", binding={}) as writer:
        writer.append("sources", pa.Table.from_pylist([source], schema=tables.CATALOG_SOURCES))
        writer.append("nodes", pa.Table.from_pylist([node], schema=tables.CATALOG_NODES))
        if ledgers is not None:
            writer.append("ledgers", ledgers)
        writer.close(coverage={})
    return folder


def test_rights_of_a_catalog_are_those_of_each_ledger(made: Dataset, tmp_path: Path) -> None:
    """What it does not have gets what is commonest; a ledger that it has keeps its own."""
    own = {1: "digest:a:x=:cdrwa", 2: "digest:b:x=:cdrwa", 3: "digest:b:x=:cdrwa"}
    listed = catalog({LedgerId(0, n): b"record" for n in own})
    acls = pa.array([own[n] for n in listed["ledger"].to_pylist()], pa.string())
    at = tables.CATALOG_LEDGERS.get_field_index("acl")
    of = catalog_of(tmp_path / "catalog", "an-instance", listed.set_column(at, tables.CATALOG_LEDGERS.field(at), acls))
    found = rows(edited(made, tmp_path / "a", acl_of=open_dataset(of, "catalog")))
    assert {n: found[key(n)]["acl"] for n in range(8)} == {n: own.get(n, own[2]) for n in range(8)}


def test_rights_of_another_cluster_are_refused(
    made: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A catalog of another INSTANCEID names whom another cluster trusts: both are said, and no plan is made."""
    edit = ("plan", "edit", made.path, "--acl-of")
    theirs = run(capsys, *edit, f"catalog://{catalog_of(tmp_path / 'a', 'staging')}", "--out", tmp_path / "no")
    assert (theirs.code, "staging" in theirs.err, "an-instance" in theirs.err) == (2, True, True)
    assert not (tmp_path / "no" / "manifest.json").exists()
    same = f"catalog://{catalog_of(tmp_path / 'b', 'an-instance')}"
    assert run(capsys, *edit, same, "--out", tmp_path / "yes").code == 0


def test_rights_that_lock_out_are_warned_of(
    made: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who edits may connect as another than who applies: the plan is made, and what apply would refuse is said."""
    monkeypatch.delenv("BKMETA_ZK_AUTH", raising=False)
    edit = ("plan", "edit", made.path, "--acl", "digest:them:x=:cdrwa", "--out")
    warned = run(capsys, *edit, tmp_path / "warned")
    assert warned.code == 0
    assert "WARNING: digest:them:x=:cdrwa leaves a session that connects without a name without cdr" in warned.out
    monkeypatch.setenv("BKMETA_ZK_AUTH", "us:secret")
    assert "WARNING" in run(capsys, *edit, tmp_path / "ours").out
    opened = run(capsys, "plan", "edit", made.path, "--acl", "world:anyone:cdrwa", "--out", tmp_path / "open")
    assert "WARNING" not in opened.out


def test_a_store_that_was_initialised_again_is_replaced_only_when_told(made: Dataset, tmp_path: Path) -> None:
    """Another instance id stops an apply; a plan that replaces it is applied, and replaces no third one."""
    store = MemoryStore()
    store.write([Write(f"{ROOT}/INSTANCEID", b"another")])
    captured(made, store)
    with pytest.raises(GuardRefusedError, match="another cluster"):
        apply(lambda: made.batches("actions"), store, ROOT, tmp_path / "j1", ApplyOptions("h"), now=clock())
    told = edited(made, tmp_path / "told", replace_instance_id=True)
    row = rows(told)["/INSTANCEID"]
    assert (row["op"], row["before"], row["expects"]) == ("replace", b"another", 0)
    third = MemoryStore()
    third.write([Write(f"{ROOT}/INSTANCEID", b"a third")])
    with pytest.raises(GuardRefusedError):
        apply(lambda: told.batches("actions"), third, ROOT, tmp_path / "j2", ApplyOptions("h"), now=clock())
    done = apply(lambda: told.batches("actions"), store, ROOT, tmp_path / "j3", ApplyOptions("h"), now=clock())
    assert done.exit_code == 0
    assert store.dump()[f"{ROOT}/INSTANCEID"] == b"an-instance"


def test_a_hold_is_released_and_its_loss_can_be_accepted(made: Dataset, tmp_path: Path) -> None:
    """Restored now, a ledger's hold is replaced by version; given up, its hold is removed; others are left alone."""
    holds = {row["ledger"]: row["value"] for row in made.read("actions").to_pylist() if row["op"] == "hold"}
    store = MemoryStore()
    store.write([Write(ROOT + key(n), value) for n, value in holds.items()])
    captured(made, store, **{f"L{n}": value for n, value in holds.items()})
    stored = open_dataset(Path(made.path) / "store", "catalog").read("ledgers")
    restored = pa.Table.from_pylist([Ledger(7, SEGMENTS).row()], schema=tables.RECONSTRUCTION)
    released, of_store = select_released(
        restored, stored, diff.match(restored, stored), mark_guarded(stored, frozenset())
    )
    assert stored.filter(pa.array(of_store))["ledger"].to_pylist() == [7]
    actions = make_ledger_actions(released, Layout.HIERARCHICAL, Passwords.from_candidates([]), b"")
    [row] = actions.to_pylist()
    assert (row["op"], row["expects"], row["before"]) == ("replace", 0, holds[7])
    assert ledger_metadata.decode(row["value"]).state == "CLOSED"

    nothing = write_plan(tmp_path / "nothing", [Ledger(1, SEGMENTS)])
    captured(nothing, store, **{f"L{n}": value for n, value in holds.items()})
    given_up = edited(nothing, tmp_path / "given-up", accept_loss=frozenset({LedgerId(0, 6)}))
    removed = rows(given_up)[key(6)]
    assert (removed["op"], removed["expects"], removed["before"]) == ("remove", 0, holds[6])
    assert (
        apply(
            lambda: given_up.batches("actions"), store, ROOT, tmp_path / "j", ApplyOptions("h"), now=clock()
        ).exit_code
        == 0
    )
    assert ROOT + key(6) not in store.dump()
    assert store.dump()[ROOT + key(7)] == holds[7]


def test_as_it_is_typed(made: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Edits are lines of what is printed and of the plan; what says nothing is usage."""
    out = ("--out", tmp_path / "new", "--json")
    done = run(capsys, "plan", "edit", made.path, "--drop", "3", "--accept-loss", "7", *out)
    assert (done.code, done.result["edits"]) == (0, ["dropped 3", "loss of 7 accepted"])
    shown = run(capsys, "plan", "show", tmp_path / "new")
    assert "edited: loss of 7 accepted" in shown.out
    (tmp_path / "lost").write_text("7\n")
    listed = run(
        capsys, "plan", "edit", made.path, "--accept-loss-of", tmp_path / "lost", "--out", tmp_path / "of", "--json"
    )
    assert listed.result["edits"] == ["loss of 7 accepted"]
    for words in ([], ["--drop", "x"], ["--choose", "3"], ["--acl", "nobody"], ["--acl-of", "zk://x/y"]):
        assert run(capsys, "plan", "edit", made.path, *words, "--out", tmp_path / "bad").code == 2


def test_held_ledgers_are_decided_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By their reason, a bookie that holds them, and a list of ids; never all of them by leaving that open."""
    held = [Ledger(n, SEGMENTS, reason="hole" if n < 3 else "damage") for n in range(5)]
    write_plan(tmp_path / "plan", held)
    (tmp_path / "ids").write_text("1\n3\n")
    command = ("plan", "edit", tmp_path / "plan", "--accept-loss-all")

    def left(name: str, where: str) -> set[int]:
        assert run(capsys, *command, "--where", where, "--out", tmp_path / name).code == 0
        rows = open_dataset(tmp_path / name, "plan").read("reconstruction").to_pylist()
        return {row["ledger"] for row in rows if row["outcome"] == "held"}

    assert left("by-reason", "reason=hole") == {3, 4}
    assert left("by-list", f"ledger in {tmp_path / 'ids'}") == {0, 2, 4}
    assert left("by-both", f"reason=hole and bookie=b1 and ledger in {tmp_path / 'ids'}") == {0, 2, 3, 4}
    for wrong in (("--where", "bookie=b9"), ("--where", "size=1"), ()):
        assert run(capsys, *command, *wrong, "--out", tmp_path / "none").code == 2
    nobody = ("plan", "edit", tmp_path / "plan", "--choose-all", "hole=restore", "--out", tmp_path / "none")
    assert "holds no such ledger with an alternative 'restore'" in run(capsys, *nobody).err


def test_entries_and_reasons_are_counted_by_what_becomes_of_them_now(tmp_path: Path) -> None:
    """Held ones that a choice makes readable are guarded, but for those that nobody serves; what is dropped is gone."""
    ends = {1: 9, 2: 19, 3: 29, 4: 39, 5: 49}
    guards, reasons = {2: "lock", 3: "named"}, {4: "two_keys", 5: "hole"}
    record = ledger_metadata.encode(
        LedgerMetadata(
            3,
            3,
            2,
            2,
            LedgerState.CLOSED,
            34,
            90,
            (Segment(0, ("b1", "b2", "b3")),),
            Digest.CRC32C,
            b"",
            creator_token=0,
        )
    )
    ledgers = [
        Ledger(
            n,
            SEGMENTS,
            last=end,
            guard=guards.get(n),
            reason=reasons.get(n),
            offers={GUARDED: record} if n == 4 else {},
        )
        for n, end in ends.items()
    ]
    made = write_plan(tmp_path / "plan", ledgers, words="CLOSED, 35 entries, 3/2/2, 5 entries that nobody serves")

    def count(dataset: Dataset) -> tuple[int, ...]:
        counts = dataset.manifest["counts"]
        shares = ("entries_restored", "entries_guarded", "entries_held", "guarded_by_names")
        return tuple(counts[name] for name in shares)

    assert count(made) == (10, 20 + 30, 40 + 50, 1)
    chosen = edited(made, tmp_path / "a", choose={LedgerId(0, 4): GUARDED})
    assert count(chosen) == (10, 20 + 30 + 30, 50, 1)
    assert (chosen.manifest["reasons"], chosen.manifest["doubts"]) == ({"hole": 1}, {"two_keys": 1})
    gone = edited(chosen, tmp_path / "b", drop=frozenset({LedgerId(0, 3)}), accept_loss=frozenset({LedgerId(0, 5)}))
    assert count(gone) == (10, 20 + 30, 0, 0)
    assert gone.manifest["reasons"] == {}


def test_an_open_record_reads_up_to_what_bookies_have(tmp_path: Path) -> None:
    """A chosen record that is not closed has no end: its entries are those that bookies hold, if they hold any."""
    members = Segment(0, ("b1", "b2", "b3"))
    record = ledger_metadata.encode(
        LedgerMetadata(
            3, 3, 2, 2, LedgerState.OPEN, None, None, (members,), Digest.CRC32C, b"", creator_token=0
        )
    )  # fmt: skip
    ledgers = [
        Ledger(n, SEGMENTS, last=end, reason="two_keys", offers={GUARDED: record}) for n, end in ((1, 39), (2, None))
    ]
    made = write_plan(tmp_path / "plan", ledgers, words="OPEN, 3/2/2")
    chosen = edited(made, tmp_path / "a", choose={LedgerId(0, n): GUARDED for n in (1, 2)})
    assert [chosen.manifest["counts"][f"entries_{share}"] for share in ("guarded", "held")] == [40, 0]


def test_what_ends_below_entries_that_bookies_hold_is_counted_again(tmp_path: Path) -> None:
    """A choice moves an end up or down, another is dropped, and what was held is readable up to a record's end."""
    record = LedgerMetadata(
        3, 3, 2, 2, LedgerState.CLOSED, 9, 90, (Segment(0, ("b1", "b2", "b3")),), Digest.CRC32C, b""
    )
    offers = {end: ledger_metadata.encode(replace(record, last_entry=end)) for end in (4, 9)}
    ledgers = [
        Ledger(1, SEGMENTS, last=4, highest=9, offers={"up": offers[9]}),
        Ledger(2, SEGMENTS, last=9, highest=9, offers={"down": offers[4]}),
        Ledger(3, SEGMENTS, last=4, highest=9),
        Ledger(4, SEGMENTS, last=9, highest=9, reason="hole", offers={GUARDED: offers[4]}),
    ]
    made = write_plan(tmp_path / "plan", ledgers, words="CLOSED, 5 entries, 3/2/2")

    def count(name: str, **edits: Any) -> int:
        counted = edited(made, tmp_path / name, **edits).manifest["counts"]["beyond_end"]
        assert isinstance(counted, int)
        return counted

    one, two, three, four = (LedgerId(0, n) for n in range(1, 5))
    assert count("up", choose={one: "up"}) == 1
    assert count("down", choose={two: "down"}) == 3
    assert count("dropped", drop=frozenset({three}), accept_loss=frozenset({one})) == 0
    assert count("guarded", choose={four: GUARDED}) == 3
    assert count("as it was", acl="world:anyone:cdrwa") == 2


def test_every_edit_is_a_line_of_the_plan(made: Dataset, tmp_path: Path) -> None:
    """Ids in their order; what was not asked for is not said."""
    of = open_dataset(catalog_of(tmp_path / "catalog", "an-instance"), "catalog")
    one, two, ten = (LedgerId(0, n) for n in (1, 2, 10))
    edits = Edits(
        drop=frozenset({two, one}),
        accept_loss=frozenset({ten}),
        choose={LedgerId(0, 3): "restore"},
        acl="world:anyone:r",
        acl_of=of,
        replace_instance_id=True,
        replace_cookies=frozenset({"b2", "b1"}),
        replace_below=frozenset({"/a"}),
        adopt={one: "topic"},
        named={two: "schema of topic"},
    )
    assert Edits().texts == []
    assert edits.texts == [
        "dropped 1",
        "dropped 2",
        "loss of 10 accepted",
        "for 3 chosen: restore",
        "rights world:anyone:r",
        f"rights as in {of.path}, {of.digest}",
        "the store's instance id is replaced",
        "the store's cookie of b1 is replaced",
        "the store's cookie of b2 is replaced",
        "what the store has at and below /a is replaced",
        "ledger 1 appended to topic",
        "ledger 2 named by the schema of topic",
    ]
    assert Edits(acl_of=of).texts == [f"rights as in {of.path}, {of.digest}"]
    assert Edits(acl="world:anyone:r").texts == ["rights world:anyone:r"]


def with_acls(folder: Path, nodes: Mapping[str, tuple[str, str | None]], ledgers: Mapping[int, str | None]) -> Dataset:
    """Return a capture of the plan's own cluster: path → kind and rights of nodes, and the rights of ledgers."""
    source: dict[str, Any] = {
        "kind": "zookeeper", "uri": "zk://x/y", "instance_id": "an-instance", "root": "there", "gaps": [],
        "complete": True, "at": datetime(2026, 1, 1, tzinfo=UTC),
    }  # fmt: skip
    listed = [{"path": path, "kind": kind, "raw": b"", "version": 0, "acl": acl} for path, (kind, acl) in nodes.items()]
    records = catalog({LedgerId(0, n): b"record" for n in ledgers})
    at = tables.CATALOG_LEDGERS.get_field_index("acl")
    acls = pa.array([ledgers[n] for n in records["ledger"].to_pylist()], pa.string())
    with DatasetWriter(folder, "catalog", binding={}) as writer:
        writer.append("sources", pa.Table.from_pylist([source], schema=tables.CATALOG_SOURCES))
        writer.append("nodes", pa.Table.from_pylist(listed, schema=tables.CATALOG_NODES))
        writer.append("ledgers", records.set_column(at, tables.CATALOG_LEDGERS.field(at), acls))
        writer.close(coverage={})
    return open_dataset(folder, "catalog")


@pytest.mark.parametrize(
    ("nodes", "ledgers", "layout", "instance_id", "ledger_1", "ledger_2"),
    [
        # Its own, else the commonest of its kind, else that of ledgers.
        (
            {
                "/LAYOUT": ("layout", "l"), "/other": ("instance_id", "i"), "/third": ("layout", None),
                "/fourth": ("layout", "m"), "/fifth": ("layout", "m"),
            },
            {1: "a", 3: "b", 4: "b"},
            "l", "i", "a", "b",
        ),
        ({"/x": ("layout", "l"), "/y": ("layout", "m"), "/z": ("layout", "m")}, {3: "b"}, "m", "b", "b", "b"),
        ({"/x": ("layout", "m"), "/y": ("cookie", "m")}, {3: "b"}, "m", "b", "b", "b"),
        # No ledger has any: the commonest of all kinds.
        ({"/x": ("cookie", "c"), "/y": ("layout", "l"), "/z": ("node", "c")}, {1: None}, "l", "c", "c", "c"),
        ({}, {1: "a"}, "a", "a", "a", "a"),
    ],
)  # fmt: skip
def test_what_a_catalog_lacks_gets_the_commonest_rights_of_its_kind(
    nodes: Mapping[str, tuple[str, str | None]],
    ledgers: Mapping[int, str | None],
    layout: str,
    instance_id: str,
    ledger_1: str,
    ledger_2: str,
    made: Dataset,
    tmp_path: Path,
) -> None:
    """Nodes and ledgers: their own, then those of their kind, then those of most."""
    found = rows(edited(made, tmp_path / "a", acl_of=with_acls(tmp_path / "catalog", nodes, ledgers)))
    told = (found["/LAYOUT"], found["/INSTANCEID"], found[key(1)], found[key(2)])
    assert [row["acl"] for row in told] == [layout, instance_id, ledger_1, ledger_2]


def test_named_rights_win_and_a_catalog_without_any_is_refused(made: Dataset, tmp_path: Path) -> None:
    """Rights that are written out are those of all; a catalog that says nothing of rights gives none."""
    of = with_acls(tmp_path / "catalog", {"/LAYOUT": ("layout", "l")}, {1: "a"})
    found = rows(edited(made, tmp_path / "a", acl="world:anyone:r", acl_of=of))
    assert {row["acl"] for row in found.values()} == {"world:anyone:r"}
    again = edited(open_dataset(tmp_path / "a", "plan"), tmp_path / "b", drop=frozenset({LedgerId(0, 3)}))
    assert {row["acl"] for row in rows(again).values()} == {"world:anyone:r"}
    none = with_acls(tmp_path / "none", {"/LAYOUT": ("layout", None)}, {1: None})
    with pytest.raises(PlanError, match="has no ACLs of any key"):
        edit_plan(made, Edits(acl_of=none), tmp_path / "c")


@pytest.mark.parametrize(
    ("stored", "cookies", "problem"),
    [
        ({}, {"b1"}, "no such node in the store that it was made for"),
        ({"/INSTANCEID": b"x"}, set(), "no such node in the store that it was made for"),
        ({"/cookies/b9": b"x"}, {"b9"}, "no action for it"),
    ],
)
def test_only_what_both_have_is_replaced(
    stored: Mapping[str, bytes], cookies: set[str], problem: str, tmp_path: Path
) -> None:
    """A cookie that the store lacks, one that the plan has no action of: each is named."""
    made = write_plan(tmp_path / "plan", [Ledger(1, SEGMENTS)], cookies={"b1": b"ours", "b2": b"ours"})
    store = MemoryStore()
    store.write([Write(ROOT + path, value) for path, value in {"/keep": b"", **stored}.items()])
    captured(made, store)
    wanted = frozenset(cookies or {"b2"})
    with pytest.raises(PlanError, match=problem):
        edit_plan(made, Edits(replace_cookies=wanted), tmp_path / "new")


def test_a_cookie_of_the_store_is_replaced_by_version(tmp_path: Path) -> None:
    """The bookie then starts with its own; one that is the same already is created if absent, as before."""
    theirs, ours = b"theirs", b"ours"
    bookies = [
        KnownBookie(name, BookieSource.DISKS, complete=True, cookie=hash_cookie(ours), stored=StoredCookie.OTHER,
                    planned=StoredCookie.OTHER)
        for name in ("b1", "b2", "b3")
    ]  # fmt: skip
    made = write_plan(
        tmp_path / "plan", [Ledger(1, SEGMENTS)], cookies=dict.fromkeys(("b1", "b2", "b3"), ours), bookies=bookies
    )
    store = MemoryStore()
    store.write([Write(f"{ROOT}/cookies/{name}", raw) for name, raw in (("b1", theirs), ("b2", ours), ("b3", theirs))])
    captured(made, store)
    new = edited(made, tmp_path / "new", replace_cookies=frozenset({"b1", "b2"}))
    found = rows(new)
    assert [found[f"/cookies/{name}"]["op"] for name in ("b1", "b2", "b3")] == ["replace", "create", "create"]
    assert (found["/cookies/b1"]["expects"], found["/cookies/b1"]["before"]) == (0, theirs)
    planned = {known.bookie: known.planned for known in read_plan_manifest(new).bookies}
    assert planned == {"b1": StoredCookie.OWN, "b2": StoredCookie.OWN, "b3": StoredCookie.OTHER}


def test_only_holds_whose_loss_is_accepted_are_removed_from_the_store(tmp_path: Path) -> None:
    """One that is dropped stays there: the plan has nothing of it to edit, and says so."""
    held = [Ledger(n, SEGMENTS, reason="hole") for n in (6, 7)]
    holds = {row["ledger"]: row["value"] for row in rows(write_plan(tmp_path / "held", held)).values() if row["ledger"]}
    made = write_plan(tmp_path / "plan", [Ledger(1, SEGMENTS)])
    captured(made, MemoryStore(), **{f"L{n}": value for n, value in holds.items()})
    six, seven = (LedgerId(0, n) for n in (6, 7))
    with pytest.raises(PlanError, match="has nothing of ledger 7 to edit"):
        edit_plan(made, Edits(accept_loss=frozenset({six}), drop=frozenset({seven})), tmp_path / "both")
    found = rows(edited(made, tmp_path / "one", accept_loss=frozenset({six})))
    assert {row["ledger"]: row["op"] for row in found.values() if row["ledger"]} == {1: "create", 6: "remove"}


def test_a_lock_of_a_reused_id_goes_with_the_older_ledger_alone(tmp_path: Path) -> None:
    """Not made, or removed by version; the record of the younger one is touched by nothing, and nothing else is."""
    plan = write_plan(tmp_path / "plan", [Ledger(1, SEGMENTS)], reused=[LedgerId(0, 5), LedgerId(0, 6)])
    five = LedgerId(0, 5)
    new = edited(plan, tmp_path / "new", accept_loss=frozenset({five}))
    assert {row["ledger"] for row in rows(new).values() if row["kind"] == "reuse_lock"} == {6}
    assert new.manifest["counts"]["reuse_locks"] == 1
    for bad in (Edits(drop=frozenset({five})), Edits(choose={five: "restore"})):
        with pytest.raises(PlanError, match="two ledgers have the id; export the older one, and accept its loss"):
            edit_plan(plan, bad, tmp_path / "bad")


@pytest.mark.parametrize(
    ("op", "now", "changed"),
    [("keep", None, {"reuse_locks": -1}), ("leave", "remove", {"left_alone": -1}), ("remove", "remove", {})],
)
def test_a_lock_of_a_reused_id_is_not_made_or_removed(
    op: str, now: str | None, changed: Mapping[str, int], made: Dataset
) -> None:
    """Whether the plan makes it, leaves it in the store, or removes it anyway."""
    five = LedgerId(0, 5)
    editor = edits._Editor(made, Edits(accept_loss=frozenset({five})))
    row = {"kind": "reuse_lock", "op": op, "key": "k"}
    assert editor._edit_action(five, row, {}) == (None if now is None else row | {"op": now})
    assert {name: count for name, count in editor.changed.items() if count} == changed


@pytest.mark.parametrize("op", ["create", "replace"])
@pytest.mark.parametrize("guard", [None, "lock", "named"])
def test_another_number_leaves_a_record_under_its_guard(op: str, guard: str | None, made: Dataset) -> None:
    """An end or a length that a person chooses says nothing of copies: what keeps them stays."""
    one = LedgerId(0, 1)
    row = rows(made)[key(1)] | {"op": op, "guard": guard}
    editor = edits._Editor(made, Edits(choose={one: "last_entry=7"}))
    found = editor._edit_action(one, row, {"last_entry=7": ("last_entry", 7)})
    assert found is not None
    assert (found["op"], found["guard"]) == (op, guard)
    assert ledger_metadata.decode(found["value"]).last_entry == 7
    assert not any(editor.changed.values())


def test_holds_are_removed_behind_the_actions_of_their_bucket(tmp_path: Path) -> None:
    """Each has a place in the order for itself, also where the plan has nothing else in that bucket."""
    alike: dict[int, list[int]] = {}
    for n in range(20_000):
        alike.setdefault(LedgerId(0, n).bucket, []).append(n)
    (planned, one, two, *_), (alone, *_) = alike[4], alike[7]
    held = write_plan(tmp_path / "held", [Ledger(n, SEGMENTS, reason="hole") for n in (one, two, alone)])
    holds = {row["ledger"]: row["value"] for row in rows(held).values() if row["ledger"]}
    made = write_plan(tmp_path / "plan", [Ledger(planned, SEGMENTS)])
    captured(made, MemoryStore(), **{f"L{n}": value for n, value in holds.items()})
    new = edited(made, tmp_path / "new", accept_loss=frozenset(LedgerId(0, n) for n in (one, two, alone)))
    found = [(row["seq"], row["ledger"], row["op"]) for row in rows(new).values() if row["ledger"]]
    assert [(seq >> 32 & 0xFFFF, ledger, op) for seq, ledger, op in found] == [
        (4, planned, "create"), (4, one, "remove"), (4, two, "remove"), (7, alone, "remove")
    ]  # fmt: skip
    assert sorted({seq for seq, *_ in found}) == [seq for seq, *_ in found]
