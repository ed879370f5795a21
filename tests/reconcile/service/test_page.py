"""The page says that all is well only where that is known."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconcile.service.api.page import make_page
from reconcile.service.config import read_config
from reconcile.service.runs import schedule
from reconcile.service.runs.folders import OUT
from reconcile.service.runs.leader import Instance
from reconcile.service.runs.schedule import ServiceState
from tests.support.service import make_context, write_config, write_findings

NOW = datetime(2026, 3, 4, tzinfo=UTC)
JOBS = '[jobs.scrutinize]\nevery = "1h"\nshares = 2\n'


@pytest.mark.parametrize(
    ("codes", "age", "severity", "said"),
    [
        ([0, 0], timedelta(hours=1), "info", "bookies and metadata agree"),
        ([0, 0], timedelta(hours=1), "warning", "nothing to act on; 2 findings suppressed or lighter than asked for"),
        ([0], timedelta(hours=1), "info", "only 1 of 2 shares of the ledgers were checked"),
        ([0, 4], timedelta(hours=1), "info", "too little could be judged"),
        ([0, 0, 1], timedelta(hours=1), "info", "the last 1 run came to no verdict"),
        ([0, 0], timedelta(hours=5), "info", "some ledgers were last checked 2026-03-03 19:00 UTC"),
    ],
)
def test_nothing_found_is_good_news_only_where_all_was_looked_at_lately(
    tmp_path: Path, codes: list[int], age: timedelta, severity: str, said: str
) -> None:
    """Every share, enough of its copies, by runs that end, within two rounds."""
    config = read_config(write_config(tmp_path, "etcd://127.0.0.1:1/l", "one", tmp_path / "data", JOBS))
    instance = Instance(config, make_context(lambda: NOW))
    at = round((NOW - age).timestamp() * 1000)
    state = schedule.take_over(ServiceState(), "one", "", at)
    for number, code in enumerate(codes):
        state = schedule.start(state, config.timings["scrutinize"], at)
        verdict = "nothing found, too little could be judged" if code == 4 else "it failed" if code else "all agree"
        state = schedule.end(state, "scrutinize", at, code, verdict, f"scrutinize/{number}")
        write_findings(config.data / f"scrutinize/{number}" / OUT, [4], failing=0, by_severity={severity: 1})
    instance._take(state)
    page = make_page(instance)
    assert said in page
    assert ('class="verdict good"' in page) == (said == "bookies and metadata agree")


def test_the_gravest_findings_come_first_whichever_share_has_them(tmp_path: Path) -> None:
    """Fifty of them, each once; of equal ones those of the newest run."""
    config = read_config(write_config(tmp_path, "etcd://127.0.0.1:1/l", "one", tmp_path / "data", JOBS))
    instance = Instance(config, make_context(lambda: NOW))
    state = schedule.take_over(ServiceState(), "one", "", 1)
    for number in range(2):
        state = schedule.start(state, config.timings["scrutinize"], 1)
        state = schedule.end(state, "scrutinize", 1, 3, "found", f"scrutinize/{number}")
        write_findings(config.data / f"scrutinize/{number}" / OUT, range(30 * number, 30 * number + 30))
    instance._take(state)
    page = make_page(instance)
    assert page.count("ENTRIES_") == 50
    assert {f"ledger {number}<" in page for number in (*range(20), *range(30, 60))} == {True}
    assert "ledger 20<" not in page


def test_a_finding_has_its_evidence_and_a_command_and_notes_are_summed_up(tmp_path: Path) -> None:
    """What was not judged is there with its reason: findings that are not there say nothing of it."""
    uri = "etcd://127.0.0.1:1/l"
    config = read_config(write_config(tmp_path, uri, "one", tmp_path / "data", JOBS))
    instance = Instance(config, make_context(lambda: NOW))
    state = schedule.take_over(ServiceState(), "one", "", 1)
    for number, (ledgers, severity) in enumerate(((range(2), "critical"), (range(10, 90), "info"))):
        state = schedule.start(state, config.timings["scrutinize"], 1)
        state = schedule.end(state, "scrutinize", 1, 3, "found", f"scrutinize/{number}")
        folder = config.data / f"scrutinize/{number}" / OUT
        write_findings(folder, ledgers, severity=severity, undecided={"changed": 6}, skipped={"marked": 3})
    instance._take(state)
    page = make_page(instance).replace("<wbr>", "")
    assert page.count("ENTRIES_MISSING") == 3, "eighty notes are one line"
    assert "ENTRIES_MISSING</span> 80" in page
    assert "bookies entries: 7 to 9" in page
    assert f"bkmeta explain 1 --metadata {uri}" in page
    assert "changed: 12" in page
    assert "marked: 6" in page
