"""Plans: the bytes that are proposed, their order, and the hash that binds them."""

import hashlib
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.compare import outcomes
from reconcile.findings.table import FindingRun
from reconcile.plan import actions
from reconcile.plan.actions import (
    Passwords,
    PlanPhase,
    SystemWrite,
    make_ledger_actions,
    make_system_actions,
    phase_of,
    select_released,
)
from reconcile.plan.plan_hash import Hashes, action_ids, bucket_hashes, plan_hash
from reconcile.rules import diff, holds
from reconcile.rules.holds import HOLD_PASSWORD_SIZE
from recovery.codecs import ledger_metadata, store
from recovery.codecs.entry import master_key
from recovery.codecs.store import Layout
from recovery.dataset import sort_by_key
from recovery.model import tables
from recovery.model.ids import BUCKETS, LedgerId
from recovery.model.metadata import Digest, LedgerState

PASSWORDS = Passwords.from_candidates([b"hunter2"])
KEYS = dict(zip(PASSWORDS.values, PASSWORDS.key_hashes, strict=True))
GRADES = dict.fromkeys(tables.GRADED, "inferred")


def row(ledger: int, **changes: object) -> dict[str, object]:
    """One restored ledger of three bookies; `changes` win."""
    base: dict[str, object] = {
        "bucket": LedgerId(0, ledger).bucket,
        "scope": 0,
        "ledger": ledger,
        "class": "clean",
        "outcome": "restored",
        "format": 3,
        "state": "CLOSED",
        "ensemble_size": 3,
        "write_quorum": 2,
        "ack_quorum": 2,
        "last_entry": 9,
        "length": 100,
        "digest": "CRC32C",
        "key": KEYS[b""],
        "segments": [{"first": 0, "first_low": 0, "members": ["b0:1", "b1:1", "b2:1"], "assumed": [False] * 3}],
        "custom": [],
        "grades": GRADES,
        "missing": 0,
        "extra": 0,
        "holders": ["b0:1", "b1:1", "b2:1"],
        "alternatives": [],
    }
    return {**base, **changes}


def held(ledger: int, holders: list[str], reason: str = "damage") -> dict[str, object]:
    """One ledger that is not restored."""
    empty = dict.fromkeys(("format", "state", "ensemble_size", "write_quorum", "ack_quorum", "last_entry", "length"))
    return row(
        ledger,
        **empty,
        **{"class": "undecided"},
        outcome="held",
        reason=reason,
        digest=None,
        segments=None,
        holders=holders,
    )


def reconstruction(*rows: dict[str, object]) -> pa.Table:
    """A table of such rows, sorted."""
    return sort_by_key(pa.Table.from_pylist(list(rows), schema=tables.RECONSTRUCTION))


