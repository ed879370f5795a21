"""What the service lists is of one scope; a scope that is not named is 0."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs

from reconcile.findings.categories import Category
from reconcile.jobs.impact.cache import name_capture
from reconcile.service._pb import service_pb2 as pb
from reconcile.service.api.answers import Api
from reconcile.service.api.methods import METHODS, ApiError, Why
from reconcile.service.config import read_config
from reconcile.service.runs.leader import Instance
from reconcile.service.runs.schedule import EndedRun, JobState, ServiceState
from recovery.dataset import DatasetWriter, write_manifest, write_part
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
    ("asked", "found", "gaps"),
    [(None, {1, 2}, []), (5, {3}, []), (-1, {4}, []), (6, set(), []), (5, {3}, ["/L: not readable"])],
)
def test_ledgers_are_listed_by_scope(tmp_path: Path, asked: int | None, found: set[int], gaps: list[str]) -> None:
    """As the newest capture that is whole has them; without any the caller is told to ask again. Gaps are told."""
    config = read_config(write_config(tmp_path, "etcd://127.0.0.1:1/l", "one", tmp_path / "data"))
    instance = Instance(config, make_context())
    method = next(method for method in METHODS if method.name == "ListLedgers")

    def list_ledgers() -> list[pb.Ledger]:
        return list(Api(instance, {}).answer(method, pb.ScopeRequest(ledger_scope_id=asked), ""))

    (tmp_path / "data" / "impact").mkdir(parents=True)
    with pytest.raises(ApiError) as refused:
        list_ledgers()
    assert refused.value.why is Why.UNAVAILABLE
    captures = tmp_path / "data" / "impact"
    for hour, ledgers in ((1, [(0, 8)]), (2, [(0, 1), (0, 2), (5, 3), (-1, 4)])):
        at = datetime(2026, 1, 1, hour, tzinfo=UTC)
        with DatasetWriter(name_capture(config.metadata, captures, at), "catalog", binding={}, secret=True) as out:
            for scope, ledger in ledgers:
                row = {
                    "bucket": LedgerId(scope, ledger).bucket, "scope": scope, "ledger": ledger, "raw": b"",
                    "version": 0, "state": "CLOSED", "last_entry": 9, "length": 70 + ledger,
                }  # fmt: skip
                rows = [fill_row(tables.CATALOG_LEDGERS, row)]
                out.append("ledgers", pa.Table.from_pylist(rows, schema=tables.CATALOG_LEDGERS))
            source = fill_row(tables.CATALOG_SOURCES, {"kind": "etcd", "at": at, "gaps": gaps})
            out.append("sources", pa.Table.from_pylist([source], schema=tables.CATALOG_SOURCES))
            out.close(coverage={})
    name_capture(config.metadata, captures, datetime(2026, 1, 1, 3, tzinfo=UTC)).mkdir()
    if gaps:
        with pytest.raises(ApiError, match="/L: not readable"):
            list_ledgers()
        return
    listed = list_ledgers()
    assert {one.ledger_id for one in listed} == found
    assert {(one.state, one.last_entry, one.length - one.ledger_id) for one in listed} <= {("CLOSED", 9, 70)}
    assert {one.captured_ms for one in listed} <= {int(datetime(2026, 1, 1, 2, tzinfo=UTC).timestamp() * 1000)}
    assert {one.ledger_scope_id for one in listed} <= {asked or 0}


@pytest.mark.parametrize(("background", "remedy"), [(True, "in some minutes"), (False, "check-impact")])
def test_a_store_that_was_not_captured_yet_is_so_by_the_one_who_captures_it(
    tmp_path: Path, background: bool, remedy: str
) -> None:
    """Where nothing is captured in the background, to wait would not help."""
    config = read_config(write_config(tmp_path, "etcd://127.0.0.1:1/l", "one", tmp_path / "data"))
    cache = structs.replace(config.cache, background=background)
    config = structs.replace(config, cache=cache)
    method = next(method for method in METHODS if method.name == "ListLedgers")
    (tmp_path / "data" / "impact").mkdir(parents=True)
    with pytest.raises(ApiError, match=remedy):
        list(Api(Instance(config, make_context()), {}).answer(method, pb.ScopeRequest(), ""))


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
