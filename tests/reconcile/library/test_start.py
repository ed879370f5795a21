"""The program's start says what is wrong with the installed files, whatever they raise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

START = Path(__file__).parents[3] / "reconcile/library/start.py"


@pytest.mark.parametrize(
    ("text", "error"),
    [("print 'x'", "SyntaxError: "), ("raise KeyError('x')", "KeyError: 'x'"), ("", "ModuleNotFoundError: ")],
)
def test_a_file_that_is_not_ours_is_named_whatever_it_raises(tmp_path: Path, text: str, error: str) -> None:
    """Another package's file in place of ours ends with what to do, and not with a traceback."""
    for name, content in (
        ("bkmeta/__init__.py", ""),
        ("bkmeta/__main__.py", START.read_text()),
        ("reconcile/__init__.py", text),
        ("bkmeta-0.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: bkmeta\nVersion: 0.1\n"),
        ("bkmeta-0.1.dist-info/RECORD", "reconcile/__init__.py,sha256=AAAA,1\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    done = subprocess.run(
        [sys.executable, "-m", "bkmeta", "collect", "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    what, remedy, shown = done.stderr.splitlines()
    assert what == (
        f"bkmeta is not as it was installed: 1 of its files in {tmp_path} are changed or gone, "
        "the first is reconcile/__init__.py"
    )
    assert "`uv tool uninstall bkmeta`, then `uv tool install bkmeta`" in remedy
    assert shown.startswith(f"  it showed as {error}")
