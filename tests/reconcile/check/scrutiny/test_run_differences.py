"""What is new between two scrutinies, what changed, what is gone and what resolved it."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
import pytest

from reconcile.check.scrutiny.carried import LaterRun, Sought
from reconcile.check.scrutiny.replication import MARKS
from reconcile.check.scrutiny.run_differences import RunDifferences, compare_runs
from reconcile.findings.categories import TRAITS, Category
from recovery.dataset import Dataset, DatasetWriter, open_dataset, prepare, write_manifest, write_part
from recovery.model import tables
from recovery.model.ids import BUCKETS, LedgerId
from tests.support.inventories import fill_row

ALL: Final = range(BUCKETS)
SEEN: Final = ["b1", "b2", "b3", "b4"]
SOUGHT: Final = {
    "has_places": True, "given": SEEN, "seen": SEEN, "asked": SEEN, "registered": SEEN, "everywhere": True,
    "compares": True,
}  # fmt: skip


def finding(ledger: int | None, category: Category, **more: Any) -> dict[str, Any]:
    """Return a row of FINDINGS."""
    subject = more.pop("subject", "copies")
    given = {
        "id": hashlib.sha256(f"{category} {ledger} {subject}".encode()).digest(),
        "category": str(category),
        "severity": TRAITS[category].severity,
        "status": "open",
        "subject": None if ledger is not None else subject,
        "first_seen": datetime(2026, 1, 1, tzinfo=UTC),
        **({} if ledger is None else {"scope": 0, "ledger": ledger, "bucket": LedgerId(0, ledger).bucket}),
        **more,
    }
    return fill_row(tables.FINDINGS, given)


def run_of(
    folder: Path,
    findings: Sequence[Mapping[str, Any]],
    verdicts: Mapping[int, tuple[str, str | None]] | None = None,
    references: Sequence[str] = ("topics",),
    **sought: Any,
) -> Dataset:
    """Write a scrutiny: its findings, the verdict and reason of each ledger, what it looked at."""
    prepare(folder, "scrutiny", secret=True)
    rows = [
        {"scope": 0, "ledger": n, "bucket": LedgerId(0, n).bucket, "verdict": verdict, "reason": reason}
        for n, (verdict, reason) in (verdicts or {}).items()
    ]
    given = {
        "findings": pa.Table.from_pylist(list(findings), schema=tables.FINDINGS),
        "verdicts": pa.Table.from_pylist(rows, schema=tables.VERDICTS),
    }
    parts = {name: [write_part(folder, name, "part", [table], secret=True)] for name, table in given.items()}
    extra = {"references": list(references), "sought": {**SOUGHT, **sought}}
    write_manifest(folder, "scrutiny", parts, binding={}, coverage={}, secret=True, extra=extra)
    return open_dataset(folder, "scrutiny")


def compare(
    earlier: Dataset,
    later: Dataset,
    stores: tuple[Dataset | None, Dataset | None] = (None, None),
    share: range = ALL,
    marked: Sequence[int] = (),
) -> RunDifferences:
    """Compare two runs; some ledgers are marked in the later one."""
    rows = [{"bucket": LedgerId(0, n).bucket, "scope": 0, "ledger": n, "path": "", "raw": b""} for n in marked]
    marks = pa.Table.from_pylist(rows, schema=MARKS)
    return compare_runs(earlier, LaterRun(later, stores, marks, Sought.read(later, earlier), share))


def store_of(folder: Path, records: Mapping[int, tuple[bytes, str, Sequence[str]]]) -> Dataset:
    """Write a capture with the bytes, state and members of each ledger's record."""
    rows = [
        fill_row(
            tables.CATALOG_LEDGERS,
            {
                "scope": 0, "ledger": n, "bucket": LedgerId(0, n).bucket, "raw": raw, "state": state,
                "version": crc32(raw),
                "segments": [{"first": 0, "members": list(members)}],
            },
        )
        for n, (raw, state, members) in records.items()
    ]  # fmt: skip
    with DatasetWriter(folder, "catalog", binding={}, secret=True) as writer:
        writer.append("ledgers", pa.Table.from_pylist(rows, schema=tables.CATALOG_LEDGERS))
        writer.close(coverage={})
    return open_dataset(folder, "catalog")


def explain(differences: RunDifferences) -> dict[Any, tuple[bool, str]]:
    """Return of each finding that is gone, by ledger or subject, whether it is resolved, and why."""
    return {one.row["ledger"] or one.row["subject"]: (one.is_resolved, one.why) for one in differences.gone}


def test_what_is_new_and_what_changed_is_named(tmp_path: Path) -> None:
    """A graver severity, other bookies and other entries are changes; notes that stay notes are not compared."""
    low, note = Category.BELOW_WRITE_QUORUM, Category.OVER_REPLICATED
    before = [
        finding(1, low, bookies=["b1"]),
        finding(2, low),
        finding(3, note, bookies=["b1"]),
        finding(4, low, entries=[{"first": 0, "last": 0, "size": 3, "period": 0}]),
    ]
    after = [
        finding(1, low, bookies=["b1", "b2"], severity="critical"),
        finding(2, low),
        finding(3, note, bookies=["b2"]),
        finding(4, low, entries=[{"first": 0, "last": 5, "size": 3, "period": 5}]),
        finding(9, low),
    ]
    found = compare(run_of(tmp_path / "a", before), run_of(tmp_path / "b", after))
    assert found.new["ledger"].to_pylist() == [9]
    assert {one.row["ledger"]: one.fields for one in found.changed} == {
        1: (("severity", "warning", "critical"), ("bookies", "b1", "b1, b2")),
        4: (("entries", "0…0", "0…5"),),
    }
    assert (found.unchanged, found.gone) == (2, ())


