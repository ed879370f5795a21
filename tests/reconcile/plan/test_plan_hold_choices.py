"""What a person can choose where a ledger is held."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from reconcile.compare import three_way
from reconcile.errors import PlanError
from reconcile.plan import alternatives, plan_reader
from reconcile.plan.actions import LEAVE, Passwords, make_ledger_actions, number_actions
from reconcile.plan.edits import Edits, edit_plan
from reconcile.plan.plan_hash import Hashes, bucket_hashes, ledger_hashes, with_ids
from reconcile.rules import sides
from reconcile.rules.holds import HOLD_MARK, HOLD_PASSWORD_SIZE
from reconcile.write.apply import ApplyOptions, apply
from reconcile.write.plan_actions import survey_plan
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout, ledger_key
from recovery.dataset import Dataset, open_dataset, sort_by_key, write_manifest, write_part
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.command import run
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger, write_plan
from tests.support.plans import clock

pytestmark = pytest.mark.long

SEGMENTS = [(0, ["b1", "b2", "b3"])]
RECORD = LedgerMetadata(
    3, 3, 2, 2, LedgerState.CLOSED, 9, 90, (Segment(0, ("b1", "b2", "b3")),), Digest.CRC32C, b"pw", creator_token=0
)
OPEN = replace(RECORD, state=LedgerState.OPEN, last_entry=None, length=None)
HOLD = replace(RECORD, state=LedgerState.IN_RECOVERY, last_entry=None, length=None, custom=((HOLD_MARK, b"limbo"),))
REASONS = {
    1: "two_keys",
    2: "scope_collision",
    3: "limbo",
    4: "ragged_tail",
    5: "lengths_differ",
    6: "two_keys",
    7: "limbo",
}
EARLIER = {
    1: ledger_metadata.encode(RECORD),
    3: ledger_metadata.encode(HOLD),
    5: b"no record",
    6: ledger_metadata.encode(RECORD),
}
"""What a snapshot has: a record, a hold of an earlier restore, and bytes that nobody can read."""


STORED = (6, 7)


def catalog(records: Mapping[int, bytes]) -> pa.Table:
    """CATALOG_LEDGERS of records."""
    parsed = ledger_metadata.decode_columns(pa.array(records.values(), pa.binary()))
    ids = [LedgerId(0, n) for n in records]
    given = {
        "bucket": [one.bucket for one in ids],
        "scope": [0] * len(ids),
        "ledger": list(records),
        "raw": list(records.values()),
        "version": [4] * len(ids),
        **{name: parsed[name] for name in parsed.column_names},
    }
    columns = {f.name: given.get(f.name, pa.nulls(len(ids), f.type)) for f in tables.CATALOG_LEDGERS}
    return sort_by_key(pa.table(columns, schema=tables.CATALOG_LEDGERS))


@pytest.fixture
def made(tmp_path: Path) -> Dataset:
    """Seven held ledgers, the last two in the store.

    The second alone could be told from its bookies, and something else speaks against it.
    """
    ledgers = [Ledger(n, SEGMENTS, last=n, length=n + 1, reason=reason) for n, reason in REASONS.items()]
    dataset = write_plan(tmp_path / "plan", ledgers)
    rows = dataset.read("reconstruction")
    outcome = pa.array(["restored" if n == 2 else "held" for n in rows["ledger"].to_pylist()])
    shown = rows.set_column(rows.schema.get_field_index("outcome"), "outcome", outcome)
    past, seen = sides.pick_newest_records([(catalog(EARLIER), 1)])
    stored, history = catalog(dict.fromkeys(STORED, ledger_metadata.encode(HOLD))), tables.CATALOG_HISTORY.empty_table()
    joined = sides.compare(rows, stored, past, seen, history, has_snapshot=True)
    one = three_way.ComparedRange(rows, shown, stored, past, history, joined, np.zeros(joined.sides.num_rows, np.bool_))
    actions = dataset.read("actions")
    planned = pa.array([n is not None and n not in STORED for n in actions["ledger"].to_pylist()])
    offered, left = alternatives.offer_alternatives(
        one, Layout.HIERARCHICAL, Passwords.from_candidates(()), actions.filter(planned), tables.COPIES.empty_table()
    )
    assert left == 1
    parts = {name: dataset.parts(name) for name in dataset.manifest["tables"]}
    system = [part for part in parts["actions"] if "system" in part.file]
    new = write_part(Path(dataset.path), "actions", "offered", [offered], secret=True)
    parts["actions"] = [system[0], new, system[1]]
    kept = {name: dataset.manifest[name] for name in ("counts", "reasons", "binding", "coverage")}
    binding, coverage = kept.pop("binding"), kept.pop("coverage")
    every = pa.concat_tables([dataset.read("actions").filter(pc.is_null(actions["ledger"])), offered])
    hashes = Hashes(bucket_hashes(every), ledger_hashes(rows))
    kept["counts"] |= {"held": 5, "held_in_store": 2, "left_alone": 1, "actions": every.num_rows}
    write_manifest(
        Path(dataset.path), "plan", parts, binding=binding, coverage=coverage, secret=True, extra=kept, sign=hashes.sign
    )
    return open_dataset(dataset.path, "plan")


def test_a_hold_offers_every_whole_record_that_is_known(made: Dataset) -> None:
    """The last one of any catalog, and the bookies' own; never a hold, nor what cannot be read."""
    offered = {row["ledger"]: row["alternatives"] for row in made.read("actions").to_pylist() if row["ledger"]}
    assert {n: [one["label"] for one in others] for n, others in offered.items()} == {
        1: [alternatives.RESTORE], 2: [alternatives.FROM_BOOKIES], 3: [], 4: [], 5: [], 6: [alternatives.RESTORE]
    }  # fmt: skip
    assert offered[1][0]["value"] == EARLIER[1]
    assert offered[1][0]["reads_as"] == "CLOSED, 10 entries, 3/2/2"
    assert ledger_metadata.decode(offered[2][0]["value"]).last_entry == 2


