"""What a reconstruction is worth on histories whose truth is known: guarantees, holds, grades, class by class.

    python -m recovery.testing.judge [CLASS[/SCAN]…] [--count N] [--seed S] [--show K]

A guarantee that is broken is a `Violation`, with what was true and what was claimed; the same class, seed and ledger
bring it back. The guarantees (`docs/design` has the theory and the table that this prints):

    G1    an entry that a scanned bookie serves, not above the end, has a holder in its write set
    G2    nothing acknowledged is above the end of a closed ledger; what nobody scanned has is said to be open
    G5    where the end or the length is not the true one, the true one is among the alternatives
    grade what is called observed or verified is true
    hold  what is not restored names exactly the bookies that serve entries
    law7  what the inventory shows to be two ledgers under one id is not restored as one; what some bookie shows to be
          deleted is not restored
    clean a ledger to which nothing happened comes back as it was
    rows  every ledger of the inventory has one row, and it is well formed
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from recovery.infer.prior import Prior, count_shapes
from recovery.infer.reconstruct import Options, reconstruct
from recovery.infer.search import Tail
from recovery.model.metadata import State
from recovery.testing import histories, nasty
from recovery.testing.histories import CLASSES, PASSWORD, SCANS, Inventory, profile_of
from recovery.testing.nasty import NASTY
from recovery.testing.protocol import Record, World

PASSWORDS: Final = (b"", PASSWORD)
SURE: Final = ("observed", "verified")
NASTY_LEDGERS: Final = 100
"""Ledgers that share a cluster in the histories of `nasty`."""
_ORDERS: Final = 4
"""Orders of answers in which a ledger that is left open is recovered."""
UNTOUCHED: Final = ("clean",)
"""Classes to whose ledgers nothing happens that BookKeeper does not show: all come back as they were."""
JUDGED: Final = (
    "ensemble_size", "write_quorum", "ack_quorum", "state", "last_entry", "length", "segments", "digest", "password",
)  # fmt: skip

Row = Mapping[str, Any]
Quorums = Mapping[tuple[int, int, int], int]


class Reconstruct(Protocol):
    """What is judged."""

    def __call__(self, inventory: Inventory, *, tail: Tail = ..., quorums: Quorums | None = ...) -> pa.Table:
        """Return RECONSTRUCTION; quorums: (E, W, A) to ledgers, as a snapshot has them."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken guarantee.

    Attributes:
        guarantee: as in the module's table.
        history, seed, ledger: what brings it back.
        what: in words.
        true, claimed: the ledger as it was, and as the reconstruction has it.
        served: what bookies serve.
    """

    guarantee: str
    history: str
    seed: int
    ledger: int
    what: str
    true: str
    claimed: str
    served: str

    def __str__(self) -> str:
        return (
            f"{self.guarantee}: {self.history} seed {self.seed} ledger {self.ledger}: {self.what}\n"
            f"  true     {self.true}\n  claimed  {self.claimed}\n  served   {self.served}"
        )


@dataclass(slots=True)
class Tally:
    """What a class of histories came to; tallies of several batches add up.

    Attributes:
        ledgers: that any scanned bookie has something of.
        paths: classes of rows; outcomes: of rows.
        reasons: of what was not restored.
        opened: restored ledgers that are left open.
        entries: served entries, not above the end, of restored ledgers; readable: of these, through what was restored.
        unseen: restored ledgers whose acknowledged end nobody scanned has, and that say so.
        gone: restored ledgers whose acknowledged end is on no bookie any more, and no LAC shows it.
        resurrected: restored ledgers that were deleted, with nothing on any scanned bookie that shows it.
        blended: restored ledgers that are two under one id, with nothing in the inventory that shows it: of one of them
            nothing is served, or all headers that were read may be of one ledger.
        odd: restored ledgers whose true record has a length that is not the sum of their entries, or of which no header
            that was read says it.
        strays: copies of restored ledgers on bookies that no segment names.
        grades: (field, grade) to how many claims, and how many of them are right.
        violations: all of them.
    """

    ledgers: int = 0
    paths: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    opened: int = 0
    entries: int = 0
    readable: int = 0
    unseen: int = 0
    gone: int = 0
    resurrected: int = 0
    blended: int = 0
    odd: int = 0
    strays: int = 0
    grades: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add another tally to this one."""
        self.ledgers += other.ledgers
        self.paths += other.paths
        self.outcomes += other.outcomes
        self.reasons += other.reasons
        self.opened += other.opened
        self.entries += other.entries
        self.readable += other.readable
        self.unseen += other.unseen
        self.gone += other.gone
        self.resurrected += other.resurrected
        self.blended += other.blended
        self.odd += other.odd
        self.strays += other.strays
        for place, (claims, right) in other.grades.items():
            mine = self.grades.setdefault(place, [0, 0])
            mine[0] += claims
            mine[1] += right
        self.violations += other.violations


