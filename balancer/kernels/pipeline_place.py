"""Greedy placement on pipelines: samples to ranks by load, then to microbatches of given sizes."""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.lightest import add_load, lightest
from balancer.kernels.limits import fits, put
from balancer.kernels.ranks import reserved, slowed

__all__ = ["cell_loads", "place_at_targets"]


@kernel
def cell_loads(cells, costs, constants, num_cells, num_slots=1, ranks=None):
    """Work of each microbatch in each cost column, constants included. O(items * columns).

    Where ranks differ in speed (`balancer.kernels.ranks`, one column) it is the time for it.
    """
    num_columns = constants.size
    loads = np.empty(num_cells * num_columns, np.int64)
    for at in range(loads.size):
        rank = at // num_columns // num_slots
        loads[at] = slowed(constants[at % num_columns], rank, 0, 1, ranks)
    for item in range(cells.size):
        rank = cells[item] // num_slots
        for c in range(num_columns):
            cost = slowed(costs[item * num_columns + c], rank, 0, 1, ranks)
            loads[cells[item] * num_columns + c] += cost
    return loads


@kernel
def _least_filled(item, costs, num_columns, inverse, load, first, full):
    """Microbatch whose columns that `item` uses end lowest over their targets; -1 if all full."""
    best, best_peak = -1, 0.0
    for j in range(full.size):
        if full[j]:
            continue
        peak = 0.0
        for c in range(num_columns):
            cost = costs[item * num_columns + c]
            if cost > 0:
                at = j * num_columns + c
                peak = max(peak, float(load[first + at] + cost) * inverse[at])
        if best < 0 or peak < best_peak:
            best, best_peak = j, peak
    return best


@kernel
def place_at_targets(order, shares, num_modules, costs, num_columns, inverse, amounts, caps, padded,
                     dp_size, num_slots, ranks=None):  # fmt: skip
    """Cell `rank * num_slots + slot` of each item, or -1 where it fitted nowhere.

    Each item, dearest first, goes to the rank that it loads least by `shares`, and there to the
    microbatch that it fills least, where `inverse[slot * num_columns + c]` is one over the size
    that column c should have. O(num_items * (dp_size * num_modules + num_slots * num_columns))
    while the limits leave room. `ranks` have a column for each module.
    """
    num_items, num_cells = order.size, dp_size * num_slots
    cells = np.empty(num_items, np.int64)
    rank_load = np.zeros(dp_size * num_modules, np.int64)
    load = np.zeros(num_cells * num_columns, np.int64)
    used = reserved(num_cells, caps.size, dp_size, num_slots, ranks)
    count = np.zeros(num_cells, np.int64)
    longest = np.zeros(num_cells, np.int64)
    tried, peaks = np.zeros(dp_size, np.bool_), np.empty(dp_size, np.int64)
    full = np.zeros(num_slots, np.bool_)
    for t in range(num_items):
        item = order[t]
        cells[item] = -1
        for rank in range(dp_size):
            tried[rank] = False
        for _ in range(dp_size):
            rank = lightest(item, shares, num_modules, rank_load, tried, peaks, ranks)
            first = rank * num_slots
            for slot in range(num_slots if caps.size else 0):
                full[slot] = not fits(
                    item, first + slot, amounts, caps, padded, used, count, longest
                )
            slot = _least_filled(item, costs, num_columns, inverse, load, first * num_columns, full)
            if slot < 0:
                tried[rank] = True
                continue
            cells[item] = first + slot
            if caps.size:
                put(item, cells[item], amounts, caps.size, used, count, longest)
            for c in range(num_columns):
                load[cells[item] * num_columns + c] += costs[item * num_columns + c]
            add_load(item, shares, num_modules, rank_load, dp_size, rank, ranks)
            break
    return cells