def test_a_chosen_record_takes_the_place_of_its_hold(made: Dataset, tmp_path: Path) -> None:
    """It is created, byte for byte; the others stay held; a hold without another record says that it has none."""
    choice = {LedgerId(0, 1): "restore", LedgerId(0, 2): "from bookies"}
    edit_plan(made, Edits(choose=choice), tmp_path / "chosen")
    chosen = open_dataset(tmp_path / "chosen", "plan")
    assert plan_reader.overview(chosen, shown=0).problems == ()
    assert (chosen.manifest["counts"]["held"], chosen.manifest["counts"]["restored"]) == (3, 2)
    store = MemoryStore()
    apply(lambda: chosen.batches("actions"), store, "/ledgers", tmp_path / "j", ApplyOptions("h"), now=clock())
    records = {
        n: ledger_metadata.decode(store.dump()["/ledgers" + ledger_key(Layout.HIERARCHICAL, LedgerId(0, n))])
        for n in set(REASONS) - {*STORED}
    }
    assert records[1] == ledger_metadata.decode(EARLIER[1])
    assert {n: str(one.state) for n, one in records.items() if n > 2} == dict.fromkeys((3, 4, 5), "IN_RECOVERY")
    with pytest.raises(PlanError, match="see what would settle it: bkmeta explain 4"):
        edit_plan(made, Edits(choose={LedgerId(0, 4): "restore"}), tmp_path / "none")


def test_a_hold_in_the_store_is_replaced_by_what_was_chosen_or_removed_with_its_ledger(
    made: Dataset, tmp_path: Path
) -> None:
    """Either by its version and its bytes; nothing is written while nobody chooses."""
    (row,) = [row for row in made.read("actions").to_pylist() if row["ledger"] == 6]
    assert (row["op"], row["expects"], row["before"]) == (LEAVE, 4, ledger_metadata.encode(HOLD))
    ledger = LedgerId(0, 6)
    for name, edits, op in (
        ("chosen", Edits(choose={ledger: "restore"}), ("replace", EARLIER[6])),
        ("lost", Edits(accept_loss=frozenset({ledger})), ("remove", None)),
    ):
        edit_plan(made, edits, tmp_path / name)
        edited = open_dataset(tmp_path / name, "plan")
        assert plan_reader.overview(edited, shown=0).problems == ()
        counts = edited.manifest["counts"]
        assert (counts["held_in_store"], counts["left_alone"], counts["held"]) == (1, 0, 5)
        (row,) = [row for row in edited.read("actions").to_pylist() if row["ledger"] == 6]
        assert (row["op"], row["value"], row["expects"], row["before"]) == (*op, 4, ledger_metadata.encode(HOLD))


