"""Plans for tests: a folder as `recover` writes it, from a few facts of each ledger, without Spark."""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from reconcile.plan.actions import (
    REUSE_LOCK_TIME,
    Passwords,
    PlanPhase,
    SystemWrite,
    make_ledger_actions,
    make_reuse_locks,
    make_system_actions,
    number_actions,
)
from reconcile.plan.alternatives import with_alternatives
from reconcile.plan.bookie_starts import KnownBookie
from reconcile.plan.entry_shares import count_entries
from reconcile.plan.plan_hash import Hashes, bucket_hashes, with_ids
from reconcile.rules.holds import HOLD_PASSWORD_SIZE
from recovery.codecs import store
from recovery.codecs.entry import master_key
from recovery.dataset import Dataset, open_dataset, prepare, write_manifest, write_part
from recovery.model import tables
from recovery.model.ids import LedgerId

RUN: Final = "2026-01-01T00:00:00+00:00"


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a plan says of one ledger; a reason makes it a hold."""

    ledger: int
    segments: Sequence[tuple[int, Sequence[str]]]
    quorums: tuple[int, int, int] = (3, 2, 2)
    last: int | None = 0
    length: int | None = 1
    state: str = "CLOSED"
    digest: str = "CRC32C"
    password: bytes | None = b""
    custom: Mapping[str, bytes] = field(default_factory=dict)
    reason: str | None = None
    scope: int = 0
    missing: int = 0
    owner: str | None = None
    verdict: str = "clean"
    guard: str | None = None
    offers: Mapping[str, bytes] = field(default_factory=dict)
    highest: int | None = None

    def row(self) -> dict[str, Any]:
        """Return it as a row of RECONSTRUCTION."""
        ensemble, write, ack = self.quorums
        holders = sorted({member for _, members in self.segments for member in members})
        key = None if self.password is None else hashlib.sha256(master_key(self.password)).digest()
        return {
            "bucket": LedgerId(self.scope, self.ledger).bucket,
            "scope": self.scope,
            "ledger": self.ledger,
            "class": "undecided" if self.reason else "clean",
            "outcome": "held" if self.reason else "guarded" if self.guard in ("lock", "named") else "restored",
            "reading": None if self.reason else "universal" if self.guard in ("lock", "named") else "proved",
            "reason": self.reason,
            "format": 1 if self.password is None else 3,
            "state": self.state,
            "ensemble_size": ensemble,
            "write_quorum": write,
            "ack_quorum": ack,
            "last_entry": self.last,
            "length": self.length,
            "digest": None if self.password is None else self.digest,
            "ctime": 1,
            "key": key,
            "segments": [
                {"first": first, "first_low": first, "members": list(members), "assumed": [False] * len(members)}
                for first, members in self.segments
            ],
            "custom": [{"key": name, "value": value} for name, value in self.custom.items()],
            "grades": dict.fromkeys(tables.GRADED, "observed"),
            "lac_low": self.last,
            "acked_high": self.last,
            "missing": self.missing,
            "extra": 0,
            "holders": holders,
            "highest": self.last if self.reason and self.highest is None else self.highest,
            "alternatives": [],
        }

    def side(self) -> dict[str, Any]:
        """Return it as a row of SIDES."""
        row = self.row()
        return {
            **{name: row[name] for name in tables.KEY_COLUMNS},
            "on_bookies": True,
            "in_store": False,
            "in_earlier": False,
            "relation": "bookies_only",
            "right": "bookies",
            "owner": self.owner,
            "verdict": self.verdict,
        }


def of_truth(row: Mapping[str, Any]) -> Ledger:
    """Return a ledger of a golden case as its lost record had it."""
    digest = {"MAC": "HMAC"}.get(row["digest"], row["digest"])
    return Ledger(
        ledger=row["ledger"],
        segments=row["segments"],
        quorums=(row["E"], row["W"], row["A"]),
        last=row["last"],
        length=row["length"],
        state=row["state"],
        digest=digest or "CRC32C",
        password=None if row["password"] is None else base64.b64decode(row["password"]),
        custom={key: base64.b64decode(value) for key, value in row["custom"].items()},
    )


def write_plan(
    folder: Path,
    ledgers: Iterable[Ledger],
    *,
    layout: store.Layout = store.Layout.HIERARCHICAL,
    secrets: int = 7,
    coverage: Mapping[str, object] | None = None,
    passwords: Sequence[bytes] = (b"hunter2", b"secret"),
    root: str = "/ledgers",
    findings: pa.Table | None = None,
    words: str = "",
    bookies: Sequence[KnownBookie] = (),
    cookies: Mapping[str, bytes] | None = None,
    reused: Sequence[LedgerId] = (),
) -> Dataset:
    """Write a plan for an empty store, in two parts of ledgers, and open it; words: of every alternative.

    Bookies are those that are known, cookies those that are written, by bookie; reused: ids that get a lock because two
    ledgers have them.
    """
    findings = tables.FINDINGS.empty_table() if findings is None else findings
    ledgers = list(ledgers)
    by_key = [(name, "ascending") for name in tables.KEY_COLUMNS]
    rows = pa.Table.from_pylist([ledger.row() for ledger in ledgers], schema=tables.RECONSTRUCTION).sort_by(by_key)
    sides = pa.Table.from_pylist([ledger.side() for ledger in ledgers], schema=tables.SIDES).sort_by(by_key)
    noise = bytes([secrets]) * HOLD_PASSWORD_SIZE * rows.num_rows
    actions = make_ledger_actions(rows, layout, Passwords.from_candidates(passwords), noise)
    guards = {(ledger.scope, ledger.ledger): ledger.guard for ledger in ledgers}
    ids = zip(actions["scope"].to_pylist(), actions["ledger"].to_pylist(), strict=True)
    at = tables.ACTIONS.get_field_index("guard")
    numbers = actions["ledger"].to_pylist()
    actions = with_ids(
        actions.set_column(at, tables.ACTIONS.field(at), pa.array([guards[i] for i in ids], pa.string()))
    )
    offers = {
        ledger.ledger: [{"label": k, "value": v, "reads_as": words} for k, v in ledger.offers.items()]
        for ledger in ledgers
    }
    others = pa.array([offers[n] for n in numbers], tables.ACTIONS.field("alternatives").type)
    actions = with_alternatives(actions, np.arange(actions.num_rows), others)
    if reused:
        keys = pa.Table.from_pylist(
            [{"bucket": one.bucket, "scope": one.scope, "ledger": one.ledger} for one in reused],
            schema=pa.schema([tables.ACTIONS.field(name) for name in tables.KEY_COLUMNS]),
        )
        actions = number_actions([actions, make_reuse_locks(keys, datetime.fromisoformat(RUN) + REUSE_LOCK_TIME)])
    system = make_system_actions(
        [
            SystemWrite(PlanPhase.GENERATORS, "raise", "generator", store.generator_key(layout), b"100"),
            SystemWrite(PlanPhase.LAYOUT, "create", "layout", store.LAYOUT, store.layout_bytes(layout)),
            SystemWrite(PlanPhase.INSTANCE_ID, "create", "instance_id", store.INSTANCE_ID, b"an-instance"),
            *(
                SystemWrite(PlanPhase.COOKIES, "create", "cookie", f"{store.COOKIES}/{name}", raw)
                for name, raw in (cookies or {}).items()
            ),
        ]
    )
    prepare(folder, "plan", secret=True)
    half = rows.num_rows // 2
    parts = {
        "actions": [
            write_part(folder, "actions", "system-first", [system.slice(0, 1)], secret=True),
            write_part(folder, "actions", "buckets-0", [actions.slice(0, half)], secret=True),
            write_part(folder, "actions", "buckets-1", [actions.slice(half)], secret=True),
            write_part(folder, "actions", "system-last", [system.slice(1)], secret=True),
        ],
        "findings": [write_part(folder, "findings", "part", [findings], secret=True)],
        "reconstruction": [write_part(folder, "reconstruction", "part", [rows], secret=True)],
        "sides": [write_part(folder, "sides", "part", [sides], secret=True)],
    }
    binding: dict[str, Any] = {
        "instance_ids": ["an-instance"],
        "layout": str(layout),
        "root": root,
        "bookies": [],
        "cookies_held_back": False,
        "made": RUN,
    }
    outcomes = rows["outcome"].to_pylist()
    reasons = [reason for reason in rows["reason"].to_pylist() if reason]
    counts = dict.fromkeys(
        (
            *("waiting", "deleted", "in_store_already", "in_store", "in_store_not_on_bookies", "disagreements"),
            *("held_in_store", "clean", "skipped", "with_findings", "critical"),
        ),
        0,
    )
    hashes = Hashes()
    hashes.add(actions, rows)
    hashes.actions.update(bucket_hashes(system))
    write_manifest(
        folder,
        "plan",
        parts,
        binding=binding,
        coverage=coverage
        or {
            "scanned": ["b1"],
            "complete": ["b1"],
            "not_complete": [],
            "members_known_from": ["expected by the operator"],
            "not_scanned": [],
            "not_named": [],
        },
        secret=True,
        extra={
            "counts": {
                **counts,
                "ledgers": len(outcomes),
                "restored": outcomes.count("restored"),
                "guarded": outcomes.count("guarded"),
                "guarded_by_names": actions["guard"].to_pylist().count("named"),
                **{f"entries_{share}": count for share, count in count_entries(rows).items()},
                "held": outcomes.count("held"),
                "beyond_end": sum(
                    row["outcome"] != "held" and row["highest"] is not None and row["highest"] > row["last_entry"]
                    for row in rows.select(["outcome", "highest", "last_entry"]).to_pylist()
                ),
                "in_store_already": len(reused),
                "ids_reused": len(reused),
                "reuse_locks": len(reused),
                "actions": actions.num_rows + system.num_rows,
                "ids_above_short_generator": 0,
                "looked_at": len(outcomes),
                "undecided": sides["verdict"].to_pylist().count("undecided"),
            },
            "sides": {"bookies_only": len(outcomes)},
            "found": dict(Counter(findings["category"].to_pylist())),
            "mass_deletion": False,
            "reasons": {reason: reasons.count(reason) for reason in sorted(set(reasons))},
            "prior": [],
            **({"bookies": [known.to_json() for known in bookies]} if bookies else {}),
            "settings": {
                "--tail": {"value": "inclusive", "from": "default"},
                "--default-quorum": {"value": [3, 2, 2], "from": "incident file"},
            },
        },
        sign=hashes.sign,
    )
    return open_dataset(folder, "plan")