def test_what_resolved_a_finding_is_read_from_the_captures(tmp_path: Path) -> None:
    """The record was written again, or is the same and copies are there; the ledger is gone; a state changed."""
    low, overdue = Category.BELOW_WRITE_QUORUM, Category.UNDER_REPLICATED_OVERDUE
    earlier = run_of(
        tmp_path / "a",
        [finding(1, low), finding(2, low), finding(3, low), finding(4, Category.RECOVERY_STUCK), finding(5, overdue)],
    )
    later = run_of(tmp_path / "b", [], dict.fromkeys((1, 2, 4, 5), ("clean", None)))
    stores = (
        store_of(
            tmp_path / "sa",
            {
                1: (b"one", "CLOSED", ["b1", "b2"]), 2: (b"two", "CLOSED", ["b1"]), 3: (b"three", "CLOSED", ["b1"]),
                4: (b"four", "IN_RECOVERY", ["b1"]), 5: (b"five", "CLOSED", ["b1", "b2"]),
            },
        ),
        store_of(
            tmp_path / "sb",
            {
                1: (b"other", "CLOSED", ["b1", "b3"]), 2: (b"two", "CLOSED", ["b1"]),
                4: (b"closed", "CLOSED", ["b1"]), 5: (b"moved", "CLOSED", ["b1", "b4"]),
            },
        ),
    )  # fmt: skip
    found = compare(earlier, later, stores)
    assert explain(found) == {
        1: (True, "its record was written again; new bookies: b3; no longer named: b2"),
        2: (True, "its record is the same, and the bookies that it names hold the missing entries"),
        3: (True, "the store does not list the ledger any longer"),
        4: (True, "its record was written again; IN_RECOVERY → CLOSED"),
        5: (True, "its mark is gone; its record was written again; new bookies: b4; no longer named: b2"),
    }
    assert len(found.resolved) == 5
    assert found.gone[0].to_json() == {
        "category": "BELOW_WRITE_QUORUM", "severity": "warning", "ledger": "1",
        "first_seen": "2026-01-01T00:00:00+00:00", "resolved": True,
        "why": "its record was written again; new bookies: b3; no longer named: b2",
    }  # fmt: skip


def test_what_was_not_looked_for_is_not_resolved(tmp_path: Path) -> None:
    """A ledger that is marked or undecided now, or in another share, says nothing of what was wrong with it."""
    low = Category.BELOW_WRITE_QUORUM
    share = range(BUCKETS // 2)
    inside = [n for n in range(1, 60) if LedgerId(0, n).bucket in share][:4]
    outside = next(n for n in range(1, 60) if LedgerId(0, n).bucket not in share)
    rows = [*(finding(n, low) for n in inside[:2]), finding(outside, low), finding(inside[2], Category.ONE_COPY)]
    marked = finding(inside[3], Category.UNDER_REPLICATED_OVERDUE)
    verdicts: dict[int, tuple[str, str | None]] = {
        inside[0]: ("skipped", "marked"),
        inside[1]: ("undecided", "not seen"),
        inside[2]: ("skipped", "open"),
        inside[3]: ("skipped", "marked"),
    }
    earlier, later = run_of(tmp_path / "a", [*rows, marked]), run_of(tmp_path / "b", [], verdicts)
    assert explain(compare(earlier, later, share=share)) == {
        inside[0]: (False, "not looked for: marked"),
        inside[1]: (False, "not looked for: undecided"),
        outside: (False, "not looked for: its bucket is not in this run's share"),
        # Its record alone says it, which is read of skipped ledgers, too.
        inside[2]: (True, "it was looked for again, and is not there any longer"),
        inside[3]: (False, "not looked for: still marked"),
    }
    without_verdict = run_of(tmp_path / "c", [], {inside[3]: ("UNDER_REPLICATED_OVERDUE", None)})
    found = compare(run_of(tmp_path / "d", [rows[0], marked]), without_verdict, share=share, marked=[inside[3]])
    assert explain(found)[inside[3]] == (False, "not looked for: still marked"), "as the capture has it"


@pytest.mark.parametrize(
    ("row", "sought", "why"),
    [
        (finding(1, Category.PLACEMENT_VIOLATED), {"has_places": False}, "without a topology"),
        (finding(1, Category.REFERENCE_DIFFERS), {"references": ()}, "without the same references"),
        (finding(None, Category.BOOKIE_SILENT, subject="b1", bookies=["b1"]), {"asked": [], "given": []}, "not asked"),
        (
            finding(None, Category.SUSPECT_DISK, subject="b1 /d", bookies=["b1"]),
            {"given": ["b2"]},
            "without an inventory of the bookie",
        ),
    ],
)
def test_what_a_run_was_not_given_it_did_not_look_for(
    tmp_path: Path, row: dict[str, Any], sought: dict[str, Any], why: str
) -> None:
    """With it the same finding is resolved."""
    earlier, verdicts = run_of(tmp_path / "a", [row]), {1: ("clean", None)}
    blind, seeing = run_of(tmp_path / "b", [], verdicts, **sought), run_of(tmp_path / "c", [], verdicts)
    [gone] = compare(earlier, blind).gone
    assert (gone.is_resolved, gone.why) == (False, f"not looked for: {why}")
    [gone] = compare(earlier, seeing).gone
    assert gone.is_resolved
