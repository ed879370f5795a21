"""What the wheel places as the package `bkmeta`: `reconcile.library` under the name that users know.

It loads nothing: `bkmeta/__main__.py` must start where another package wrote over our files.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconcile.library import *  # noqa: F403 - what __all__ lists


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of any type
    # What Python asks of each package, and what __all__ does not list, is not the library's.
    if name.startswith("__") and name not in {"__all__", "__version__"}:
        raise AttributeError(name)
    import reconcile.library

    return getattr(reconcile.library, name)


def __dir__() -> list[str]:
    import reconcile.library

    return list(reconcile.library.__all__)
