"""Findings of rules that compare sides, case by case: what is said, how grave it is, and where nothing is said."""

import hashlib
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, Run
from reconcile.rules import entries_beyond_end, nodes, reference_checks
from reconcile.rules.nodes import Bookies, Side
from recovery.codecs.replication_lock import encode_guard
from recovery.codecs.store import Layout, layout_bytes, mark_key
from recovery.infer.references import SCHEMA
from recovery.model import metadata as md
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.testing import simulator
from tests.reconcile.rules.test_id_reuse import copies, stored

RUN = Run("test", datetime(2030, 1, 1, tzinfo=UTC))
BUCKET = simulator.copy_row(7, "a:1", [])["bucket"]


# What upper layers know of ledger 7, of which bookies hold 0 to 9


def reference(**known: Any) -> pa.Table:
    """What an upper layer knows of ledger 7."""
    row = {"bucket": BUCKET, "scope": 0, "ledger": 7, "deleted": False, "owner": "topic", "source": "file"}
    return pa.Table.from_pylist([row | known], schema=SCHEMA)


def shown(**known: Any) -> pa.Table:
    """What was reconstructed of ledger 7."""
    row = dict.fromkeys(tables.RECONSTRUCTION.names) | {
        "bucket": BUCKET, "scope": 0, "ledger": 7, "class": "clean", "outcome": "restored", "missing": 0, "extra": 0,
        "holders": [], "alternatives": [], "grades": dict.fromkeys(tables.GRADED, "unknown"),
        "last_entry": 9, "length": 90, "lac_low": 8, **known,
    }  # fmt: skip
    return pa.Table.from_pylist([row], schema=tables.RECONSTRUCTION)


NO_RECORD = tables.CATALOG_LEDGERS.empty_table()
HELD = copies({"a:1": set(range(10))})


@pytest.mark.parametrize(
    ("known", "record", "seen", "severity"),
    [
        ({"last_entry": 9}, NO_RECORD, True, None),
        ({"last_entry": 9, "length": 90}, NO_RECORD, True, None),
        ({"last_entry": 9, "length": 90}, stored(), True, None),
        ({"last_entry": 10}, NO_RECORD, True, "critical"),
        ({"last_entry": 10}, NO_RECORD, False, "warning"),
        ({"last_entry": 8}, NO_RECORD, True, None),
        ({"last_entry": 7}, NO_RECORD, False, "critical"),
        ({"last_entry": 9, "length": 91}, NO_RECORD, True, "warning"),
        # Of another end than what is shown, the length is another one.
        ({"last_entry": 8, "length": 91}, NO_RECORD, True, None),
        ({"last_entry": 9, "length": 90}, stored(length=91), True, "warning"),
        ({"last_entry": 8, "length": 80}, stored(length=91), True, "warning"),
        ({"last_entry": 8}, stored(), True, "warning"),
        ({"last_entry": 9}, stored(last_entry=8), False, "critical"),
        ({"last_entry": 9}, stored(state=md.State.OPEN, last_entry=None, length=None), True, None),
        ({"last_entry": 7, "deleted": True}, stored(), True, None),
        ({}, stored(), True, None),
    ],
)
def test_where_a_reference_differs(
    known: dict[str, Any], record: pa.Table, *, seen: bool, severity: str | None
) -> None:
    """Ends and lengths against what bookies hold, what a LAC shows and what the store's closed record says."""
    rows = reference_checks.findings(
        reference(**known), shown(), HELD, record, RUN, looked_at=True, seen=seen
    ).to_pylist()
    found = [row for row in rows if row["category"] == Category.REFERENCE_DIFFERS]
    assert [row["severity"] for row in found] == ([severity] if severity else [])
    assert all(bool(row["unknowns"]) != seen for row in found)
    # Each side says where it is from: what an upper layer says, by its own file.
    sources = {(one["side"] == "reference", one["source"]) for row in found for one in row["evidence"]}
    assert sources == ({(True, "file"), (False, "recover")} if severity else set())


