"""Nodes beside the ledgers, compared: cookies, registrations, locks, generators, layout, instance id.

All of these are few: a cluster has some hundred bookies. Under-replication marks may be many, and are columns.

A lock or a registration lives with the session that made it. Without a session it stays for ever: an administrator
restored it from a backup, or it is a guard's. A plan never writes the ones of a snapshot.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingRun, FindingStatement, make_ledger_findings
from reconcile.rules.sides import ABSENT, unite
from reconcile.rules.used_ids import RaiseTargets, is_behind
from recovery.codecs import cookie, store
from recovery.codecs.blocking_cookie import is_blocking
from recovery.codecs.keys import read_marks
from recovery.codecs.replication_lock import is_guard, read_reuse_end
from recovery.codecs.store import Layout
from recovery.codecs.store_kind import ClusterKeys
from recovery.errors import FormatError
from recovery.model.ids import buckets as buckets_of
from recovery.model.tables import FINDINGS

_OF_SESSIONS: Final = ("registration", "lock")
_VOTES: Final = "/underreplication/auditorelection/V_"
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """The nodes of one catalog beside the ledgers.

    Attributes:
        name: store or earlier.
        source: its address.
        nodes: path to row of CATALOG_NODES, without marks.
        ledgers: number of its ledgers.
        complete: whether all of it was read.
    """

    name: str
    source: str
    nodes: Mapping[str, Mapping[str, Any]]
    ledgers: int
    complete: bool

    @classmethod
    def from_catalog(cls, name: str, source: str, nodes: pa.Table, ledgers: int, *, complete: bool) -> "Side":
        """Read a catalog's nodes, without its marks."""
        rows = nodes.filter(pc.not_equal(nodes["kind"], "mark")).to_pylist()
        return cls(name, source, {row["path"]: row for row in rows}, ledgers, complete)

    def kind(self, kind: str) -> dict[str, Mapping[str, Any]]:
        """Return the last part of the path of each node of a kind, and the node."""
        return {path.rsplit("/", 1)[-1]: row for path, row in self.nodes.items() if row["kind"] == kind}

    @property
    def in_use(self) -> bool:
        """Whether a cluster is here: an empty root lacks every node, so one missing node proves nothing."""
        return self.ledgers > 0 or bool(self.kind("cookie"))


@dataclass(frozen=True, slots=True, eq=False)
class InventoriedBookies:
    """The facts of bookies from inventories.

    Attributes:
        cookies: bookie to the cookie of its disks; None where they have none, or differ.
        instance_ids: of all of them.
    """

    cookies: Mapping[str, bytes | None] = field(default_factory=dict)
    instance_ids: Sequence[str] = ()

    @property
    def looked_at(self) -> bool:
        """Whether there is any inventory."""
        return bool(self.cookies)


def findings(
    live: Side,
    snapshot: Side | None,
    bookies: InventoriedBookies,
    *,
    layout: Layout,
    taken: Mapping[str, int],
    raised: frozenset[str],
    now: datetime,
) -> Iterator[Finding]:
    """Yield the findings beside the ledgers.

    Args:
        live: the store.
        snapshot: the newest snapshot.
        bookies: of the inventories.
        layout: of the store.
        taken: key of each generator → the largest number that it can have given, from any side.
        raised: generators that the plan raises past it.
        now: the time of the run.
    """
    yield from _sessions(live, snapshot, now)
    yield from _cookies(live, snapshot, bookies)
    for counter, largest in taken.items():
        yield from _generator(live, counter, largest, raised=counter in raised)
    yield from _names(live, snapshot, bookies, store.places(layout))


def _sessions(live: Side, snapshot: Side | None, now: datetime) -> Iterator[Finding]:
    for kind, category in (("lock", Category.DEAD_LOCK), ("registration", Category.DEAD_REGISTRATION)):
        for row in live.nodes.values():
            if row["kind"] == kind and row["owner"] is None and not (kind == "lock" and is_guard(row["raw"], 0)):
                end = read_reuse_end(row["raw"], 0) if kind == "lock" else None
                if end is not None and now < end:
                    continue
                statements = [FindingStatement(live.name, "owner", "no session", live.source)]
                if end is not None:
                    words = f"its end was {end.isoformat(timespec='seconds')}: the next plan removes it"
                    statements.append(
                        FindingStatement(live.name, "lock of an id that two ledgers have", words, live.source)
                    )
                yield Finding(category=category, subject=row["path"], statements=statements)
    if snapshot is None:
        return
    for path, row in snapshot.nodes.items():
        if path not in live.nodes and (row["kind"] in _OF_SESSIONS or path.startswith(_VOTES)):
            owner = "no session" if row["owner"] is None else f"session {row['owner'] & (1 << 64) - 1:#x}"
            yield Finding(
                category=Category.EPHEMERAL_NOT_RESTORED,
                subject=path,
                statements=[
                    FindingStatement(snapshot.name, "owner", owner, snapshot.source),
                    FindingStatement(live.name, "node", "none", live.source),
                ],
            )


