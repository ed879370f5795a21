"""A small cluster for deletes: records and cookies in a store, and inventories of bookies that hold their share."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from backends.protocols import MetadataStore, Write
from backends.registry import open_store
from recovery.codecs.ledger_record import encode
from recovery.codecs.store import COOKIES, Layout, layout_bytes, ledger_key, places
from recovery.dataset import DatasetWriter
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.inventories import fill_row
from tests.support.zookeeper_server import ZooKeeperServer

BOOKIES: Final = ("bk1:3181", "bk2:3181", "bk3:3181")
INSTANCE: Final = "8b5b1c0c-6d4f-4b0e-9d4a-1f6b7a1c2d3e"
CREATED_MS: Final = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger of the cluster; closed at `last` unless its state says otherwise."""

    id: LedgerId
    last: int = 9
    quorums: tuple[int, int, int] = (3, 3, 2)
    state: LedgerState = LedgerState.CLOSED
    members: tuple[str, ...] = BOOKIES
    ctime: int | None = CREATED_MS
    custom: tuple[tuple[str, bytes], ...] = ()

    @property
    def raw(self) -> bytes:
        """Its record."""
        closed = self.state is LedgerState.CLOSED
        size, write, ack = self.quorums
        return encode(
            LedgerMetadata(
                3,
                size,
                write,
                ack,
                self.state,
                self.last if closed else None,
                100 if closed else None,
                (Segment(0, self.members[:size]),),
                Digest.CRC32C,
                b"secret",
                self.ctime,
                self.custom,
            )
        )

    def list_share(self, bookie: str) -> list[int]:
        """Return the entries that a bookie has."""
        size, write, _ = self.quorums
        if bookie not in self.members[:size]:
            return []
        place = self.members.index(bookie)
        return [e for e in range(self.last + 1) if (place - e) % size < write]


def make_cookie(bookie: str) -> bytes:
    """Return a cookie that no other bookie has."""
    return f'4\nbookieHost: "{bookie}"\n'.encode()


def fill_store(store: MetadataStore, root: str, layout: Layout, ledgers: Iterable[Ledger]) -> None:
    """Write a cluster's nodes and its ledgers' records."""
    where = places(layout)
    writes = [Write(root + where.layout, layout_bytes(layout)), Write(root + where.instance_id, INSTANCE.encode())]
    writes += [Write(f"{root}{COOKIES}/{bookie}", make_cookie(bookie)) for bookie in BOOKIES]
    for write in [*writes, *(Write(root + folder, b"") for folder in where.registrations)]:
        if store.get(write.key) is None:
            store.write([write])
    for ledger in ledgers:
        store.write([Write(root + ledger_key(layout, ledger.id), ledger.raw)])


def fill_zookeeper(server: ZooKeeperServer, root: str, ledgers: Iterable[Ledger]) -> str:
    """Fill a root of a real ZooKeeper, in the hierarchical layout; return its URI."""
    uri = f"zk+hierarchical://{server.hosts}{root}"
    with open_store(uri, writable=True) as opened:
        fill_store(opened.store, root, Layout.HIERARCHICAL, ledgers)
    return uri


def name_looks(looks: Iterable[str]) -> list[str]:
    """Return the options that name inventories."""
    return [word for path in looks for word in ("--inventory", path)]


def write_looks(
    folder: Path,
    ledgers: Sequence[Ledger],
    *,
    ended: datetime | None = None,
    bookies: Collection[str] = BOOKIES,
    without: Mapping[str, Collection[int]] | None = None,
    lac: Mapping[int, int] | None = None,
    incarnation: int = 1,
    formatted: datetime = datetime(2025, 1, 1, tzinfo=UTC),
    complete: bool = True,
    cookie: bytes | None = None,
    cookieless: Collection[str] = (),
    instance: str = INSTANCE,
) -> list[str]:
    """Write an inventory of each bookie, and return their folders.

    Args:
        folder: that they are in.
        ledgers: that the bookies hold their share of.
        ended: when they were made; None: now.
        bookies: of which.
        without: bookie → ledgers that it has not.
        lac: ledger → LAC that its last entry has.
        incarnation: of all.
        formatted: when their folders were.
        complete: whether what they lack is not there.
        cookie: that all have; None: each its own.
        cookieless: bookies that have none.
        instance: id of their cluster.
    """
    made = ended or datetime.now(UTC)
    found = []
    for bookie in bookies:
        place = folder / bookie.replace(":", "_")
        rows = []
        for ledger in sorted(ledgers, key=lambda one: one.id.bucket):
            entries = ledger.list_share(bookie)
            if not entries or ledger.id.ledger in (without or {}).get(bookie, ()):
                continue
            rows.append(_make_copies(bookie, incarnation, ledger, entries, (lac or {}).get(ledger.id.ledger, -1)))
        about = {
            "bookie": bookie, "incarnation": incarnation, "mode": "disks", "complete": complete, "started": made,
            "ended": made, "dirty": False, "instance_id": instance, "ledgers": len(rows),
            "cookie": None if bookie in cookieless else cookie or make_cookie(bookie),
            "version_files": [{"path": "/d/current/VERSION", "inode": 1, "born": None, "mtime": formatted}],
        }  # fmt: skip
        with DatasetWriter(place, "inventory", binding={}) as writer:
            writer.append("bookies", pa.Table.from_pylist([fill_row(tables.BOOKIES, about)], schema=tables.BOOKIES))
            writer.append("copies", pa.Table.from_pylist(rows, schema=tables.COPIES))
            writer.close(coverage={})
        found.append(str(place))
    return found


def _make_copies(bookie: str, incarnation: int, ledger: Ledger, entries: Sequence[int], lac: int) -> dict[str, Any]:
    runs = np.split(np.array(entries), np.flatnonzero(np.diff(entries) > 1) + 1)
    groups = [{"first": int(r[0]), "last": int(r[0]), "size": len(r), "period": 0} for r in runs]
    header = {"entry": entries[-1], "lac": lac, "length": 100, "size": 50, "digest": "CRC32C"}
    about = {
        "bucket": ledger.id.bucket, "scope": ledger.id.scope, "ledger": ledger.id.ledger, "bookie": bookie,
        "incarnation": incarnation, "source": "index", "groups": groups, "entries": len(entries), "first": entries[0],
        "last": entries[-1], "complete": True, "key_kind": "absent", "headers": [header],
    }  # fmt: skip
    return fill_row(tables.COPIES, about)


def write_references(path: Path, ledgers: Iterable[int], *, at: datetime | None = None) -> Path:
    """Write a file of references that were listed at a time; None: now."""
    rows: list[dict[str, object]] = [{"listed": (at or datetime.now(UTC)).isoformat()}]
    rows += [{"ledger": ledger, "owner": f"topic {ledger}"} for ledger in ledgers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def change(ledger: Ledger, **fields: Any) -> Ledger:
    """Return a ledger with other fields."""
    return replace(ledger, **fields)


def days_ago(days: float) -> datetime:
    """Return a time in the past."""
    return datetime.now(UTC) - timedelta(days=days)