@pytest.mark.parametrize(
    ("known", "looked_at", "seen", "severity"),
    [
        ({"last_entry": 0}, True, True, "critical"),
        ({"last_entry": 0}, True, False, "warning"),
        ({"last_entry": -1}, True, True, "warning"),
        ({"last_entry": 0}, False, True, None),
        ({"last_entry": 0, "deleted": True}, True, True, None),
    ],
)
def test_what_nothing_has(known: dict[str, Any], *, looked_at: bool, seen: bool, severity: str | None) -> None:
    """A ledger that only an upper layer names is lost where it had entries and all bookies were looked at."""
    nothing = (tables.RECONSTRUCTION.empty_table(), tables.COPIES.empty_table(), NO_RECORD)
    rows = reference_checks.findings(reference(**known), *nothing, RUN, looked_at=looked_at, seen=seen).to_pylist()
    expected = [(str(Category.REFERENCE_NOT_FOUND), severity)] if severity else []
    assert [(row["category"], row["severity"]) for row in rows] == expected


@pytest.mark.parametrize(
    ("held", "record", "said"),
    [(HELD, NO_RECORD, ["yes", "no"]), (HELD.slice(0, 0), stored(), ["no", "yes"]), (HELD, stored(), ["yes", "yes"])],
)
def test_what_its_owner_deleted_and_something_still_has(held: pa.Table, record: pa.Table, said: list[str]) -> None:
    """The finding says who has it."""
    rows = shown() if held.num_rows else shown().slice(0, 0)
    [found] = reference_checks.findings(
        reference(deleted=True), rows, held, record, RUN, looked_at=True, seen=True
    ).to_pylist()
    assert found["category"] == Category.DELETED_BY_OWNER
    evidence = {(one["side"], one["field"]): one["value"] for one in found["evidence"]}
    assert [evidence["bookies", "have it"], evidence["store", "has it"]] == said


# Entries above a closed end


@pytest.mark.parametrize(
    ("held", "most"), [({"a:1": {10, 12}, "b:1": {12}}, 2), ({"a:1": {10}, "b:1": {11}}, 1), ({"a:1": {10, 12, 14}}, 1)]
)
def test_how_many_copies_one_entry_above_the_end_has(held: dict[str, set[int]], most: int) -> None:
    """Of the entry that most have, not of all together, and not of the first."""
    [found] = entries_beyond_end.findings(copies(held), stored(), RUN, seen=True).to_pylist()
    evidence = {one["field"]: one["value"] for one in found["evidence"]}
    assert evidence["copies of one entry, at most"] == str(most)
    assert found["severity"] == ("warning" if most >= 2 else "info")


@pytest.mark.parametrize("runs", [1, entries_beyond_end.LISTED, entries_beyond_end.LISTED + 1])
def test_many_ranges_are_counted(runs: int) -> None:
    """Twelve are listed, and how many more there are is said."""
    [found] = entries_beyond_end.findings(
        copies({"a:1": {10 + 2 * n for n in range(runs)}}), stored(), RUN, seen=True
    ).to_pylist()
    [text] = [one["value"] for one in found["evidence"] if one["field"] == "held by a:1"]
    assert text.startswith("10")
    more = runs - entries_beyond_end.LISTED
    assert text.endswith(f", and {more} more ranges") == (more > 0)
    assert len(found["entries"]) == min(runs, entries_beyond_end.LISTED)


# What stands beside ledgers


def side(name: str, *rows: dict[str, Any]) -> Side:
    """A store, or a snapshot, with these nodes."""
    made = [{"raw": b"", "version": 0, **row} for row in rows]
    return Side.from_catalog(name, "zk", pa.Table.from_pylist(made, schema=tables.CATALOG_NODES), 1, complete=True)


def found(now: Side, snapshot: Side | None) -> list[Finding]:
    """The findings of both, without those of generators."""
    return list(nodes.findings(now, snapshot, Bookies(), layout=Layout.HIERARCHICAL, taken={}, raised=frozenset()))


