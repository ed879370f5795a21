"""Histories of ledgers on simulated bookies: what was true of them, and the inventory rows that they leave.

A history has an ensemble, a write and an ack quorum, ensemble changes at which a replaced bookie may keep entries that
were under way, and at most one kind of damage. It says nothing of bytes. Random, but the same for the same seed.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recovery.model import tables
from recovery.model.ids import buckets
from recovery.model.metadata import Digest, Segment

PASSWORD: Final = b"hunter2"
_KEY: Final = hashlib.sha256(hashlib.sha1(b"ledger" + PASSWORD, usedforsecurity=False).digest()).digest()
_HEADER_SIZE: Final = 32
_CRC32C_SIZE: Final = 4


class Harm(StrEnum):
    """What happened to a ledger beside what BookKeeper does by itself."""

    NONE = "none"
    HOLE = "hole"
    """One bookie lost one entry."""
    LOST = "lost"
    """One bookie lost all of the ledger."""
    EXTRA = "extra"
    """One bookie has an entry that is not its own."""
    COPIED = "copied"
    """Re-replication copied a stretch to a bookie that is in no ensemble; the copies' LAC is the last entry."""
    TAIL = "tail"
    """The writer died: entries above the last acknowledged one are on some bookies of their write sets."""
    BEHIND = "behind"
    """The last entries were acknowledged by A bookies of their write sets, and never reached some others."""
    SWAPPED = "swapped"
    """Two bookies' disks were exchanged."""


@dataclass(frozen=True, slots=True)
class History:
    """What was true of one ledger, and what bookies hold of it.

    Attributes:
        acked: the last entry whose writer was told so.
        segments: of the true metadata.
        held: entries by bookie; a bookie that knows the ledger may hold none.
        copied: bookies whose entries carry a LAC that is not below them.
        lag: how far the LAC in headers is behind.
        payloads: bytes of each entry.
        overhang: a replaced bookie kept entries from after its replacement.
        returned: a bookie came back into an ensemble.
    """

    ledger: int
    ensemble: int
    write: int
    ack: int
    acked: int
    segments: tuple[Segment, ...]
    held: Mapping[str, frozenset[int]]
    harm: Harm = Harm.NONE
    copied: frozenset[str] = frozenset()
    lag: int = 0
    payloads: tuple[int, ...] = ()
    overhang: bool = False
    returned: bool = False

    def write_set(self, entry: int) -> list[str]:
        """Return the bookies that the true metadata has for an entry."""
        members = next(s.members for s in reversed(self.segments) if s.first <= entry)
        return [members[(entry + i) % self.ensemble] for i in range(self.write)]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What histories are drawn from.

    Attributes:
        shapes: (E, W).
        bookies: how many there are; more than any E.
        lengths: entries of a ledger.
        changes: ensemble changes of a ledger; the more often a number stands here, the likelier.
        harms: as `changes`.
        returning: the share of changes that take a bookie back which was replaced before.
        apart: entries between two changes, and after the last one, at least.
    """

    shapes: Sequence[tuple[int, int]] = tuple((e, w) for e in range(1, 8) for w in range(1, e + 1))
    bookies: int = 13
    lengths: Sequence[int] = (1, 2, 3, 5, 8, 20, 60, 200)
    changes: Sequence[int] = (0, 0, 0, 1, 1, 2, 3)
    harms: Sequence[Harm] = (Harm.NONE,) * 6 + tuple(Harm)
    returning: float = 0.0
    apart: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The bookies' ids."""
        return tuple(f"10.0.0.{number}:3181" for number in range(1, self.bookies + 1))


def holds(position: int, entry: int, ensemble: int, write: int) -> bool:
    """Whether a position of an ensemble belongs to the write set of an entry."""
    return (position - entry) % ensemble < write


