"""Two scrutinies of one cluster compared: which findings are new, which changed, which are gone and what resolved them.

    a finding that is gone, of a ledger      its ledger in the later run              so
    its bucket is in another share           -                                        not looked for
    any                                      skipped, or undecided                    not looked for, with the reason
    any but data without a record            not listed any longer                    resolved: the ledger is gone
    of what the later run was not given      -                                        not looked for
    any other                                judged                                   resolved, by what changed

What changed is read from the two captures: the record was written again, the mark is gone, or all of it is the same and
what was missing is there again. A finding of a record alone is looked for in skipped ledgers, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import TRAITS, Category
from recovery.dataset import Dataset
from recovery.model import tables
from recovery.model.ids import LedgerId

COLUMNS: Final = (
    "id", "bucket", "scope", "ledger", "category", "severity", "status", "subject", "bookies", "entries", "first_seen",
    "evidence",
)  # fmt: skip
_OF_MARKS: Final = frozenset({Category.UNDER_REPLICATED_OVERDUE, Category.OPEN_FRAGMENT_PENDING})
_OF_PLACES: Final = frozenset({Category.PLACEMENT_VIOLATED, Category.PLACEMENT_SOFT})
_OF_WIRE: Final = frozenset({Category.BOOKIE_SILENT, Category.RETURNED_WRITER, Category.AUDITOR_UNAWARE})
_OF_DISKS: Final = frozenset({Category.SUSPECT_DISK, Category.DATA_WITHOUT_RECORD})
_OF_REFERENCES: Final = frozenset(
    {
        Category.REFERENCE_DIFFERS,
        Category.REFERENCE_NOT_FOUND,
        Category.REFERENCE_UNREADABLE,
        Category.DELETED_BY_OWNER,
    }
)
_MEMBERS: Final = 6
"""Bookies that a line names."""


@dataclass(frozen=True, slots=True)
class GoneFinding:
    """A finding of the earlier run that the later one does not have.

    Attributes:
        row: of FINDINGS.
        why: what resolved it, or why it was not looked for.
        is_resolved: it was looked for again.
    """

    row: Mapping[str, Any]
    why: str
    is_resolved: bool

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` and files have it."""
        row = self.row
        about = row["subject"] if row["ledger"] is None else str(LedgerId(row["scope"], row["ledger"]))
        return {
            "category": row["category"],
            "severity": row["severity"],
            "subject" if row["ledger"] is None else "ledger": about,
            "first_seen": row["first_seen"].isoformat(timespec="seconds"),
            "resolved": self.is_resolved,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class ChangedFinding:
    """A finding that both runs have, and that is not the same.

    Attributes:
        row: of the later run.
        fields: name, then what the earlier and what the later run has.
    """

    row: Mapping[str, Any]
    fields: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class RunDifferences:
    """What differs between two runs.

    Attributes:
        new: FINDINGS of the later run alone, `COLUMNS` of them.
        gone: of the earlier run alone.
        changed: of both.
        unchanged: how many findings are the same in both.
    """

    new: pa.Table
    gone: tuple[GoneFinding, ...]
    changed: tuple[ChangedFinding, ...]
    unchanged: int

    @property
    def resolved(self) -> tuple[GoneFinding, ...]:
        """Those that were looked for again."""
        return tuple(finding for finding in self.gone if finding.is_resolved)


def compare_runs(
    earlier: Dataset, later: Dataset, stores: tuple[Dataset | None, Dataset | None], share: range
) -> RunDifferences:
    """Compare the findings of two runs.

    Args:
        earlier: a scrutiny.
        later: another one, of the same cluster.
        stores: as each of them captured the store; None: its capture is not there.
        share: buckets that the later one looked at.

    Raises:
        DatasetError: a file is gone or damaged.
    """
    columns = list(COLUMNS)
    rows, rows_later = earlier.read("findings", columns=columns), later.read("findings", columns=columns)
    severities, severities_later = _list_severities(rows), _list_severities(rows_later)
    shared = severities.keys() & severities_later.keys()
    gone = _select_ids(rows, severities.keys() - shared, leave_out=("evidence", "entries")).to_pylist()
    judged = _LaterRun.read(later, gone, stores, share)
    # Notes that stay notes are not compared: there may be millions.
    grave = {key for key in shared if {severities[key], severities_later[key]} != {"info"}}
    of_id = {row["id"]: row for row in _select_ids(rows, grave).to_pylist()}
    pairs = ((row, tuple(_list_fields(of_id[row["id"]], row))) for row in _select_ids(rows_later, grave).to_pylist())
    changed = tuple(ChangedFinding(row, fields) for row, fields in pairs if fields)
    return RunDifferences(
        _select_ids(rows_later, severities_later.keys() - shared),
        tuple(judged.explain(row) for row in gone),
        changed,
        len(shared) - len(changed),
    )


def _list_severities(rows: pa.Table) -> dict[bytes, str]:
    return dict(zip(rows["id"].to_pylist(), rows["severity"].to_pylist(), strict=True))


def _select_ids(rows: pa.Table, ids: AbstractSet[bytes], leave_out: Sequence[str] = ()) -> pa.Table:
    """Return the findings of some ids, each once."""
    kept = pc.is_in(rows["id"], value_set=pa.array(sorted(ids), pa.binary()))
    return rows.drop_columns(list(leave_out)).filter(kept)


def _list_fields(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name in ("severity", "status"):
        if earlier[name] != later[name]:
            yield name, earlier[name], later[name]
    if sorted(earlier["bookies"]) != sorted(later["bookies"]):
        yield "bookies", _name(earlier["bookies"]), _name(later["bookies"])
    if earlier["entries"] != later["entries"]:
        yield "entries", _describe_entries(earlier["entries"]), _describe_entries(later["entries"])


def _name(bookies: Sequence[str]) -> str:
    names = sorted(bookies)
    return (
        ", ".join(names[:_MEMBERS]) + (f" and {len(names) - _MEMBERS} more" if len(names) > _MEMBERS else "") or "none"
    )


def _describe_entries(groups: Sequence[Mapping[str, int]]) -> str:
    """Return the first and the last entry of some groups."""
    if not groups:
        return "none"
    return f"{min(group['first'] for group in groups)}…{max(group['last'] for group in groups)}"


@dataclass(frozen=True, slots=True)
class _LaterRun:
    """What the later run says of ledgers whose findings are gone; keys are (scope, ledger).

    Attributes:
        verdicts: verdict and reason.
        records: of each run, raw, state and members.
        has_stores: both captures are there.
        unsought: categories that it was not given what they need for.
        share: buckets that it looked at.
    """

    verdicts: Mapping[tuple[int, int], tuple[str, str | None]]
    records: tuple[Mapping[tuple[int, int], Mapping[str, Any]], Mapping[tuple[int, int], Mapping[str, Any]]]
    has_stores: bool
    unsought: Mapping[str, str]
    share: range

    @classmethod
    def read(
        cls,
        later: Dataset,
        gone: Sequence[Mapping[str, Any]],
        stores: tuple[Dataset | None, Dataset | None],
        share: range,
    ) -> "_LaterRun":
        ledgers = {(row["scope"], row["ledger"]) for row in gone if row["ledger"] is not None}
        verdicts = {
            (row["scope"], row["ledger"]): (row["verdict"], row["reason"])
            for row in _select(later, "verdicts", ledgers, ["verdict", "reason"])
        }
        records = tuple(
            {
                (row["scope"], row["ledger"]): row
                for row in ([] if store is None else _select(store, "ledgers", ledgers, ["raw", "state", "segments"]))
            }
            for store in stores
        )
        return cls(verdicts, (records[0], records[1]), None not in stores, _list_unsought(later), share)

    def explain(self, row: Mapping[str, Any]) -> GoneFinding:
        """Say what resolved a finding, or why it was not looked for."""
        category = Category(row["category"])
        if row["bucket"] is not None and row["bucket"] not in self.share:
            return GoneFinding(row, "not looked for: its bucket is not in this run's share", is_resolved=False)
        if category in self.unsought:
            return GoneFinding(row, f"not looked for: {self.unsought[category]}", is_resolved=False)
        if row["ledger"] is None:
            return GoneFinding(row, "it was looked for again, and is not there any longer", is_resolved=True)
        key = (row["scope"], row["ledger"])
        verdict, reason = self.verdicts.get(key, ("", None))
        if not verdict:
            why = (
                "no bookie that was looked at holds it any longer"
                if category is Category.DATA_WITHOUT_RECORD
                else "the store does not list the ledger any longer"
            )
            return GoneFinding(row, why, is_resolved=True)
        if verdict == "undecided" or (verdict == "skipped" and not TRAITS[category].of_records_alone):
            # What was overdue and is not: there is no mark, or a younger one.
            if category in _OF_MARKS and reason != "marked" and verdict == "skipped":
                return GoneFinding(row, "its mark is gone", is_resolved=True)
            return GoneFinding(row, f"not looked for: {verdict}, {reason}", is_resolved=False)
        return GoneFinding(row, self._say_what_changed(category, key), is_resolved=True)

    def _say_what_changed(self, category: Category, key: tuple[int, int]) -> str:
        record, record_later = (side.get(key) for side in self.records)
        marked = "its mark is gone" if category in _OF_MARKS else ""
        if not self.has_stores:
            return marked or "it was looked for again, and is not there any longer"
        if record is None or record_later is None:
            return "the store lists its record again"
        if record["raw"] == record_later["raw"]:
            if marked:
                return f"{marked}; its record is the same"
            if TRAITS[category].of_copies:
                return "its record is the same, and the bookies that it names hold what was missing"
            return "its record is the same; it was looked for again, and is not there any longer"
        members = [
            {name for one in side["segments"] or () for name in one["members"]} for side in (record, record_later)
        ]
        words = [
            *([marked] if marked else []),
            "its record was written again",
            *([f"{record['state']} → {record_later['state']}"] if record["state"] != record_later["state"] else []),
            *([f"new bookies: {_name(sorted(members[1] - members[0]))}"] if members[1] - members[0] else []),
            *([f"no longer named: {_name(sorted(members[0] - members[1]))}"] if members[0] - members[1] else []),
        ]
        return "; ".join(words)


def _select(
    dataset: Dataset, name: str, ledgers: set[tuple[int, int]], columns: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of some ledgers."""
    if not ledgers:
        return
    buckets = sorted({LedgerId(*key).bucket for key in ledgers})
    span = range(buckets[0], buckets[-1] + 1)
    wanted = pa.array(sorted({ledger for _, ledger in ledgers}), pa.int64())
    rows = dataset.read(name, buckets=span, columns=[*tables.KEY_COLUMNS, *columns])
    for row in rows.filter(pc.is_in(rows["ledger"], value_set=wanted)).to_pylist():
        if (row["scope"], row["ledger"]) in ledgers:
            yield row


def _list_unsought(run: Dataset) -> dict[str, str]:
    """Return the categories that a run could not look for, each with what it was not given."""
    coverage = run.manifest["coverage"]
    lacking = [
        (_OF_PLACES, not sum(coverage.get("placement", {}).values()), "this run had no topology"),
        (_OF_WIRE, not coverage.get("asked"), "this run asked no bookie"),
        (_OF_DISKS, not coverage.get("inventories"), "this run had no inventory"),
        (_OF_REFERENCES, not coverage.get("references"), "this run had no references"),
    ]
    return {category: why for categories, is_lacking, why in lacking if is_lacking for category in categories}
