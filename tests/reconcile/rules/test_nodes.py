"""What stands beside ledgers: cookies, registrations, locks, marks, generators, and the names of a cluster."""

import hashlib
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingRun
from reconcile.rules import nodes
from reconcile.rules.nodes import InventoriedBookies, Side
from reconcile.rules.used_ids import RaiseTargets
from recovery.codecs.cookie import Cookie, encode
from recovery.codecs.replication_lock import encode_guard
from recovery.codecs.store import Layout, layout_bytes, mark_key
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.reconcile.rules.test_id_reuse import stored

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def side(name: str, *rows: dict[str, Any]) -> Side:
    """A store, or a snapshot, with these nodes."""
    made = [{"raw": b"", "version": 0, **row} for row in rows]
    return Side.from_catalog(name, "zk", pa.Table.from_pylist(made, schema=tables.CATALOG_NODES), 1, complete=True)


def found(now: Side, snapshot: Side | None) -> list[Finding]:
    """The findings of both, without those of generators."""
    return list(
        nodes.findings(
            now, snapshot, InventoriedBookies(), layout=Layout.HIERARCHICAL, taken={}, raised=frozenset(), now=NOW
        )
    )


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
        run = FindingRun("run", datetime(2026, 1, 1, tzinfo=UTC))
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
    bookies = InventoriedBookies({"a:1": own} if own else {})
    found = nodes.findings(
        side("store", *rows), snapshot, bookies, layout=Layout.HIERARCHICAL, taken={}, raised=frozenset(), now=NOW
    )
    shown = [(row.category, {one.side: one.value for one in row.statements}) for row in found]
    sums = {hashlib.sha256(raw).hexdigest()[:12]: raw.decode() for raw in (b"c", b"d", b"e")}
    short = [(category, {s: sums.get(text[-13:-1], text) for s, text in said.items()}) for category, said in shown]
    assert short == expected


def test_what_cookies_are_told_with() -> None:
    """Who a finding is of, what each side has, and what nobody knows: nothing, where inventories were given."""
    cookie = {"path": "/cookies/a:1", "kind": "cookie", "raw": b"c"}
    for bookies, unknowns in (
        (InventoriedBookies(), ["whether it has disks: no inventory was given"]),
        (InventoriedBookies({"b:1": b"c"}), []),
    ):
        live = side("store", cookie, cookie | {"path": "/cookies/b:1"})
        [alone] = [row for row in found_with(live, bookies) if row.subject == "/cookies/a:1"]
        assert (alone.category, alone.bookies, alone.unknowns) == (Category.COOKIE_WITHOUT_BOOKIE, ["a:1"], unknowns)
        assert [(one.side, one.field) for one in alone.statements] == [
            ("store", "cookie"), ("store", "registration"), ("bookies", "inventory")
        ]  # fmt: skip
        assert alone.statements[0].value == f"1 bytes, SHA-256 {hashlib.sha256(b'c').hexdigest()[:12]}…"
    [without] = found_with(
        side("store", {"path": "/available/a:1", "kind": "registration", "owner": 5}), InventoriedBookies()
    )
    assert (without.subject, without.bookies) == ("/cookies/a:1", ["a:1"])
    assert [(one.field, one.value) for one in without.statements] == [("registration", "yes"), ("cookie", "none")]
    [down] = found_with(side("store"), InventoriedBookies({"a:1": b"d"}))
    assert [(one.side, one.field, one.value) for one in down.statements] == [
        ("bookies", "inventory", "yes"),
        ("store", "cookie", "none"),
    ]
    live = side("store", cookie, {"path": "/available/a:1", "kind": "registration", "owner": 5})
    [differs] = found_with(live, InventoriedBookies({"a:1": b"d"}))
    assert (differs.subject, differs.bookies) == ("/cookies/a:1", ["a:1"])
    assert [(one.field, one.source) for one in differs.statements] == [("cookie", live.source), ("cookie", "VERSION")]