def actions_of(*rows: dict[str, object]) -> pa.Table:
    """The ledger actions for such rows, with secrets that can be told apart."""
    table = reconstruction(*rows)
    secrets = bytes(range(256)) * (1 + len(rows) * HOLD_PASSWORD_SIZE // 256)
    return make_ledger_actions(table, Layout.HIERARCHICAL, PASSWORDS, secrets)


def test_a_restored_ledger_becomes_the_record_that_its_row_says() -> None:
    """Decoded again, the bytes say what was reconstructed, with the password whose key the bookies hold."""
    (action,) = actions_of(row(7, key=KEYS[b"hunter2"])).to_pylist()
    record = ledger_metadata.decode(action["value"])
    assert action["key"] == "/00/0000/L0007"
    assert (action["op"], action["kind"], action["expects"]) == ("create", "ledger", None)
    assert (record.format, record.password, record.digest) == (3, b"hunter2", Digest.CRC32C)
    assert (record.state, record.last_entry, record.length) == (LedgerState.CLOSED, 9, 100)
    assert [(s.first, s.members) for s in record.segments] == [(0, ("b0:1", "b1:1", "b2:1"))]


def test_an_unknown_password_is_written_as_format_1_which_has_none() -> None:
    """No password is made up: format 1 lets anybody who knows it open the ledger."""
    (action,) = actions_of(row(7, key=hashlib.sha256(master_key(b"other")).digest(), format=1, digest=None)).to_pylist()
    record = ledger_metadata.decode(action["value"])
    assert (record.format, record.password, record.digest) == (1, None, None)


def test_a_hold_is_exactly_the_form_that_was_seen_to_lose_nothing() -> None:
    """IN_RECOVERY, HMAC, a random password, one segment of exactly the holders, E = W = their number, A = 1 (law 5)."""
    actions = actions_of(held(1, ["b0:1"]), row(2), held(3, ["b0:1", "b3:1"], "two_keys")).to_pylist()
    records = {a["ledger"]: (a["op"], ledger_metadata.decode(a["value"])) for a in actions}
    assert records[2][0] == "create"
    for ledger, members in ((1, ("b0:1",)), (3, ("b0:1", "b3:1"))):
        op, record = records[ledger]
        assert op == "hold"
        assert (record.state, record.digest, record.ack_quorum) == (LedgerState.IN_RECOVERY, Digest.HMAC, 1)
        assert record.ensemble_size == record.write_quorum == len(members)
        assert [(s.first, s.members) for s in record.segments] == [(0, members)]
        assert not ledger_metadata.problems(record)
    passwords = [records[ledger][1].password for ledger in (1, 3)]
    assert passwords[0] != passwords[1]
    assert all(p and len(p) == HOLD_PASSWORD_SIZE and p not in PASSWORDS.values for p in passwords)
    assert dict(records[3][1].custom) == {holds.HOLD_MARK: b"two_keys"}


@given(st.lists(st.integers(0, 2**63 - 1), unique=True, min_size=1, max_size=30), st.data())
def test_every_ledger_gets_one_action_at_its_key_in_a_unique_order(ids: list[int], data: st.DataObject) -> None:
    """Restored and held rows mixed in any way: each at its own key, sequence numbers unique and inside their phase."""
    rows = [row(i) if data.draw(st.booleans()) else held(i, ["b1:1"]) for i in ids]
    table = actions_of(*rows)
    by_ledger = {a["ledger"]: a for a in table.to_pylist()}
    assert by_ledger.keys() == set(ids)
    for ledger, action in by_ledger.items():
        assert action["key"] == store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger))
        expected = "hold" if next(r for r in rows if r["ledger"] == ledger)["outcome"] == "held" else "create"
        assert action["op"] == expected
    seqs = table["seq"].to_pylist()
    assert seqs == sorted(set(seqs))
    assert {phase_of(seq) for seq in seqs} == {PlanPhase.LEDGERS}
    assert len(set(table["id"].to_pylist())) == len(ids)


def test_ledgers_of_one_bucket_are_numbered_and_each_bucket_begins_again() -> None:
    """Behind the phase and the bucket, from 0; no two have the same place in the order."""
    found = actions._ledger_seq(pa.chunked_array([pa.array([3, 3, 7, 7, 7, 9], pa.int16())])).to_pylist()
    assert [(phase_of(seq), seq >> 32 & 0xFFFF, seq & 0xFFFF_FFFF) for seq in found] == [
        (PlanPhase.LEDGERS, bucket, number) for bucket, number in ((3, 0), (3, 1), (7, 0), (7, 1), (7, 2), (9, 0))
    ]
    assert actions._ledger_seq(pa.chunked_array([], pa.int16())).to_pylist() == []


def test_the_order_of_a_restore_is_law_6s() -> None:
    """Generators, ledgers, layout, instance id, cookies: whichever order they were named in."""
    writes = [
        SystemWrite(PlanPhase.COOKIES, "create", "cookie", "/cookies/b0:1", b"c"),
        SystemWrite(PlanPhase.INSTANCE_ID, "create", "instance_id", "/INSTANCEID", b"i"),
        SystemWrite(PlanPhase.LAYOUT, "create", "layout", "/LAYOUT", b"l"),
        SystemWrite(PlanPhase.GENERATORS, "raise", "generator", "/idgen", b"9"),
    ]
    system = make_system_actions(writes)
    both = pa.concat_tables([system, actions_of(row(1))]).sort_by("seq")
    assert both["kind"].to_pylist() == ["generator", "ledger", "layout", "instance_id", "cookie"]


