"""The best assignment of rows to columns: as many pairs as there can be, no row and no column twice, the largest sum.

Shortest augmenting paths (D. F. Crouse, "On implementing 2D rectangular assignment algorithms", 2016), as
SciPy's linear_sum_assignment has them, with its choice among equals: tests compare both. SciPy takes 110 MB
of disk and half a second to load, for this one function on a dozen rows.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt


def assign_best(worth: npt.NDArray[Any]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the rows, ascending, and the columns of the pairs whose worth has the largest sum.

    Args:
        worth: (rows, columns), finite.
    """
    if 0 in worth.shape:
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    if worth.shape[1] < worth.shape[0]:
        columns = _assign_rows((-worth.T).tolist())
        order = np.argsort(columns)
        return columns[order], order
    return np.arange(worth.shape[0]), _assign_rows((-worth).tolist())


def _assign_rows(costs: list[list[float]]) -> npt.NDArray[np.intp]:
    """Return the column of each row, at the least cost; there are at least as many columns as rows."""
    columns = len(costs[0])
    row_prices, column_prices = [0.0] * len(costs), [0.0] * columns
    row_of: list[int] = [-1] * columns
    column_of: list[int] = [-1] * len(costs)
    for start in range(len(costs)):
        shortest = [math.inf] * columns
        reached_from = [-1] * columns
        open_columns = list(range(columns - 1, -1, -1))
        closed: list[int] = []
        row, length, free = start, 0.0, -1
        while free < 0:
            nearest, lowest = -1, math.inf
            price, row_costs = row_prices[row], costs[row]
            for place, column in enumerate(open_columns):
                reduced = length + row_costs[column] - price - column_prices[column]
                if reduced < shortest[column]:
                    shortest[column], reached_from[column] = reduced, row
                distance = shortest[column]
                # Among equals a free column ends the path.
                if distance < lowest or (distance == lowest and row_of[column] < 0):
                    nearest, lowest = place, distance
            length, column = lowest, open_columns[nearest]
            closed.append(column)
            open_columns[nearest] = open_columns[-1]
            open_columns.pop()
            if row_of[column] < 0:
                free = column
            else:
                row = row_of[column]
        row_prices[start] += length
        for column in closed:
            if row_of[column] >= 0:
                row_prices[row_of[column]] += length - shortest[column]
            column_prices[column] -= length - shortest[column]
        while free >= 0:
            row = reached_from[free]
            row_of[free] = row
            column_of[row], free = free, column_of[row]
    return np.array(column_of, np.intp)
