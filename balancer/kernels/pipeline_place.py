"""Greedy placement on pipelines: samples to ranks by load, then to microbatches of given sizes."""

import numpy as np
from numba import njit

from balancer.kernels.limits import fits, put
from balancer.kernels.placement import least_loaded

__all__ = ["cell_loads", "place_at_targets"]


@njit(nogil=True)
def cell_loads(cells, costs, constants, num_cells):
    """Work of each microbatch in each cost column, constants included. O(items * columns)."""
    num_columns = constants.size
    loads = np.empty(num_cells * num_columns, np.int64)
    for at in range(loads.size):
        loads[at] = constants[at % num_columns]
    for item in range(cells.size):
        for c in range(num_columns):
            loads[cells[item] * num_columns + c] += costs[item * num_columns + c]
    return loads


@njit(nogil=True)
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


@njit(nogil=True)
def place_at_targets(order, shares, num_modules, costs, num_columns, inverse, amounts, caps, padded,
                     dp_size, num_slots):  # fmt: skip
    """Cell `rank * num_slots + slot` of each item, or -1 where it fitted nowhere.

    Each item, dearest first, goes to the rank that it loads least by `shares`, and there to the
    microbatch that it fills least, where `inverse[slot * num_columns + c]` is one over the size
    that column c should have. O(num_items * (dp_size * num_modules + num_slots * num_columns))
    while the limits leave room.
    """
    num_items, num_cells = order.size, dp_size * num_slots
    cells = np.empty(num_items, np.int64)
    rank_load = np.zeros(dp_size * num_modules, np.int64)
    load = np.zeros(num_cells * num_columns, np.int64)
    used = np.zeros(num_cells * caps.size, np.int64)
    count = np.zeros(num_cells, np.int64)
    longest = np.zeros(num_cells, np.int64)
    tried = np.zeros(dp_size, np.bool_)
    full = np.zeros(num_slots, np.bool_)
    for t in range(num_items):
        item = order[t]
        cells[item] = -1
        for rank in range(dp_size):
            tried[rank] = False
        for _ in range(dp_size):
            rank = least_loaded(item, shares, num_modules, rank_load, tried)
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
            for k in range(num_modules):
                rank_load[rank * num_modules + k] += shares[item * num_modules + k]
            break
    return cells
