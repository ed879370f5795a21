"""The guarantees, checked on the rows of one simulated cluster; `tests.simulation.judge` has their table."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, Final

import pyarrow.compute as pc

from recovery.codecs import ledger_metadata
from recovery.infer.search import Tail
from recovery.model.metadata import LedgerMetadata, LedgerState
from tests.simulation.contradictions import Claim, contradictions
from tests.simulation.evidence import Evidence
from tests.simulation.inventories import Inventory
from tests.simulation.protocol import Record, World
from tests.simulation.reach import count_reach, find_two_contents
from tests.simulation.row_truth import (
    SHAPE,
    SURE,
    Row,
    WriteSets,
    find_malformed,
    find_unequal,
    has_true,
    is_right,
    is_within,
    list_alternatives,
    list_holes,
    must_keep,
)
from tests.simulation.row_words import describe_claim, describe_runs, describe_segments, short_name
from tests.simulation.tally import JUDGED, Tally, Violation

_ORDERS: Final = 4
"""Orders of answers in which a ledger that is left open is recovered."""
UNTOUCHED: Final = ("clean",)
"""Classes to whose ledgers nothing happens that BookKeeper does not show: all come back as they were."""

_SUPPLIED: Final = ("ensemble_size", "write_quorum", "last_entry", "length", "digest")
"""Fields that records of snapshots and references supply, and that are judged where they do."""
_GIVEN: Final = ("snapshot", "reference")
_LONG: Final = 3
"""A ledger shows its shape with so many entries a bookie."""
_SHOWN: Final = 5
"""So many ledgers, and this share of them, must show a shape for it to be expected among the alternatives."""
_SHARE: Final = 0.05
_OLDER: Final = 10
"""Older ledgers that a bookie serves, and wrote, which was not wiped: a few may be of writers that began late."""
Quorums = Mapping[tuple[int, int, int], int]


class ClusterJudge:
    """Judges the rows of one cluster's history."""

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
        self._seen_whole = {row["bookie"] for row in inventory.bookies.to_pylist() if row["complete"]}
        self._ledgers_of: dict[str, list[int]] = {}
        for ledger, holders in sorted(inventory.served.items()):
            for bookie, copies in holders.items():
                # A LAC that is not below its entry is a copy's: who was wiped may have got it since.
                if any(copy.lac < entry for entry, copy in copies.items()):
                    self._ledgers_of.setdefault(bookie, []).append(ledger)
        self._shapes = {(ensemble, write) for ensemble, write, _ in quorums} | self._find_shown_shapes()

    def judge_rows(self, rows: Sequence[Row]) -> Tally:
        """Check every guarantee on all rows."""
        known = set(self.inventory.copies["ledger"].to_pylist())
        seen = Counter(row["ledger"] for row in rows)
        self.tally.ledgers = len(known)
        for ledger in sorted(known - seen.keys()):
            self._violation("rows", ledger, {}, "no row")
        for ledger in sorted(ledger for ledger, count in seen.items() if count > 1):
            self._violation("rows", ledger, {}, "more than one row")
        for row in rows:
            if row["ledger"] not in known:
                self._of_record_alone(row)
                continue
            self.tally.paths[row["class"]] += 1
            self.tally.outcomes[row["outcome"]] += 1
            self._count_reach(row)
            if row["outcome"] == "guarded":
                self.tally.reasons[str(row["reason"])] += 1
                for guarantee, text in self._judge_guarded(row):
                    self._violation(guarantee, row["ledger"], row, text)
            elif row["outcome"] == "restored":
                for guarantee, text in self._judge_restored(row):
                    self._violation(guarantee, row["ledger"], row, text)
            else:
                self.tally.reasons[str(row["reason"])] += 1
                for guarantee, text in self._judge_held(row):
                    self._violation(guarantee, row["ledger"], row, text)
        return self.tally

    def _of_record_alone(self, row: Row) -> None:
        """Judge a row of a ledger that no bookie has anything of: only a snapshot's record can speak for it."""
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
        return {copy.life for copies in self.inventory.served.get(ledger, {}).values() for copy in copies.values()}

    def _truth(self, ledger: int) -> Record:
        """Return the record of the life that wrote what is served; of the last one where several did, or none."""
        world = self.world
        forgotten = world.forgotten.get(ledger)
        if forgotten is not None and self._lives(ledger) == {forgotten.life}:
            return forgotten
        record = world.records.get(ledger) or world.deleted.get(ledger) or world.forgotten.get(ledger)
        if record is None:
            raise AssertionError(f"ledger {ledger} never was")
        return record

    def _violation(self, guarantee: str, ledger: int, row: Row, text: str) -> None:
        seen = (self._true(ledger), describe_claim(row), self._judge_served(ledger))
        self.tally.violations.append(Violation(guarantee, self.name, self.seed, ledger, text, *seen))

    def _true(self, ledger: int) -> str:
        record, world = self._truth(ledger), self.world
        kind = "adv " * record.adv + "deferred " * record.deferred
        gone = "deleted " * (ledger not in world.records) + "reused " * (ledger in world.forgotten)
        return (
            f"{gone}{kind}{record.ensemble}/{record.write}/{record.ack} {record.state} acked {record.acked} last "
            f"{record.last} length {record.length} {record.digest} {describe_segments(record.segments)}"
        )

    def _judge_served(self, ledger: int) -> str:
        parts = [
            f"{short_name(name)}: {describe_runs(copies)}"
            for name, copies in self.inventory.served.get(ledger, {}).items()
        ]
        left = self.inventory.leftovers.get(ledger, [])
        return ", ".join(parts) + (f"; leftovers on {[*map(short_name, left)]}" if left else "")

    # ---------------------------------------------------------------------------------------------- not restored

    def _judge_held(self, row: Row) -> Iterator[tuple[str, str]]:
        served = self.inventory.served.get(row["ledger"], {})
        if row["outcome"] == "deleted" and self._is_said_deleted(row["ledger"]):
            yield from self._as_deleted(row)
            return
        if row["outcome"] not in ("held", "waiting"):
            yield "rows", f"outcome {row['outcome']}"
        if not row["reason"]:
            yield "hold", "no reason"
        if served and sorted(row["holders"]) != sorted(served):
            yield "hold", f"names {[*map(short_name, row['holders'])]}"
        if not served and not set(self.inventory.leftovers.get(row["ledger"], ())) <= set(row["holders"]):
            yield "hold", f"leaves out leftovers: {[*map(short_name, row['holders'])]}"
        if self._is_untouched:
            yield "clean", f"not restored: {row['reason']}"

    def _as_deleted(self, row: Row) -> Iterator[tuple[str, str]]:
        """Check that what is taken for deleted was, or that nothing shows that it was another ledger."""
        ledger = row["ledger"]
        last = self.evidence.deletions.get(ledger)
        if ledger not in self.world.records or ledger not in self.evidence.deletions:
            return
        # Bookies collect what is deleted: what none of them has any more proves nothing, nor who still has the rest.
        claim = replace(Claim.of_record(last), segments=()) if last is not None else Claim()
        for shown in contradictions(claim, self._headers(ledger), is_all_seen=False):
            yield "law7", f"another ledger was deleted under the id: {shown}"
            return
        self.tally.misled += 1

    # ---------------------------------------------------------------------------------------------- guarded

    def _count_reach(self, row: Row) -> None:
        """Count the entries that the true record can read on scanned bookies, and those of them that the row reads."""
        true = self.world.records.get(row["ledger"])
        if true is not None and len(self._lives(row["ledger"])) < 2:
            wanted, reached = count_reach(row, true, self.inventory.served.get(row["ledger"], {}))
            self.tally.wanted += wanted
            self.tally.reached += reached

    def _judge_guarded(self, row: Row) -> Iterator[tuple[str, str]]:
        """Check a record under a guard, which keeps all copies: what is seen is readable, and of one ledger."""
        ledger = row["ledger"]
        served, true = self.inventory.served.get(ledger, {}), self._truth(ledger)
        if malformed := find_malformed(row):
            yield "rows", malformed
            return
        if row["state"] != LedgerState.CLOSED or row["reading"] not in ("likeliest", "universal") or not row["reason"]:
            yield "guard", f"{row['state']}, reading {row['reading']}, reason {row['reason']}"
        if served and sorted(row["holders"]) != sorted(served):
            yield "hold", f"holders {[*map(short_name, row['holders'])]}"
        yield from self._readable(row, served)
        if self._is_untouched:
            yield "clean", f"not restored: {row['reason']}"
        if self._is_said_deleted(ledger) and ledger not in self.world.records:
            yield "law7", "deleted, as a reference or the store's history says"
        if ledger not in self.world.records and self._show_deletion(ledger):
            yield "law7", "deleted, and leftovers show it"
        if len(self._lives(ledger)) > 1 and (shown := find_two_contents(self._headers(ledger))):
            yield "law7", f"two ledgers under one id are read as one: {shown}"
        end, must = row["last_entry"], must_keep(true)
        above = sorted({entry for copies in served.values() for entry in copies if end < entry <= must})
        if above and ledger in self.world.records:
            yield "G2", f"ends at {end}, acknowledged up to {must}, bookies serve {describe_runs(above)}"
        if row["acked_high"] is not None and not (self._is_all_seen and row["acked_high"] >= must):
            yield "G2", f"acked_high {row['acked_high']}, acknowledged up to {must}, or something may be hidden"
        present = {entry for copies in served.values() for entry in copies}
        holes = [entry for entry in range(end + 1) if entry not in present]
        if list_holes(row) != holes:
            yield "guard", f"lists holes {describe_runs(list_holes(row))}, nobody serves {describe_runs(holes)}"
        yield from self._say_above(row, served)
        yield from self._grades(row, true)

    @staticmethod
    def _say_above(row: Row, served: Mapping[str, Mapping[int, Any]]) -> Iterator[tuple[str, str]]:
        """Check that what bookies serve above an end is offered, where no record and no upper layer gave that end."""
        highest = max((entry for copies in served.values() for entry in copies), default=-1)
        if row["last_entry"] is None or highest <= row["last_entry"] or row["grades"]["last_entry"] in _GIVEN:
            return
        listed = list_alternatives(row)["last_entry"]
        if not any(is_within(value, highest) for value in listed):
            yield "told", f"ends at {row['last_entry']}, bookies serve up to {highest}, offered: {listed}"

    # ---------------------------------------------------------------------------------------------- restored

    def _judge_restored(self, row: Row) -> Iterator[tuple[str, str]]:
        ledger = row["ledger"]
        served, true = self.inventory.served.get(ledger, {}), self._truth(ledger)
        if malformed := find_malformed(row):
            yield "rows", malformed
            return
        if served and sorted(row["holders"]) != sorted(served):
            yield "hold", f"holders {[*map(short_name, row['holders'])]}"
        yield from self._readable(row, served)
        if self._is_said_deleted(ledger) and ledger not in self.world.records:
            yield "law7", "deleted, as a reference or the store's history says"
        misled, broken = self._of_evidence(row, true)
        yield from (("earlier", text) for text in broken)
        if misled:
            self.tally.misled += 1
            return
        if len(self._lives(ledger)) < 2 and row["reading"] != "universal":
            yield from self._shape(row, true)
        if row["state"] == LedgerState.CLOSED:
            yield from self._cut(row, served, true)
        else:
            yield from self._open_again(row, served, true)
        yield from self._one_life(row)
        yield from self._say_above(row, served)
        yield from self._grades(row, true)
        blended = len(self._lives(ledger)) > 1
        if row["state"] == LedgerState.CLOSED and ledger in self.world.records and not blended:
            yield from self._alternatives(row, true)
        if self._is_untouched:
            yield from find_unequal(row, true)
            record = self.evidence.records.get(ledger)
            if (
                record is not None
                and record.state is LedgerState.CLOSED
                and row["raw"] != ledger_metadata.encode(record)
            ):
                yield "clean", "not byte for byte as its record was"

    def _of_evidence(self, row: Row, true: Record) -> tuple[bool, list[str]]:
        """Return whether the row follows evidence that is wrong and not refuted, and what it follows although it is."""
        misled, broken = False, []
        record, reference = self.evidence.records.get(row["ledger"]), self.evidence.references.get(row["ledger"])
        claims = {
            "snapshot": Claim.of_record(record) if record is not None else Claim(),
            "reference": Claim.of_reference(reference) if reference is not None else Claim(),
        }
        listed = list_alternatives(row)
        for name in _SUPPLIED:
            grade = row["grades"][name]
            if grade not in claims or is_right(name, row, true):
                continue
            claim = claims[grade]
            if claim.value(name) != row[name]:
                continue  # worked out from what bookies show: judged as such
            rows = self._headers(row["ledger"])
            kept = self._is_all_seen and self._have_kept(row["ledger"], record)
            shown, own = (
                list(contradictions(claimed, rows, is_all_seen=kept))
                for claimed in (claim, Claim.of_record(true.metadata()))
            )
            # What speaks against the true record, too, proves nothing.
            shown = [text for text in shown if text not in own]
            if not shown:
                misled = True
            elif not has_true(listed, name, true):
                broken.append(f"{name} {row[name]} is the {grade}'s, and not true: {shown[0]}")
        return misled, broken

    def _have_kept(self, ledger: int, record: LedgerMetadata | None) -> bool:
        """Say whether those whom a record names, or all, serve enough older ledgers not to have been wiped since."""
        named = {name for segment in record.segments for name in segment.members} if record else set(self._ledgers_of)
        return all(bisect_left(self._ledgers_of.get(name, []), ledger) >= _OLDER for name in named)

    def _shape(self, row: Row, true: Record) -> Iterator[tuple[str, str]]:
        shape = (true.ensemble, true.write)
        if (row["ensemble_size"], row["write_quorum"]) == shape or has_true(
            list_alternatives(row), "write_quorum", true
        ):
            return
        if shape in self._shapes:
            yield "shape", f"{shape[0]}/{shape[1]} is not among the alternatives {list_alternatives(row)[SHAPE]}"
        else:
            self.tally.unheard += 1

    def _find_shown_shapes(self) -> set[tuple[int, int]]:
        """Return the shapes that enough ledgers show: of one ensemble, long, and each entry where it was written.

        Where all bookies of an ensemble hold all, and one of the cluster takes part in no such ledger, it may have been
        wiped, and the ensembles larger by one.
        """
        counted: Counter[tuple[int, int]] = Counter()
        taking_part: dict[tuple[int, int], set[str]] = {}
        for ledger, entries in self.inventory.served.items():
            record = self.world.records.get(ledger)
            if record is None or len(record.segments) > 1 or (record.last or 0) < _LONG * record.ensemble:
                continue
            holders: dict[int, set[str]] = {}
            for name, copies in entries.items():
                for entry in copies:
                    holders.setdefault(entry, set()).add(name)
            if all(holders.get(entry) == set(record.write_set(entry)) for entry in range((record.last or 0) + 1)):
                shape = (record.ensemble, record.write)
                counted[shape] += 1
                taking_part.setdefault(shape, set()).update(entries)
        enough = max(_SHOWN, _SHARE * len(self.inventory.served))
        return {
            (ensemble, write)
            for (ensemble, write), count in counted.items()
            if count >= enough and (write < ensemble or taking_part[ensemble, write] >= self.world.bookies.keys())
        }

    def _readable(self, row: Row, served: Mapping[str, Mapping[int, Any]]) -> Iterator[tuple[str, str]]:
        end = row["last_entry"]
        shown: dict[int, list[str]] = {}
        for name, entries in served.items():
            for entry in entries:
                if end is None or entry <= end:
                    shown.setdefault(entry, []).append(name)
        sets = WriteSets(row)
        unreadable = [entry for entry, names in shown.items() if not any(n in sets.of(entry) for n in names)]
        self.tally.entries += len(shown)
        self.tally.readable += len(shown) - len(unreadable)
        named = {name for segment in row["segments"] for name in segment["members"]}
        self.tally.strays += sum(name not in named for name in served)
        if unreadable:
            yield "G1", f"entries {describe_runs(unreadable)} cannot be read"

    def _cut(self, row: Row, served: Mapping[str, Mapping[int, Any]], true: Record) -> Iterator[tuple[str, str]]:
        ledger, end, must = row["ledger"], row["last_entry"], must_keep(true)
        claims = row["acked_high"] is not None and row["acked_high"] < must
        if ledger not in self.world.records:
            return
        if must <= end:
            if claims:
                yield "G2", f"acked_high {row['acked_high']}, acknowledged up to {must}"
            return
        above = sorted({entry for copies in served.values() for entry in copies if end < entry <= must})
        lac = max((copy.lac for copies in served.values() for copy in copies.values()), default=-1)
        if above and self.tail is Tail.ACKNOWLEDGED and row["acked_high"] is None:
            return  # as asked for; that the true end is listed is judged with the alternatives
        if above:
            yield "G2", f"closed at {end}, acknowledged up to {must}, bookies serve {describe_runs(above)}"
        elif row["grades"]["last_entry"] in SURE:
            yield "G2", f"the end is called {row['grades']['last_entry']}, acknowledged up to {must}"
        elif row["lac_low"] is not None and row["lac_low"] > end and not row["reason"]:
            yield "G2", f"closed at {end}, a LAC of {lac} is known"
        elif not self._exists(ledger, end, true):
            self.tally.gone += 1
        elif claims:
            yield "G2", f"acked_high {row['acked_high']}, acknowledged up to {must}, and not all was seen"
        else:
            self.tally.unseen += 1

    def _open_again(self, row: Row, served: Mapping[str, Mapping[int, Any]], true: Record) -> Iterator[tuple[str, str]]:
        """Let BookKeeper's own recovery close what is left open, with answers in several orders."""
        self.tally.opened += 1
        ledger = row["ledger"]
        named = dict.fromkeys(name for segment in row["segments"] for name in segment["members"])
        scanned = self.inventory.bookies["bookie"].to_pylist()
        if not named.keys() <= set(scanned):
            yield "G2", "left open, and not all of its bookies were seen"
            return
        if self.tail is not Tail.OPEN and not self._is_last_record(row):
            yield "G2", "left open, although nobody asked for that, and it is no record that the store had last"
            return
        present = {entry for copies in served.values() for entry in copies}
        must = max((entry for entry in present if entry <= must_keep(true)), default=-1)
        for seed in range(_ORDERS):
            rng = Random(seed)
            world = World(scanned)
            for name, copies in served.items():
                shelf = world.bookies[name].shelf(ledger, true.key)
                shelf.index, shelf.listed = dict(copies), True
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

    def _is_last_record(self, row: Row) -> bool:
        """Whether a row is, byte for byte, what the store had last."""
        record = self.evidence.records.get(row["ledger"])
        return self.evidence.is_last and record is not None and bool(row["raw"] == ledger_metadata.encode(record))

    def _exists(self, ledger: int, end: int, true: Record) -> bool:
        """Whether some bookie, seen or not, still has an acknowledged entry above an end."""
        shelves = [bookie.shelves[ledger] for bookie in self.world.bookies.values() if ledger in bookie.shelves]
        return any(end < entry <= must_keep(true) for shelf in shelves for entry in (*shelf.index, *shelf.fresh))

    def _one_life(self, row: Row) -> Iterator[tuple[str, str]]:
        ledger, world = row["ledger"], self.world
        lives = self._lives(ledger)
        if ledger in world.forgotten and lives == {world.forgotten[ledger].life}:
            self.tally.blended += 1
        if len(lives) > 1:
            # A record that is known may be of a writer of ids of its own, whose lengths cross.
            is_known = row["grades"]["length"] == "snapshot"
            shown = find_two_contents(self._headers(ledger)) if is_known else self._two_lives(ledger)
            if shown:
                yield "law7", f"two ledgers under one id are restored as one: {shown}"
            else:
                self.tally.blended += 1
        if ledger not in self.world.records:
            if self._show_deletion(ledger):
                yield "law7", "deleted, and leftovers show it"
            else:
                self.tally.resurrected += 1

    def _show_deletion(self, ledger: int) -> bool:
        """Say whether a bookie has in its logs alone what its index would have, were the ledger not deleted.

        Not one whose index was not read; nor one that the record does not name: its garbage collection drops what is
        closed without it (docs/operations/safety.md, the over-replicated check).
        """
        named = {name for _, members in self._truth(ledger).segments for name in members}
        return bool(self._seen_whole & named & set(self.inventory.leftovers.get(ledger, ())))

    def _alternatives(self, row: Row, true: Record) -> Iterator[tuple[str, str]]:
        """Check that what a reader would see in truth is claimed, or listed."""
        end = row["last_entry"]
        if true.state is not LedgerState.CLOSED or true.last is None or true.length is None:
            return
        served = self.inventory.served.get(row["ledger"], {}).values()
        if end < true.last and not (self.tail is Tail.ACKNOWLEDGED and any(true.last in copies for copies in served)):
            return  # what is cut off is judged elsewhere; what nobody holds any more is not listed
        listed = list_alternatives(row)
        if end != true.last:
            if not any(is_within(value, true.last) for value in listed["last_entry"]):
                yield "G5", f"the true end {true.last} is not among the alternatives {listed['last_entry']}"
        elif row["length"] != true.length and not any(is_within(value, true.length) for value in listed["length"]):
            summed = sum(size for entry, size in true.sizes.items() if entry <= end)
            read = {head["length"] for row_of in self._headers(row["ledger"]) for head in row_of["headers"]}
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
        heads = sorted((head["entry"], head["length"], head["digest"] or "") for row in rows for head in row["headers"])
        if len({digest for _, _, digest in heads if digest}) > 1:
            return "two digest types"
        for (entry, length, _), (other, longer, _) in pairwise(heads):
            if longer < length or (entry == other and longer != length):
                return f"length {length} at {entry}, {longer} at {other}"
        return ""

    def _grades(self, row: Row, true: Record) -> Iterator[tuple[str, str]]:
        forgotten = self.world.forgotten.get(row["ledger"])
        # Of two ledgers whose entries stand together, what the copies show is true of one of them.
        truths = [true, forgotten] if forgotten is not None and forgotten.life in self._lives(row["ledger"]) else [true]
        for name in JUDGED:
            grade = row["grades"][name]
            if grade == "unknown":
                continue
            right = any(is_right(name, row, truth) for truth in truths)
            counted = self.tally.grades.setdefault((name, grade), [0, 0])
            counted[0] += 1
            counted[1] += right
            if grade in SURE and not right:
                yield "grade", f"{name} is called {grade}"