def reconstructed(inventory: Inventory, *, tail: Tail = Tail.INCLUSIVE, quorums: Quorums | None = None) -> pa.Table:
    """Reconstruct with what the cluster itself shows, and the passwords that an operator has."""
    shapes = count_shapes(inventory.copies, inventory.bookies)
    prior = Prior.build(shapes, quorums, unscanned=inventory.unscanned)
    options = Options(passwords=PASSWORDS, unscanned_bookies=inventory.unscanned, tail=tail)
    return reconstruct(inventory.copies, inventory.bookies, inventory.damage, prior, options)


def run(
    name: str,
    count: int,
    seed: int = 0,
    *,
    tail: Tail = Tail.INCLUSIVE,
    told: bool = False,
    reconstruct: Reconstruct = reconstructed,
) -> Tally:
    """Judge so many histories of a class, in clusters of the size that the class has; see `judge`."""
    tally, left = Tally(), count
    size = NASTY_LEDGERS if name in NASTY else profile_of(name).ledgers
    while left > 0:
        many = min(left, size)
        tally.add(judge(name, seed, many, tail=tail, told=told, reconstruct=reconstruct))
        left, seed = left - many, seed + 1
    return tally


def judge(
    name: str,
    seed: int,
    ledgers: int,
    *,
    tail: Tail = Tail.INCLUSIVE,
    told: bool = False,
    reconstruct: Reconstruct = reconstructed,
) -> Tally:
    """Judge one cluster's history.

    Args:
        name: of the class.
        seed: of the history.
        ledgers: how many.
        tail: the policy that is asked for.
        told: a snapshot says how many ledgers have which quorums.
        reconstruct: what is judged.
    """
    world, view = (nasty if name in NASTY else histories).make(name, seed, ledgers)
    inventory = histories.inventory(world, view)
    quorums = Counter((record.ensemble, record.write, record.ack) for record in world.records.values())
    rows = reconstruct(inventory, tail=tail, quorums=quorums if told else None).to_pylist()
    return _Judge(name, seed, world, inventory, tail).all(rows)


