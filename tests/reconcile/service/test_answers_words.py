"""What requests become: each part of one is in the command that answers it."""

import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reconcile.service._pb import service_pb2 as pb
from reconcile.service.api.answers import Api
from reconcile.service.api.methods import METHODS, ApiError, Why
from reconcile.service.config import read_config
from reconcile.service.runs.children import Children, Finished
from reconcile.service.runs.leader import Instance
from reconcile.service.runs.schedule import EndedRun, Gate, JobState, ServiceState
from tests.support.service import make_context, write_config
from tests.support.waiting import until


class Notes(Children):
    """In place of processes: notes the command, and what is in the files that it names."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.files: dict[str, bytes] = {}

    def run(self, words: Sequence[str], folder: Path, *_: Any, **__: Any) -> Finished:
        """Answer nothing."""
        self.words = list(words)
        self.files = {str(path): path.read_bytes() for path in folder.iterdir() if path.is_file()}
        return Finished(0, {"verdict": "noted", "ledgers": []}, "noted")

    def list_values(self, option: str) -> list[str]:
        """Return what follows an option, each time that it is there."""
        return [self.words[n + 1] for n, word in enumerate(self.words) if word == option]


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    """An instance that was not started, with a scrutiny."""
    config = read_config(write_config(tmp_path, "etcd://127.0.0.1:1/l", "one", tmp_path / "data"))
    instance = Instance(config, make_context())
    ended = EndedRun(1, "one", 1, 1, 1, "", 2, 3, "found", "scrutinize/run")
    instance._take(ServiceState(jobs={"scrutinize": JobState(last=ended, latest={1: ended})}))
    (config.data / "scrutinize/run/out").mkdir(parents=True)
    (config.data / "scrutinize/run/out/manifest.json").write_text("{}")
    return instance


def ask(instance: Instance, monkeypatch: pytest.MonkeyPatch, path: str, request: Any) -> Notes:
    """Ask the leader, and return what it would have run."""
    notes = Notes()
    monkeypatch.setattr(Instance, "leads", True)
    monkeypatch.setattr(Instance, "children", notes)
    api = Api(instance, {})
    monkeypatch.setattr(api, "_reads", notes)
    answer = api.answer(next(method for method in METHODS if method.path == path), request, "ops")
    list(answer) if path == "list-deletes" else answer
    return notes


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("explain-ledger", pb.LedgerId(ledger_id=3)),
        ("verify-deletes", pb.VerifyRequest(ledgers=[pb.LedgerId(ledger_id=3)])),
        ("check-impact", pb.ImpactRequest(bookies=["bk1:3181"], target="down")),
    ],
)
def test_what_the_last_scrutiny_saw_is_evidence(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, path: str, asked: Any
) -> None:
    """Of each command that judges copies."""
    notes = ask(instance, monkeypatch, path, asked)
    assert notes.list_values("--evidence") == [str(instance.config.data / "scrutinize/run/out")]


@pytest.mark.parametrize(("scope", "word"), [(None, "0"), (5, "5"), (-1, str((1 << 64) - 1))])
def test_a_scope_is_passed_on(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, scope: int | None, word: str
) -> None:
    """Missing means 0; where ledgers are named, each names its own."""
    for path in ("get-deletes", "list-deletes"):
        notes = ask(instance, monkeypatch, path, pb.Ledgers(ledger_scope_id=scope))
        assert f"--ledger-scope-id={word}" in notes.words
        named = pb.Ledgers(ledger_scope_id=scope, ledgers=[pb.LedgerId(ledger_id=3, ledger_scope_id=7)])
        notes = ask(instance, monkeypatch, path, named)
        assert not any(each.startswith("--ledger-scope-id") for each in notes.words)
        assert "7:3" in notes.words


def test_approvals_of_a_purge_are_passed_on(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte, beside the certificate."""
    asked = pb.PurgeRequest(certificate=b"of ledgers", confirm_hash="ab", approvals=[b"one", b"two"])
    notes = ask(instance, monkeypatch, "purge-deletes", asked)
    assert [notes.files[path] for path in notes.list_values("--approval")] == [b"one", b"two"]
    assert [notes.files[path] for path in notes.list_values("--certificate")] == [b"of ledgers"]
    assert "--confirm=ab" in notes.words
    none = ask(instance, monkeypatch, "purge-deletes", pb.PurgeRequest(certificate=b"of ledgers", confirm_hash="ab"))
    assert none.list_values("--approval") == []


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (ServiceState(), "no instance leads yet: ask again in some seconds"),
        (
            ServiceState(epoch=1, leader="two", address="host2:1"),
            "two leads, at host2:1: ask there, or again in some seconds if it does not answer",
        ),
        (
            ServiceState(epoch=1, leader="one", address="host1:1"),
            "one does not lead any longer, and no other instance does yet: ask again in some seconds",
        ),
    ],
)
def test_who_does_not_lead_says_whom_to_ask(instance: Instance, state: ServiceState, says: str) -> None:
    """Or that no instance leads: an instance that lost its lead does not name itself."""
    instance._take(state)
    with pytest.raises(ApiError) as refused:
        Api(instance, {}).answer(
            next(method for method in METHODS if method.path == "verify-deletes"), pb.VerifyRequest(), "ops"
        )
    assert (refused.value.why, refused.value.text) == (Why.NOT_LEADER, says)


def _has(items: list[str], count: int) -> bool:
    return len(items) == count


def test_a_maintenance_is_checked_as_soon_as_bookies_are_others(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only when its interval is over, which is minutes."""
    checked: list[str] = []
    monkeypatch.setattr(instance, "check_gate", lambda gate, _children: checked.append(gate.id))
    gate = Gate("reboot", ("bk1:3181",), (), "down", "ops", instance.now_ms())
    instance._take(ServiceState(gates={"reboot": gate}))
    instance._epoch = 1
    checking = threading.Thread(target=instance._check_gates, args=(1, Children()), daemon=True)
    checking.start()
    until(lambda: len(checked) == 1, "the first check")
    for number in (2, 3):
        instance._bookies._changed()
        until(partial(_has, checked, number), "a check of what the bookies are now")
    instance._epoch = None
    with instance._wake:
        instance._wake.notify_all()
    checking.join()
