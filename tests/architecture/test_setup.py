"""What the scripts set up for themselves stays out of what they run."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_PYTHON = """#!/bin/bash
# Stands in for the machine's Python: makes an environment with a Python of its own, and with uv once pip asks for it.
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/python3" ;;
  *"pip install"*) printf '#!/bin/bash\\n' >"${0%/*}/uv" && chmod +x "${0%/*}/uv" ;;
esac
"""


def _command_paths(folder: Path) -> dict[str, Path]:
    """Set up in a folder, on a PATH that has no uv, and return where uv and python3 are then found."""
    machine = folder / "machine"
    machine.mkdir(exist_ok=True)
    python = machine / "python3"
    python.write_text(_PYTHON)
    python.chmod(0o755)
    for tool in ("bash", "cp", "ln", "mkdir", "rm", "chmod"):
        program = shutil.which(tool)
        assert program is not None
        (machine / tool).unlink(missing_ok=True)
        (machine / tool).symlink_to(program)
    script = f". {ROOT}/scripts/_setup.sh; sync_python; command -v uv python3"
    done = subprocess.run(
        ["bash", "-euc", script], cwd=folder, env={"PATH": str(machine)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    uv, python3 = map(Path, done.stdout.split())
    return {"uv": uv, "python3": python3}


def test_a_uv_of_our_own_brings_no_python_along(tmp_path: Path) -> None:
    """On a machine without uv the Python on PATH stays the machine's, when uv is installed and ever after."""
    for _ in range(2):
        paths = _command_paths(tmp_path)
        assert paths["uv"].resolve().is_relative_to(tmp_path / ".cache")
        assert paths["python3"] == tmp_path / "machine" / "python3"