def _cookies(live: Side, snapshot: Side | None, bookies: InventoriedBookies) -> Iterator[Finding]:
    if not live.in_use:
        return
    cookies, registered = live.kind("cookie"), live.kind("registration")
    for name in sorted(cookies.keys() - registered.keys() - bookies.cookies.keys()):
        unknowns = [] if bookies.looked_at else ["whether it has disks: no inventory was given"]
        yield Finding(
            category=Category.COOKIE_WITHOUT_BOOKIE,
            subject=f"{store.COOKIES}/{name}",
            bookies=[name],
            statements=[
                FindingStatement(live.name, "cookie", _hash(cookies[name]["raw"]), live.source),
                FindingStatement(live.name, "registration", "none", live.source),
                FindingStatement("bookies", "inventory", "none"),
            ],
            unknowns=unknowns,
        )
    for name in sorted((registered.keys() | bookies.cookies.keys()) - cookies.keys()):
        statements = [FindingStatement(live.name, "registration", "yes", live.source)] if name in registered else []
        statements += [FindingStatement("bookies", "inventory", "yes")] if name in bookies.cookies else []
        yield Finding(
            category=Category.BOOKIE_WITHOUT_COOKIE,
            subject=f"{store.COOKIES}/{name}",
            bookies=[name],
            statements=[*statements, FindingStatement(live.name, "cookie", "none", live.source)],
        )
    snapshot_cookies = {} if snapshot is None else snapshot.kind("cookie")
    for name in sorted(cookies):
        raw = cookies[name]["raw"]
        differing = [FindingStatement(live.name, "cookie", _hash(raw), live.source)]
        own = bookies.cookies.get(name)
        if is_blocking(raw):
            # Of our own making: it keeps a bookie that is not whole from starting, and differs by design.
            continue
        if own is not None and own != raw:
            differing.append(FindingStatement("bookies", "cookie", _hash(own), "VERSION"))
        if snapshot is not None and name in snapshot_cookies and snapshot_cookies[name]["raw"] != raw:
            differing.append(
                FindingStatement("earlier", "cookie", _hash(snapshot_cookies[name]["raw"]), snapshot.source)
            )
        if len(differing) > 1:
            yield Finding(
                category=Category.COOKIE_DIFFERS,
                subject=f"{store.COOKIES}/{name}",
                bookies=[name],
                statements=differing,
            )


def _generator(live: Side, counter: str, largest: int, *, raised: bool) -> Iterator[Finding]:
    if not live.ledgers:
        return
    reached = (live.nodes.get(counter) or {}).get("children_created")
    if counter in live.nodes and reached is None:
        return
    if is_behind(reached, largest):
        yield Finding(
            category=Category.GENERATOR_BEHIND,
            subject=counter,
            severity="warning" if raised else "critical",
            statements=[
                FindingStatement(
                    live.name, "next id", "none was ever given" if reached is None else str(reached), live.source
                ),
                FindingStatement("plan" if raised else "all sides", "largest id that is used", str(largest)),
            ],
            suggested="the plan raises it, before anything else" if raised else None,
        )