class _Judge:
    def __init__(self, name: str, seed: int, world: World, inventory: Inventory, tail: Tail) -> None:
        self.name, self.seed, self.world, self.inventory, self.tail = name, seed, world, inventory, tail
        self.tally = Tally()
        self._clean = {row["bookie"] for row in inventory.bookies.to_pylist() if row["dirty"] is False}

    def all(self, rows: Sequence[Row]) -> Tally:
        known = set(self.inventory.copies["ledger"].to_pylist())
        seen = Counter(row["ledger"] for row in rows)
        self.tally.ledgers = len(known)
        for ledger in sorted(known - seen.keys()):
            self._violation("rows", ledger, {}, "no row")
        for ledger in sorted(ledger for ledger, many in seen.items() if many > 1 or ledger not in known):
            self._violation("rows", ledger, {}, "more than one row, or one of no ledger")
        for row in rows:
            self.tally.paths[row["class"]] += 1
            self.tally.outcomes[row["outcome"]] += 1
            if row["outcome"] == "restored":
                for guarantee, what in self._restored(row):
                    self._violation(guarantee, row["ledger"], row, what)
            else:
                self.tally.reasons[str(row["reason"])] += 1
                for guarantee, what in self._held(row):
                    self._violation(guarantee, row["ledger"], row, what)
        return self.tally

    def _lives(self, ledger: int) -> set[int]:
        """Return the lives that wrote what is served of a ledger."""
        return {copy.life for held in self.inventory.served.get(ledger, {}).values() for copy in held.values()}

    def _truth(self, ledger: int) -> Record:
        """Return the record of the life that wrote what is served; of the last one where several did, or none."""
        world = self.world
        before = world.forgotten.get(ledger)
        if before is not None and self._lives(ledger) == {before.life}:
            return before
        record = world.records.get(ledger) or world.deleted.get(ledger) or world.forgotten.get(ledger)
        if record is None:
            raise AssertionError(f"ledger {ledger} never was")
        return record

    def _violation(self, guarantee: str, ledger: int, row: Row, what: str) -> None:
        self.tally.violations.append(
            Violation(
                guarantee, self.name, self.seed, ledger, what, self._true(ledger), _claimed(row), self._served(ledger)
            )
        )

    def _true(self, ledger: int) -> str:
        record, world = self._truth(ledger), self.world
        kind = "adv " * record.adv + "deferred " * record.deferred
        gone = "deleted " * (ledger not in world.records) + "reused " * (ledger in world.forgotten)
        return (
            f"{gone}{kind}{record.ensemble}/{record.write}/{record.ack} {record.state} acked {record.acked} last "
            f"{record.last} length {record.length} {record.digest} {_segments(record.segments)}"
        )

    def _served(self, ledger: int) -> str:
        parts = [f"{_short(name)}: {_runs(held)}" for name, held in self.inventory.served.get(ledger, {}).items()]
        left = self.inventory.leftovers.get(ledger, [])
        return ", ".join(parts) + (f"; leftovers on {[*map(_short, left)]}" if left else "")

    # ---------------------------------------------------------------------------------------------- not restored

    def _held(self, row: Row) -> Iterator[tuple[str, str]]:
        served = self.inventory.served.get(row["ledger"], {})
        if row["outcome"] not in ("held", "waiting"):
            yield "rows", f"outcome {row['outcome']}"
        if not row["reason"]:
            yield "hold", "no reason"
        if served and sorted(row["holders"]) != sorted(served):
            yield "hold", f"names {[*map(_short, row['holders'])]}"
        if not served and not set(self.inventory.leftovers.get(row["ledger"], ())) <= set(row["holders"]):
            yield "hold", f"leaves out leftovers: {[*map(_short, row['holders'])]}"
        if self.name in UNTOUCHED:
            yield "clean", f"not restored: {row['reason']}"

    # ---------------------------------------------------------------------------------------------- restored

    def _restored(self, row: Row) -> Iterator[tuple[str, str]]:
        ledger = row["ledger"]
        served, true = self.inventory.served.get(ledger, {}), self._truth(ledger)
        if malformed := _malformed(row):
            yield "rows", malformed
            return
        if sorted(row["holders"]) != sorted(served):
            yield "hold", f"holders {[*map(_short, row['holders'])]}"
        yield from self._readable(row, served)
        if row["state"] == State.CLOSED:
            yield from self._cut(row, served, true)
        else:
            yield from self._opened(row, served, true)
        yield from self._one_life(row)
        yield from self._grades(row, true)
        blended = len(self._lives(ledger)) > 1
        if row["state"] == State.CLOSED and ledger in self.world.records and not blended:
            yield from self._alternatives(row, true)
        if self.name in UNTOUCHED:
            yield from _unequal(row, true)

    def _readable(self, row: Row, served: Mapping[str, Mapping[int, Any]]) -> Iterator[tuple[str, str]]:
        end = row["last_entry"]
        shown: dict[int, list[str]] = {}
        for name, held in served.items():
            for entry in held:
                if end is None or entry <= end:
                    shown.setdefault(entry, []).append(name)
        sets = _WriteSets(row)
        unreadable = [entry for entry, names in shown.items() if not any(n in sets.of(entry) for n in names)]
        self.tally.entries += len(shown)
        self.tally.readable += len(shown) - len(unreadable)
        named = {name for segment in row["segments"] for name in segment["members"]}
        self.tally.strays += sum(name not in named for name in served)
        if unreadable:
            yield "G1", f"entries {_runs(unreadable)} cannot be read"

    def _cut(self, row: Row, served: Mapping[str, Mapping[int, Any]], true: Record) -> Iterator[tuple[str, str]]:
        ledger, end, must = row["ledger"], row["last_entry"], _must(true)
        claims = row["acked_high"] is not None and row["acked_high"] < must
        if ledger not in self.world.records:
            return
        if must <= end:
            if claims:
                yield "G2", f"acked_high {row['acked_high']}, acknowledged up to {must}"
            return
        above = sorted({entry for held in served.values() for entry in held if end < entry <= must})
        lac = max((copy.lac for held in served.values() for copy in held.values()), default=-1)
        if above and self.tail is Tail.ACKNOWLEDGED and row["acked_high"] is None:
            return  # as asked for; that the true end is listed is judged with the alternatives
        if above:
            yield "G2", f"closed at {end}, acknowledged up to {must}, bookies serve {_runs(above)}"
        elif row["grades"]["last_entry"] in SURE:
            yield "G2", f"the end is called {row['grades']['last_entry']}, acknowledged up to {must}"
        elif row["lac_low"] is not None and row["lac_low"] > end:
            yield "G2", f"closed at {end}, a LAC of {lac} is known"
        elif not self._exists(ledger, end, true):
            self.tally.gone += 1
        elif claims:
            yield "G2", f"acked_high {row['acked_high']}, acknowledged up to {must}, and not all was seen"
        else:
            self.tally.unseen += 1

    def _opened(self, row: Row, served: Mapping[str, Mapping[int, Any]], true: Record) -> Iterator[tuple[str, str]]:
        """Let BookKeeper's own recovery close what is left open, with answers in several orders."""
        self.tally.opened += 1
        ledger = row["ledger"]
        named = dict.fromkeys(name for segment in row["segments"] for name in segment["members"])
        scanned = self.inventory.bookies["bookie"].to_pylist()
        if self.tail is not Tail.OPEN or not named.keys() <= set(scanned):
            yield "G2", "left open, and not all of its bookies were seen"
            return
        present = {entry for held in served.values() for entry in held}
        must = max((entry for entry in present if entry <= _must(true)), default=-1)
        for seed in range(_ORDERS):
            rng = Random(seed)
            world = World(scanned)
            for name, held in served.items():
                shelf = world.bookies[name].shelf(ledger, true.key)
                shelf.index, shelf.listed = dict(held), True
            segments = [(segment["first"], list(segment["members"])) for segment in row["segments"]]
            quorum = (row["ensemble_size"], row["write_quorum"], row["ack_quorum"])
            record = Record(*quorum, true.digest, true.password, segments, key=true.key)
            world.records[ledger] = record
            if not world.recover(ledger, lambda names, rng=rng: rng.sample(names, len(names)), rng.choice):  # type: ignore[misc]  # mypy cannot infer a default's type
                yield "G2", "left open, and cannot be recovered"
                return
            if record.last is None or record.last < must:
                yield "G2", f"left open; its recovery may close it at {record.last}, acknowledged up to {must}"
                return

    def _exists(self, ledger: int, end: int, true: Record) -> bool:
        """Whether some bookie, seen or not, still has an acknowledged entry above an end."""
        shelves = [bookie.shelves[ledger] for bookie in self.world.bookies.values() if ledger in bookie.shelves]
        return any(end < entry <= _must(true) for shelf in shelves for entry in (*shelf.index, *shelf.fresh))

    def _one_life(self, row: Row) -> Iterator[tuple[str, str]]:
        ledger, world = row["ledger"], self.world
        lives = self._lives(ledger)
        if ledger in world.forgotten and lives == {world.forgotten[ledger].life}:
            self.tally.blended += 1
        if len(lives) > 1:
            if shown := self._two_lives(ledger):
                yield "law7", f"two ledgers under one id are restored as one: {shown}"
            else:
                self.tally.blended += 1
        if ledger not in self.world.records:
            if self.inventory.leftovers.get(ledger):
                yield "law7", "deleted, and leftovers show it"
            else:
                self.tally.resurrected += 1

    def _alternatives(self, row: Row, true: Record) -> Iterator[tuple[str, str]]:
        """Check that what a reader would see in truth is claimed, or listed."""
        end = row["last_entry"]
        if true.state is not State.CLOSED or true.last is None or true.length is None:
            return
        served = self.inventory.served.get(row["ledger"], {}).values()
        if end < true.last and not (self.tail is Tail.ACKNOWLEDGED and any(true.last in held for held in served)):
            return  # what is cut off is judged elsewhere; what nobody holds any more is not listed
        listed = {name: [other["value"] for other in row["alternatives"] if other["field"] == name] for name in JUDGED}
        if end != true.last:
            if not any(_within(value, true.last) for value in listed["last_entry"]):
                yield "G5", f"the true end {true.last} is not among the alternatives {listed['last_entry']}"
        elif row["length"] != true.length and not any(_within(value, true.length) for value in listed["length"]):
            summed = sum(size for entry, size in true.sizes.items() if entry <= end)
            read = {head["length"] for found in self._headers(row["ledger"]) for head in found["headers"]}
            if row["length"] == summed or true.length not in read:
                self.tally.odd += 1
            else:
                yield "G5", f"the true length {true.length} is not among the alternatives {listed['length']}"

    def _headers(self, ledger: int) -> list[dict[str, Any]]:
        """Return the rows of a ledger that hold, or would hold after a start."""
        clean = self._clean
        rows = self.inventory.copies.filter(pc.equal(self.inventory.copies["ledger"], ledger)).to_pylist()
        return [
            row
            for row in rows
            if row["source"] == "index" or (row["source"] == "journal" and row["bookie"] not in clean)
        ]

    def _two_lives(self, ledger: int) -> str:
        """Say what in the inventory shows that an id had two lives; empty if nothing does."""
        rows = self._headers(ledger)
        if len({row["key"] for row in rows if row["key_kind"] == "set"}) > 1:
            return "two keys"
        heads = sorted((head["entry"], head["length"], head["digest"]) for row in rows for head in row["headers"])
        if len({digest for _, _, digest in heads if digest}) > 1:
            return "two digest types"
        for (entry, length, _), (other, longer, _) in pairwise(heads):
            if longer < length or (entry == other and longer != length):
                return f"length {length} at {entry}, {longer} at {other}"
        return ""

    def _grades(self, row: Row, true: Record) -> Iterator[tuple[str, str]]:
        before = self.world.forgotten.get(row["ledger"])
        # Of two ledgers whose entries stand together, what the copies show is true of one of them.
        truths = [true, before] if before is not None and before.life in self._lives(row["ledger"]) else [true]
        for name in JUDGED:
            grade = row["grades"][name]
            if grade == "unknown":
                continue
            right = any(_right(name, row, truth) for truth in truths)
            counted = self.tally.grades.setdefault((name, grade), [0, 0])
            counted[0] += 1
            counted[1] += right
            if grade in SURE and not right:
                yield "grade", f"{name} is called {grade}"


