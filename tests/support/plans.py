"""Small plans for tests: rows of ACTIONS in the order of a restore."""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from recovery.model import tables
from tests.support.memory_store import MemoryStore

PHASES = {"generator": 1, "ledger": 2, "reuse_lock": 2, "node": 3, "layout": 3, "instance_id": 4, "cookie": 5}


def action(kind: str, op: str, key: str, value: bytes | None, **fields: Any) -> dict[str, Any]:
    """Return one row without its place."""
    digest = hashlib.sha256(repr((kind, op, key, value, sorted(fields.items()))).encode()).digest()
    ledger = 1 if kind == "ledger" else None
    row: dict[str, Any] = {
        "bucket": -1,
        "scope": 0,
        "ledger": ledger,
        "id": digest,
        "wave": 0,
        "choice": 0,
        "alternatives": [],
    }
    return {**row, "op": op, "kind": kind, "key": key, "value": value, **fields}


def plan_of(rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Return rows as a plan's table, ordered by phase, each with its seq."""
    ordered = sorted(rows, key=lambda row: PHASES[row["kind"]])
    numbered = [{"seq": PHASES[row["kind"]] << 48 | i, **row} for i, row in enumerate(ordered)]
    return pa.Table.from_pylist(numbered, schema=tables.ACTIONS)


def restore_of(ledgers: int) -> list[dict[str, Any]]:
    """Return a whole restore: a generator, ledgers and holds, what a cluster needs besides, two cookies."""
    return [
        action("generator", "raise", "/idgen", b"1234"),
        *(
            action("ledger", "hold" if n % 3 == 0 else "create", f"/00/0000/L{n:04d}", b"record %d" % n)
            for n in range(ledgers)
        ),
        action("node", "create", "/available/readonly", b""),
        action("layout", "create", "/LAYOUT", b"2\nlayout:1"),
        action("instance_id", "create", "/INSTANCEID", b"1c0b"),
        *(action("cookie", "create", f"/cookies/b{n}:3181", b"cookie %d" % n) for n in range(2)),
    ]


def clock() -> Any:
    """Return a clock that is a second later each time."""
    at = datetime(2030, 1, 1, tzinfo=UTC)

    def now() -> datetime:
        nonlocal at
        at += timedelta(seconds=1)
        return at

    return now


def state_of(store: MemoryStore) -> dict[str, tuple[bytes, int, int | None, str | None]]:
    """Return all of a store but times and transactions: value, version, counter and rights by key."""
    found = {}
    for key in ("/", *store.dump()):
        held = store.get(key)
        assert held is not None
        found[key] = (held.value, held.version, held.children_created, held.acl)
    return found


def lines_after(path: Path, offset: int) -> tuple[int, int]:
    """Return how many whole lines a file has behind a byte, and the byte behind the last of them."""
    if not path.exists():
        return 0, offset
    with path.open("rb") as file:
        file.seek(offset)
        added = file.read()
    return added.count(b"\n"), offset + added.rfind(b"\n") + 1