def test_a_plans_hash_does_not_depend_on_how_the_work_was_cut() -> None:
    """One task or many: the same actions under the same binding have the same hash; any change gives another."""
    table = actions_of(*(row(i) for i in range(60)))
    whole = Hashes(bucket_hashes(table))
    cut = {**bucket_hashes(table.slice(0, 20)), **bucket_hashes(table.slice(20))}
    edge = table["bucket"].to_pylist()
    if edge[19] != edge[20]:
        assert cut == whole.actions
    said = {"binding": {"instance_ids": ["x"]}, "coverage": {"scanned": ["b1"]}, "tables": {}, "counts": {"held": 1}}
    same = plan_hash(said, whole)
    reverse = Hashes(dict(reversed(whole.actions.items())))
    assert plan_hash(dict(reversed(said.items())), reverse) == same
    assert plan_hash({**said, "tables": {"actions": [1]}, "digest": "x", "hash": "y"}, whole) == same
    for name, value in (("binding", {}), ("coverage", {}), ("counts", {"held": 2}), ("anything", {"x": 1})):
        assert plan_hash({**said, name: value}, whole) != same
    other = bucket_hashes(actions_of(*(row(i, length=101 if i == 5 else 100) for i in range(60))))
    assert plan_hash(said, Hashes(other)) != same
    assert plan_hash(said, Hashes(whole.actions, {3: "x"})) != same


ODD = st.one_of(st.none(), st.text("a1:-\0", max_size=4))
OTHERS = st.lists(st.text("1:-", max_size=3), max_size=3)


@given(rows=st.lists(st.tuples(ODD, ODD, ODD, OTHERS), min_size=2, max_size=2, unique_by=repr))
def test_no_two_actions_have_the_same_id(rows: list[tuple[str, str | None, str | None, list[str]]]) -> None:
    """Whatever stands where: a byte that moves to the next field, none for empty, an alternative more or less."""
    table = actions_of(row(1), row(2))
    texts = [
        [None if text is None else text.encode() for text in column]
        for column in zip(*(r[:3] for r in rows), strict=True)
    ]
    others = [[{"label": one, "value": b"", "reads_as": ""} for one in r[3]] for r in rows]
    values = {"acl": [r[0] for r in rows], "value": texts[1], "before": texts[2], "alternatives": others,
              "key": ["/k", "/k"], "expects": [None, None]}  # fmt: skip
    for name, value in values.items():
        at = tables.ACTIONS.get_field_index(name)
        table = table.set_column(at, tables.ACTIONS.field(at), pa.array(value, tables.ACTIONS.field(at).type))
    assert len(set(action_ids(table).to_pylist())) == 2


def stored(*rows: dict[str, object]) -> pa.Table:
    """A catalog of records as the store would have them for such rows."""
    columns: list[dict[str, object]] = []
    for number, given_row in enumerate(rows):
        names = ("bucket", "scope", "ledger", "state", "ensemble_size", "write_quorum", "ack_quorum", "last_entry")
        columns.append({**{name: given_row.get(name) for name in names}, "raw": b"x", "version": number,
                        "error": given_row.get("error")})  # fmt: skip
    return sort_by_key(pa.Table.from_pylist(columns, schema=tables.CATALOG_LEDGERS))


def disagreements(ours: pa.Table, theirs: pa.Table) -> dict[int, str]:
    """Ledger → category."""
    found = diff.disagreements(ours, theirs, diff.match(ours, theirs))
    return {r["ledger"]: r["category"] for r in found.to_pylist()}


