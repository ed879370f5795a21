"""A service of a real cluster, with the real program: no alarm while it is healthy; bookies and Spark that go away."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from reconcile.service.config import read_config
from reconcile.service.server import RunningService, start_service
from tests.support.cluster import Cluster
from tests.support.paths import ROOT
from tests.support.processes import find_children
from tests.support.scrutinized_cluster import ScrutinizedCluster
from tests.support.service import REAL_PROGRAM, ask, fetch, make_context, write_config
from tests.support.spark_cluster import SparkCluster, spark_cluster
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.real, pytest.mark.spark, pytest.mark.timeout(600)]

JOBS: Final = (
    '[jobs.scrutinize]\nevery = "300d"\nretry = "1s"\narguments = ["--wire", "--recheck-after", "1s"]\n'
    '[jobs.capture]\nevery = "300d"\n'
)


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster, its service, and the Spark cluster that this has."""

    there: ScrutinizedCluster
    running: RunningService
    spark: SparkCluster

    def read_job(self, name: str) -> Any:
        """Return what is known of a job."""
        [status] = ask(self.running.grpc_port, "get-status")
        return next(job for job in status.jobs if job.name == name)

    def await_end(self, name: str, beyond: int) -> Any:
        """Wait until a run of a higher number has ended, and none is under way; return it."""

        def ended() -> bool:
            job = self.read_job(name)
            return bool(job.last.number > beyond and not job.HasField("running") and not job.asked)

        until(ended, f"a run of {name} ended")
        return self.read_job(name).last

    def scrutinize(self) -> Any:
        """Have it look now, and return the run."""
        before = self.read_job("scrutinize").last.number
        ask(self.running.grpc_port, "run-now", job="scrutinize")
        return self.await_end("scrutinize", before)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three bookies that have all that their records ask for."""
    folder = tmp_path_factory.mktemp("service")
    with (
        Cluster(folder / "cluster") as cluster,
        pytest.MonkeyPatch.context() as patch,
        spark_cluster(folder / "spark") as spark,
    ):
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        there = ScrutinizedCluster(cluster, bookies=3)
        for _ in range(4):
            there.write((3, 2, 2), 10)
        path = write_config(folder, there.uri, "one", folder / "data", JOBS, session="30s")
        path.write_text(f'spark_master = "{spark.master}"\n{path.read_text()}')
        with start_service(read_config(path), make_context(), REAL_PROGRAM) as running:
            until(lambda: running.instance.leads, "it leads")
            made = Site(there, running, spark)
            made.await_end("scrutinize", 0)
            made.await_end("capture", 0)
            yield made


def test_a_healthy_cluster_gives_no_alarm(site: Site) -> None:
    """Neither as a finding, nor as a figure, nor on the page."""
    run = site.read_job("scrutinize").last
    assert run.exit_code == 0, (run.verdict, (site.running.instance.config.data / run.folder / "log.txt").read_text())
    assert site.read_job("capture").last.exit_code == 0
    assert ask(site.running.grpc_port, "list-findings") == []
    assert "bookkeeper_metadata_scrutiny_failing 0" in fetch(site.running.health_port, "/metrics")[1]
    assert "bookies and metadata agree" in fetch(site.running.http_port, "/")[1]
    code, text = fetch(site.running.http_port, "/v1/explain-ledger?ledger_id=0")
    assert (code, json.loads(text)["exit_code"]) == (200, 0)
    code, text = fetch(site.running.http_port, "/v1/check-impact?bookies=bk0:3181&target=read-only")
    assert (code, json.loads(text)["exit_code"]) == (200, 3), "of three bookies none can be spared"


def test_bookies_that_are_gone_are_said_and_nothing_is_called_lost(site: Site) -> None:
    """The run comes to its verdict, and the next one, when they are back, is clean."""
    for bookie in site.there.bookies[:2]:
        site.there.cluster("bookie_stop", n=bookie.n)
    gone = site.scrutinize()
    assert gone.exit_code in (3, 4), gone.verdict
    assert site.running.instance.leads
    for bookie in site.there.bookies[:2]:
        site.there.cluster.start(bookie)
    assert site.scrutinize().exit_code == 0


def test_a_scrutiny_runs_on_a_cluster_of_spark(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the configuration names it: executors are launched there, and what they find is what is found here."""
    before = site.scrutinize()
    applications, executors = site.spark.count_applications(), site.spark.count_executors()
    monkeypatch.setenv("BKMETA_FAKE", str(tmp_path))
    (tmp_path / "spark").touch()
    run = site.scrutinize()
    log = site.running.instance.config.data / run.folder / "log.txt"
    assert (run.exit_code, run.verdict) == (0, before.verdict), log.read_text()
    assert site.spark.count_applications() == applications + 1
    assert site.spark.count_executors() > executors


def test_a_scrutiny_whose_jvm_is_killed_is_said_to_have_failed_and_repeated(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By itself, until it comes to a verdict; the service, its lead and its record stay."""
    before = site.read_job("scrutinize").last.number
    others = set(find_children(os.getpid(), name="java", deep=True))
    monkeypatch.setenv("BKMETA_FAKE", str(tmp_path))
    (tmp_path / "spark").touch()
    ask(site.running.grpc_port, "run-now", job="scrutinize")
    until(lambda: _kill_spark(others), "Spark's JVM is killed")
    until(lambda: site.read_job("scrutinize").last.number == before + 1, "the run ended")
    failed = site.read_job("scrutinize")
    assert failed.last.exit_code not in (0, 3, 4), failed.last.verdict
    assert failed.last.verdict
    (tmp_path / "spark").unlink()
    until(lambda: site.read_job("scrutinize").failures == 0, "it was repeated")
    assert site.read_job("scrutinize").last.exit_code == 0
    assert site.running.instance.seen.state.epoch == 1


def _kill_spark(others: set[int]) -> bool:
    """Kill the driver's Java; not the one that only makes its command line, nor a late executor of the run before."""
    makers = find_children(os.getpid(), word="org.apache.spark.launcher.Main", deep=True)
    drivers = find_children(os.getpid(), word="org.apache.spark.deploy.SparkSubmit", deep=True)
    killed = set(drivers) - set(makers) - others
    for pid in killed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(killed)
