"""What a reconstruction is worth on histories whose truth is known: guarantees, holds, grades, class by class.

    python -m recovery.testing.judge [CLASS[/SCAN][@EVIDENCE]…] [--count N] [--seed S] [--show K]

A guarantee that is broken is a `Violation`, with what was true and what was claimed; the same class, seed and ledger
bring it back. The guarantees (`docs/design` has the theory and the table that this prints):

    G1    an entry that a scanned bookie serves, not above the end, has a holder in its write set
    G2    nothing acknowledged is above the end of a closed ledger; what nobody scanned has is said to be open
    G5    where the end or the length is not the true one, the true one is among the alternatives
    grade what is called observed or verified is true
    shape where E or W is not the true one, the true shape is among the alternatives, if the cluster or a snapshot
          has it
    earlier where an earlier record or a reference supplied what is not true, nothing in the inventory contradicts it,
          or the truth is among the alternatives (`recovery.testing.contradictions`)
    hold  what is not restored names exactly the bookies that serve entries
    law7  what the inventory shows to be two ledgers under one id is not restored as one; what some bookie or a
          reference shows to be deleted is not restored
    clean a ledger to which nothing happened comes back as it was; with its own closed record, byte for byte
    ends  whatever is seen and known, the reconstruction comes to an end
    rows  every ledger of the inventory has one row, and it is well formed
"""

import argparse
import sys
import traceback
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs import ledger_metadata
from recovery.infer.prior import Prior, count_shapes
from recovery.infer.reconstruct import Options, reconstruct
from recovery.infer.search import Tail
from recovery.model.metadata import LedgerMetadata, State
from recovery.testing import evidence as others
from recovery.testing import histories, inventories, nasty
from recovery.testing.contradictions import Claim, contradictions
from recovery.testing.evidence import Evidence
from recovery.testing.histories import PASSWORD
from recovery.testing.inventories import Inventory
from recovery.testing.nasty import NASTY
from recovery.testing.profiles import CLASSES, SCANS, profile_of
from recovery.testing.protocol import Record, World
from recovery.testing.tally import HEAD, JUDGED, Tally, Violation, calibration, inferred, line, reasons, row_of

PASSWORDS: Final = (b"", PASSWORD)
SURE: Final = ("observed", "verified")
NASTY_LEDGERS: Final = 100
"""Ledgers that share a cluster in the histories of `nasty`."""
_ELSEWHERE: Final = 1_000_003
"""How far the seed of another cluster is from this one's."""
_ORDERS: Final = 4
"""Orders of answers in which a ledger that is left open is recovered."""
UNTOUCHED: Final = ("clean",)
"""Classes to whose ledgers nothing happens that BookKeeper does not show: all come back as they were."""

_SUPPLIED: Final = ("ensemble_size", "write_quorum", "last_entry", "length", "digest")
"""Fields that earlier records and references supply, and that are judged where they do."""
_SHAPE: Final = "ensemble_size/write_quorum"
_LONG: Final = 3
"""A ledger shows its shape with so many entries a bookie."""
_SHOWN: Final = 5
"""So many ledgers, and this share of them, must show a shape for it to be expected among the alternatives."""
_SHARE: Final = 0.05
_OLDER: Final = 10
"""Older ledgers that a bookie serves which was not wiped: a few may have been copied to it since."""
Row = Mapping[str, Any]
Quorums = Mapping[tuple[int, int, int], int]


class Reconstruct(Protocol):
    """What is judged."""

    def __call__(
        self, inventory: Inventory, *, tail: Tail = ..., quorums: Quorums | None = ..., evidence: Evidence = ...
    ) -> pa.Table:
        """Return RECONSTRUCTION; quorums: (E, W, A) to ledgers, as a snapshot has them."""


NOTHING: Final = Evidence()


