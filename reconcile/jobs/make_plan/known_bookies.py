"""The cookies that a store is to have of the bookies that a cluster is known to have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.evidence import sort_newest_first
from reconcile.jobs.described_bookies import describe_bookies, is_own
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.plan.bookie_starts import KnownBookie, choose_cookie
from recovery.codecs import store
from recovery.dataset import Dataset
from recovery.model.coverage import Coverage


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
    live = [request.live] if request.live is not None else []
    earlier = [snapshot.dataset for snapshot in sort_newest_first(request.snapshots)]
    recorded = _read_cookies([*live, *earlier], request.aliases)
    names = (*coverage.scanned, *coverage.not_scanned)
    wanted = []
    for found in describe_bookies(request.inventories, bookies, names, coverage.lost, recorded):
        raw = choose_cookie(found.known, found.own, instance_id)
        wanted.append(WantedCookie(found.known, raw, is_of_disks=raw == found.of_disks))
    return wanted


def _read_cookies(catalogs: Sequence[Dataset], aliases: Mapping[str, str]) -> dict[str, bytes]:
    """Return the cookie of each bookie as the first of some catalogs has it; none that blocks, or is damaged."""
    cookies: dict[str, bytes] = {}
    for catalog in catalogs:
        nodes = catalog.read("nodes", columns=["path", "kind", "raw"])
        for row in nodes.filter(pc.equal(nodes["kind"], "cookie")).to_pylist():
            name = row["path"].removeprefix(f"{store.COOKIES}/")
            name = aliases.get(name, name)
            if name not in cookies and is_own(row["raw"], name):
                cookies[name] = row["raw"]
    return cookies
