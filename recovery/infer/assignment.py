"""The best assignment of rows to columns, by scipy, which is loaded by the first ledger that needs one.

Loading it takes longer than all else that a command for one ledger does, and most ledgers never need it. It is large:
bookies' hosts, which only collect, do without.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recovery.errors import InputError

_REMEDY: Final = "pip install 'bkmeta[spark]'"


def linear_sum_assignment(
    worth: npt.NDArray[Any], *, maximize: bool
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the rows and the columns of the best assignment, as scipy's function of this name does.

    Raises:
        InputError: scipy is not installed.
    """
    try:
        from scipy import optimize  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        raise InputError("this installation", "has no scipy, which this ledger needs", _REMEDY) from error

    rows, columns = optimize.linear_sum_assignment(worth, maximize=maximize)
    return rows, columns
