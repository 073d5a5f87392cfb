"""Filling microbatches in the order of the epoch: where steps end, and a placement that proves it.

Both kernels place items one by one, in order, in the first of the last `_OPEN` microbatches begun
that has room, else in a new one (next-k-fit: Johnson 1974, "Fast algorithms for bin packing"). A
step ends before the first item for which there is no microbatch left. Amounts and caps are those
of `balancer.kernels.limits`.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.limits import fits, put

__all__ = ["fill_cells", "fill_steps"]

_OPEN = 32
"""Microbatches that are looked at for an item; makes a pass over an epoch O(items)."""


@kernel
def _first_with_room(item, begun, num_cells, amounts, caps, padded, used, count, longest):
    """First of the open microbatches that has room for an item, or a new one, or -1."""
    for cell in range(max(0, begun - _OPEN), begun):
        if fits(item, cell, amounts, caps, padded, used, count, longest):
            return cell
    return begun if begun < num_cells else -1


@kernel
def fill_steps(amounts, caps, padded, num_cells, num_items, begun, used, count, longest, ends):
    """Store in `ends` the items that begin a new step, and return their number and `begun`.

    `begun`, `used`, `count` and `longest` are the state of the step that items go on filling: zero
    at the start of an epoch, then as the last call left them. O(num_items * open microbatches).
    """
    num_ends = 0
    for item in range(num_items):
        cell = _first_with_room(item, begun, num_cells, amounts, caps, padded, used, count, longest)
        if cell < 0:
            ends[num_ends] = item
            num_ends += 1
            for each in range(begun):
                count[each], longest[each] = 0, 0
                for a in range(caps.size):
                    used[each * caps.size + a] = 0
            begun, cell = 0, 0
        put(item, cell, amounts, caps.size, used, count, longest)
        begun = max(begun, cell + 1)
    return num_ends, begun


@kernel
def fill_cells(order, amounts, caps, padded, num_cells):
    """Cell of each item, or -1 where it fitted nowhere, items taken in `order`.

    All of a step's items fit where `fill_steps` ended the step, and no cell stays empty.
    """
    cells = np.empty(order.size, np.int64)
    used = np.zeros(num_cells * caps.size, np.int64)
    count = np.zeros(num_cells, np.int64)
    longest = np.zeros(num_cells, np.int64)
    begun = 0
    for t in range(order.size):
        item = order[t]
        cells[item] = _first_with_room(
            item, begun, num_cells, amounts, caps, padded, used, count, longest
        )
        if cells[item] >= 0:
            put(item, cells[item], amounts, caps.size, used, count, longest)
            begun = max(begun, cells[item] + 1)
    return cells
