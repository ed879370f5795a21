"""The report page of an impact check: a matrix that is read at a glance, and nothing that others wrote steers it."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconcile.check.impact.names import DomainLevel, Impact
from reconcile.report.impact_page import impact_page
from recovery.dataset import Dataset
from tests.support.impact_judge import Ledger
from tests.support.impact_question import ask
from tests.support.impacts import write_catalog

A, B, C, D = (f"bk{number}:3181" for number in range(1, 5))
RACKS = {A: "/r1<script>", B: "/r1<script>", C: "/r2", D: "/r3"}


@pytest.fixture
def catalog(tmp_path: Path) -> Dataset:
    """A ledger on one rack, one on two, and one that a mark has taken a copy of already."""
    ledgers = [
        Ledger(1, (2, 2, 2), "CLOSED", 9, ((0, (A, B)),)),
        Ledger(2, (2, 2, 2), "OPEN", None, ((0, (A, C)),)),
        Ledger(3, (1, 1, 1), "CLOSED", 9, ((0, (D,)),), frozenset({D})),
    ]
    return write_catalog(tmp_path / "catalog", RACKS, ledgers)


def test_the_matrix_shows_every_domain_with_every_impact(catalog: Dataset) -> None:
    """A row a rack, a column an impact: what the rack brings about is marked, what is so already in another way."""
    answer = ask(catalog, drill=DomainLevel.RACK, topology=RACKS, most_unavailable=100)
    page = impact_page(answer, summary="UNSAFE: one", target="down", made=datetime(2026, 1, 2, tzinfo=UTC))
    matrix = page[page.index('<h2 id="drill">') : page.index('<h2 id="segments">')]
    heads = re.findall(r'<th scope="col" class="mono">(.*?)</th>', matrix)
    assert [head.replace("<wbr>", "") for head in heads] == [str(impact) for impact in Impact]
    rows = {
        re.search(r'<th scope="row" class="mono">(.*?)</th>', row)[1]: re.findall(r"<td>(.*?)</td>", row)  # type: ignore[index]  # each row has one
        for row in re.findall(r'<tr><th scope="row".*?</tr>', matrix, re.DOTALL)
    }
    read = list(Impact).index(Impact.READ_AVAILABILITY_LOSS)
    kinds = {rack: re.sub(r"<[^>]*>", "", cells[read]) for rack, cells in rows.items()}
    assert kinds == {"/r1&lt;script&gt;": "✕ 2", "/r2": "1", "/r3": "1"}
    assert "<script" not in page


def test_a_segment_is_shown_by_domain_with_what_changes(catalog: Dataset) -> None:
    """From and to of each bookie, and what is so already is not said of the set."""
    answer = ask(catalog, (A, B), topology=RACKS, most_unavailable=100)
    page = impact_page(answer, summary="UNSAFE: one", target="down", made=datetime(2026, 1, 2, tzinfo=UTC))
    segments = page[page.index('<h2 id="segments">') :]
    assert segments.count("read-write → down") == 2
    assert "ledger 3</span>" in segments
    assert "READ_AVAILABILITY_LOSS, REBUILDING_STALL already" in segments
    assert "Copies of the worst entry: 2 → 0 (needs 1)" in segments
