"""What an instance says of the store that it saw last."""

from pathlib import Path

import pytest

from reconcile.service.config import read_config
from reconcile.service.runs.leader import Instance
from reconcile.service.runs.schedule import ServiceState
from tests.support.service import make_context, write_config


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    """An instance that was not started."""
    return Instance(read_config(write_config(tmp_path, "etcd://127.0.0.1:1/l", "one", tmp_path)), make_context())


def test_who_never_saw_the_store_says_so(instance: Instance) -> None:
    """Until it is first read."""
    assert (instance.seen.is_recent, instance.seen.problem) == (False, "the store was not reached yet")


def test_a_store_that_neither_answers_nor_fails_is_said(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that waits has no error yet: after half a minute that is why the service is not ready."""
    now_s = 1000.0
    monkeypatch.setattr("reconcile.service.runs.leader.time.monotonic", lambda: now_s)
    instance._take(ServiceState())
    assert (instance.seen.is_recent, instance.seen.problem) == (True, "")
    now_s += 29.9
    assert (instance.seen.is_recent, instance.seen.problem) == (True, "")
    now_s += 0.1
    assert (instance.seen.is_recent, instance.seen.problem) == (False, "the store has not answered for 30 s")
    instance._say("connection refused")
    assert (instance.seen.is_recent, instance.seen.problem) == (False, "connection refused")
    instance._take(ServiceState())
    assert (instance.seen.is_recent, instance.seen.problem) == (True, "")