def reconstructed(
    inventory: Inventory,
    *,
    tail: Tail = Tail.INCLUSIVE,
    quorums: Quorums | None = None,
    evidence: Evidence = NOTHING,
) -> pa.Table:
    """Reconstruct with what the cluster itself shows, and the passwords that an operator has."""
    shapes = count_shapes(inventory.copies, inventory.bookies)
    prior = Prior.build(shapes, quorums, unscanned=inventory.unscanned)
    options = Options(passwords=PASSWORDS, unscanned_bookies=inventory.unscanned, tail=tail)
    known = (evidence.catalog(), evidence.reference_table())
    return reconstruct(inventory.copies, inventory.bookies, inventory.damage, prior, options, *known)


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
    history = name.partition("@")[0]
    size = NASTY_LEDGERS if history in NASTY else profile_of(history).ledgers
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
        name: of the class, with the kind of evidence behind an ``@`` where there is some.
        seed: of the history.
        ledgers: how many.
        tail: the policy that is asked for.
        told: a snapshot says how many ledgers have which quorums.
        reconstruct: what is judged.
    """
    history, _, kind = name.partition("@")
    make = nasty.make if history in NASTY else histories.make
    world, view = make(history, seed, ledgers)
    evidence = NOTHING
    if kind:
        evidence = others.make(kind, history, seed, world, lambda: make(history, seed + _ELSEWHERE, ledgers)[0])
    inventory = inventories.inventory(world, view)
    quorums = Counter((record.ensemble, record.write, record.ack) for record in world.records.values())
    stated = evidence.quorums() or (quorums if told else None)
    try:
        rows = reconstruct(inventory, tail=tail, quorums=stated, evidence=evidence).to_pylist()
    except Exception as error:  # noqa: BLE001 - whatever it is, the history that brings it back must be named
        at = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__} in {at.filename}:{at.lineno}: {error}"
        return Tally(violations=[Violation("ends", name, seed, -1, what, "", "", "")])
    return _Judge(name, seed, world, inventory, tail, evidence, stated or {}).all(rows)


class _Judge:
    def __init__(
        self,
        name: str,
        seed: int,
        world: World,
        inventory: Inventory,
        tail: Tail,
        evidence: Evidence,
        quorums: Quorums,
    ) -> None:
        self.name, self.seed, self.world, self.inventory, self.tail = name, seed, world, inventory, tail
        self.evidence = evidence
        self.tally = Tally()
        self._is_untouched = name.partition("@")[0] in UNTOUCHED and evidence.is_honest
        self._clean = {row["bookie"] for row in inventory.bookies.to_pylist() if row["dirty"] is False}
        self._is_all_seen = (
            not inventory.unscanned
            and all(inventory.bookies["complete"].to_pylist())
            and all(bookie.incarnation == 1 for bookie in world.bookies.values())
        )
        self._ledgers_of: dict[str, list[int]] = {}
        for ledger, holders in sorted(inventory.served.items()):
            for bookie in holders:
                self._ledgers_of.setdefault(bookie, []).append(ledger)
        self._shapes = {(ensemble, write) for ensemble, write, _ in quorums} | self._shown_shapes()

    def all(self, rows: Sequence[Row]) -> Tally:
        known = set(self.inventory.copies["ledger"].to_pylist())
        seen = Counter(row["ledger"] for row in rows)
        self.tally.ledgers = len(known)
        for ledger in sorted(known - seen.keys()):
            self._violation("rows", ledger, {}, "no row")
        for ledger in sorted(ledger for ledger, many in seen.items() if many > 1):
            self._violation("rows", ledger, {}, "more than one row")
        for row in rows:
            if row["ledger"] not in known:
                self._of_record_alone(row)
                continue
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

    def _of_record_alone(self, row: Row) -> None:
        """Judge a row of a ledger that no bookie has anything of: only an earlier record can speak for it."""
        ledger, outcome = row["ledger"], row["outcome"]
        record = self.evidence.records.get(ledger)
        if record is None:
            self._violation("rows", ledger, row, "a row of no ledger")
        elif outcome == "restored" and self._is_said_deleted(ledger):
            self._violation("law7", ledger, row, "deleted, as somebody says, and made from its record")
        elif outcome == "restored" and row["raw"] != ledger_metadata.encode(record):
            self._violation("earlier", ledger, row, "no bookie has it, and it is not as its record was")

    def _is_said_deleted(self, ledger: int) -> bool:
        """Say whether a reference or a history says that a ledger was deleted."""
        reference = self.evidence.references.get(ledger)
        return ledger in self.evidence.deletions or (reference is not None and reference.deleted)

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
        if row["outcome"] == "deleted" and self._is_said_deleted(row["ledger"]):
            yield from self._as_deleted(row)
            return
        if row["outcome"] not in ("held", "waiting"):
            yield "rows", f"outcome {row['outcome']}"
        if not row["reason"]:
            yield "hold", "no reason"
        if served and sorted(row["holders"]) != sorted(served):
            yield "hold", f"names {[*map(_short, row['holders'])]}"
        if not served and not set(self.inventory.leftovers.get(row["ledger"], ())) <= set(row["holders"]):
            yield "hold", f"leaves out leftovers: {[*map(_short, row['holders'])]}"
        if self._is_untouched:
            yield "clean", f"not restored: {row['reason']}"

    def _as_deleted(self, row: Row) -> Iterator[tuple[str, str]]:
        """Check that what is taken for deleted was, or that nothing shows that it was another ledger."""
        ledger = row["ledger"]
        last = self.evidence.deletions.get(ledger)
        if ledger not in self.world.records or ledger not in self.evidence.deletions:
            return
        claim = Claim.of_record(last) if last is not None else Claim()
        # Bookies collect what is deleted: what none of them has any more proves nothing.
        for shown in contradictions(claim, self._headers(ledger), is_all_seen=False):
            yield "law7", f"another ledger was deleted under the id: {shown}"
            return
        self.tally.misled += 1

    # ---------------------------------------------------------------------------------------------- restored

    def _restored(self, row: Row) -> Iterator[tuple[str, str]]:
        ledger = row["ledger"]
        served, true = self.inventory.served.get(ledger, {}), self._truth(ledger)
        if malformed := _malformed(row):
            yield "rows", malformed
            return
        if served and sorted(row["holders"]) != sorted(served):
            yield "hold", f"holders {[*map(_short, row['holders'])]}"
        yield from self._readable(row, served)
        if self._is_said_deleted(ledger) and ledger not in self.world.records:
            yield "law7", "deleted, as a reference or the store's history says"
        misled, broken = self._of_evidence(row, true)
        yield from (("earlier", what) for what in broken)
        if misled:
            self.tally.misled += 1
            return
        if len(self._lives(ledger)) < 2:
            yield from self._shape(row, true)
        if row["state"] == State.CLOSED:
            yield from self._cut(row, served, true)
        else:
            yield from self._opened(row, served, true)
        yield from self._one_life(row)
        yield from self._grades(row, true)
        blended = len(self._lives(ledger)) > 1
        if row["state"] == State.CLOSED and ledger in self.world.records and not blended:
            yield from self._alternatives(row, true)
        if self._is_untouched:
            yield from _unequal(row, true)
            record = self.evidence.records.get(ledger)
            if record is not None and record.state is State.CLOSED and row["raw"] != ledger_metadata.encode(record):
                yield "clean", "not byte for byte as its record was"

    def _of_evidence(self, row: Row, true: Record) -> tuple[bool, list[str]]:
        """Return whether the row follows evidence that is wrong and not refuted, and what it follows although it is."""
        misled, broken = False, []
        record, reference = self.evidence.records.get(row["ledger"]), self.evidence.references.get(row["ledger"])
        claims = {
            "snapshot": Claim.of_record(record) if record is not None else Claim(),
            "reference": Claim.of_reference(reference) if reference is not None else Claim(),
        }
        listed = _listed(row)
        for name in _SUPPLIED:
            grade = row["grades"][name]
            if grade not in claims or _right(name, row, true):
                continue
            claim = claims[grade]
            if claim.value(name) != row[name]:
                continue  # worked out from what bookies show: judged as such
            rows = self._headers(row["ledger"])
            kept = self._is_all_seen and self._kept(row["ledger"], record)
            shown, own = (
                list(contradictions(each, rows, is_all_seen=kept)) for each in (claim, Claim.of_record(true.metadata()))
            )
            # What speaks against the true record, too, proves nothing.
            shown = [what for what in shown if what not in own]
            if not shown:
                misled = True
            elif not _lists(listed, name, true):
                broken.append(f"{name} {row[name]} is the {grade}'s, and not true: {shown[0]}")
        return misled, broken

    def _kept(self, ledger: int, record: LedgerMetadata | None) -> bool:
        """Say whether those whom a record names, or all, serve enough older ledgers not to have been wiped since."""
        named = {name for segment in record.segments for name in segment.members} if record else set(self._ledgers_of)
        return all(bisect_left(self._ledgers_of.get(name, []), ledger) >= _OLDER for name in named)

    def _shape(self, row: Row, true: Record) -> Iterator[tuple[str, str]]:
        shape = (true.ensemble, true.write)
        if (row["ensemble_size"], row["write_quorum"]) == shape or _lists(_listed(row), "write_quorum", true):
            return
        if shape in self._shapes:
            yield "shape", f"{shape[0]}/{shape[1]} is not among the alternatives {_listed(row)[_SHAPE]}"
        else:
            self.tally.unheard += 1

    def _shown_shapes(self) -> set[tuple[int, int]]:
        """Return the shapes that enough ledgers show: of one ensemble, long, and each entry where it was written."""
        counted: Counter[tuple[int, int]] = Counter()
        for ledger, held in self.inventory.served.items():
            record = self.world.records.get(ledger)
            if record is None or len(record.segments) > 1 or (record.last or 0) < _LONG * record.ensemble:
                continue
            holders: dict[int, set[str]] = {}
            for name, copies in held.items():
                for entry in copies:
                    holders.setdefault(entry, set()).add(name)
            if all(holders.get(entry) == set(record.write_set(entry)) for entry in range((record.last or 0) + 1)):
                counted[record.ensemble, record.write] += 1
        enough = max(_SHOWN, _SHARE * len(self.inventory.served))
        return {shape for shape, many in counted.items() if many >= enough}

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
        listed = _listed(row)
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


def _listed(row: Row) -> dict[str, list[str]]:
    """Return the alternatives' values by field."""
    return {
        name: [other["value"] for other in row["alternatives"] if other["field"] == name] for name in (*JUDGED, _SHAPE)
    }