class _WriteSets:
    """The bookies that a row has for an entry, with and without those that it only assumes."""

    def __init__(self, row: Row) -> None:
        self._segments = [
            (segment["first"], segment["members"], segment.get("assumed") or [False] * len(segment["members"]))
            for segment in row["segments"]
        ]
        self._size, self._write = row["ensemble_size"], row["write_quorum"]
        self._at = 0

    def places(self, entry: int) -> list[tuple[str, bool]]:
        """Return the members of an entry's write set, and whether each is assumed."""
        segments = self._segments
        at = self._at
        if segments[at][0] > entry:
            at = 0
        while at + 1 < len(segments) and segments[at + 1][0] <= entry:
            at += 1
        self._at = at
        _, members, assumed = segments[at]
        places = [(entry + i) % self._size for i in range(self._write)]
        return [(members[place], assumed[place]) for place in places]

    def of(self, entry: int) -> list[str]:
        """Return the members of an entry's write set."""
        return [name for name, _ in self.places(entry)]


def _must(true: Record) -> int:
    """Return the last entry that no reconstruction may leave out."""
    return true.last if true.state is State.CLOSED and true.last is not None else true.acked


def _malformed(row: Row) -> str:
    size, write, ack, end = row["ensemble_size"], row["write_quorum"], row["ack_quorum"], row["last_entry"]
    if not 1 <= ack <= write <= size:
        return f"quorums {size}/{write}/{ack}"
    if row["state"] == State.CLOSED and (end is None or row["length"] is None):
        return "closed without an end or a length"
    firsts = [segment["first"] for segment in row["segments"]]
    if not firsts or firsts[0] != 0 or any(one >= other for one, other in pairwise(firsts)):
        return f"segments begin at {firsts}"
    if end is not None and len(firsts) > 1 and firsts[-1] > end + 1:
        return f"a segment begins at {firsts[-1]}, behind the end {end}"
    for segment in row["segments"]:
        members = segment["members"]
        if len(members) != size or len(set(members)) != size or None in members:
            return f"ensemble {members}"
    return ""


