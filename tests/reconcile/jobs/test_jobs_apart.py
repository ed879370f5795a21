"""Jobs are for every caller: no environment, no option of the command line in a message, whatever they say is typed."""

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconcile.errors import GuardRefusedError
from reconcile.estimates import EstimatedStep
from reconcile.jobs.capture import CaptureRequest, capture
from reconcile.jobs.changes.freeze import require_access_control
from reconcile.jobs.context import Context
from reconcile.stores import KnownAccess
from tests.support.command import ROOT

JOBS = sorted((ROOT / "reconcile" / "jobs").rglob("*.py"))
OPTION = re.compile(r"(?<!\w)--[a-z]")


def texts(path: Path) -> Iterator[str]:
    """Every text of a module that is no docstring."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = {id(node.body[0].value) for node in ast.walk(tree)
            if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_reads_no_environment_and_names_no_option(path: Path) -> None:
    """What the environment says, and how a command is typed, only the command line knows."""
    assert not re.search(r"\bos\.environ|\bgetenv", path.read_text())
    assert [text for text in texts(path) if OPTION.search(text)] == []


class Recorder:
    """A reporter that keeps what it is told, as a service would."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.counts: list[int] = []

    @contextmanager
    def progress(self, title: str, unit: str) -> Iterator[Callable[..., None]]:
        """Keep what is done."""
        del unit
        self.titles.append(title)
        yield lambda done, _total, _stage="": self.counts.append(done)

    def expect(self, step: EstimatedStep, things: int) -> None:
        """Keep nothing."""


def test_a_capture_is_a_function_with_a_typed_result(tmp_path: Path) -> None:
    """A program that is no command captures a store, hears how far it is, and gets a record."""
    recorder = Recorder()
    context = Context(KnownAccess(), recorder, lambda: datetime.now(UTC))
    uri = f"zkfiles://{ROOT}/tests/data/zookeeper/v39-plain?root=/app&layout=flat"
    summary = capture(CaptureRequest(uri=uri, out=tmp_path / "catalog"), context)
    assert summary.complete
    assert summary.ledgers == recorder.counts[-1]
    assert summary.nodes > 0
    assert recorder.titles == ["connecting to the store", "reading the store"]


def test_a_store_without_rights_is_refused_by_the_job_itself() -> None:
    """The guard stands in the job, for anybody who calls it."""
    with pytest.raises(GuardRefusedError, match="no rights"):
        require_access_control("etcd://h:2379/ledgers")