def find_stale_marks(nodes: pa.Table, stored: pa.Table, buckets: range, run: FindingRun, source: str) -> pa.Table:
    """Return a finding for each ledger of a bucket range that is marked as under-replicated and not in the store.

    Args:
        nodes: CATALOG_NODES: path and kind at least.
        stored: key columns of the store's ledgers in the range.
        buckets: the range.
        run: this one.
        source: address of the store.
    """
    paths = nodes["path"].filter(pc.equal(nodes["kind"], "mark")).combine_chunks()
    marks = read_marks(paths)
    bucket = buckets_of(marks.scope, marks.ledger)
    is_inside = (bucket >= buckets.start) & (bucket < buckets.stop)
    keys = pa.table({"bucket": bucket[is_inside], "scope": marks.scope[is_inside], "ledger": marks.ledger[is_inside]})
    keys = keys.append_column("path", paths.take(pa.array(marks.rows[is_inside])))
    if not keys.num_rows:
        return FINDINGS.empty_table()
    marked, listed = unite([keys, stored]).rows
    keys = keys.take(pa.array(np.sort(marked[(marked != ABSENT) & (listed == ABSENT)])))
    statements = [
        FindingStatement("store", "mark", keys["path"], source),
        FindingStatement("store", "record", "none", source),
    ]
    return make_ledger_findings(Category.STALE_UR_MARK, keys, statements, run, subject="mark")


def list_far_ids(raises: RaiseTargets) -> Iterator[Finding]:
    """Yield the ids that raise no generator because they are far above all others."""
    for counter, number in raises.far_above:
        yield Finding(
            Category.ID_FAR_ABOVE,
            f"{counter} {number}",
            [
                FindingStatement("bookies", "id", str(number)),
                FindingStatement("all sides", "largest other id", str(raises.next_below)),
            ],
        )


def _names(live: Side, snapshot: Side | None, bookies: InventoriedBookies, where: ClusterKeys) -> Iterator[Finding]:
    sides = [live] if snapshot is None else [live, snapshot]
    layouts = [FindingStatement(side.name, "layout", _layout(side.nodes[where.layout]["raw"]), side.source)
               for side in sides if where.layout in side.nodes]  # fmt: skip
    if len({statement.value for statement in layouts}) > 1:
        yield Finding(category=Category.LAYOUT_DIFFERS, subject=where.layout, statements=layouts)
    ids = [FindingStatement(side.name, "instance id", _instance(side.nodes[where.instance_id]["raw"]), side.source)
           for side in sides if where.instance_id in side.nodes]  # fmt: skip
    ids += [FindingStatement("bookies", "instance id", name, "VERSION") for name in bookies.instance_ids]
    foreign, all_differ = _find_foreign_cookies(live, where)
    if all_differ:
        ids += [
            FindingStatement(live.name, "instance id in every cookie", name, live.source)
            for name in set(foreign.values())
        ]
    if len({statement.value for statement in ids}) > 1:
        yield Finding(category=Category.INSTANCE_ID_DIFFERS, subject=where.instance_id, statements=ids)
    for bookie, name in sorted(foreign.items()) if not all_differ else ():
        own = FindingStatement(live.name, "instance id", _instance(live.nodes[where.instance_id]["raw"]), live.source)
        named = FindingStatement(live.name, "instance id in the bookie's cookie", name, live.source)
        subject = f"{store.COOKIES}/{bookie}"
        yield Finding(Category.INSTANCE_ID_DIFFERS, subject, [own, named], bookies=[bookie])


def _find_foreign_cookies(live: Side, where: ClusterKeys) -> tuple[dict[str, str], bool]:
    """Return the bookies with a cookie of another cluster than the store, each with its id; and whether all are.

    A cookie of ours that blocks a bookie, and one without an id, as old bookies have it, name none.
    """
    node = live.nodes.get(where.instance_id)
    if node is None:
        return {}, False
    named: dict[str, str] = {}
    for bookie, row in live.kind("cookie").items():
        with suppress(FormatError):
            name = None if is_blocking(row["raw"]) else cookie.decode(row["raw"]).instance_id
            if name is not None:
                named[bookie] = name
    own = _instance(node["raw"])
    foreign = {bookie: name for bookie, name in named.items() if name != own}
    return foreign, bool(foreign) and len(foreign) == len(named)


def _hash(raw: bytes) -> str:
    return f"{len(raw)} bytes, SHA-256 {hashlib.sha256(raw).hexdigest()[:_DIGITS]}…"


def _layout(raw: bytes) -> str:
    try:
        return str(store.layout_of(raw))
    except FormatError as error:
        return f"cannot be read ({error.detail or error.reason})"


def _instance(raw: bytes) -> str:
    try:
        return store.decode_instance_id(raw)
    except FormatError as error:
        return f"cannot be read ({error.detail or error.reason})"
