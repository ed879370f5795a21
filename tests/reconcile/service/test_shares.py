"""Several shares' scrutinies together: what is said of the cluster is said, and counts, once."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from reconcile.service.api.metrics import add_results, read_results
from reconcile.service.api.shares import SharedFindings
from recovery.model import tables
from tests.support.findings import finding
from tests.support.inventories import fill_row
from tests.support.service import write_findings


def name(key: str, category: str, *, fails: bool = True) -> dict[str, Any]:
    """A finding of the cluster, as a manifest keeps it."""
    return {"id": key, "category": category, "severity": "critical", "fails": fails}


def test_a_finding_of_the_cluster_counts_once(tmp_path: Path) -> None:
    """A silent bookie only if the newest run has it; a wiped bookie for every share whose ledgers show it, once."""
    wiped, silent, old = name("aa", "INCARNATION_CHANGED"), name("bb", "BOOKIE_SILENT"), name("cc", "BOOKIE_SILENT")
    for share, of_cluster in enumerate(([wiped, silent, old], [wiped, silent])):
        found = {"ENTRIES_MISSING": 1}
        for one in of_cluster:
            found[one["category"]] = found.get(one["category"], 0) + 1
        write_findings(
            tmp_path / str(share), [share], found=found, by_severity={"critical": 1 + len(of_cluster)},
            failing=1 + len(of_cluster), of_cluster=of_cluster,
        )  # fmt: skip
    added = add_results(read_results([tmp_path / "0", tmp_path / "1"]))
    assert added.found == {"ENTRIES_MISSING": 2, "INCARNATION_CHANGED": 1, "BOOKIE_SILENT": 1}
    assert (added.failing, added.by_severity) == (4, {"critical": 4})
    assert sorted(one.id for one in added.of_cluster) == ["aa", "bb"]


def test_rows_of_the_cluster_are_kept_once_and_those_of_ledgers_always() -> None:
    """The newest run comes first; one that only an older share has counts where ledgers decide it."""
    rows = [
        finding("BOOKIE_SILENT", "critical", None, id=b"a"),
        finding("INCARNATION_CHANGED", "critical", None, id=b"b"),
        finding("ONE_COPY", "info", 7, id=b"c"),
    ]
    table = pa.Table.from_pylist([fill_row(tables.FINDINGS, row) for row in rows], schema=tables.FINDINGS)
    shared = SharedFindings()
    assert shared.keep_once(table.slice(2), is_newest=True)["id"].to_pylist() == [b"c"]
    assert shared.keep_once(table, is_newest=False)["id"].to_pylist() == [b"b", b"c"]
    assert shared.keep_once(table, is_newest=False)["id"].to_pylist() == [b"c"]
