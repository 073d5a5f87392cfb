"""Items of a step in the order of its microbatches, and of their given order within each."""

import numpy as np

from balancer.kernels.compiled import kernel

__all__ = ["order_by_cell"]


@kernel
def order_by_cell(cells, position, num_cells):
    """Items by cell, then by position; positions are the numbers from 0, each once.

    A sort by counting: O(num_items + num_cells).
    """
    at = np.empty(cells.size, np.int64)
    begin = np.zeros(num_cells + 1, np.int64)
    for item in range(cells.size):
        at[position[item]] = item
        begin[cells[item] + 1] += 1
    for cell in range(num_cells):
        begin[cell + 1] += begin[cell]
    order = np.empty(cells.size, np.int64)
    for place in range(cells.size):
        item = at[place]
        cell = cells[item]
        order[begin[cell]] = item
        begin[cell] += 1
    return order