def _right(name: str, row: Row, true: Record) -> bool:
    closed = true.state is State.CLOSED
    end = row["last_entry"]
    match name:
        case "ensemble_size":
            return bool(row[name] == true.ensemble)
        case "write_quorum":
            return bool(row[name] == true.write)
        case "ack_quorum":
            return bool(row[name] == true.ack)
        case "state":
            return bool(row[name] == true.state.value)
        case "last_entry":
            return row["state"] == "OPEN" or bool(end == true.last if closed else end >= true.acked)
        case "length":
            if row["state"] == "OPEN":
                return True
            summed = sum(size for entry, size in true.sizes.items() if entry <= end)
            return bool(row[name] == (true.length if closed else summed))
        case "digest":
            return bool(row[name] == true.digest.value)
        case "password":
            return row["grades"][name] not in SURE or true.password in PASSWORDS
        case "segments":
            return _same_sets(row, true)
    raise AssertionError(name)


def _same_sets(row: Row, true: Record) -> bool:
    """Whether each entry of both has the bookies that it truly had, but for positions that are said to be assumed."""
    sets = _WriteSets(row)
    end = _must(true) if row["last_entry"] is None else min(row["last_entry"], _must(true))
    for entry in range(end + 1):
        wanted = true.write_set(entry)
        places = sets.places(entry)
        if any(name not in wanted for name, assumed in places if not assumed):
            return False
        if not any(assumed for _, assumed in places) and len(places) != len(wanted):
            return False
    return True