def test_one_record_is_chosen_for_all_that_are_held_for_a_reason(
    made: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the ledgers with that reason those that have it; who has another reason, or no such record, stays held."""
    edit = ("plan", "edit", made.path, "--choose-all", "two_keys=restore")
    assert run(capsys, *edit, "--out", tmp_path / "all").code == 0
    before, after = (
        {row["ledger"]: (row["op"], row["value"]) for row in dataset.read("actions").to_pylist() if row["ledger"]}
        for dataset in (made, open_dataset(tmp_path / "all", "plan"))
    )
    assert {n for n in after if after[n] != before[n]} == {1, 6}
    assert after[1][1] == EARLIER[1]
    assert run(capsys, *edit[:-1], "limbo=restore", "--out", tmp_path / "none").code == 2


def test_each_ledger_is_offered_its_own_records_where_there_is_a_choice() -> None:
    """A hold, what an upper layer deleted, what only a snapshot has: and no ledger gets what another one offers.

    What is restored offers nothing, nor what the store has, nor what only bytes are known of that nobody can read.
    """
    # The last of all in the order of a plan.
    last = max(range(20, 300), key=lambda n: LedgerId(0, n).bucket)
    deleted = dict.fromkeys((3, 4, last), str(Refusal.DELETED_BY_REFERENCE))
    reasons = {1: "two_keys", 2: None} | deleted
    outcomes = {1: "held", 2: "restored"} | dict.fromkeys(deleted, "deleted")
    listed = [Ledger(n, SEGMENTS, last=n, length=n + 1, reason=reason).row() for n, reason in reasons.items()]
    made = [row | {"outcome": outcomes[row["ledger"]]} for row in listed]
    rows = sort_by_key(pa.Table.from_pylist(made, schema=tables.RECONSTRUCTION))
    earlier = {n: ledger_metadata.encode(replace(RECORD, last_entry=n + 50)) for n in (1, 2, 10, 12)}
    past, seen = sides.pick_newest_records([(catalog(earlier | {11: b"no record"}), 1)])
    stored, history = catalog({4: ledger_metadata.encode(RECORD)}), tables.CATALOG_HISTORY.empty_table()
    joined = sides.compare(rows, stored, past, seen, history, has_snapshot=True)
    part = three_way.ComparedRange(rows, rows, stored, past, history, joined, np.zeros(joined.sides.num_rows, np.bool_))
    layout, passwords = Layout.HIERARCHICAL, Passwords.from_candidates(())
    planned = rows.filter(pc.is_in(rows["outcome"], pa.array(["held", "restored"])))
    actions = make_ledger_actions(planned, layout, passwords, b"\0" * HOLD_PASSWORD_SIZE)
    offered, left = alternatives.offer_alternatives(part, layout, passwords, actions, tables.COPIES.empty_table())
    found = {row["ledger"]: row for row in offered.to_pylist()}
    assert left == 4
    assert {n: (row["op"], [one["label"] for one in row["alternatives"]]) for n, row in found.items()} == {
        1: ("hold", [alternatives.RESTORE]),
        2: ("create", []),
        3: (LEAVE, [alternatives.FROM_BOOKIES]),
        last: (LEAVE, [alternatives.FROM_BOOKIES]),
        10: (LEAVE, [alternatives.RESTORE]),
        12: (LEAVE, [alternatives.RESTORE]),
    }
    assert {n: found[n]["alternatives"][0]["value"] for n in (1, 10, 12)} == {n: earlier[n] for n in (1, 10, 12)}
    assert ledger_metadata.decode(found[3]["alternatives"][0]["value"]).last_entry == 3
    assert {(row["expects"], row["before"]) for row in found.values()} == {(None, None)}


def left_alone(ledger: int, before: bytes | None = None, **offers: LedgerMetadata) -> dict[str, Any]:
    """Return an action that writes nothing unless a person chooses; of a key with some bytes, or without one."""
    labels = {"named": alternatives.GUARDED_BY_NAMES}
    alternatives_of = [
        {
            "label": labels.get(label, label),
            "value": ledger_metadata.encode(record),
            "reads_as": "CLOSED, 10 entries, 3/2/2",
        }
        for label, record in offers.items()
    ]
    return {
        "bucket": LedgerId(0, ledger).bucket, "scope": 0, "ledger": ledger, "id": b"", "seq": 0, "wave": 0, "op": LEAVE,
        "kind": "ledger", "key": ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)),
        "expects": None if before is None else 4, "before": before, "choice": 0, "alternatives": alternatives_of,
    }  # fmt: skip


LEFT = (
    left_alone(2, restore=RECORD, guarded=RECORD, named=RECORD, opened=OPEN),
    left_alone(3, restore=RECORD, guarded=RECORD, opened=OPEN),
    left_alone(4, restore=RECORD, guarded=RECORD),
    left_alone(5, ledger_metadata.encode(HOLD), restore=RECORD),
    left_alone(6, b"no record", restore=RECORD, guarded=RECORD, named=RECORD),
    left_alone(7, ledger_metadata.encode(HOLD), restore=RECORD, guarded=RECORD, named=RECORD),
    left_alone(8, ledger_metadata.encode(HOLD), restore=RECORD),
    left_alone(9, ledger_metadata.encode(HOLD), restore=RECORD),
)
"""Two that were deleted, one that only a snapshot has, a hold of the store, an unreadable record, three other holds.

An upper layer reports that the last one was deleted, while the store still holds it.
"""


@pytest.fixture
def untouched(tmp_path: Path) -> Dataset:
    """A plan that restores ledger 1, and leaves those alone; of ledger 3 no bookie has an entry."""
    highest = {2: 12, 3: None}
    rows = [Ledger(n, SEGMENTS, last=9, length=90, highest=highest.get(n, 9)).row() for n in (1, 2, 3, 5, 6, 7, 9)]
    told = {2: "deleted", 3: "deleted", 5: "held", 6: "restored", 7: "held", 9: "deleted"}
    outcomes = [row | {"outcome": told.get(row["ledger"], "restored")} for row in rows]
    dataset = write_plan(tmp_path / "plan", [Ledger(1, SEGMENTS, last=9, length=90, highest=9)])
    actions, folder = dataset.read("actions"), Path(dataset.path)
    system, ledgers = (actions.filter(of(actions["ledger"])) for of in (pc.is_null, pc.is_valid))
    offered = with_ids(number_actions([ledgers, pa.Table.from_pylist(list(LEFT), schema=tables.ACTIONS)]))
    settled = sort_by_key(pa.Table.from_pylist(outcomes, schema=tables.RECONSTRUCTION))
    parts = {name: dataset.parts(name) for name in dataset.manifest["tables"]}
    first, last = (part for part in parts["actions"] if "system" in part.file)
    parts["actions"] = [first, write_part(folder, "actions", "offered", [offered], secret=True), last]
    parts["reconstruction"] = [write_part(folder, "reconstruction", "settled", [settled], secret=True)]
    hashes = Hashes(bucket_hashes(pa.concat_tables([system, offered])), ledger_hashes(settled))
    counts = {"deleted": 2, "held_in_store": 4, "left_alone": 8, "actions": offered.num_rows + system.num_rows}
    extra = {name: dataset.manifest[name] for name in ("counts", "reasons")}
    extra["counts"] |= counts
    binding, coverage = dataset.manifest["binding"], dataset.manifest["coverage"]
    write_manifest(
        folder, "plan", parts, binding=binding, coverage=coverage, secret=True, extra=extra, sign=hashes.sign
    )
    return open_dataset(folder, "plan")


RESTORED = ("create", None, "restored")
WRITTEN = {"left_alone": -1}
OF_STORE = WRITTEN | {"released": 1}


@pytest.mark.parametrize(
    ("ledger", "label", "action", "counts"),
    [
        (2, "restore", RESTORED, WRITTEN | {"deleted": -1, "restored": 1, "entries_restored": 10, "beyond_end": 1}),
        (2, "guarded", ("create", "lock", "guarded"),
         WRITTEN | {"deleted": -1, "guarded": 1, "entries_guarded": 10, "beyond_end": 1}),
        (3, "restore", RESTORED, WRITTEN | {"deleted": -1, "restored": 1, "entries_restored": 10}),
        (2, "opened", RESTORED, WRITTEN | {"deleted": -1, "restored": 1, "entries_restored": 13}),
        (3, "opened", RESTORED, WRITTEN | {"deleted": -1, "restored": 1}),
        (4, "restore", ("create", None, None), WRITTEN | {"ledgers": 1, "restored": 1}),
        (4, "guarded", ("create", "lock", None), WRITTEN | {"ledgers": 1, "guarded": 1}),
        (5, "restore", ("replace", None, "restored"), OF_STORE | {"held_in_store": -1}),
        (6, "restore", ("replace", None, "restored"), OF_STORE),
        (7, "guarded", ("replace", "lock", "guarded"), OF_STORE | {"held_in_store": -1}),
        (8, "restore", ("replace", None, None), OF_STORE | {"held_in_store": -1}),
        (9, "restore", ("replace", None, "restored"), OF_STORE | {"held_in_store": -1}),
        (2, "", (LEAVE, None, "deleted"), {}),
        (5, "", (LEAVE, None, "held"), {}),
        (2, None, (None, None, "accepted_loss"), WRITTEN | {"deleted": -1, "accepted_loss": 1}),
        (4, None, (LEAVE, None, None), {}),
        (5, None, ("remove", None, "accepted_loss"), WRITTEN | {"held_in_store": -1, "accepted_loss": 1}),
        (6, None, (LEAVE, None, "restored"), {}),
        (9, "", (LEAVE, None, "deleted"), {}),
        (9, None, ("remove", None, "accepted_loss"), WRITTEN | {"held_in_store": -1, "accepted_loss": 1}),
    ],
)  # fmt: skip
def test_what_is_left_alone_is_written_only_where_it_is_chosen(
    ledger: int,
    label: str | None,
    action: tuple[str | None, str | None, str | None],
    counts: Mapping[str, int],
    untouched: Dataset,
    tmp_path: Path,
) -> None:
    """Created, or replaced by version; given up, a hold goes and what was deleted stays so; all else is as it was.

    Without a label its loss is accepted; with an empty one it is dropped, and then it is left as it was.

    Each count follows: what only a snapshot has was no ledger of the plan, and of the store's no entry is counted.
    """
    one = LedgerId(0, ledger)
    edits = Edits(accept_loss=frozenset({one})) if label is None else Edits(choose={one: label})
    edits = edits if label != "" else Edits(drop=frozenset({one}))
    edit_plan(untouched, edits, tmp_path / "new")
    new = open_dataset(tmp_path / "new", "plan")
    assert plan_reader.overview(new, shown=0).problems == ()
    was, now = (
        {row["ledger"]: row for row in dataset.read("actions").to_pylist() if row["ledger"]}
        for dataset in (untouched, new)
    )
    found = now.get(ledger)
    told = {row["ledger"]: row["outcome"] for row in new.read("reconstruction").to_pylist()}
    assert (found and found["op"], found and found["guard"], told.get(ledger)) == action
    if found is not None and label:
        record = OPEN if label == "opened" else RECORD
        assert (found["value"], found["expects"]) == (ledger_metadata.encode(record), was[ledger]["expects"])
    assert {n: row["op"] for n, row in now.items() if n != ledger} == {n: was[n]["op"] for n in was if n != ledger}
    before, after = (dataset.manifest["counts"] for dataset in (untouched, new))
    changed = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    changed.pop("actions", None)
    assert changed == counts


def edited(plan: Dataset, folder: Path, **edits: Any) -> Dataset:
    """Edit, and open what came of it."""
    edit_plan(plan, Edits(**edits), folder)
    new = open_dataset(folder, "plan")
    assert plan_reader.overview(new, shown=0).problems == ()
    return new


@pytest.mark.parametrize("label", ["guarded", "guarded by names"])
@pytest.mark.parametrize("ledger", [2, 6, 7])
def test_the_last_choice_is_as_if_it_were_the_only_one(
    ledger: int, label: str, untouched: Dataset, tmp_path: Path
) -> None:
    """With its guard, which apply asks for replication to be off by; of what is created, and of what is replaced."""
    one = LedgerId(0, ledger)
    at_once = edited(untouched, tmp_path / "once", choose={one: label})
    first = edited(untouched, tmp_path / "first", choose={one: "restore"})
    later = edited(first, tmp_path / "later", choose={one: label})
    assert later.manifest["counts"] == at_once.manifest["counts"]
    assert later.manifest["counts"]["guarded_by_names"] == (label == "guarded by names")
    assert later.manifest["doubts"] == at_once.manifest["doubts"]
    for table in ("actions", "reconstruction"):
        assert later.read(table).equals(at_once.read(table)), table
    again = edited(later, tmp_path / "again", choose={one: label})
    assert again.manifest["counts"] == later.manifest["counts"]


@pytest.mark.parametrize("label", ["restore", "guarded"])
def test_a_loss_is_accepted_after_a_choice_as_before_it(label: str, untouched: Dataset, tmp_path: Path) -> None:
    """The hold is removed by its version, without the guard that the choice had: apply takes such a plan."""
    one = LedgerId(0, 7)
    at_once = edited(untouched, tmp_path / "once", accept_loss=frozenset({one}))
    first = edited(untouched, tmp_path / "first", choose={one: label})
    later = edited(first, tmp_path / "later", accept_loss=frozenset({one}))
    assert later.manifest["counts"] == at_once.manifest["counts"]
    for table in ("actions", "reconstruction"):
        assert later.read(table).equals(at_once.read(table)), table
    assert (
        survey_plan(lambda: [later.read("actions").filter(pc.field("op") != LEAVE)], None).planned["ledger", "remove"]
        == 1
    )


@pytest.mark.parametrize(
    ("ledger", "label", "outcome"),
    [(5, "restore", "held"), (6, "restore", "restored"), (7, "guarded", "held"), (8, "restore", None)],
)
def test_what_would_have_been_replaced_stays_where_it_is_dropped(
    ledger: int, label: str, outcome: str | None, untouched: Dataset, tmp_path: Path
) -> None:
    """The hold of the store is a hold again, and is reported as held; an unreadable record is no hold."""
    one = LedgerId(0, ledger)
    chosen = edited(untouched, tmp_path / "chosen", choose={one: label})
    dropped = edited(chosen, tmp_path / "dropped", drop=frozenset({one}))
    assert ledger not in dropped.read("actions")["ledger"].to_pylist()
    counts = ("held_in_store", "released", "waiting", "held", "left_alone")
    assert [dropped.manifest["counts"][name] for name in counts] == [4, 0, 0, 0, 7]
    told = {row["ledger"]: row["outcome"] for row in dropped.read("reconstruction").to_pylist()}
    assert told.get(ledger) == outcome


@pytest.mark.parametrize("edits", [{"accept_loss": frozenset({LedgerId(0, 5)})}, {"drop": frozenset({LedgerId(0, 5)})},
                                   {"choose": {LedgerId(0, 5): "restore"}}])  # fmt: skip
def test_a_loss_that_was_accepted_is_no_choice_any_more(
    edits: dict[str, Any], untouched: Dataset, tmp_path: Path
) -> None:
    """Its hold goes by the plan as it is: whoever wants something else edits the plan before."""
    lost = edited(untouched, tmp_path / "lost", accept_loss=frozenset({LedgerId(0, 5)}))
    with pytest.raises(PlanError, match="5: an earlier edit accepted the loss of it"):
        edit_plan(lost, Edits(**edits), tmp_path / "again")