def history(rng: Random, ledger: int, cluster: Cluster) -> History:
    """Make up one ledger's life."""
    ensemble, write = rng.choice(cluster.shapes)
    entries = rng.choice(cluster.lengths)
    spare = list(cluster.names)
    rng.shuffle(spare)
    members, spare = spare[:ensemble], spare[ensemble:]
    segments = [Segment(0, tuple(members))]
    kept: dict[str, set[int]] = {}
    left: list[str] = []
    under_way = rng.choice((0, 0, 1, 4))
    returned = False
    changes = sorted(rng.choices(range(entries), k=rng.choice(cluster.changes)))
    if any(behind - start < cluster.apart for start, behind in pairwise([0, *changes, entries])):
        changes = []
    for start in changes:
        for position in rng.sample(range(ensemble), min(ensemble, rng.choice((1, 1, 2)))):
            back = [bookie for bookie in left if bookie not in members]
            is_return = bool(back) and rng.random() < cluster.returning
            if not is_return and not spare:
                continue
            returned |= is_return
            sent = range(start, min(entries, start + rng.randint(0, under_way)))
            kept.setdefault(members[position], set()).update(e for e in sent if holds(position, e, ensemble, write))
            left.append(members[position])
            members[position] = rng.choice(back) if is_return else spare.pop()
        if segments[-1].first == start:
            segments.pop()
        segments.append(Segment(start, tuple(members)))
    entries_of = {bookie: set(own) for bookie, own in kept.items()}
    for segment, behind in pairwise([*segments, Segment(entries, ())]):
        for bookie in segment.members:
            entries_of.setdefault(bookie, set())
        for entry in range(segment.first, behind.first):
            for i in range(write):
                entries_of[segment.members[(entry + i) % ensemble]].add(entry)
    honest = History(
        ledger,
        ensemble,
        write,
        rng.randint(1, write),
        entries - 1,
        tuple(segments),
        {bookie: frozenset(own) for bookie, own in entries_of.items()},
        lag=rng.choice((0, 0, 1, 3, 1000)),
        payloads=tuple(rng.randint(1, 300) for _ in range(entries + ensemble)),
        overhang=any(kept.values()),
        returned=returned,
    )
    return do_harm(rng, honest, rng.choice(cluster.harms), cluster.names)


def do_harm(rng: Random, honest: History, harm: Harm, names: Sequence[str]) -> History:
    """Do one kind of harm to what bookies hold; names: of all bookies."""
    entries_of = {bookie: set(own) for bookie, own in honest.held.items()}
    holders = sorted(bookie for bookie, own in entries_of.items() if own)
    victim = rng.choice(holders)
    copied: frozenset[str] = frozenset()
    entries = honest.acked + 1
    if harm is Harm.COPIED and entries_of.keys() >= set(names):
        harm = Harm.NONE
    if harm is Harm.HOLE:
        entries_of[victim].discard(rng.choice(sorted(entries_of[victim])))
    elif harm is Harm.LOST:
        del entries_of[victim]
    elif harm is Harm.EXTRA:
        entries_of[victim].add(rng.randrange(entries))
    elif harm is Harm.COPIED:
        target = rng.choice([name for name in names if name not in entries_of])
        copied = frozenset({target})
        entries_of[target] = set(range(rng.randrange(entries), entries))
    elif harm is Harm.TAIL:
        # Not acknowledged: fewer than A bookies of the write set have it.
        for entry in range(entries, entries + rng.randint(1, honest.ensemble)):
            for bookie in rng.sample(honest.write_set(entry), rng.randint(0, honest.ack - 1)):
                entries_of[bookie].add(entry)
    elif harm is Harm.BEHIND:
        for entry in range(max(0, entries - rng.randint(1, honest.ensemble)), entries):
            for bookie in rng.sample(honest.write_set(entry), rng.randint(0, honest.write - honest.ack)):
                entries_of[bookie].discard(entry)
    elif harm is Harm.SWAPPED and len(holders) > 1:
        other = rng.choice([bookie for bookie in holders if bookie != victim])
        entries_of[victim], entries_of[other] = entries_of[other], entries_of[victim]
    return History(
        honest.ledger,
        honest.ensemble,
        honest.write,
        honest.ack,
        honest.acked,
        honest.segments,
        {bookie: frozenset(own) for bookie, own in entries_of.items()},
        harm,
        copied,
        honest.lag,
        honest.payloads,
        honest.overhang,
        honest.returned,
    )


