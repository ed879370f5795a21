"""Disks of a process that fail when a test says so: calls on files below a folder end with EIO."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

_SOURCE: Final = Path(__file__).with_suffix(".c")


class DiskFaults:
    """Faults of a process that was started with `environment`.

    Args:
        folder: for the library, which a C compiler makes, and the file that says what fails.
    """

    def __init__(self, folder: Path) -> None:
        library = folder / "disk_faults.so"
        self._control = folder / "disk_faults"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, _SOURCE, "-ldl"], check=True)
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "BKMETA_DISK_FAULTS": str(self._control),
        }

    def fail(self, what: Literal["read", "write"], folder: Path) -> None:
        """Let each read, or each write, of files below a folder fail from now on; of one folder at a time."""
        fresh = self._control.with_suffix(".new")
        fresh.write_text(f"{what} {folder.resolve()}/\n")
        fresh.replace(self._control)

    def end(self) -> None:
        """Let nothing fail any more."""
        self._control.unlink(missing_ok=True)
