"""A small disk of its own, that can be full. Mounting it needs root."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

_BLOCK: Final = b"\0" * (1 << 16)


@cache
def may_mount() -> bool:
    """Whether a disk can be mounted here, by who runs this; not in every container of root's."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with mounted(Path(folder) / "disk", mib=1):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


@contextmanager
def mounted(folder: Path, *, mib: int) -> Iterator[None]:
    """Have an empty disk of so many MiB at a folder."""
    folder.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=700", "tmpfs", str(folder)], check=True, capture_output=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(file: Path) -> None:
    """Write a file until there is no space any more."""
    with suppress(OSError), file.open("wb", buffering=0) as opened:
        while True:
            opened.write(_BLOCK)
