"""Files that operators write and name: read whole, or an error that says why not."""

import os
from pathlib import Path

from recovery.errors import InputError


def read_operator_file(path: Path) -> bytes:
    """Return what a file holds.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "name a file that you can read") from error


def read_operator_text(path: Path, form: str) -> str:
    """Return the text of a file; its lines end as those of any system do.

    Args:
        path: of the file.
        form: what to write there, should it be no text.

    Raises:
        InputError: it cannot be read, or is not a text.
    """
    try:
        text = read_operator_file(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"is not text: no UTF-8 at byte {error.start}", form) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def find_cache_folder() -> Path:
    """Return the user's folder of kept captures: below `$XDG_CACHE_HOME`, else below `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "bkmeta" / "impact"
