"""Slot-sized placement: dear samples of all ranks share slots, so the other slots can be short.

Under the microbatch barrier a slot lasts as long as its dearest microbatch, but slots need not be
alike. Equal slots leave each dear sample alone in a slot of its own, where all other ranks wait.
Here the dearest remaining sample sizes the next slot, every rank is filled up to that size, and
what is left goes on to the following slots.
"""

import numpy as np
from numba import njit

from balancer.kernels.limits import fits, put

__all__ = ["place_in_slots"]


@njit(nogil=True)
def _slot_sizes(left, num_left, costs, num_modules, remaining, dp_size, slots_left, slack):
    """Size of the next slot in each module: the same fraction of what remains in all modules.

    The fraction is an even share of the slots left, or what the dearest sample forces.
    """
    fraction = 1.0 / slots_left
    for t in range(num_left):
        for k in range(num_modules):
            if remaining[k] > 0:
                forced = costs[left[t] * num_modules + k] * dp_size / remaining[k]
                if forced > fraction:
                    fraction = forced
    sizes = np.empty(num_modules, np.float64)
    for k in range(num_modules):
        sizes[k] = fraction * remaining[k] / dp_size * slack
    return sizes


@njit(nogil=True)
def _rank_with_room(item, costs, num_modules, load, sizes, closed, first_cell, dp_size, amounts,
                    caps, padded, used, count, longest):  # fmt: skip
    """Rank with room that `item` fills least relative to the slot's sizes, or -1.

    Squares break ties; `closed` is false in the last slot, which must take what is left.
    """
    best, best_peak, best_squares = -1, 0.0, 0.0
    for rank in range(dp_size):
        peak, squares, inside = 0.0, 0.0, True
        for k in range(num_modules):
            after = float(load[rank * num_modules + k] + costs[item * num_modules + k])
            if closed and after > sizes[k]:
                inside = False
                break
            if sizes[k] > 0.0:
                peak = max(peak, after / sizes[k])
                squares += (after / sizes[k]) * (after / sizes[k])
        better = best < 0 or peak < best_peak or (peak == best_peak and squares < best_squares)
        if inside and better:
            if not fits(item, first_cell + rank, amounts, caps, padded, used, count, longest):
                continue
            best, best_peak, best_squares = rank, peak, squares
    return best


@njit(nogil=True)
def place_in_slots(order, costs, num_modules, amounts, caps, padded, dp_size, num_slots, slack):
    """Cell `slot * dp_size + rank` of each item, or -1 where it fitted nowhere.

    `order` lists items dearest first; `costs[i * num_modules + k]` int64; a slot may be overfilled
    by the factor `slack`. The cheapest items are held back so that no later microbatch stays
    empty. O(num_items * num_slots * num_modules) to pass over items that do not fit, and
    O(dp_size * num_modules) for each that does.
    """
    num_items = order.size
    cells = np.full(num_items, -1, np.int64)
    used = np.zeros(dp_size * num_slots * caps.size, np.int64)
    count = np.zeros(dp_size * num_slots, np.int64)
    longest = np.zeros(dp_size * num_slots, np.int64)
    left, num_left = order.copy(), num_items
    remaining = np.zeros(num_modules, np.int64)
    for item in range(num_items):
        for k in range(num_modules):
            remaining[k] += costs[item * num_modules + k]
    for slot in range(num_slots):
        sizes = _slot_sizes(
            left, num_left, costs, num_modules, remaining, dp_size, num_slots - slot, slack
        )
        closed = slot < num_slots - 1
        load = np.zeros(dp_size * num_modules, np.int64)
        room = sizes.copy()
        held = dp_size * (num_slots - 1 - slot)
        kept = 0
        for t in range(num_left):
            if kept + num_left - t <= held:  # the rest is held back for the slots to come
                left[kept : kept + num_left - t] = left[t:num_left].copy()
                kept += num_left - t
                break
            item, rank, possible = left[t], -1, True
            for k in range(num_modules if closed else 0):
                possible = possible and costs[item * num_modules + k] <= room[k]
            if possible:
                rank = _rank_with_room(
                    item, costs, num_modules, load, sizes, closed, slot * dp_size, dp_size,
                    amounts, caps, padded, used, count, longest,
                )  # fmt: skip
            if rank < 0:
                left[kept] = item
                kept += 1
                continue
            cells[item] = slot * dp_size + rank
            put(item, cells[item], amounts, caps.size, used, count, longest)
            for k in range(num_modules):
                before = sizes[k] - load[rank * num_modules + k]
                load[rank * num_modules + k] += costs[item * num_modules + k]
                remaining[k] -= costs[item * num_modules + k]
                if before >= room[k]:  # this rank had the most room: look for the next
                    room[k] = sizes[k] - load[k]
                    for r in range(1, dp_size):
                        room[k] = max(room[k], sizes[k] - load[r * num_modules + k])
        num_left = kept
    return cells