def test_the_diff_proposes_only_what_the_store_lacks() -> None:
    """Present records are never proposed again, whatever they say; absent ones always are."""
    ours = reconstruction(row(1), row(2), held(3, ["b0:1"]))
    theirs = stored(row(2), row(9))
    matched = diff.match(ours, theirs)
    assert sorted(ours.take(pa.array(matched.missing))["ledger"].to_pylist()) == [1, 3]
    assert theirs.take(pa.array(matched.unheld))["ledger"].to_pylist() == [9]
    assert ours.take(pa.array(matched.held_rows))["ledger"].equals(theirs.take(pa.array(matched.stored_rows))["ledger"])


@pytest.mark.parametrize(
    ("ours", "theirs", "category"),
    [
        (row(1), row(1), None),
        (row(1), row(1, last_entry=10), "ENTRIES_MISSING"),
        (row(1), row(1, state="OPEN", last_entry=None), None),
        (row(1, grades={**GRADES, "ensemble_size": "observed"}), row(1, ensemble_size=4), "QUORUM_DIFFERS"),
        (row(1), row(1, ensemble_size=4), None),
        (row(1), row(1, error="truncated", state=None, last_entry=None, ensemble_size=None), "METADATA_UNPARSABLE"),
        (None, row(1), "NOT_ON_BOOKIES"),
        (None, row(1, last_entry=-1), None),
        (None, row(1, state="OPEN", last_entry=None), None),
        (held(1, ["b0:1"]), row(1, last_entry=3), None),
    ],
)
def test_a_disagreement_is_named_and_a_legitimate_difference_is_not(
    ours: dict[str, object] | None, theirs: dict[str, object], category: str | None
) -> None:
    """What readers would see differently is a finding; what bookies cannot know is none."""
    table = reconstruction(ours) if ours else tables.RECONSTRUCTION.empty_table()
    assert disagreements(table, stored(theirs)) == ({1: category} if category else {})


def test_an_id_that_the_layout_cannot_name_waits_and_stops_nothing() -> None:
    """A stray file's name may say any id: that ledger waits for a person, all others get their records."""
    rows = reconstruction(row(1), held(10**10, ["b0:1"]), row(10**18))
    assert outcomes.wait_without_place(rows, Layout.HIERARCHICAL).equals(rows)
    found = outcomes.wait_without_place(rows, Layout.LEGACY)
    said = {r["ledger"]: (r["outcome"], r["reason"]) for r in found.to_pylist()}
    waiting = ("waiting", "id_out_of_range")
    assert (said[10**10], said[10**18], said[1][0]) == (waiting, waiting, "restored")
    assert found.schema == rows.schema


def test_a_hold_in_the_store_is_found_until_it_is_resolved() -> None:
    """Holds of an earlier plan are named with their reason and holders, whether bookies show the ledger or not."""
    rows = stored(row(1), row(2, state="IN_RECOVERY", last_entry=None), row(3), row(4, error="empty")).to_pylist()
    for found in rows:
        mark = {"key": holds.HOLD_MARK, "value": b"hole"}
        found["custom"] = {1: [{"key": "x", "value": b""}], 2: [{"key": "a", "value": b""}, mark], 3: []}.get(
            found["ledger"]
        )
        found["segments"] = [{"first": 0, "members": ["b1:1", "b0:1"]}] if found["ledger"] == 2 else None
    kept = holds.find_holds(pa.Table.from_pylist(rows, schema=tables.CATALOG_LEDGERS))
    (found,) = kept.to_pylist()
    assert (found["ledger"], found["reason"], found["holders"]) == (2, "hole", ["b0:1", "b1:1"])
    assert holds.find_holds(tables.CATALOG_LEDGERS.empty_table()).num_rows == 0
    (finding,) = holds.findings(kept, FindingRun("a", datetime.now(UTC))).to_pylist()
    assert (finding["category"], finding["ledger"], finding["bookies"]) == ("HELD", 2, ["b0:1", "b1:1"])


