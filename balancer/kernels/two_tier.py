"""Greedy placement in two tiers for thousands of equal ranks: groups of ranks, then ranks within.

Arguments as in `balancer.kernels.placement`. Comparing every item with every rank takes
O(num_items * dp_size); with about sqrt(dp_size) groups it is O(num_items * sqrt(dp_size)).
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.lightest import add_load, lightest
from balancer.kernels.limits import fits, put

__all__ = ["place_in_two_tiers"]


@kernel
def _lightest_group(item, shares, num_modules, load, size, closed):
    """Open group where the modules that `item` uses end lowest for each rank; then squares."""
    best, best_peak, best_squares = -1, 0.0, 0.0
    for g in range(closed.size):
        if closed[g]:
            continue
        peak, squares = 0.0, 0.0
        for k in range(num_modules):
            share = shares[item * num_modules + k]
            after = float(load[g * num_modules + k] + share) / size[g]
            if share > 0 and after > peak:
                peak = after
            squares += after * after
        if best < 0 or peak < best_peak or (peak == best_peak and squares < best_squares):
            best, best_peak, best_squares = g, peak, squares
    return best


@kernel
def _place_in_group(item, first, shares, num_modules, amounts, caps, padded, dp_size, num_slots,
                    rank_load, cell_load, used, count, longest, tried, full, peaks):  # fmt: skip
    """Cell of the least loaded rank of a group, and of its least loaded slot, that take an item.

    Ranks are tried from `first` onwards, as many as `tried` has. Returns -1 where none does.
    """
    num_ranks = tried.size
    loads = rank_load[first * num_modules : (first + num_ranks) * num_modules]
    for rank in range(num_ranks):
        tried[rank] = False
    for _ in range(num_ranks):
        place = lightest(item, shares, num_modules, loads, tried, peaks)
        rank = first + place
        for slot in range(num_slots if caps.size else 0):
            cell = slot * dp_size + rank
            full[slot] = not fits(item, cell, amounts, caps, padded, used, count, longest)
        begin = rank * num_slots * num_modules
        own = cell_load[begin : begin + num_slots * num_modules]
        slot = lightest(item, shares, num_modules, own, full, peaks)
        if slot >= 0:
            add_load(item, shares, num_modules, own, num_slots, slot)
            add_load(item, shares, num_modules, loads, num_ranks, place)
            return slot * dp_size + rank
        tried[place] = True
    return -1


@kernel
def place_in_two_tiers(order, shares, num_modules, amounts, caps, padded, dp_size, num_slots,
                       num_groups):  # fmt: skip
    """Greedy: each item to the group, its rank and its microbatch that it loads least.

    Groups are of consecutive ranks, their numbers differing by at most one; loads of groups are
    compared for each rank. An item that fits nowhere in a group goes on to the next best.
    """
    cells = np.empty(order.size, np.int64)
    first = np.empty(num_groups + 1, np.int64)
    size = np.empty(num_groups, np.int64)
    for g in range(num_groups + 1):
        first[g] = g * dp_size // num_groups
    for g in range(num_groups):
        size[g] = first[g + 1] - first[g]
    group_load = np.zeros(num_groups * num_modules, np.int64)
    rank_load = np.zeros(dp_size * num_modules, np.int64)  # group after group
    cell_load = np.zeros(dp_size * num_slots * num_modules, np.int64)  # rank after rank
    used = np.zeros(dp_size * num_slots * caps.size, np.int64)
    count = np.zeros(dp_size * num_slots, np.int64)
    longest = np.zeros(dp_size * num_slots, np.int64)
    closed = np.zeros(num_groups, np.bool_)
    tried = np.zeros(dp_size // num_groups + 1, np.bool_)
    full = np.zeros(num_slots, np.bool_)
    peaks = np.empty(max(tried.size, num_slots), np.int64)
    for t in range(order.size):
        item = order[t]
        cells[item] = -1
        for g in range(num_groups):
            closed[g] = False
        for _ in range(num_groups):
            group = _lightest_group(item, shares, num_modules, group_load, size, closed)
            cell = _place_in_group(
                item, first[group], shares, num_modules, amounts, caps, padded, dp_size, num_slots,
                rank_load, cell_load, used, count, longest, tried[: size[group]], full,
                peaks,
            )  # fmt: skip
            if cell < 0:
                closed[group] = True
                continue
            cells[item] = cell
            if caps.size:
                put(item, cell, amounts, caps.size, used, count, longest)
            for k in range(num_modules):
                group_load[group * num_modules + k] += shares[item * num_modules + k]
            break
    return cells