def _within(value: str, wanted: int) -> bool:
    """Whether an alternative's value, a number or a range ``low..high``, has a number."""
    low, dots, high = value.partition("..")
    try:
        return int(low) <= wanted <= int(high) if dots else int(low) == wanted
    except ValueError:
        return False


def _unequal(row: Row, true: Record) -> Iterator[tuple[str, str]]:
    names = ("ensemble_size", "write_quorum", "state", "last_entry", "length", "digest", "segments")
    wrong = [name for name in names if (name != "state" or row[name] == State.CLOSED) and not _right(name, row, true)]
    if wrong:
        yield "clean", f"not as it was: {', '.join(wrong)}"


# ------------------------------------------------------------------------------------------------------ in words


def _short(name: str) -> str:
    return name.removeprefix("10.0.0.").removesuffix(":3181")


def _segments(segments: Iterable[tuple[int, Sequence[str]]]) -> str:
    return " ".join(f"{first}:[{','.join(map(_short, members))}]" for first, members in segments)


def _runs(entries: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for entry in sorted(entries):
        if runs and runs[-1][1] + 1 == entry:
            runs[-1][1] = entry
        else:
            runs.append([entry, entry])
    texts = [f"{low}-{high}" if high > low else f"{low}" for low, high in runs]
    return " ".join(texts if len(texts) <= 24 else [*texts[:16], "…", *texts[-6:]])


def _claimed(row: Row) -> str:
    if not row:
        return "nothing"
    if row["outcome"] != "restored":
        return f"{row['outcome']}: {row['class']} {row['reason']}, holders {[*map(_short, row['holders'])]}"
    grades = {name: row["grades"][name] for name in ("ensemble_size", "last_entry", "length", "segments", "state")}
    return (
        f"{row['class']} {row['ensemble_size']}/{row['write_quorum']}/{row['ack_quorum']} {row['state']} last "
        f"{row['last_entry']} length {row['length']} {row['digest']} lac_low {row['lac_low']} acked_high "
        f"{row['acked_high']} {_segments((s['first'], s['members']) for s in row['segments'])} {grades} alternatives "
        f"{[(a['field'], a['value']) for a in row['alternatives']]}"
    )


PATHS: Final = ("clean", "re-replicated", "solved", "undecided")


_WHY: Final = 4
"""Reasons that are named of each class."""
HEAD: Final = (
    "class", "ledgers", *PATHS, "restored", "readable", "unseen", "gone", "resurrected", "blended", "odd", "violations",
)  # fmt: skip


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _share(right: int, claims: int, digits: int = 2) -> str:
    return f"{100 * right / claims:.{digits}f} %" if claims else ""


def row_of(name: str, tally: Tally) -> list[str]:
    """Return a class's cells, under `HEAD`."""
    many = max(1, tally.ledgers)
    counts = (tally.unseen, tally.gone, tally.resurrected, tally.blended, tally.odd, len(tally.violations))
    return [
        name,
        str(tally.ledgers),
        *(_share(tally.paths[path], many, 1) for path in PATHS),
        _share(tally.outcomes["restored"], many, 1),
        _share(tally.readable, max(1, tally.entries), 3),
        *map(str, counts),
    ]


def inferred(tallies: Mapping[str, Tally]) -> str:
    """Return how often what is inferred is right, by class and field, in Markdown."""
    names = [name for name in JUDGED if any((name, "inferred") in tally.grades for tally in tallies.values())]
    lines = [_line(["inferred", *names]), _line(["---"] * (len(names) + 1))]
    for of, tally in tallies.items():
        shares = [tally.grades.get((name, "inferred"), [0, 0]) for name in names]
        lines.append(_line([of, *(_share(right, claims) for claims, right in shares)]))
    return "".join(lines)


def reasons(tallies: Mapping[str, Tally]) -> str:
    """Return why ledgers are not restored, the commonest reasons of each class, in Markdown."""
    lines = [_line(["class", "not restored", "why"]), _line(["---"] * 3)]
    for name, tally in tallies.items():
        held = sum(tally.reasons.values())
        why = (f"{reason} {_share(many, tally.ledgers, 1)}" for reason, many in tally.reasons.most_common(_WHY))
        lines.append(_line([name, _share(held, tally.ledgers, 1), ", ".join(why)]))
    return "".join(lines)


def calibration(tallies: Mapping[str, Tally]) -> str:
    """Return how often what was claimed is right, by field and grade, in Markdown."""
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    lines = ["| field | grade | claims | right | worst class |", "| --- | --- | --- | --- | --- |"]
    for (name, grade), (claims, right) in sorted(total.grades.items()):
        shares = [(mine[1] / mine[0], of) for of, tally in tallies.items() if (mine := tally.grades.get((name, grade)))]
        share, worst = min(shares)
        text = f"{100 * right / claims:.2f} %"
        lines.append(f"| {name} | {grade} | {claims} | {text} | {worst}: {100 * share:.2f} % |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge classes of histories and print the tables; 1 if a guarantee is broken."""
    parser = argparse.ArgumentParser(prog="python -m recovery.testing.judge", description="Judge the reconstruction.")
    parser.add_argument(
        "classes",
        nargs="*",
        metavar="CLASS[/SCAN]",
        help=f"of {', '.join(CLASSES)}; with a /SCAN of {', '.join(SCANS)}; or of {', '.join(NASTY)}",
    )
    parser.add_argument("--count", type=int, default=1000, help="histories of each class")
    parser.add_argument("--seed", type=int, default=0, help="of the first cluster")
    parser.add_argument(
        "--show", type=int, default=2, help="violations of each guarantee that are shown, of each class"
    )
    parser.add_argument("--tail", type=Tail, choices=list(Tail), default=Tail.INCLUSIVE, help="the policy")
    parser.add_argument("--told", action="store_true", help="a snapshot says how many ledgers have which quorums")
    given = parser.parse_args(arguments)
    known = {*CLASSES, *NASTY, *(f"{name}/{scan}" for name in CLASSES for scan in SCANS)}
    if unknown := sorted(set(given.classes) - known):
        parser.error(f"no such class: {', '.join(unknown)}")
    tallies: dict[str, Tally] = {}
    sys.stdout.write(_line(HEAD) + _line(["---"] * len(HEAD)))
    for name in given.classes or CLASSES:
        tallies[name] = run(name, given.count, given.seed, tail=given.tail, told=given.told)
        sys.stdout.write(_line(row_of(name, tallies[name])))
        sys.stdout.flush()
    sys.stdout.write(f"\n{reasons(tallies)}\n{calibration(tallies)}\n\n{inferred(tallies)}")
    for name, tally in tallies.items():
        shown: Counter[str] = Counter()
        many = Counter(violation.guarantee for violation in tally.violations)
        for violation in tally.violations:
            shown[violation.guarantee] += 1
            if shown[violation.guarantee] <= given.show:
                sys.stdout.write(f"\n{violation}\n")
        if many:
            sys.stdout.write(f"\n{name}: {dict(many)}\n")
    return 1 if any(tally.violations for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
