"""Files of ledgers, one a line, as `--from` takes them."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.errors import DatasetError
from recovery.out_folder import write_whole
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from recovery.model.ids import LedgerId


def write_ids(path: DatasetPlace, ledgers: "Iterable[LedgerId]") -> None:
    """Write ledgers into a file, ascending, each once.

    Raises:
        DatasetError: the disk is full, or the place refuses.
    """
    with write_whole(path, secret=False) as file:
        file.sink.writelines(f"{ledger}\n".encode() for ledger in sorted(set(ledgers)))


def try_write_ids(path: Path, ledgers: "Iterable[LedgerId]") -> tuple[Path | None, str]:
    """Write ledgers into a file beside a result that already stands: a failure is returned, not raised.

    A file of an earlier run is replaced; where there are no ledgers, it is removed.

    Returns:
        The file, None if there is none; and why it could not be written, empty if it could.
    """
    listed = tuple(ledgers)
    try:
        if listed:
            write_ids(path, listed)
            return path, ""
        path.unlink(missing_ok=True)
    except (DatasetError, OSError) as error:
        return None, str(error)
    return None, ""
