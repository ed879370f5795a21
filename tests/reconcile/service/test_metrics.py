"""Figures of the service that need no service."""

from pathlib import Path

import pytest

from reconcile.service.api.metrics import format_service, read_results
from reconcile.service.config import read_config
from reconcile.service.runs import schedule
from reconcile.service.runs.folders import OUT
from reconcile.service.runs.leader import Instance
from reconcile.service.runs.schedule import ServiceState
from tests.support.service import make_context, write_config, write_findings


def test_a_run_whose_sums_do_not_add_up_is_in_the_figures(tmp_path: Path) -> None:
    """Though it came to no verdict, and what is known of the ledgers is what the run before found."""
    jobs = '[jobs.scrutinize]\nevery = "1h"\n'
    config = read_config(write_config(tmp_path, "etcd://127.0.0.1:1/l", "one", tmp_path / "data", jobs))
    instance = Instance(config, make_context())
    state = schedule.take_over(ServiceState(), "one", "", 1)
    for number, (code, listed, adds_up) in enumerate([(3, 11, 1), (1, 99, 0), (3, 11, 1)]):
        state = schedule.start(state, config.timings["scrutinize"], 1)
        state = schedule.end(state, "scrutinize", 1, code, "said", f"scrutinize/{number}")
        write_findings(config.data / f"scrutinize/{number}" / OUT, [4], listed=listed)
        instance._take(state)
        figures = format_service(instance).splitlines()
        assert f"bookkeeper_metadata_scrutiny_adds_up {adds_up}.0" in figures
        assert "bookkeeper_metadata_scrutiny_failing 1.0" in figures


def test_a_run_of_another_version_is_said_once_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What it lacks is in the log; a folder that is on another instance is no news."""
    ours, older, elsewhere = (tmp_path / name for name in ("ours", "older", "elsewhere"))
    write_findings(ours, [5])
    write_findings(older, [5], without="listed")
    for _ in range(2):
        assert [result.listed for result in read_results([ours, older, elsewhere])] == [11]
    [line] = caplog.messages
    assert line.startswith(f"{older}: ")
    assert "`listed`" in line
