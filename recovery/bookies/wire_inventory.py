"""Inventories of a running cluster, made from what its bookies answer: the same tables as those of disks.

    step      asked of a bookie, for every ledger that the store lists
    list      LIST_ENTRIES: the entries it has; or that it knows no such ledger (then there is no row)
    last      READ_LAC: the last record, whose entry the list may lack, and the explicit LAC; READ_ENTRY -1 where that
              does not say
    again     both once more, where the list does not have the last entry: what stays so is a list that lacks it, what
              changes is a ledger that is being written
    proof     READ_ENTRY of entry 0 and of the one before the last, where the last one's digest type cannot be proved

    what the wire does not tell                              so
    ledgers that the store does not list                     no row, and the bookie is never complete
    master keys, fences, limbo                               key_kind absent; false says nothing
    what stands in journals and entry logs alone             no such rows
    anything, of a bookie that does not answer lists         no inventory: DbLedgerStorage answers that it does not know
                                                             a ledger, and never what it has of one that it knows

`complete` of a row: the list was answered, has the last entry, and did not change while it was looked at.

Source: docs/formats/wire.md.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import msgspec

from backends.bookie.client import BookieOptions
from recovery.bookies.addresses import ALIAS_UNRESOLVED, BookieNames, NamedMember
from recovery.bookies.recorded_members import count_named, count_scoped, sample_ledgers
from recovery.bookies.wire_probe import probe_bookies
from recovery.bookies.wire_results import (
    COPIES,
    DAMAGE,
    NOT_TOLD,
    SCOPE,
    WIRE,
    AskedKind,
    BookieResult,
    WireSummary,
    folder_of,
)
from recovery.bookies.wire_task import WireTally, WireTarget, WireTask
from recovery.collect.disk.folders import hash_incarnation
from recovery.collect.rows.bookies import BookieRow, LifeEvidence, bind_inventory
from recovery.dataset import Dataset, prepare, write_manifest, write_part
from recovery.errors import InputError
from recovery.model import tables
from recovery.model.groups import MOST_ENTRIES
from recovery.model.ids import BUCKETS, LedgerId
from recovery.place import DatasetPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRequest:
    """What is asked, and of whom.

    Attributes:
        catalog: the store, captured just now: its ledgers are asked for.
        members: the bookies.
        wanted: of these, by any name of theirs; None: all.
        options: with the caps of the whole run.
        passwords: that may have made HMACs.
        tasks: run at the same time; each gets its share of the caps.
        settings: what the program goes by, each with where it came from: for the manifests.
        buckets: of the ledgers that are asked for.
        only_members: bookies are asked for the lists of the ledgers whose records name them, and for nothing else but
            the explicit LACs of `lacs_after`: a list may lack the last entry, and no row says what is on other bookies.
        lacs_after: of closed ledgers whose records changed after this transaction of the store; None: of none.
    """

    catalog: Dataset
    members: BookieNames
    wanted: tuple[str, ...] | None
    options: BookieOptions
    passwords: tuple[bytes, ...] = ()
    tasks: int = 1
    settings: Mapping[str, object] = field(default_factory=dict)
    buckets: range = range(BUCKETS)
    only_members: bool = False
    lacs_after: int | None = None

    def __repr__(self) -> str:
        """Without the passwords: a value may land in a log."""
        return f"Request(catalog={self.catalog.path!r}, wanted={self.wanted}, tasks={self.tasks})"


MANY_FILES: Final = 10_000
"""Ledgers of one bookie that are asked for before somebody is told what that costs it."""
_LOG: Final = logging.getLogger(__name__)

Carry = Callable[["WireTask", Sequence[range]], Sequence[Mapping[str, Any]]]
"""Runs a task for each of the bucket ranges, at the same time if it can, and returns what each said."""


def collect_wire(request: WireRequest, out: DatasetPlace, carry: Carry, *, now: Callable[[], datetime]) -> WireSummary:
    """Ask the bookies of a cluster into inventories, one below `out` for each that answers.

    What that costs bookies of many ledgers is logged before they are asked.

    Args:
        request: what is asked.
        out: a folder; the inventories stand in folders of it.
        carry: see there.
        now: the clock, with a time zone.

    Raises:
        InputError: a wanted bookie that nobody knows.
        DatasetError: the catalog is damaged, or an inventory cannot be written.
        SparkError: what carries the tasks failed.
    """
    started = now()
    sampled = sample_ledgers(request.catalog)
    unresolved = {name: m.why for name in sorted(sampled) if (m := request.members.find(name)).unresolved}
    wanted = _choose_members(request)
    samples: dict[str, list[int]] = {}
    for name, ledgers in sampled.items():
        samples.setdefault(request.members.find(name).bookie, []).extend(ledgers)
    results = asyncio.run(probe_bookies(wanted, samples, request.options))
    names: dict[str, list[str]] = {}
    for name in sampled:
        names.setdefault(request.members.find(name).bookie, []).append(name)
    targets = [
        WireTarget(
            m.bookie, m.address, hash_incarnation(_collect_evidence(m, request.catalog)), tuple(names.get(m.bookie, ()))
        )
        for m in wanted
        if m.address is not None and results[m.bookie].kind is AskedKind.COLLECTED
    ]
    rows = request.catalog.rows("ledgers")
    listed = rows - count_scoped(request.catalog)
    if targets:
        if rows > MANY_FILES and (files := _count_files(request, targets)):
            _LOG.warning("%s", _describe_files(files))
        for target in targets:
            prepare(out / folder_of(target.bookie), "inventory", secret=False)
        share = replace(
            request.options,
            per_bookie=_divide_rate(request.options.per_bookie, request.tasks),
            in_total=_divide_rate(request.options.in_total, request.tasks),
        )
        task = WireTask(
            request.catalog, str(out), tuple(targets), share, request.passwords, request.only_members,
            request.lacs_after,
        )  # fmt: skip
        low, count = request.buckets.start, len(request.buckets)
        edges = [low + count * n // request.tasks for n in range(request.tasks + 1)]
        answers = carry(task, [range(low, high) for low, high in pairwise(edges)])
        ended = now()
        for member in wanted:
            if results[member.bookie].kind is AskedKind.COLLECTED:
                tally = WireTally.sum([msgspec.convert(answer[member.bookie], WireTally) for answer in answers])
                results[member.bookie] = _finish_inventory(request, member, tally, out, started, ended)
    return WireSummary(listed, rows - listed, tuple(results[m.bookie] for m in wanted), unresolved)


def _count_files(request: WireRequest, targets: Sequence[WireTarget]) -> dict[str, int]:
    """Return the bookies that will have many files open, each with how many."""
    named = count_named(request.catalog, request.buckets)
    files = {target.bookie: sum(named[name] for name in target.names) for target in targets}
    return {bookie: count for bookie, count in files.items() if count > MANY_FILES}


def _describe_files(files: Mapping[str, int]) -> str:
    bookie = max(files, key=lambda name: files[name])
    others = f" ({len(files) - 1:,} more over {MANY_FILES:,})" if len(files) > 1 else ""
    return (
        f"{bookie} will keep the index file of each of {files[bookie]:,} ledgers open until it restarts{others}; "
        "its limit of open files (/proc/PID/limits on its host) must be above that, or it takes no connections: "
        "where it is not, collect that bookie from its disks instead"
    )


def _divide_rate(rate: float | None, tasks: int) -> float | None:
    return None if rate is None else rate / tasks


def _choose_members(request: WireRequest) -> list[NamedMember]:
    if request.wanted is None:
        return [request.members.find(bookie) for bookie in request.members.bookies]
    members: dict[str, NamedMember] = {}
    for name in request.wanted:
        member = request.members.find(name)
        if member.unresolved:
            raise InputError(f"bookie {name}", f"{ALIAS_UNRESOLVED}: {member.why}", "or leave it out")
        members[member.bookie] = member
    return list(members.values())


def _collect_evidence(member: NamedMember, catalog: Dataset) -> list[tuple[str, str]]:
    """Return what tells this life of a bookie from another, as far as the store knows it."""
    instance = _read_source(catalog, "instance_id")
    evidence = [("bookie", member.bookie)]
    if instance is not None:
        evidence.append(("instance", instance))
    if member.registered_txn is not None:
        evidence.append(("registered_txn", str(member.registered_txn)))
    if member.cookie is not None:
        evidence.append(("version_sha256", hashlib.sha256(member.cookie).hexdigest()))
    return evidence


def _read_source(catalog: Dataset, column: str) -> Any:  # noqa: ANN401 - a value of the column
    """Return what a catalog says of its source; None where it has no source."""
    rows = catalog.read("sources", columns=[column])[column].to_pylist()
    return rows[0] if rows else None


def _read_as_of(catalog: Dataset) -> int | None:
    """Return the transaction up to which every ledger was asked for: one made while a store is read may not be."""
    since: int | None = _read_source(catalog, "since_txn")
    txn: int | None = _read_source(catalog, "txn")
    return txn if since is None else since


def _finish_inventory(
    request: WireRequest, member: NamedMember, tally: WireTally, out: DatasetPlace, started: datetime, ended: datetime
) -> BookieResult:
    """Make a bookie's parts an inventory."""
    folder = out / folder_of(member.bookie)
    evidence = _collect_evidence(member, request.catalog)
    number = hash_incarnation(evidence)
    row = BookieRow(
        bookie=member.bookie,
        incarnation=number,
        incarnation_evidence=[LifeEvidence(kind, value) for kind, value in evidence],
        instance_id=_read_source(request.catalog, "instance_id"),
        cookie=member.cookie,
        storage="interleaved" if tally.ledgers else "none",
        mode=WIRE,
        started=started,
        ended=ended,
        as_of=_read_as_of(request.catalog),
        max_ids=[LedgerId(SCOPE, tally.largest)] if tally.largest >= 0 else [],
        ledgers=tally.ledgers,
        entries=min(tally.entries, MOST_ENTRIES),
        damaged=tally.damaged,
    )
    parts = {"bookies": [write_part(folder, "bookies", "part-00000", [row.to_table()])]}
    for table, written in ((COPIES, tally.copies), (DAMAGE, tally.damage)):
        empty = [] if written else [write_part(folder, table, "part-0000", [tables.INVENTORY[table].empty_table()])]
        parts[table] = [*empty, *written]
    write_manifest(
        folder,
        "inventory",
        parts,
        binding=bind_inventory(member.bookie, number, row.instance_id, member.cookie),
        coverage={
            **row.to_coverage(
                "bookie", "incarnation", "complete", "storage", "mode", "ledgers", "entries", "damaged", "dirs"
            ),
            "asked": tally.ledgers + tally.negatives + tally.unanswered,
            "negatives": tally.negatives,
            "unanswered": tally.unanswered,
            "not_told": list(NOT_TOLD),
            "started": started.isoformat(),
            "ended": ended.isoformat(),
            "as_of": row.as_of,
        },
        secret=False,
        extra={"settings": request.settings} if request.settings else None,
    )
    kind = AskedKind.NO_LISTS if tally.silent and not tally.ledgers else AskedKind.COLLECTED
    return BookieResult(
        member.bookie, kind, tally.why, str(folder), tally.ledgers, tally.entries, tally.negatives, tally.unanswered,
        tally.damaged,
    )  # fmt: skip