def test_a_lock_or_a_registration_without_a_session_is_dead() -> None:
    """Anybody who restored it from a backup left it for ever; one with a session is somebody's."""
    lock, alive = {"path": "/u/locks/1", "kind": "lock"}, {"path": "/u/locks/2", "kind": "lock", "owner": 5}
    registration = {"path": "/available/a:1", "kind": "registration"}
    rows = found(side("store", lock, alive, registration, {"path": "/other", "kind": "other"}), None)
    assert [(row.category, row.subject) for row in rows if row.category != Category.BOOKIE_WITHOUT_COOKIE] == [
        (Category.DEAD_LOCK, "/u/locks/1"),
        (Category.DEAD_REGISTRATION, "/available/a:1"),
    ]


def test_a_guards_lock_is_not_dead_and_nothing_else_passes_for_one() -> None:
    """It stands without a session until it is settled; a registration with such bytes is dead all the same."""
    guard = {"raw": encode_guard("ab" * 32)}
    rows = found(
        side(
            "store",
            {"path": "/u/locks/1", "kind": "lock", **guard},
            {"path": "/available/a:1", "kind": "registration", **guard},
        ),
        None,
    )
    dead = [row.subject for row in rows if row.category != Category.BOOKIE_WITHOUT_COOKIE]
    assert dead == ["/available/a:1"]


@pytest.mark.parametrize(
    ("ledgers", "cookies", "is_told"), [(0, [], False), (1, [], True), (0, ["/cookies/b:1"], True)]
)
def test_an_empty_root_lacks_everything_which_says_nothing(ledgers: int, cookies: list[str], *, is_told: bool) -> None:
    """Where a cluster lives, by its ledgers or its cookies, a bookie without a cookie is told."""
    rows = [{"path": "/available/a:1", "kind": "registration", "owner": 5, "raw": b"", "version": 0}]
    rows += [{"path": path, "kind": "cookie", "raw": b"", "version": 0} for path in cookies]
    made = pa.Table.from_pylist(rows, schema=tables.CATALOG_NODES)
    told = {row.category for row in found(Side.from_catalog("store", "zk", made, ledgers, complete=True), None)}
    assert (Category.BOOKIE_WITHOUT_COOKIE in told) == is_told


def test_a_mark_is_stale_where_the_store_has_no_such_ledger() -> None:
    """In its own bucket range alone; other nodes are no marks."""
    rows = [{"path": mark_key(LedgerId(0, number)), "kind": "mark", "raw": b"", "version": 0} for number in (3, 5, 7)]
    rows += [{"path": mark_key(LedgerId(0, 9)), "kind": "other", "raw": b"", "version": 0}]
    made = pa.Table.from_pylist(rows, schema=tables.CATALOG_NODES)
    listed = stored().select(list(tables.KEY_COLUMNS))

    def find(part: range) -> list[dict[str, Any]]:
        run = Run("run", datetime(2026, 1, 1, tzinfo=UTC))
        told: list[dict[str, Any]] = nodes.find_stale_marks(made, listed, part, run, "zk").to_pylist()
        return told

    assert [(row["category"], row["severity"]) for row in find(range(4096))] == [("STALE_UR_MARK", "info")] * 2
    assert {row["ledger"] for row in find(range(4096))} == {3, 5}
    bucket = LedgerId(0, 3).bucket
    assert [row["ledger"] for row in find(range(bucket, bucket + 1))] == [3]
    assert find(range(bucket + 1, bucket + 1)) == find(range(bucket, bucket)) == []


@pytest.mark.parametrize(
    ("owner", "text"), [(None, "no session"), (-1, "session 0xffffffffffffffff"), (5, "session 0x5")]
)
def test_what_belonged_to_a_session_is_named_and_not_written(owner: int | None, text: str) -> None:
    """Of a snapshot: locks, registrations and votes that the store lacks, with the session of each."""
    before = side(
        "earlier",
        {"path": "/u/locks/1", "kind": "lock", "owner": owner},
        {"path": "/u/locks/2", "kind": "lock", "owner": owner},
        {"path": "/underreplication/auditorelection/V_0000000001", "kind": "other", "owner": owner},
        {"path": "/other", "kind": "other", "owner": owner},
    )
    rows = found(side("store", {"path": "/u/locks/2", "kind": "lock", "owner": 9}), before)
    assert [row.category for row in rows] == [Category.EPHEMERAL_NOT_RESTORED] * 2
    assert [row.subject for row in rows] == ["/u/locks/1", "/underreplication/auditorelection/V_0000000001"]
    assert {row.statements[0].value for row in rows} == {text}


