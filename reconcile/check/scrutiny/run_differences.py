"""Two scrutinies of one cluster compared: new, changed and missing findings, and what resolved the missing ones.

    a finding that is gone                              so
    its bucket is not in the later run's share          not searched for
    `explain_not_sought` says why                       not searched for, with the reason
    of a ledger that is not listed any longer           resolved: the ledger is gone
    any other                                           resolved, by what changed

What changed is read from the two captures: the record was written again, the mark is gone, or all of it is the same and
what was missing is there again.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.scrutiny.carried import LaterRun, LedgerKey, LedgerNow, explain_not_sought, select_rows
from reconcile.findings.categories import TRAITS, Category
from reconcile.findings.view import FindingView
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId

COLUMNS: Final = (
    "id", "bucket", "scope", "ledger", "category", "severity", "status", "subject", "bookies", "entries", "first_seen",
    "evidence",
)  # fmt: skip
_OF_MARKS: Final = frozenset({Category.UNDER_REPLICATED_OVERDUE, Category.OPEN_FRAGMENT_PENDING})
_MEMBERS: Final = 6
"""Bookies that a line names."""


@dataclass(frozen=True, slots=True)
class GoneFinding:
    """A finding of the earlier run that the later one does not have.

    Attributes:
        row: of FINDINGS.
        why: its resolution, or why it was not searched for.
        is_resolved: it was searched for again.
    """

    row: Mapping[str, Any]
    why: str
    is_resolved: bool

    @property
    def line(self) -> str:
        """The finding in one line, with its resolution."""
        view = FindingView.from_row(self.row)
        since = view.first_seen.isoformat(timespec="seconds")
        return f"{'resolved' if self.is_resolved else 'gone'}: {view.name}, seen since {since}: {self.why}"

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
    """A finding that both runs have, with differences.

    Attributes:
        row: of the later run.
        fields: name, value in the earlier run, value in the later run.
    """

    row: Mapping[str, Any]
    fields: tuple[tuple[str, str, str], ...]

    @property
    def line(self) -> str:
        """The finding in one line, with its changes."""
        view = FindingView.from_row(self.row)
        fields = "; ".join(f"{name} {a} → {b}" for name, a, b in self.fields)
        return f"changed: {view.category} {view.about}: {fields}"


@dataclass(frozen=True, slots=True)
class RunDifferences:
    """The differences between two runs.

    Attributes:
        new: FINDINGS of the later run alone, `COLUMNS` of them.
        gone: of the earlier run alone.
        changed: of both.
        unchanged: number of equal findings.
    """

    new: pa.Table
    gone: tuple[GoneFinding, ...]
    changed: tuple[ChangedFinding, ...]
    unchanged: int

    @property
    def resolved(self) -> tuple[GoneFinding, ...]:
        """The missing findings that were searched for again."""
        return tuple(finding for finding in self.gone if finding.is_resolved)


def compare_runs(earlier: Dataset, later: LaterRun) -> RunDifferences:
    """Compare the findings of two scrutinies of a cluster.

    Raises:
        DatasetError: a file is gone or damaged.
    """
    columns = list(COLUMNS)
    rows, rows_later = earlier.read("findings", columns=columns), later.run.read("findings", columns=columns)
    severities, severities_later = _list_severities(rows), _list_severities(rows_later)
    shared = severities.keys() & severities_later.keys()
    gone = _select_ids(rows, severities.keys() - shared, leave_out=("evidence", "entries")).to_pylist()
    judged = _Judge.of(later, gone)
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


@dataclass(frozen=True, slots=True, eq=False)
class _Judge:
    """Explains why findings are gone.

    Attributes:
        later: the run that they are absent from.
        ledgers: the outcomes of their ledgers.
        records: of each run, raw, state and segments.
    """

    later: LaterRun
    ledgers: Mapping[LedgerKey, LedgerNow]
    records: tuple[Mapping[LedgerKey, Mapping[str, Any]], Mapping[LedgerKey, Mapping[str, Any]]]

    @classmethod
    def of(cls, later: LaterRun, gone: Sequence[Mapping[str, Any]]) -> "_Judge":
        named = {(row["scope"], row["ledger"]) for row in gone if row["ledger"] is not None}
        columns = ["raw", "state", "segments"]
        had, has = (
            {(row["scope"], row["ledger"]): row for row in select_rows(store, "ledgers", named, columns)}
            if store is not None
            else {}
            for store in later.stores
        )
        return cls(later, later.find_ledgers(gone), (had, has))

    def explain(self, row: Mapping[str, Any]) -> GoneFinding:
        """Return what resolved a finding, or why it was not searched for."""
        category = Category(row["category"])
        if row["bucket"] is not None and row["bucket"] not in self.later.share:
            return GoneFinding(row, "not looked for: its bucket is not in this run's share", is_resolved=False)
        key = (row["scope"], row["ledger"])
        ledger = None if row["ledger"] is None else self.ledgers.get(key)
        why = explain_not_sought(row, ledger, self.later.sought)
        if why is not None:
            return GoneFinding(row, f"not looked for: {why}", is_resolved=False)
        if row["ledger"] is None:
            return GoneFinding(row, "it was looked for again, and is not there any longer", is_resolved=True)
        if ledger is None:
            why = (
                "no scanned bookie holds it any longer"
                if category is Category.DATA_WITHOUT_RECORD
                else "the store does not list the ledger any longer"
            )
            return GoneFinding(row, why, is_resolved=True)
        return GoneFinding(row, self._say_what_changed(category, key), is_resolved=True)

    def _say_what_changed(self, category: Category, key: LedgerKey) -> str:
        record, record_later = (side.get(key) for side in self.records)
        marked = "its mark is gone" if category in _OF_MARKS else ""
        if None in self.later.stores:
            return marked or "it was looked for again, and is not there any longer"
        if record is None or record_later is None:
            return "the store lists its record again"
        if record["raw"] == record_later["raw"]:
            if marked:
                return f"{marked}; its record is the same"
            if TRAITS[category].of_copies:
                return "its record is the same, and the bookies that it names hold the missing entries"
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