def test_findings_have_ids_that_outlive_a_run_and_hold_no_secrets() -> None:
    """The same disagreement has the same id in every run; evidence names both sides."""
    ours, theirs = reconstruction(row(1), held(2, ["b0:1"])), stored(row(1, last_entry=10))
    matched = diff.match(ours, theirs)
    missing = ours.take(pa.array(matched.missing))
    found, now = diff.disagreements(ours, theirs, matched), datetime.now(UTC)
    runs = (FindingRun("a", now), FindingRun("b", now))
    tables_of = [pa.concat_tables([diff.findings(found, run), holds.findings(missing, run)]) for run in runs]
    first, second = (t.to_pylist() for t in tables_of)
    assert [f["id"] for f in first] == [f["id"] for f in second]
    assert {f["category"] for f in first} == {"ENTRIES_MISSING", "HELD"}
    evidence = next(f for f in first if f["ledger"] == 1)["evidence"]
    assert {(e["side"], e["value"]) for e in evidence} == {("store", "10"), ("bookies", "9")}


def guarded(ledger: int, **changes: object) -> dict[str, object]:
    """One ledger that can be read, and of which more may be hidden."""
    return row(ledger, **({"outcome": "guarded", "reason": "source_incomplete", "reading": "likeliest"} | changes))


def in_store(ledger: int, record: bytes, version: int = 4) -> dict[str, object]:
    """One record of a store, as CATALOG_LEDGERS has it."""
    (parsed,) = ledger_metadata.decode_columns(pa.array([record], pa.binary())).to_pylist()
    known = {name: value for name, value in parsed.items() if name in tables.CATALOG_LEDGERS.names}
    place = {"bucket": LedgerId(0, ledger).bucket, "scope": 0, "ledger": ledger, "raw": record, "version": version}
    return {**dict.fromkeys(tables.CATALOG_LEDGERS.names), **known, **place}


def test_a_guarded_ledger_is_a_closed_record_under_a_lock() -> None:
    """Created as a restored one is; the lock is in the action, so in its id, and in the plan's hash."""
    (action,) = actions_of(guarded(7)).to_pylist()
    (plain,) = actions_of(row(7)).to_pylist()
    assert (action["op"], action["guard"], plain["guard"]) == ("create", "lock", None)
    assert action["value"] == plain["value"]
    assert action["id"] != plain["id"]


def released_from(stored: list[dict[str, object]], *rows: dict[str, object]) -> list[dict[str, object]]:
    """Return the actions that replace records of a store, all of which are under a guard but holds."""
    catalog = sort_by_key(pa.Table.from_pylist(stored, schema=tables.CATALOG_LEDGERS))
    made = reconstruction(*rows)
    under_guard = ~holds.is_hold(catalog)
    released, _ = select_released(made, catalog, diff.match(made, catalog), under_guard)
    found: list[dict[str, object]] = make_ledger_actions(released, Layout.HIERARCHICAL, PASSWORDS, b"").to_pylist()
    return found


def test_a_guarded_record_is_settled_by_a_proved_one() -> None:
    """By compare-and-set; the lock goes with it. One that reads no further leaves it as it is."""
    (before,) = actions_of(guarded(7, last_entry=8)).to_pylist()
    stored = [in_store(7, before["value"])]
    (settled,) = released_from(stored, row(7))
    assert (settled["op"], settled["expects"], settled["guard"]) == ("replace", 4, "release")
    assert settled["before"] == before["value"]
    assert released_from(stored, guarded(7, last_entry=8)) == []
    (further,) = released_from(stored, guarded(7, last_entry=9))
    assert (further["op"], further["expects"], further["guard"]) == ("replace", 4, "lock")


def test_what_has_no_end_reads_no_further() -> None:
    """Neither a reading without an end, nor any reading over a record without one: it stays as it is."""
    (closed,), (opened,) = (
        actions_of(guarded(7, **changes)).to_pylist()
        for changes in ({"last_entry": 8}, {"last_entry": None, "length": None, "state": "OPEN"})
    )
    assert released_from([in_store(7, closed["value"])], guarded(7, last_entry=None, length=None, state="OPEN")) == []
    assert released_from([in_store(7, opened["value"])], guarded(7, last_entry=9)) == []


def test_a_ledger_that_is_held_again_is_left_as_it_is() -> None:
    """It has no record of its own to replace anything by: of segments it may have none."""
    (before,) = actions_of(guarded(7)).to_pylist()
    assert released_from([in_store(7, before["value"])], held(7, ["b0:1"]) | {"segments": None}) == []


