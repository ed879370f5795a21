"""What the service lists is of one scope; a scope that is not named is 0."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from reconcile.findings.categories import Category
from reconcile.service._pb import service_pb2 as pb
from reconcile.service.api.answers import Api
from reconcile.service.api.methods import METHODS
from reconcile.service.config import read_config
from reconcile.service.runs.leader import Instance
from reconcile.service.runs.schedule import EndedRun, JobState, ServiceState
from recovery.dataset import write_manifest, write_part
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.support.inventories import fill_row
from tests.support.service import make_context, write_config

FINDINGS = [("lost", 0, 7), ("lost", 5, 7), ("lost", 5, 8), ("lost", -1, 9), ("bookie", None, None)]
"""What each is of, its scope, its ledger."""


def write_findings(folder: Path) -> None:
    """Write a scrutiny that found something in several scopes, and of a bookie."""
    rows = [
        fill_row(
            tables.FINDINGS,
            {
                "id": number.to_bytes(16, "big"), "category": str(Category.ENTRIES_MISSING), "severity": "critical",
                "subject": subject, "scope": scope, "ledger": ledger,
                "bucket": None if scope is None or ledger is None else LedgerId(scope, ledger).bucket,
                "first_seen": datetime(2026, 1, 1, tzinfo=UTC), "last_seen": datetime(2026, 1, 1, tzinfo=UTC),
            },
        )
        for number, (subject, scope, ledger) in enumerate(FINDINGS)
    ]  # fmt: skip
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(rows, schema=tables.FINDINGS)
    part = write_part(folder, "findings", "part-00000", [table], secret=True)
    write_manifest(folder, "scrutiny", {"findings": [part]}, binding={}, coverage={}, secret=True, extra={})


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (None, {7}),
        (5, {7, 8}),
        (-1, {9}),
        (6, set()),
    ],
)
def test_findings_are_listed_by_scope(tmp_path: Path, asked: int | None, found: set[int]) -> None:
    """Those of a scope, and those of no ledger; one ledger alone in its own scope."""
    config = read_config(write_config(tmp_path, "etcd://127.0.0.1:1/l", "one", tmp_path / "data"))
    write_findings(tmp_path / "data" / "run" / "out")
    instance = Instance(config, make_context())
    ended = EndedRun(1, "one", 1, 1, 1, "", 2, 3, "found", "run")
    instance._take(ServiceState(jobs={"scrutinize": JobState(last=ended, latest={1: ended})}))
    method = next(method for method in METHODS if method.name == "ListFindings")

    def list_findings(ledger: int | None = None) -> list[pb.Finding]:
        request = pb.FindingsRequest(ledger_id=ledger, ledger_scope_id=asked)
        return list(Api(instance, {}).answer(method, request, ""))

    listed = list_findings()
    assert {one.ledger_id for one in listed if one.HasField("ledger_id")} == found
    assert [one.subject for one in listed if not one.HasField("ledger_id")] == ["bookie"]
    assert len(list_findings(7)) == (7 in found)
