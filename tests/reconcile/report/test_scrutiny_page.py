"""The page of a scrutiny of real disks: what is in the run is on the page, and one click away."""

import re
from pathlib import Path

from recovery.dataset import REPORT, open_dataset
from tests.support.scrutinized_disks import scrutinize_disks


def test_what_the_run_has_is_on_its_page(tmp_path: Path) -> None:
    """Sums, every category, the bookies that findings name, grids of ledgers, a bar for each run; no dead link."""
    outs = scrutinize_disks(tmp_path)
    seen = open_dataset(outs[-1], "scrutiny")
    page = (outs[-1] / REPORT).read_text()
    rows = seen.read("findings").to_pylist()
    assert rows
    for category in {row["category"] for row in rows}:
        assert f'id="category-{category}"' in page
    for bookie in {name for row in rows for name in row["bookies"]}:
        assert bookie in page
    ledgers = {row["ledger"] for row in rows if row["ledger"] is not None}
    assert {int(number) for number in re.findall(r'<details open id="ledger-(\d+)"', page)} == ledgers
    assert page.count("<svg") == page.count('role="img"')
    trend = seen.manifest["trend"]
    assert [point["at"] for point in trend] == [row["run"] for out in outs for row in _first(out)]
    assert page.count("judged</title>") == len(trend) == 2
    targets = set(re.findall(r'href="#([^"]+)"', page))
    assert targets <= set(re.findall(r'id="([^"]+)"', page))


def _first(out: Path) -> list[dict[str, str]]:
    """The first finding of a run: it names the run."""
    rows: list[dict[str, str]] = open_dataset(out, "scrutiny").read("findings", columns=["run"]).slice(0, 1).to_pylist()
    return rows
