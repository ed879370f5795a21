"""The examples of configuration, given out."""

from pathlib import Path

import pytest

from tests.support.command import run


def test_an_installation_without_examples_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its wheel was not installed whole: nothing is made, and the message names what is missing."""
    monkeypatch.setattr("reconcile.jobs.diagnose.conf_files._PLACES", (tmp_path / "gone",))
    done = run(capsys, "conf", "write", str(tmp_path / "out"))
    assert done.code == 1
    assert f"{tmp_path / 'gone'}: is not there" in done.err
    assert not (tmp_path / "out").exists()