@pytest.mark.parametrize(
    ("stored_by", "registered", "own", "before", "expected"),
    [
        (b"c", False, b"c", None, []),
        (b"c", True, None, None, []),
        (b"c", False, None, None, [(Category.COOKIE_WITHOUT_BOOKIE, {"store": "none", "bookies": "none"})]),
        (None, True, None, None, [(Category.BOOKIE_WITHOUT_COOKIE, {"store": "none"})]),
        (None, False, b"c", None, [(Category.BOOKIE_WITHOUT_COOKIE, {"store": "none", "bookies": "yes"})]),
        (b"c", True, b"c", b"c", []),
        (b"c", True, b"d", b"c", [(Category.COOKIE_DIFFERS, {"store": "c", "bookies": "d"})]),
        (b"c", True, b"c", b"d", [(Category.COOKIE_DIFFERS, {"store": "c", "earlier": "d"})]),
        (b"c", True, b"e", b"d", [(Category.COOKIE_DIFFERS, {"store": "c", "bookies": "e", "earlier": "d"})]),
    ],
)
def test_cookies_against_bookies(
    stored_by: bytes | None, registered: bool, own: bytes | None, before: bytes | None, expected: list[Any]
) -> None:
    """A cookie without a bookie, a bookie without a cookie, and one that is another one on disk or was earlier."""
    cookie: dict[str, Any] = {"path": "/cookies/a:1", "kind": "cookie"}
    rows = [cookie | {"raw": stored_by}] if stored_by else []
    rows += [{"path": "/available/a:1", "kind": "registration", "owner": 5}] if registered else []
    snapshot = side("earlier", cookie | {"raw": before}) if before else None
    bookies = Bookies({"a:1": own} if own else {})
    found = nodes.findings(
        side("store", *rows), snapshot, bookies, layout=Layout.HIERARCHICAL, taken={}, raised=frozenset()
    )
    shown = [(row.category, {one.side: one.value for one in row.statements}) for row in found]
    sums = {hashlib.sha256(raw).hexdigest()[:12]: raw.decode() for raw in (b"c", b"d", b"e")}
    short = [(category, {s: sums.get(text[-13:-1], text) for s, text in said.items()}) for category, said in shown]
    assert short == expected


def test_what_cookies_are_told_with() -> None:
    """Who a finding is of, what each side has, and what nobody knows: nothing, where inventories were given."""
    cookie = {"path": "/cookies/a:1", "kind": "cookie", "raw": b"c"}
    for bookies, unknowns in (
        (Bookies(), ["whether it has disks: no inventory was given"]),
        (Bookies({"b:1": b"c"}), []),
    ):
        live = side("store", cookie, cookie | {"path": "/cookies/b:1"})
        [alone] = [row for row in found_with(live, bookies) if row.subject == "/cookies/a:1"]
        assert (alone.category, alone.bookies, alone.unknowns) == (Category.COOKIE_WITHOUT_BOOKIE, ["a:1"], unknowns)
        assert [(one.side, one.field) for one in alone.statements] == [
            ("store", "cookie"), ("store", "registration"), ("bookies", "inventory")
        ]  # fmt: skip
        assert alone.statements[0].value == f"1 bytes, SHA-256 {hashlib.sha256(b'c').hexdigest()[:12]}…"
    [without] = found_with(side("store", {"path": "/available/a:1", "kind": "registration", "owner": 5}), Bookies())
    assert (without.subject, without.bookies) == ("/cookies/a:1", ["a:1"])
    assert [(one.field, one.value) for one in without.statements] == [("registration", "yes"), ("cookie", "none")]
    live = side("store", cookie, {"path": "/available/a:1", "kind": "registration", "owner": 5})
    [differs] = found_with(live, Bookies({"a:1": b"d"}))
    assert (differs.subject, differs.bookies) == ("/cookies/a:1", ["a:1"])
    assert [(one.field, one.source) for one in differs.statements] == [("cookie", live.source), ("cookie", "VERSION")]