def _lists(listed: Mapping[str, Sequence[str]], name: str, true: Record) -> bool:
    """Whether what is true of a field is among the alternatives."""
    if name in ("ensemble_size", "write_quorum"):
        return f"{true.ensemble}/{true.write}" in listed[_SHAPE]
    number = {"last_entry": true.last, "length": true.length}.get(name)
    # Another end has another length, which is known with it.
    names = ("last_entry", "length") if name == "length" else (name,)
    if number is None:
        return False
    ends = listed["last_entry"] if true.last is not None and "length" in names else []
    return any(_within(value, number) for value in listed[name]) or any(_within(v, true.last or 0) for v in ends)


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge classes of histories and print the tables; 1 if a guarantee is broken."""
    parser = argparse.ArgumentParser(prog="python -m recovery.testing.judge", description="Judge the reconstruction.")
    parser.add_argument(
        "classes",
        nargs="*",
        metavar="CLASS[/SCAN]",
        help=f"of {', '.join(CLASSES)}; with a /SCAN of {', '.join(SCANS)}; or of {', '.join(NASTY)}; all with an "
        f"@EVIDENCE of {', '.join(others.KINDS)}",
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
    kinds = {"", *others.KINDS}
    if unknown := sorted(
        n for n in given.classes if n.partition("@")[0] not in known or n.partition("@")[2] not in kinds
    ):
        parser.error(f"no such class: {', '.join(unknown)}")
    tallies: dict[str, Tally] = {}
    sys.stdout.write(line(HEAD) + line(["---"] * len(HEAD)))
    for name in given.classes or CLASSES:
        tallies[name] = run(name, given.count, given.seed, tail=given.tail, told=given.told)
        sys.stdout.write(line(row_of(name, tallies[name])))
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
