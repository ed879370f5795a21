"""A maintenance is shown as safe only while somebody looks."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconcile.service._pb import service_pb2 as pb
from reconcile.service.api.answers import Api
from reconcile.service.api.methods import METHODS
from reconcile.service.api.metrics import format_service
from reconcile.service.api.page import make_page
from reconcile.service.config import read_config
from reconcile.service.runs import schedule
from reconcile.service.runs.checks import keep_check, read_check, remove_others
from reconcile.service.runs.leader import Instance
from reconcile.service.runs.schedule import EndedRun, Gate, JobState, ServiceState
from tests.support.service import make_context, write_config

NOW = datetime(2026, 3, 4, tzinfo=UTC)
MORE = '[gates]\ncheck_every = "1m"\n[requests]\ndeadline = "3m"\n'


@pytest.mark.parametrize(
    ("age", "state"),
    [
        (timedelta(minutes=5), "SAFE"),
        (timedelta(minutes=5, seconds=1), "BLOCKED_UNTIL_SAFE"),
        (timedelta(days=365), "BLOCKED_UNTIL_SAFE"),
        (timedelta(minutes=-6), "BLOCKED_UNTIL_SAFE"),  # of a time to come: the clock was set
    ],
)
def test_a_check_that_is_old_is_worth_nothing(tmp_path: Path, age: timedelta, state: str) -> None:
    """Two intervals and a deadline are allowed; then it is blocked, and says why: in answers, figures and the page."""
    config = read_config(write_config(tmp_path, "etcd://127.0.0.1:1/l", "one", tmp_path / "data", more=MORE))
    instance = Instance(config, make_context(lambda: NOW))
    checked = round((NOW - age).timestamp() * 1000)
    opened = schedule.open_gate(ServiceState(), Gate("reboot", ("bk1:3181",), (), "down", "ops", checked))
    instance._take(schedule.take_check(opened, "reboot", is_safe=True, verdict="nothing is lost", now_ms=checked))
    method = next(method for method in METHODS if method.name == "GetMaintenance")
    shown = Api(instance, {}).answer(method, pb.MaintenanceId(id="reboot"), "")
    assert (shown.state, shown.checked_ms) == (state, checked)
    assert ("the last check was long ago" in shown.verdict) == (state != "SAFE")
    assert "nothing is lost" in shown.verdict
    status = next(method for method in METHODS if method.name == "GetStatus")
    assert Api(instance, {}).answer(status, pb.StatusRequest(), "").maintenances[0].state == state
    assert f'bookkeeper_metadata_service_maintenances{{state="{state}"}} 1' in format_service(instance)
    assert ("the last check was long ago" in make_page(instance)) == (state != "SAFE")


def test_a_check_that_the_record_does_not_speak_of_is_not_shown(tmp_path: Path) -> None:
    """Neither one of before, nor a damaged one; what is closed is removed."""
    gate = Gate("reboot", ("bk1:3181",), (), "down", "ops", 1, checked_ms=5)
    assert read_check(tmp_path, gate) is None
    keep_check(tmp_path, "reboot", 4, {"verdict": "UNSAFE"})
    assert read_check(tmp_path, gate) is None
    keep_check(tmp_path, "reboot", 5, {"verdict": "SAFE"})
    assert read_check(tmp_path, gate) == {"verdict": "SAFE"}
    keep_check(tmp_path, "other", 5, {})
    remove_others(tmp_path, {"reboot"})
    [path] = (tmp_path / "maintenances").iterdir()
    assert path.stat().st_mode & 0o077 == 0 or path.parent.stat().st_mode & 0o077 == 0, "nobody else reads it"
    path.write_text("{")
    assert read_check(tmp_path, gate) is None


def test_a_check_goes_by_the_last_scrutinies_that_are_here(tmp_path: Path) -> None:
    """One of each share; a run that another instance made in a folder of its own cannot be read."""
    config = read_config(write_config(tmp_path, "etcd://127.0.0.1:1/l", "one", tmp_path / "data", more=MORE))
    instance = Instance(config, make_context(lambda: NOW))
    runs = {
        share: EndedRun(share, "one", 1, share, 2, "", 2, 3, "found", f"scrutinize/{name}")
        for share, name in ((1, "here"), (2, "elsewhere"))
    }
    instance._take(ServiceState(jobs={"scrutinize": JobState(latest=runs)}))
    here = config.data / "scrutinize/here/out"
    here.mkdir(parents=True)
    (here / "manifest.json").write_text("{}")
    words = instance.build_argv_impact(["bk1:3181"], [], "down")
    assert [words[n + 1] for n, word in enumerate(words) if word == "--evidence"] == [str(here)]
    assert "--max-age=600s" in words
