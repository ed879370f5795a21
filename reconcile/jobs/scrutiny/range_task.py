"""The first look at a bucket range: read, judged, written; what is to be looked at again is put aside."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.scrutiny.earlier_reads import add_earlier, keep_valid, note_reads
from reconcile.check.scrutiny.incarnations import trace_bookies
from reconcile.check.scrutiny.judge import Demands, LookJudgement, judge_range
from reconcile.check.scrutiny.lifecycle import Lifecycle
from reconcile.check.scrutiny.replication import StoredReplication
from reconcile.check.scrutiny.returned_writers import find_comparable
from reconcile.check.scrutiny.unlisted import find_unlisted, raise_old
from reconcile.check.scrutiny.vanished import find_vanished
from reconcile.findings.table import FindingRun
from reconcile.rules import entries_beyond_end, used_ids
from reconcile.rules.segments.copy_findings import see_bookies
from reconcile.rules.segments.member_names import rename_members
from reconcile.rules.segments.sampled_copies import list_held
from recovery.bookies.entry_choice import Rotation
from recovery.codecs.store import Layout
from recovery.codecs.store_kind import kind_of
from recovery.dataset import SPILL, Dataset, write_part
from recovery.manifest import Part
from recovery.model import tables
from recovery.model.tables import READS
from recovery.place import to_place

SUSPECT_FINDINGS: Final = "suspect-findings"
SUSPECT_VERDICTS: Final = "suspect-verdicts"
SUSPECT_COVERAGE: Final = "suspect-coverage"
"""What waits for its second look, in `SPILL`: begin of file names; how many copies of each were judged."""
COMPARED_FINDINGS: Final = "compared-findings"
COMPARED_VERDICTS: Final = "compared-verdicts"
"""Likewise what waits until entries of replaced bookies are compared."""
_VANISHED: Final = "vanished"
"""Likewise the ledgers of the run before that are gone."""
_JUDGED: Final = (
    *tables.KEY_COLUMNS, "bookie", "source", "groups", "entries", "last", "complete", "fenced", "limbo",
    "explicit_lac", "headers",
)  # fmt: skip
"""Columns of COPIES that rules look at."""


@dataclass(frozen=True, slots=True, eq=False)
class RangeTask:
    """Judges a bucket range; small, and picklable.

    Attributes:
        out: the run's folder.
        catalog: the store, captured.
        inventories: of the bookies.
        renames: name of a bookie in records → its id.
        demands: what is demanded.
        run: this one.
        everywhere: the inventories show all that any bookie of the cluster has.
        layout: of the store.
        awaited: bookies that may answer when they are asked again.
        lifecycle: what is known of findings besides.
        compares: entries of bookies that were replaced are compared later.
        earlier: the run before.
        earlier_store: the store as that run saw it.
        beginnings: bookie → the transaction before which nothing shows it with what it has now.
        ages: of bookies whose inventories were made before the store was read; see `find_ages`.
        samples: what bookies that give no lists answered to reads of single entries; None: none was read.
        rotation: of these reads; None: this run makes none.
        cookies: bookie → the transaction that made the cookie that it has now.
    """

    out: str
    catalog: Dataset
    inventories: tuple[Dataset, ...]
    renames: Mapping[str, str]
    demands: Demands
    run: FindingRun
    everywhere: bool
    layout: Layout
    awaited: frozenset[str] = frozenset()
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    compares: bool = False
    earlier: Dataset | None = None
    earlier_store: Dataset | None = None
    beginnings: Mapping[str, int] = field(default_factory=dict)
    ages: Mapping[str, int | None] = field(default_factory=dict)
    samples: Dataset | None = None
    rotation: Rotation | None = None
    cookies: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, buckets: range) -> dict[str, Any]:
        """Judge the range, write what is settled, and return counts."""
        stored = rename_members(self.catalog.read("ledgers", buckets=buckets), self.renames)
        asked, earlier_reads = self._read_samples(buckets), self.read_earlier_reads(buckets, stored)
        samples, age = add_earlier(asked, earlier_reads)
        copies = self._read_copies(buckets, samples)
        judged, unlisted, comparable = self._judge(buckets, stored, copies, samples)
        reads = self.note_reads(asked, stored, earlier_reads)
        name = f"buckets-{buckets.start:04d}-{buckets.stop - 1:04d}"
        doubtful = pa.array(judged.suspect)
        aside = pc.and_(are_of(judged.verdicts, comparable), pc.invert(doubtful))
        suspects = self._put_aside((SUSPECT_FINDINGS, SUSPECT_VERDICTS, SUSPECT_COVERAGE), name, judged, doubtful)
        compared = self._put_aside((COMPARED_FINDINGS, COMPARED_VERDICTS), name, judged, aside)
        verdicts = judged.verdicts.filter(pc.invert(pc.or_(doubtful, aside)))
        of_settled = pc.or_(are_of(judged.findings, verdicts), pc.is_null(judged.findings["ledger"]))
        settled = pa.concat_tables([judged.findings.filter(of_settled), unlisted])
        settled = self.apply_lifecycle(settled)
        missing = judged.missing.filter(pc.invert(are_of(judged.missing, judged.verdicts.filter(doubtful))))
        return {
            "parts": {
                table: asdict(write_part(to_place(self.out), table, name, [rows], secret=True))
                for table, rows in (
                    ("findings", settled),
                    ("verdicts", verdicts),
                    ("missing", missing),
                    ("reads", reads),
                )
            },
            "traces": {name: asdict(traces) for name, traces in trace_bookies(judged.pairs, self.beginnings).items()},
            "suspects": suspects,
            "compared": compared,
            "listed": judged.verdicts.num_rows,
            "counts": count_verdicts(verdicts),
            "findings": count_findings(settled),
            "open": count_open(settled),
            "vanished": self._find_vanished(buckets, name),
            "positions": judged.positions,
            "judged": judged.judged,
            "read_earlier": age.to_json(),
            "passed": judged.passed,
            "placement": asdict(judged.placement),
            "used": asdict(used_ids.numbers(self.layout, _name_ids(stored, copies))),
        }

    def _put_aside(self, kinds: Sequence[str], name: str, judged: LookJudgement, mask: pa.Array) -> dict[str, str]:
        """Write findings, verdicts and coverage of some ledgers into files of their own, as many of these as are named.

        No files where there are no such ledgers.
        """
        verdicts = judged.verdicts.filter(mask)
        if not verdicts.num_rows:
            return {}
        findings, coverage = (rows.filter(are_of(rows, verdicts)) for rows in (judged.findings, judged.coverage))
        return {
            kind: write_part(to_place(self.out), SPILL, f"{kind}-{name}", [rows], secret=True).file
            for kind, rows in zip(kinds, (findings, verdicts, coverage), strict=False)
        }

    def _find_vanished(self, buckets: range, name: str) -> dict[str, Any]:
        """Write which ledgers of the run before the store no longer has, and return what counts beside them."""
        if self.earlier_store is None:
            return {}
        keys = list(tables.KEY_COLUMNS)
        earlier = self.earlier_store.read("ledgers", buckets=buckets, columns=[*keys, "created_txn"])
        stored = self.catalog.read("ledgers", buckets=buckets, columns=[*keys, "created_txn"])
        history = self.catalog.read("history", buckets=buckets)
        gone, newest_kept = find_vanished(earlier, stored, history)
        file = write_part(to_place(self.out), SPILL, f"{_VANISHED}-{name}", [gone], secret=True).file
        newest_now = pc.max(stored["created_txn"]).as_py()
        newest = {"newest_kept": newest_kept, "newest_now": newest_now}
        return {"file": file, "listed": earlier.num_rows, **newest, "remembered": pc.min(history["txn"]).as_py()}

    def apply_lifecycle(self, findings: pa.Table) -> pa.Table:
        """Return findings with what other runs and people know of them; FINDINGS in and out."""
        return raise_old(self.lifecycle.apply(findings), self.run, self.demands.grace_s, kind_of(self.layout))

    def read_earlier_records(self, buckets: range) -> pa.Table | None:
        """Return the records of a range as the run before saw them."""
        return None if self.earlier_store is None else self.earlier_store.read("ledgers", buckets=buckets)

    def read_earlier_missing(self, buckets: range) -> pa.Table | None:
        """Return what the run before saw bookies to lack, of the ledgers of a range."""
        return None if self.earlier is None else self.earlier.read("missing", buckets=buckets)

    def read_heights(self, buckets: range) -> entries_beyond_end.Past:
        """Return what the run before saw above the ends of the ledgers of a range."""
        if self.earlier is None:
            return {}
        rows = self.earlier.read("findings", columns=["bucket", "scope", "ledger", "category", "evidence"])
        inside = pc.and_(pc.greater_equal(rows["bucket"], buckets.start), pc.less(rows["bucket"], buckets.stop))
        return entries_beyond_end.read_heights(rows.filter(pc.fill_null(inside, fill_value=False)))

    def read_earlier_reads(self, buckets: range, stored: pa.Table) -> pa.Table:
        """Return what earlier runs read from bookies that give no lists, as far as it still counts; READS.

        Args:
            buckets: that have the ledgers.
            stored: CATALOG_LEDGERS of the ledgers, as they are now.
        """
        if self.earlier is None or self.earlier_store is None:
            return READS.empty_table()
        return keep_valid(
            self.earlier.read("reads", buckets=buckets),
            stored,
            self.earlier.read("missing", buckets=buckets),
            self.rotation,
            self.cookies,
            self.earlier_store.manifest["coverage"]["txn"],
        )

    def note_reads(self, samples: pa.Table, stored: pa.Table, earlier_reads: pa.Table) -> pa.Table:
        """Return what the next run will know of bookies that give no lists; see `earlier_reads.note_reads`."""
        number = 0 if self.rotation is None else self.rotation.run
        return note_reads(samples, stored, earlier_reads, number, self.run.at)

    def _read_copies(self, buckets: range, samples: pa.Table) -> pa.Table:
        """Return what judges the records of a range of COPIES; SAMPLES in."""
        parts = [inventory.read("copies", buckets=buckets, columns=list(_JUDGED)) for inventory in self.inventories]
        return pa.concat_tables([list_held(samples).select(list(_JUDGED)), *parts])

    def _read_samples(self, buckets: range) -> pa.Table:
        """Return SAMPLES of a range, as this run asked for them."""
        return tables.SAMPLES.empty_table() if self.samples is None else self.samples.read("samples", buckets=buckets)

    def _judge(
        self, buckets: range, stored: pa.Table, copies: pa.Table, samples: pa.Table
    ) -> tuple[LookJudgement, pa.Table, pa.Table]:
        """Judge the range; also return findings of ledgers that the store lacks, and keys of those to be compared."""
        replication = StoredReplication.from_nodes(self.catalog.read("nodes"), kind_of(self.layout), buckets)
        bookies, damage = read_all(self.inventories, "bookies"), read_all(self.inventories, "damage")
        sight = see_bookies(bookies, damage, self.ages, samples)
        earlier_records = self.read_earlier_records(buckets)
        judged = judge_range(
            stored,
            copies,
            sight,
            replication,
            self.demands,
            self.run,
            everywhere=self.everywhere,
            awaited=self.awaited,
            earlier_records=earlier_records,
            earlier_missing=self.read_earlier_missing(buckets),
            heights=self.read_heights(buckets),
        )
        comparable = find_comparable(stored, judged.findings) if self.compares else judged.verdicts.slice(0, 0)
        return judged, find_unlisted(stored, copies, earlier_records, self.run, kind_of(self.layout)), comparable


def _name_ids(stored: pa.Table, copies: pa.Table) -> used_ids.NamedIds:
    """Return the ids that the store, and that bookies alone name."""
    recorded = _ids(stored)
    return used_ids.NamedIds(recorded, np.setdiff1d(_ids(copies), recorded, assume_unique=True))


def _ids(rows: pa.Table) -> used_ids.Ids:
    """Return the ids of scope 0."""
    return np.unique(rows.filter(pc.equal(rows["scope"], 0))["ledger"].to_numpy())


def read_all(inventories: Sequence[Dataset], name: str) -> pa.Table:
    """Return a table of all inventories as one."""
    schema = tables.INVENTORY[name]
    return pa.concat_tables([schema.empty_table(), *(inventory.read(name) for inventory in inventories)])


def count_verdicts(verdicts: pa.Table) -> dict[str, dict[str, int]]:
    """Count ledgers by verdict and reason; no reason is an empty one."""
    counted: dict[str, dict[str, int]] = {}
    for row in verdicts.group_by(["verdict", "reason"]).aggregate([([], "count_all")]).to_pylist():
        counted.setdefault(row["verdict"], {})[row["reason"] or ""] = row["count_all"]
    return counted


def count_findings(findings: pa.Table) -> dict[str, dict[str, int]]:
    """Count findings by category and severity."""
    counted: dict[str, dict[str, int]] = {}
    for row in findings.group_by(["category", "severity"]).aggregate([([], "count_all")]).to_pylist():
        counted.setdefault(row["category"], {})[row["severity"]] = row["count_all"]
    return counted


def count_open(findings: pa.Table) -> dict[str, int]:
    """Count findings that nobody suppressed by severity."""
    counted = findings.filter(pc.equal(findings["status"], "open"))
    return {row["values"]: row["counts"] for row in pc.value_counts(counted["severity"]).to_pylist()}


def part_from(fields: Mapping[str, Any]) -> Part:
    """Return a part as a task told it."""
    return Part(**fields)


def are_of(rows: pa.Table, keys: pa.Table) -> pa.Array:
    """Say which rows are of some ledgers."""
    if not rows.num_rows or not keys.num_rows:
        return pa.array(np.zeros(rows.num_rows, np.bool_))
    names = ["scope", "ledger"]
    numbered = rows.select(names).append_column("at", pa.array(np.arange(rows.num_rows)))
    places = numbered.join(keys.select(names), names, join_type="inner")["at"].to_numpy()
    mask = np.zeros(rows.num_rows, np.bool_)
    mask[places] = True
    return pa.array(mask)
