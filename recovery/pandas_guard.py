"""Pandas kept out of a process that does not need it.

PyArrow looks for pandas once, with the first list that it turns into an array, and loads all of it: 1.6 s of CPU, more
than most commands need for all that they do. Spark brings pandas, and only Spark needs it.
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
            raise ModuleNotFoundError("pandas is kept out until Spark starts", name=fullname)
        return None


_REFUSER = _Refuser()


def keep_pandas_out() -> None:
    """Refuse pandas to whatever imports it from now on, until `let_pandas_in`."""
    if _REFUSER not in sys.meta_path:
        sys.meta_path.insert(0, _REFUSER)


def let_pandas_in() -> None:
    """Allow imports of pandas; PyArrow does not look for it a second time."""
    if _REFUSER in sys.meta_path:
        sys.meta_path.remove(_REFUSER)
