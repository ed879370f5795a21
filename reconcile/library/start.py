"""What the wheel places as `bkmeta/__main__.py`: where the program begins, in a package whose name is ours alone.

Others install files into folders named as ours (`reconcile` and `qontract-reconcile` of PyPI into `reconcile/`),
and pip writes them over ours without a word. So nothing of ours is loaded here before its failure can be explained.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import FileHash

_DISTRIBUTION: Final = "bkmeta"
_PACKAGES: Final = ("backends", "reconcile", "recovery")

_run: Callable[[], None] | None = None
_fault: Exception | None = None
try:
    # Here, not in main(): processes that the program starts load this module, and need what the import does.
    from reconcile.cli.__main__ import main as _run
except Exception as error:  # noqa: BLE001 - files of another package may raise anything
    _fault = error


def main() -> None:
    """Run the program; say so where files of it are another package's."""
    if sys.argv[1:2] == ["doctor"] and (said := describe_clash()):
        _end(said, 3)
    try:
        if _run is None:
            raise _fault or ImportError(_DISTRIBUTION)  # noqa: TRY301 - explained below
        _run()
    except Exception as error:
        # The program explains its own errors; what comes here is of files that are not ours.
        if said := describe_clash():
            _end(f"{said}\n  it showed as {type(error).__name__}: {error}", 1)
        raise


def describe_clash() -> str:
    """Return what is wrong with the installed files; empty: nothing, or none are installed (a checkout, one file)."""
    from importlib import metadata

    damaged = _list_damaged()
    others = sorted(
        {owner for package in _PACKAGES for owner in metadata.packages_distributions().get(package, ())}
        - {_DISTRIBUTION}
    )
    if not damaged and not others:
        return ""
    folder = Path(__file__).parent.parent
    facts = []
    if damaged:
        facts.append(f"{len(damaged)} of its files in {folder} are changed or gone, the first is {damaged[0]}")
    if others:
        facts.append(f"{', '.join(others)} installs files into folders of the same names")
    if not others:
        return (
            f"bkmeta is not as it was installed: {facts[0]}\n"
            "  install it again: `uv tool uninstall bkmeta`, then `uv tool install bkmeta`; likewise by pipx or pip"
        )
    return (
        f"bkmeta shares its environment with what breaks it: {'; '.join(facts)}\n"
        "  give it an environment of its own: `uv tool install bkmeta`, `pipx install bkmeta`, or `python3 -m venv`"
    )


def _list_damaged() -> list[str]:
    from importlib import metadata

    try:
        files = metadata.distribution(_DISTRIBUTION).files or []
    except metadata.PackageNotFoundError:
        return []
    ours = [file for file in files if file.parts[0] in _PACKAGES and file.hash is not None]
    return [str(file) for file in ours if _differs(Path(str(file.locate())), file.hash)]


def _differs(path: Path, expected: "FileHash | None") -> bool:
    import base64
    import hashlib

    if expected is None:
        return False
    try:
        found = hashlib.new(expected.mode, path.read_bytes()).digest()
    except (OSError, ValueError):
        return True
    return base64.urlsafe_b64encode(found).rstrip(b"=").decode() != expected.value


def _end(said: str, code: int) -> None:
    sys.stderr.write(f"{said}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