def test_a_guard_by_names_is_settled_without_a_lock() -> None:
    """A proved record replaces it unless it leaves out who holds copies that are missing; so does a longer reading."""
    mark = [{"key": holds.NAMED_MARK, "value": b"named"}]
    (before,) = actions_of(guarded(7, last_entry=8, custom=mark)).to_pylist()
    catalog = pa.Table.from_pylist([in_store(7, before["value"])], schema=tables.CATALOG_LEDGERS)

    def replaced_by(made: dict[str, object], *, named: bool = False) -> list[object]:
        rows = reconstruction(made)
        under_guard, by_names = holds.is_named(catalog), np.array([named])
        released, _ = select_released(rows, catalog, diff.match(rows, catalog), under_guard, by_names)
        actions = make_ledger_actions(released, Layout.HIERARCHICAL, PASSWORDS, b"").to_pylist()
        return [(action["op"], action["guard"]) for action in actions]

    assert replaced_by(row(7)) == [("replace", None)]
    others = ["b0:1", "b1:1", "b2:1", "b3:1"]
    assert replaced_by(row(7, holders=others, missing=3)) == []
    assert replaced_by(row(7, holders=others, missing=0)) == [("replace", None)]
    assert replaced_by(guarded(7, last_entry=9)) == []
    assert replaced_by(guarded(7, last_entry=9), named=True) == [("replace", "named")]
    assert replaced_by(guarded(7, last_entry=8), named=True) == []


def test_a_lock_stays_where_the_final_record_leaves_out_copies_that_it_lacks() -> None:
    """A bookie that is not named would delete them when the lock goes; with all copies in place it may."""
    (before,) = actions_of(guarded(7)).to_pylist()
    stored = [in_store(7, before["value"])]
    others = ["b0:1", "b1:1", "b2:1", "b3:1"]
    (kept,) = released_from(stored, row(7, holders=others, missing=3))
    assert kept["guard"] == "lock"
    (whole,) = released_from(stored, row(7, holders=others, missing=0))
    assert whole["guard"] == "release"
    (named,) = released_from(stored, row(7, missing=3))
    assert named["guard"] == "release"


def test_a_hold_becomes_readable_by_a_reading() -> None:
    """A hold of an earlier plan is replaced by a guarded record under a lock, or by the proved one."""
    (hold,) = actions_of(held(7, ["b0:1"])).to_pylist()
    stored = [in_store(7, hold["value"])]
    assert [action["guard"] for action in released_from(stored, guarded(7))] == ["lock"]
    assert [action["guard"] for action in released_from(stored, row(7))] == [None]
    assert released_from(stored, held(7, ["b0:1"])) == []


@pytest.mark.parametrize(
    ("phase", "bucket", "found"),
    [
        (PlanPhase.LEDGERS, 0, PlanPhase.LEDGERS),
        (PlanPhase.LEDGERS, BUCKETS - 1, PlanPhase.LEDGERS),
        (PlanPhase.LEDGERS, BUCKETS, PlanPhase.SUBTREES),
        (PlanPhase.LEDGERS, (1 << 15) - 1, PlanPhase.SUBTREES),
        (PlanPhase.GENERATORS, BUCKETS, PlanPhase.GENERATORS),
        (PlanPhase.COOKIES, 0, PlanPhase.COOKIES),
    ],
)
def test_nodes_of_upper_layers_are_known_by_their_buckets(phase: PlanPhase, bucket: int, found: PlanPhase) -> None:
    """They are behind all ledgers, and have the ledgers' number: nothing else has a phase by its bucket."""
    assert phase_of(int(phase) << 48 | bucket << 32 | 7) is found


def test_no_ledgers_make_no_actions() -> None:
    """The table is there, and is empty."""
    none = tables.RECONSTRUCTION.empty_table()
    assert make_ledger_actions(none, Layout.HIERARCHICAL, PASSWORDS, b"") == tables.ACTIONS.empty_table()
