"""The best of all placements of a few items on pipelines, by depth-first branch and bound.

Tuples are those of `balancer.kernels.pipeline_moves`; cells are `rank * num_slots + slot`, so every
order of a rank's microbatches is among the placements.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.limits import fits, put, take
from balancer.kernels.pipeline_moves import rank_value
from balancer.kernels.pipeline_place import cell_loads
from balancer.kernels.ranks import reserved, slowed

__all__ = ["place_pipelines_exactly"]


@kernel
def _add_load(item, cell, sign, costs, num_columns, num_slots, loads, ranks):
    """Add an item's costs to the loads of a cell, or take them off with `sign` -1."""
    for c in range(num_columns):
        cost = slowed(costs[item * num_columns + c], cell // num_slots, 0, 1, ranks)
        loads[cell * num_columns + c] += sign * cost


@kernel
def place_pipelines_exactly(cells, costs, constants, limits, num_ranks, num_slots, schedule, most,
                               best, least, ranks=None):  # fmt: skip
    """Put into `cells` the first shortest placement of all, unless none is shorter than `best`.

    Placements keep the caps and leave no more cells empty than they must. Returns the time of the
    slowest rank, at least `least`: what the constants alone take. A part of a placement takes no
    longer than all of it, so one that takes `best` already is not completed. Equal ranks are
    opened one after the other. At most num_cells**num_items parts, each of one simulation.
    """
    amounts, caps, padded = limits
    num_items, num_cells, num_columns = cells.size, num_ranks * num_slots, constants.size
    used = reserved(num_cells, caps.size, num_ranks, num_slots, ranks)
    count, longest = np.zeros(num_cells, np.int64), np.zeros(num_cells, np.int64)
    books = (used, count, longest)
    loads = cell_loads(cells[:0], costs, constants, num_cells, num_slots, ranks)
    scratch = (np.empty(schedule[4], np.int64), np.empty(schedule[0].size, np.int64),
               np.empty(num_slots, np.int64))  # fmt: skip
    now, opened = np.empty(num_items, np.int64), np.zeros(num_items + 1, np.int64)
    reached = np.zeros(num_items + 1, np.int64)
    reached[0] = least
    for i in range(num_items):
        now[i] = -1
    empty, spare = num_cells, max(0, num_cells - num_items)
    item, more, less = np.int64(0), np.int64(1), np.int64(-1)  # literals would be types apart
    while item >= 0:
        cell = now[item]
        if cell >= 0:
            now[item] = -1
            take(item, cell, amounts, caps.size, padded, used, count, longest, now)
            _add_load(item, cell, less, costs, num_columns, num_slots, loads, ranks)
            empty += count[cell] == 0
        cell += 1
        stop = num_cells
        if ranks is None:
            stop = min(num_cells, (opened[item] + 1) * num_slots)
        while cell < stop and not fits(item, cell, amounts, caps, padded, used, count, longest):
            cell += 1
        if cell >= stop:
            item -= 1
            continue
        empty -= count[cell] == 0
        now[item] = cell
        put(item, cell, amounts, caps.size, used, count, longest)
        _add_load(item, cell, more, costs, num_columns, num_slots, loads, ranks)
        if empty - spare > num_items - item - 1:
            continue
        rank = cell // num_slots
        excess, time = rank_value(rank, num_slots, loads, schedule, most, limits, books, scratch)
        time = max(time, reached[item])
        if excess > 0 or time >= best:
            continue
        if item < num_items - 1:
            item += 1
            opened[item] = max(opened[item - 1], rank + 1)
            reached[item] = time
            continue
        best = time
        for i in range(num_items):
            cells[i] = now[i]
    return best
