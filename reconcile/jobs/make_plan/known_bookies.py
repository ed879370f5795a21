"""The bookies that a cluster is known to have: what their start depends on, and the cookies that a store is to have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.evidence import sort_newest_first
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.plan.bookie_starts import KnownBookie, Source, choose_cookie, hash_cookie
from reconcile.rules.holds import find_without_index
from recovery.codecs import cookie, store
from recovery.codecs.blocking_cookie import is_blocking
from recovery.collect.disk.folders import Role
from recovery.dataset import Dataset, read_inventories
from recovery.errors import FormatError
from recovery.model.coverage import Coverage
from recovery.model.ids import is_bookie_id


@dataclass(frozen=True, slots=True)
class WantedCookie:
    """A bookie with the cookie that a store is to have of it.

    Attributes:
        known: the bookie.
        raw: the cookie.
        is_of_disks: it is what the bookie's folders hold.
    """

    known: KnownBookie
    raw: bytes
    is_of_disks: bool


def list_wanted_cookies(
    request: PlanRequest, bookies: pa.Table, coverage: Coverage, instance_id: str | None
) -> list[WantedCookie]:
    """Return every bookie that is collected, or that an operator, the store or a snapshot names, by id.

    Args:
        request: what the plan is made of.
        bookies: BOOKIES of all inventories.
        coverage: of the plan.
        instance_id: of the cluster; None: not known.
    """
    rows: dict[str, Mapping[str, Any]] = {row["bookie"]: row for row in bookies.to_pylist()}
    damage = read_inventories(request.inventories, "damage")
    hiding = damage.filter(damage["hides_entries"])["bookie"].value_counts().to_pylist()
    harms = {row["values"]: row["counts"] for row in hiding}
    without_index = {
        name
        for finding in find_without_index(rows.values(), damage)
        if finding.severity is None
        for name in finding.bookies
    }
    live = [request.live] if request.live is not None else []
    earlier = [snapshot.dataset for snapshot in sort_newest_first(request.snapshots)]
    recorded = _read_cookies([*live, *earlier], request.aliases)
    wanted = []
    # What is no bookie's id cannot be the name of a cookie either.
    for name in filter(is_bookie_id, sorted({*coverage.scanned, *coverage.not_scanned, *coverage.lost})):
        row = rows.get(name)
        known = KnownBookie(name, lost=name in coverage.lost)
        if row is not None:
            known = _describe(row, known, harms.get(name, 0), is_index_gone=name in without_index)
        of_disks = None if row is None else row["cookie"]
        own = recorded.get(name) if of_disks is None else of_disks
        if own is not None:
            known = replace(known, cookie=hash_cookie(own))
        raw = choose_cookie(known, own, instance_id)
        wanted.append(WantedCookie(known, raw, is_of_disks=raw == of_disks))
    return wanted


def _describe(row: Mapping[str, Any], known: KnownBookie, hiding: int, *, is_index_gone: bool) -> KnownBookie:
    """Return what is known of a bookie that was collected; a row of BOOKIES in."""
    stamped = {file["path"].rpartition("/")[0] for file in row["version_files"]}
    roles: dict[str, set[str]] = {}
    for folder in row["dirs"]:
        if not row["complete"] and folder["path"] not in stamped:
            roles.setdefault(folder["path"], set()).add(folder["role"])
    return replace(
        known,
        source=Source.WIRE if row["mode"] == "wire" else Source.DISKS,
        complete=row["complete"],
        missing=tuple(sorted(roles)),
        is_only_journals=bool(roles) and all(played == {Role.JOURNAL} for played in roles.values()),
        is_index_gone=is_index_gone,
        hiding=hiding,
        expands_storage=row["expands_storage"],
        stamps_cookies=row["stamps_cookies"],
    )


def _read_cookies(catalogs: Sequence[Dataset], aliases: Mapping[str, str]) -> dict[str, bytes]:
    """Return the cookie of each bookie as the first of some catalogs has it; none that blocks, or is damaged."""
    cookies: dict[str, bytes] = {}
    for catalog in catalogs:
        nodes = catalog.read("nodes", columns=["path", "kind", "raw"])
        for row in nodes.filter(pc.equal(nodes["kind"], "cookie")).to_pylist():
            name = row["path"].removeprefix(f"{store.COOKIES}/")
            name = aliases.get(name, name)
            if name not in cookies and _names(row["raw"], name) and not is_blocking(row["raw"]):
                cookies[name] = row["raw"]
    return cookies


def _names(raw: bytes, bookie: str) -> bool:
    try:
        return cookie.decode(raw).bookie_id == bookie
    except FormatError:
        return False