def groups_of(entries: Iterable[int]) -> list[dict[str, int]]:
    """Return sequence groups of entries, one run after the other: the plain form of `recovery.model.groups`."""
    groups: list[dict[str, int]] = []
    runs: list[list[int]] = []
    for entry in sorted(entries):
        if runs and runs[-1][0] + runs[-1][1] == entry:
            runs[-1][1] += 1
        else:
            runs.append([entry, 1])
    for start, size in runs:
        group = groups[-1] if groups else None
        step = start - group["last"] if group else 0
        if group and group["size"] == size and group["period"] in (0, step):
            group.update(last=start, period=step)
        else:
            groups.append({"first": start, "last": start, "size": size, "period": 0})
    return groups


@dataclass(frozen=True, slots=True)
class Scan:
    """How bookies were read.

    Attributes:
        split: the share of rows whose newest entries are only in the journal.
        digest: of all entries; None: none verified.
        incomplete: bookies whose scan did not see everything.
        unscanned: bookies that were not scanned at all.
    """

    split: float = 0.0
    digest: Digest | None = Digest.CRC32C
    incomplete: frozenset[str] = frozenset()
    unscanned: frozenset[str] = frozenset()
    explicit_lac: Mapping[int, int] = field(default_factory=dict)


def copy_row(ledger: int, bookie: str, entries: Iterable[int], **columns: Any) -> dict[str, Any]:
    """Return a row of COPIES: one bookie's entries of one ledger; other columns as given."""
    own = sorted(entries)
    groups = groups_of(own)
    return {
        "bucket": int(buckets(np.array([0]), np.array([ledger]))[0]),
        "scope": 0,
        "ledger": ledger,
        "bookie": bookie,
        "incarnation": 1,
        "source": "index",
        "part": 0,
        "groups": groups,
        "entries": len(own),
        "first": own[0] if own else None,
        "last": own[-1] if own else None,
        "g_count": len(groups),
        "complete": True,
        "fenced": False,
        "limbo": False,
        "key_kind": "set",
        "key": _KEY,
        "headers": [],
        **columns,
    }


def copies(histories: Iterable[History], scan: Scan | None = None, rng: Random | None = None) -> pa.Table:
    """Return COPIES as a scan of all bookies would; rows in no order if `rng` is given."""
    scan = scan or Scan()
    rows = []
    for history in histories:
        lengths = np.cumsum(history.payloads)
        for bookie, own in history.held.items():
            if bookie in scan.unscanned:
                continue
            headers = []
            if own:
                last = max(own)
                lac = history.acked if bookie in history.copied else max(-1, last - 1 - history.lag)
                size = history.payloads[last] + _HEADER_SIZE + _CRC32C_SIZE
                length = int(lengths[last])
                headers = [{"entry": last, "lac": lac, "length": length, "size": size, "digest": scan.digest}]
            lac_known = scan.explicit_lac.get(history.ledger)
            facts = {"headers": headers, "complete": bookie not in scan.incomplete, "explicit_lac": lac_known}
            if own and rng is not None and rng.random() < scan.split:
                cut = rng.randint(0, max(own))
                rows.append(copy_row(history.ledger, bookie, (e for e in own if e < cut), **facts))
                rows.append(copy_row(history.ledger, bookie, (e for e in own if e >= cut), source="journal"))
            else:
                rows.append(copy_row(history.ledger, bookie, own, **facts))
    if rng is not None:
        rng.shuffle(rows)
    return pa.Table.from_pylist(rows, schema=tables.COPIES)


def bookies(names: Iterable[str], scan: Scan | None = None) -> pa.Table:
    """Return BOOKIES of those that were scanned; all were running when they were."""
    scan = scan or Scan()
    rows = [
        {
            "bookie": name,
            "incarnation": 1,
            "incarnation_evidence": [],
            "version_files": [],
            "storage": "interleaved",
            "mode": "disks",
            "dirty": True,
            "started": 0,
            "ended": 0,
            "complete": name not in scan.incomplete,
            "dirs": [],
            "journals": [],
            "max_ids": [],
            "ledgers": 0,
            "entries": 0,
            "damaged": 0,
        }
        for name in names
        if name not in scan.unscanned
    ]
    return pa.Table.from_pylist(rows, schema=tables.BOOKIES)