def found_with(live: Side, bookies: Bookies) -> list[Finding]:
    """What is found of a store and of inventories."""
    rows = nodes.findings(live, None, bookies, layout=Layout.HIERARCHICAL, taken={}, raised=frozenset())
    return list(rows)


def test_owners_are_added_in_the_order_of_the_ledgers() -> None:
    """Named with an owner, named by nobody, named without one; where nobody was asked, nothing is known."""
    ids = [LedgerId(0, number) for number in (7, 8, 9)]
    keys = pa.table(
        {name: [getattr(one, name) for one in ids] for name in ("bucket", "scope", "ledger")},
        schema=pa.schema([SCHEMA.field(name) for name in ("bucket", "scope", "ledger")]),
    )
    known = pa.concat_tables([
        reference(bucket=one.bucket, ledger=one.ledger, owner=owner)
        for one, owner in ((ids[2], None), (ids[0], "topic"))
    ])  # fmt: skip
    named = reference_checks.add_owners(keys, known)
    assert named["referenced"].to_pylist() == [True, False, True]
    assert named["owner"].to_pylist() == ["topic", None, None]
    nobody = reference_checks.add_owners(keys, None)
    assert nobody.schema.equals(named.schema)
    assert nobody.select(["referenced", "owner"]).to_pylist() == [{"referenced": None, "owner": None}] * 3
    assert nobody["ledger"].to_pylist() == [7, 8, 9]


@pytest.mark.parametrize(
    ("given", "raised", "expected"),
    [
        (8, frozenset[str](), None),
        (7, frozenset[str](), "critical"),
        (None, frozenset[str](), None),
        (7, frozenset(["/idgen"]), "warning"),
    ],
)
def test_a_generator_that_may_give_a_used_id_again(
    given: int | None, raised: frozenset[str], expected: str | None
) -> None:
    """Id 7 is used: what gives 8 next is ahead, what gives 7 is behind; a plan that raises it makes it a warning.

    A counter of which the store does not say where it stands is not judged.
    """
    live = side("store", {"path": "/idgen", "kind": "generator", "children_created": given})
    rows = nodes.findings(live, None, Bookies(), layout=Layout.HIERARCHICAL, taken={"/idgen": 7}, raised=raised)
    assert [(row.category, row.severity) for row in rows] == (
        [] if expected is None else [(Category.GENERATOR_BEHIND, expected)]
    )


def test_what_a_generator_gives_next_is_told() -> None:
    """Its number, or that it never gave any; a cookie that the snapshot lacks differs from none."""
    for counters, text in (([], "none was ever given"), ([7], "7")):
        made = [{"path": "/idgen", "kind": "generator", "children_created": number} for number in counters]
        live = side("store", {"path": "/cookies/a:1", "kind": "cookie", "raw": b"c"}, *made)
        rows = nodes.findings(
            live, side("earlier"), Bookies({"a:1": b"c"}), layout=Layout.HIERARCHICAL, taken={"/idgen": 7},
            raised=frozenset(),
        )  # fmt: skip
        assert [(row.category, row.statements[0].value) for row in rows] == [(Category.GENERATOR_BEHIND, text)]


def test_a_layout_that_is_not_the_earlier_one() -> None:
    """Bookies that start under another layout delete what they do not find; the same one is nothing."""
    layouts = [
        side(name, {"path": "/LAYOUT", "kind": "layout", "raw": layout_bytes(layout)})
        for name, layout in (("store", Layout.FLAT), ("earlier", Layout.HIERARCHICAL), ("earlier", Layout.FLAT))
    ]
    [differs] = found(layouts[0], layouts[1])
    assert differs.category == Category.LAYOUT_DIFFERS
    assert [one.value for one in differs.statements] == ["flat", "hierarchical"]
    assert found(layouts[0], layouts[2]) == []
