"""`conf write`: the examples of configuration that come with the program."""

from pathlib import Path
from typing import Final

from reconcile.errors import ReconcileError
from recovery.errors import InputError
from recovery.out_folder import write_whole

_ROOT: Final = Path(__file__).resolve().parents[3]
_PLACES: Final = (_ROOT / "bkmeta/conf", _ROOT / "conf")
"""Of an installed wheel, of a checkout."""


def write_conf(out: Path) -> list[Path]:
    """Copy the examples into a folder.

    Args:
        out: the folder; it is made. A file of it that is there as it would be written is left.

    Returns:
        The files, by their names in the folder.

    Raises:
        InputError: a file of such a name is there with other bytes, or the folder cannot be written.
        DatasetError: the disk is full, or the place refuses.
        ReconcileError: this installation has no examples.
    """
    source = next((place for place in _PLACES if place.is_dir()), None)
    if source is None:
        raise ReconcileError(
            f"{_PLACES[0]}: is not there; it comes with the wheel: bkmeta doctor says what else is missing"
        )
    names = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
    try:
        for name in names:
            if (out / name).exists() and (out / name).read_bytes() != (source / name).read_bytes():
                raise InputError(
                    str(out / name), "is there, and is another file", "name another folder, or move it away"
                )
        for name in names:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            if not (out / name).exists():
                with write_whole(out / name, secret=False) as file:
                    file.sink.write((source / name).read_bytes())
    except OSError as error:
        raise InputError(
            str(error.filename or out), f"cannot be written ({error.strerror})", "name a folder that you can write"
        ) from error
    return names
