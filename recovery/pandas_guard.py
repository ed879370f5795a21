"""Pandas kept out of a process that does not need it.

PyArrow looks for pandas once, with the first list that it turns into an array, and loads all of it: 0.23 s of CPU where
it is installed, a third of what a small command needs. Nothing here needs it; notebooks of users may have it.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Refuser(MetaPathFinder):
    """Says that there is no pandas."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse pandas; leave every other module to the finders behind this one."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=fullname)
        return None


_REFUSER = _Refuser()


def keep_pandas_out() -> None:
    """Refuse pandas to all that imports it from now on."""
    if _REFUSER not in sys.meta_path:
        sys.meta_path.insert(0, _REFUSER)
