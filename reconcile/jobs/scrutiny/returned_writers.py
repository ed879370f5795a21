"""Entries of bookies that were replaced, read from them and from who stands in their place, and held together."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backends.registry import OpenStore
from reconcile.check.scrutiny.judge import SKIPPED, UNDECIDED, give_verdicts
from reconcile.check.scrutiny.returned_writers import Comparison, find_candidates, list_comparisons, make_finding
from reconcile.findings.table import FindingRun, LedgerKey, make_rows
from reconcile.jobs.context import WireOptions
from reconcile.jobs.scrutiny.range_task import COMPARED_FINDINGS, COMPARED_VERDICTS
from reconcile.jobs.scrutiny.second_look import SecondLook, Settled
from reconcile.rules.segments.member_names import rename_members
from recovery.bookies.addresses import BookieNames
from recovery.bookies.ledger_entries import Content, read_content
from recovery.bookies.wire_reader import RunningCluster
from recovery.capture.records import read_records
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout
from recovery.dataset import read_part, sort_by_key
from recovery.model.ids import LedgerId
from recovery.place import to_place

_Place = tuple[str, LedgerKey, int]


@dataclass(frozen=True, slots=True)
class EntryComparer:
    """Compares entries of one run's ledgers.

    Attributes:
        opened: the store.
        layout: of it.
        members: its bookies.
        wire: how they are asked.
        renames: name in records → id.
        run: this one.
    """

    opened: OpenStore
    layout: Layout
    members: BookieNames
    wire: WireOptions
    renames: Mapping[str, str]
    run: FindingRun

    def compare(self, findings: pa.Table, verdicts: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return findings and verdicts of some ledgers with what comparing entries adds; FINDINGS and VERDICTS in.

        Nothing that a bookie has of an entry ever changes, so one reading is enough; records are read again before.

        Raises:
            BackendError: the store stopped answering.
        """
        wanted = {(row["scope"], row["ledger"]): row for row in find_candidates(findings).to_pylist()}
        if not wanted:
            return findings, verdicts
        scope, ledger = (np.array(half, np.int64) for half in zip(*wanted, strict=True))
        read = sort_by_key(read_records(self.opened.store, self.opened.root, self.layout, scope, ledger))
        records = rename_members(read.filter(pc.equal(read["state"], "CLOSED")), self.renames).to_pylist()
        comparisons: list[Comparison] = []
        for record in records:
            copies = wanted[record["scope"], record["ledger"]]
            comparisons += list_comparisons(record, copies["bookies"], copies["entries"])
        passwords = {LedgerKey.from_row(record): _read_password(record["raw"]) for record in records}
        differing = self._find_differing(comparisons, passwords)
        if not differing:
            return findings, verdicts
        counted = Counter(pair.key for pair in comparisons)
        returned = make_rows(
            [make_finding(key, pairs, counted[key]) for key, pairs in differing.items()],
            self.run,
        )
        findings = pa.concat_tables([findings, returned])
        words = verdicts["verdict"].to_pylist()
        skipped, undecided = (np.array([word == one for word in words], np.bool_) for one in (SKIPPED, UNDECIDED))
        return findings, give_verdicts(verdicts, findings, skipped, undecided, verdicts["reason"].to_pylist())

    def _find_differing(
        self, comparisons: Sequence[Comparison], passwords: Mapping[LedgerKey, bytes]
    ) -> dict[LedgerKey, list[Comparison]]:
        """Return those of which both bookies have the entry, and not the same one."""
        contents: dict[_Place, Content] = {}
        with RunningCluster(self.members, self.wire.options) as cluster:
            places: dict[str, set[_Place]] = {}
            for pair in comparisons:
                for bookie in (pair.former, pair.member):
                    places.setdefault(bookie, set()).add((bookie, pair.key, pair.entry))
            for bookie, wanted in places.items():
                _read(cluster, bookie, list(wanted), passwords, contents)
        differing: dict[LedgerKey, list[Comparison]] = {}
        for pair in comparisons:
            former, member = (contents.get((name, pair.key, pair.entry)) for name in (pair.former, pair.member))
            if former is not None and member is not None and former != member:
                differing.setdefault(pair.key, []).append(pair)
        return differing


def _read(
    cluster: RunningCluster,
    name: str,
    places: Sequence[_Place],
    passwords: Mapping[LedgerKey, bytes],
    contents: dict[_Place, Content],
) -> None:
    """Read entries of one bookie; what it does not have, or what proves no digest, is left out."""
    bookie = cluster.get(name)
    if bookie is None:
        return

    def take(row: int, record: bytes | None) -> None:
        _, key, number = places[row]
        ledger = LedgerId(key.scope, key.ledger)
        content = None if record is None else read_content(record, ledger, number, [passwords[key]])
        if content is not None:
            contents[places[row]] = content

    ledgers = np.array([key.ledger for _, key, _ in places], np.int64)
    bookie.each(ledgers, np.array([number for _, _, number in places], np.int64), take)


def _read_password(raw: bytes) -> bytes:
    return ledger_metadata.decode(raw).password or b""


def compare_all(
    second_look: SecondLook, settled: Iterable[Settled], files: Sequence[Mapping[str, str]]
) -> Iterator[Settled]:
    """Yield what became of ledgers, with what comparing entries adds: first those settled, then those in files."""
    task, wire = second_look.task, second_look.wire
    if wire is None:
        yield from settled
        return
    members = second_look.read_members(wire)
    comparer = EntryComparer(second_look.opened, second_look.layout, members, wire, task.renames, task.run)
    put_aside = (
        Settled(
            read_part(to_place(task.out), paths[COMPARED_FINDINGS]),
            read_part(to_place(task.out), paths[COMPARED_VERDICTS]),
        )
        for paths in files
    )
    for became in chain(settled, put_aside):
        findings, verdicts = comparer.compare(became.findings, became.verdicts)
        yield replace(became, findings=task.lifecycle.apply(findings), verdicts=verdicts)