def found_with(live: Side, bookies: InventoriedBookies) -> list[Finding]:
    """What is found of a store and of inventories."""
    rows = nodes.findings(live, None, bookies, layout=Layout.HIERARCHICAL, taken={}, raised=frozenset(), now=NOW)
    return list(rows)


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
    rows = nodes.findings(
        live, None, InventoriedBookies(), layout=Layout.HIERARCHICAL, taken={"/idgen": 7}, raised=raised, now=NOW
    )
    assert [(row.category, row.severity) for row in rows] == (
        [] if expected is None else [(Category.GENERATOR_BEHIND, expected)]
    )


def test_what_a_generator_gives_next_is_told() -> None:
    """Its number, or that it never gave any; a cookie that the snapshot lacks differs from none."""
    for counters, text in (([], "none was ever given"), ([7], "7")):
        made = [{"path": "/idgen", "kind": "generator", "children_created": number} for number in counters]
        live = side("store", {"path": "/cookies/a:1", "kind": "cookie", "raw": b"c"}, *made)
        rows = nodes.findings(
            live, side("earlier"), InventoriedBookies({"a:1": b"c"}), layout=Layout.HIERARCHICAL, taken={"/idgen": 7},
            raised=frozenset(), now=NOW
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


def test_a_layout_that_nobody_can_read_differs_from_one_that_can_be_read() -> None:
    """What is wrong with its bytes is said in place of its name."""
    broken = side("earlier", {"path": "/LAYOUT", "kind": "layout", "raw": b"9\nx"})
    [differs] = found(side("store", {"path": "/LAYOUT", "kind": "layout", "raw": layout_bytes(Layout.FLAT)}), broken)
    assert differs.subject == "/LAYOUT"
    assert [(one.side, one.field, one.source) for one in differs.statements] == [
        ("store", "layout", "zk"),
        ("earlier", "layout", "zk"),
    ]
    assert str(differs.statements[1].value).startswith("cannot be read (")


def test_instance_ids_of_all_sides_are_one() -> None:
    """Of the store, of the snapshot, of each inventory; where all are the same nothing is said."""

    def name(side_name: str, raw: bytes) -> Side:
        return side(side_name, {"path": "/INSTANCEID", "kind": "instanceid", "raw": raw})

    def tell(snapshot: Side | None, *ids: str) -> list[tuple[str, list[tuple[str, Any, str]]]]:
        rows = nodes.findings(
            name("store", b"one"), snapshot, InventoriedBookies(instance_ids=ids), layout=Layout.HIERARCHICAL, taken={},
            raised=frozenset(), now=NOW
        )  # fmt: skip
        return [(row.subject, [(one.side, one.value, one.source) for one in row.statements])
                for row in rows if row.category == Category.INSTANCE_ID_DIFFERS]  # fmt: skip

    assert tell(None) == tell(None, "one") == tell(name("earlier", b"one"), "one", "one") == []
    assert tell(None, "two") == [("/INSTANCEID", [("store", "one", "zk"), ("bookies", "two", "VERSION")])]
    assert tell(name("earlier", b"two")) == [("/INSTANCEID", [("store", "one", "zk"), ("earlier", "two", "zk")])]
    [(_, statements)] = tell(name("earlier", b"\xff"))
    assert str(statements[1][1]).startswith("cannot be read (")


def test_a_store_without_ledgers_has_no_generator_that_is_behind() -> None:
    """Nothing there can be given twice; what a generator says is of ledgers."""
    live = Side.from_catalog("store", "zk", tables.CATALOG_NODES.empty_table(), 0, complete=True)
    rows = nodes.findings(
        live,
        None,
        InventoriedBookies(),
        layout=Layout.HIERARCHICAL,
        taken={"/ledgers/idgen": 7},
        raised=frozenset(),
        now=NOW,
    )
    assert list(rows) == []


def test_what_is_said_of_a_generator() -> None:
    """Where it stands, what is used, and by whom: of all sides, or what the plan raises it past."""
    for raised, evidence, suggested in (
        (frozenset[str](), ("all sides", "largest id that is used", "7"), None),
        (frozenset(["/idgen"]), ("plan", "largest id that is used", "7"), "the plan raises it, before anything else"),
    ):
        live = side("store", {"path": "/idgen", "kind": "generator", "children_created": 3})
        [row] = nodes.findings(
            live, None, InventoriedBookies(), layout=Layout.HIERARCHICAL, taken={"/idgen": 7}, raised=raised, now=NOW
        )  # fmt: skip
        assert (row.subject, row.suggested) == ("/idgen", suggested)
        assert [(one.side, one.field, one.value) for one in row.statements] == [("store", "next id", "3"), evidence]


def test_ids_that_raise_nothing_are_told_each() -> None:
    """With the largest that is believed."""
    rows = list(nodes.list_far_ids(RaiseTargets({}, (("/idgen", 1 << 40), ("/idgen", 1 << 30)), 7)))
    assert [(row.category, row.subject) for row in rows] == [
        (Category.ID_FAR_ABOVE, f"/idgen {1 << 40}"),
        (Category.ID_FAR_ABOVE, f"/idgen {1 << 30}"),
    ]
    assert [(one.side, one.field, one.value) for one in rows[1].statements] == [
        ("bookies", "id", str(1 << 30)),
        ("all sides", "largest other id", "7"),
    ]


def test_where_a_stale_mark_stands_is_said() -> None:
    """Its path, and that the store has no record."""
    made = pa.Table.from_pylist(
        [{"path": mark_key(LedgerId(0, 3)), "kind": "mark", "raw": b"", "version": 0}], schema=tables.CATALOG_NODES
    )
    keys = stored().select(list(tables.KEY_COLUMNS))
    [row] = nodes.find_stale_marks(
        made, keys, range(4096), FindingRun("r", datetime(2026, 1, 1, tzinfo=UTC)), "zk"
    ).to_pylist()
    assert [(one["side"], one["field"], one["value"], one["source"]) for one in row["evidence"]] == [
        ("store", "mark", mark_key(LedgerId(0, 3)), "zk"),
        ("store", "record", "none", "zk"),
    ]


def list_instances(cookies: dict[str, str | None]) -> dict[str, list[str]]:
    """Subjects of what is found of instance ids, with the ids that are named; the store's is ``here``."""
    rows: list[dict[str, Any]] = [{"path": "/INSTANCEID", "kind": "instance_id", "raw": b"here"}]
    for name, instance in cookies.items():
        raw = encode(Cookie(5, name, ("/j",), ("/l",), instance_id=instance))
        rows.append({"path": f"/cookies/{name}", "kind": "cookie", "raw": raw})
    told = [row for row in found(side("store", *rows), None) if row.category == Category.INSTANCE_ID_DIFFERS]
    return {row.subject: [str(one.value) for one in row.statements] for row in told}


def test_a_cookie_of_another_cluster_is_told() -> None:
    """That one alone; one without an id says nothing; where every cookie names another id, it is the store's."""
    assert list_instances({"a:1": "here", "b:1": "there", "c:1": None}) == {"/cookies/b:1": ["here", "there"]}
    assert list_instances({"a:1": "here", "b:1": None}) == {}
    assert list_instances({"a:1": "there", "b:1": "there"}) == {"/INSTANCEID": ["here", "there"]}


def test_a_cookie_that_cannot_be_read_names_no_cluster() -> None:
    """It is told elsewhere, if at all; the others are looked at."""
    cookie = {"path": "/cookies/b:1", "kind": "cookie", "raw": b"?"}
    rows = found(side("store", {"path": "/INSTANCEID", "kind": "instance_id", "raw": b"here"}, cookie), None)
    assert Category.INSTANCE_ID_DIFFERS not in {row.category for row in rows}
