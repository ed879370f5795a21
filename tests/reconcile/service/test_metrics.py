"""Figures of the service that need no service."""

from pathlib import Path

import pytest

from reconcile.service.api.metrics import read_results
from tests.support.service import write_findings


def test_a_run_of_another_version_is_said_once_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What it lacks, or has besides, is in the log; a folder that is on another instance is no news."""
    ours, older, newer, elsewhere = (tmp_path / name for name in ("ours", "older", "newer", "elsewhere"))
    write_findings(ours, [5])
    write_findings(older, [5], without="listed")
    write_findings(newer, [5], mended=1)
    for _ in range(2):
        assert [result.listed for result in read_results([ours, older, newer, elsewhere])] == [11]
    assert len(caplog.messages) == 2
    for path, field, line in zip((older, newer), ("listed", "mended"), caplog.messages, strict=True):
        assert line.startswith(f"{path}: ")
        assert f"'{field}'" in line
