"""Files of ledgers, one a line, as `--from` takes them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from recovery.errors import DatasetError
from recovery.out_folder import write_whole
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    import pyarrow as pa

    from recovery.model.ids import LedgerId

_BATCH: Final = 100_000
"""Lines that are written at a time."""


def write_ids(path: DatasetPlace, ledgers: "Iterable[LedgerId]") -> None:
    """Write ledgers into a file, ascending, each once.

    Raises:
        DatasetError: the disk is full, or the place refuses.
    """
    with write_whole(path, secret=False) as file:
        file.sink.writelines(f"{ledger}\n".encode() for ledger in sorted(set(ledgers)))


def write_keys(path: DatasetPlace, keys: "Sequence[pa.Table]") -> None:
    """Write ledgers that are in columns, `scope` and `ledger`, into a file, ascending, each once.

    Raises:
        DatasetError: the disk is full, or the place refuses.
    """
    # Who writes a few ids loads no Arrow.
    import numpy as np  # noqa: PLC0415 - see above
    import pyarrow as pa  # noqa: PLC0415 - see above
    import pyarrow.compute as pc  # noqa: PLC0415 - see above

    scope, ledger = (
        np.concatenate([np.zeros(0, np.int64), *(rows[name].to_numpy() for rows in keys)]).view(np.uint64)
        for name in ("scope", "ledger")
    )
    order = np.lexsort((ledger, scope))
    scope, ledger = scope[order], ledger[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (scope[1:] != scope[:-1]) | (ledger[1:] != ledger[:-1])
    scope, ledger = scope[new], ledger[new]
    with write_whole(path, secret=False) as file:
        for start in range(0, len(ledger), _BATCH):
            halves = [pa.array(half[start : start + _BATCH]) for half in (scope, ledger)]
            texts = [pc.cast(half, pa.string()) for half in halves]
            pairs = pc.binary_join_element_wise(*texts, ":")
            named = pc.if_else(pc.equal(halves[0], pa.scalar(0, pa.uint64())), texts[1], pairs)
            file.sink.write("\n".join([*named.to_pylist(), ""]).encode())


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
