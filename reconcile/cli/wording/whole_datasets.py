"""What is said about the dataset that a command writes, where the command is stopped: whether it is whole."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from recovery.out_folder import MARK
from recovery.place import DatasetPlace

_MANIFEST = "manifest.json"
"""`recovery.dataset.MANIFEST`, without the libraries that it needs."""


def tell_if_whole(out: DatasetPlace, kind: str) -> None:
    """Have errors that end the running command say whether what it writes is whole.

    Args:
        out: the folder that it writes.
        kind: inventory, catalog or plan.
    """
    click.get_current_context().with_resource(_add_note(out, kind))


@contextmanager
def _add_note(out: DatasetPlace, kind: str) -> Iterator[None]:
    # A folder that is a dataset already is refused: it is not what this command made.
    is_earlier = _is_there(out, _MANIFEST)
    try:
        yield
    except BaseException as error:
        if not is_earlier and _is_there(out, _MANIFEST):
            error.add_note(f"the {kind} {out} is whole and can be used; perhaps only its page is missing")
        elif _is_there(out, MARK):
            error.add_note(f"{out} is not {'an' if kind[0] in 'aeiou' else 'a'} {kind} yet: run the same command again")
        raise


def _is_there(out: DatasetPlace, name: str) -> bool:
    # Where a store does not answer, what writes there says so.
    with suppress(OSError):
        return (out / name).exists()
    return False
