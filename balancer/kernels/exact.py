"""The best of all placements of a few items, by depth-first branch and bound.

Lines, groups and loads are those of `balancer.kernels.steptime`; amounts and caps those of
`balancer.kernels.limits`; ranks those of `balancer.kernels.ranks`.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.limits import fits, put, take
from balancer.kernels.ranks import reserved, slowed
from balancer.kernels.steptime import step_value

__all__ = ["place_exactly"]


@kernel
def _add_load(item, line, sign, costs, num_modules, dp_size, load, ranks):
    """Add an item's costs to the loads of a line, or take them off with `sign` -1."""
    for k in range(num_modules):
        load[line * num_modules + k] += sign * slowed(
            costs[item * num_modules + k], line % dp_size, k, num_modules, ranks
        )


@kernel
def place_exactly(cells, costs, num_modules, amounts, caps, padded, dp_size, num_slots, num_groups,
                  best, ranks=None):  # fmt: skip
    """Put into `cells` the first shortest placement of all, unless none is shorter than `best`.

    Placements keep the caps and leave no more cells empty than they must; a part of one that takes
    `best` already is not completed. Returns the step time. At most num_cells**num_items parts.
    """
    num_items, num_cells = cells.size, dp_size * num_slots
    load = np.zeros(num_groups * dp_size * num_modules, np.int64)
    used = reserved(num_cells, caps.size, dp_size, 1, ranks)
    count, longest = np.zeros(num_cells, np.int64), np.zeros(num_cells, np.int64)
    now = np.empty(num_items, np.int64)
    for i in range(num_items):
        now[i] = -1
    empty, spare, item = num_cells, max(0, num_cells - num_items), 0
    while item >= 0:
        cell = now[item]
        if cell >= 0:
            now[item] = -1
            take(item, cell, amounts, caps.size, padded, used, count, longest, now)
            line = cell if num_groups > 1 else cell % dp_size
            _add_load(item, line, -1, costs, num_modules, dp_size, load, ranks)
            empty += count[cell] == 0
        cell += 1
        while cell < num_cells and not fits(
            item, cell, amounts, caps, padded, used, count, longest
        ):
            cell += 1
        if cell == num_cells:
            item -= 1
            continue
        empty -= count[cell] == 0
        now[item] = cell
        put(item, cell, amounts, caps.size, used, count, longest)
        line = cell if num_groups > 1 else cell % dp_size
        _add_load(item, line, 1, costs, num_modules, dp_size, load, ranks)
        value = step_value(load, num_modules, dp_size)
        if value >= best or empty - spare > num_items - item - 1:
            continue
        if item < num_items - 1:
            item += 1
            continue
        best = value
        for i in range(num_items):
            cells[i] = now[i]
    return best
