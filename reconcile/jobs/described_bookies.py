"""The bookies that a cluster is known to have, with what their start depends on: from inventories and cookies."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from reconcile.jobs.context import Context, connect
from reconcile.plan.bookie_starts import BookieSource, KnownBookie, hash_cookie
from reconcile.rules.holds import find_without_index
from reconcile.snapshots import find_snapshots
from recovery.codecs import cookie
from recovery.codecs.blocking_cookie import is_blocking
from recovery.codecs.store import COOKIES
from recovery.collect.disk.folders import FolderRole
from recovery.dataset import Dataset, read_inventories
from recovery.errors import FormatError
from recovery.model.ids import is_bookie_id


@dataclass(frozen=True, slots=True)
class DescribedBookie:
    """A bookie with its cookie.

    Attributes:
        known: what its start depends on.
        of_disks: its cookie as its folders hold it; None: that is not known.
        own: the same, else as others recorded it.
    """

    known: KnownBookie
    of_disks: bytes | None
    own: bytes | None


def list_recorded_bookies(snapshots: Sequence[str], uri: str, context: Context) -> frozenset[str]:
    """Return the ids of the bookies that some snapshots have a cookie of.

    Args:
        snapshots: as `reconcile.snapshots` takes them.
        uri: of the store that they are of.
        context: of the job.

    Raises:
        InputError: a path leads nowhere, or to nothing of a store.
        UnavailableError: a store does not answer.
    """
    names: set[str] = set()
    with find_snapshots(snapshots, uri) as uris:
        for given in uris:
            with connect(given, context) as opened:
                names.update(opened.store.children(opened.root.rstrip("/") + COOKIES) or ())
    return frozenset(name for name in names if is_bookie_id(name))


def describe_bookies(
    inventories: Sequence[Dataset],
    bookies: pa.Table,
    others: Iterable[str],
    lost: Collection[str],
    recorded: Mapping[str, bytes],
) -> Iterator[DescribedBookie]:
    """Yield every bookie that is collected, or that somebody names, by id.

    Args:
        inventories: of bookies.
        bookies: BOOKIES of all of them.
        others: names of bookies, with an inventory or without.
        lost: bookies of which nothing will come back that was not seen.
        recorded: cookies of bookies as a store or a snapshot has them.
    """
    rows: dict[str, Mapping[str, Any]] = {row["bookie"]: row for row in bookies.to_pylist()}
    damage = read_inventories(inventories, "damage")
    hiding = damage.filter(damage["hides_entries"])["bookie"].value_counts().to_pylist()
    harms = {row["values"]: row["counts"] for row in hiding}
    without_index = {
        name
        for finding in find_without_index(rows.values(), damage)
        if finding.severity is None
        for name in finding.bookies
    }
    # What is not a bookie's id cannot be the name of a cookie either.
    for name in filter(is_bookie_id, sorted({*rows, *others, *lost})):
        row = rows.get(name)
        known = KnownBookie(name, lost=name in lost)
        if row is not None:
            known = _describe(row, known, harms.get(name, 0), is_index_gone=name in without_index)
        of_disks = None if row is None else row["cookie"]
        own = recorded.get(name) if of_disks is None else of_disks
        if own is not None:
            known = replace(known, cookie=hash_cookie(own))
        yield DescribedBookie(known, of_disks, own)


def _describe(row: Mapping[str, Any], known: KnownBookie, hiding: int, *, is_index_gone: bool) -> KnownBookie:
    """Return what is known of a bookie that was collected; a row of BOOKIES in."""
    stamped = {file["path"].rpartition("/")[0] for file in row["version_files"]}
    roles: dict[str, set[str]] = {}
    for folder in row["dirs"]:
        if not row["complete"] and folder["path"] not in stamped:
            roles.setdefault(folder["path"], set()).add(folder["role"])
    return replace(
        known,
        source=BookieSource.WIRE if row["mode"] == "wire" else BookieSource.DISKS,
        complete=row["complete"],
        missing=tuple(sorted(roles)),
        is_only_journals=bool(roles) and all(played == {FolderRole.JOURNAL} for played in roles.values()),
        is_index_gone=is_index_gone,
        hiding=hiding,
        expands_storage=row["expands_storage"],
        stamps_cookies=row["stamps_cookies"],
    )


def is_own(raw: bytes, bookie: str) -> bool:
    """Whether a recorded cookie may be a bookie's own: it names it, and is none that keeps it from starting."""
    try:
        return cookie.decode(raw).bookie_id == bookie and not is_blocking(raw)
    except FormatError:
        return False
