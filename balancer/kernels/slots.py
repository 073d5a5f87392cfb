"""Slot-sized placement: dear samples of all ranks share slots, so the other slots can be short.

Under the microbatch barrier a slot lasts as long as its dearest microbatch, but slots need not be
alike. Equal slots leave each dear sample alone in a slot of its own, where all other ranks wait.
Here the dearest remaining sample sizes the next slot, every rank is filled up to that size, and
what is left goes on to the following slots. Where ranks differ in speed a slot's size is a time.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.limits import fits, put
from balancer.kernels.ranks import reserved, slowed

__all__ = ["place_in_slots"]


@kernel
def _set_fleet(num_modules, dp_size, ranks, fleet, fastest):
    """Work that all ranks together do in a unit of time in each module, and the least slowness."""
    for k in range(num_modules):
        fleet[k], fastest[k] = 0.0, slowed(1, 0, k, num_modules, ranks)
        for rank in range(dp_size):
            slowness = slowed(1, rank, k, num_modules, ranks)
            fleet[k] += 1.0 / slowness
            fastest[k] = min(fastest[k], slowness)


@kernel
def _set_sizes(costs, num_modules, by_module, next_dearest, cells, remaining, fleet, fastest,
               slots_left, target, inverse):  # fmt: skip
    """Size of the next slot in each module: the same fraction of what remains in all modules.

    The fraction is an even share of the slots left, or what the dearest remaining item forces.
    """
    num_items = cells.size
    fraction = 1.0 / slots_left
    for k in range(num_modules):
        while cells[by_module[k * num_items + next_dearest[k]]] >= 0:
            next_dearest[k] += 1
        dearest = costs[by_module[k * num_items + next_dearest[k]] * num_modules + k]
        if remaining[k] > 0:
            fraction = max(fraction, dearest * fastest[k] * fleet[k] / remaining[k])
    for k in range(num_modules):
        target[k] = fraction * remaining[k] / fleet[k]
        inverse[k] = 1.0 / target[k] if target[k] > 0.0 else 0.0


@kernel
def _rank_with_room(item, costs, num_modules, load, most, inverse, is_full, first_cell, amounts,
                    caps, padded, used, count, longest, ranks):  # fmt: skip
    """First of the ranks with room that `item` fills least relative to the slot's size, or -1."""
    best, best_peak = -1, 0.0
    for rank in range(is_full.size):
        if is_full[rank]:
            continue
        peak, inside = 0.0, True
        for k in range(num_modules):
            time = slowed(costs[item * num_modules + k], rank, k, num_modules, ranks)
            after = load[rank * num_modules + k] + time
            inside = inside and after <= most[k]
            peak = max(peak, after * inverse[k])
        if not inside or (best >= 0 and peak >= best_peak):
            continue
        if not caps.size or fits(
            item, first_cell + rank, amounts, caps, padded, used, count, longest
        ):
            best, best_peak = rank, peak
    return best


@kernel
def _room(rank, k, num_modules, load, most, ranks):
    """Cost in module k that a rank has room for, or a little more."""
    left = most[k] - load[rank * num_modules + k]
    if ranks is None:
        return left
    return left / slowed(1, rank, k, num_modules, ranks) + 1.0


@kernel
def _most_room(k, num_modules, dp_size, load, most, ranks):
    """The largest room of any rank in module k."""
    room = _room(0, k, num_modules, load, most, ranks)
    for rank in range(1, dp_size):
        room = max(room, _room(rank, k, num_modules, load, most, ranks))
    return room


@kernel
def _unplaced_from(item, following):
    """First unplaced item at or after `item`; `following` shortens paths on the way."""
    while following[item] != item:
        following[item] = following[following[item]]
        item = following[item]
    return item


@kernel
def _highest_peak(room, num_modules, scales):
    """Peak of the room left: no item with a higher peak fits."""
    highest = 0.0
    for k in range(num_modules):
        highest = max(highest, np.floor(max(room[k], 0.0) * scales[k]))
    return highest


@kernel
def _first_not_above(item, highest, peaks):
    """First item from `item` on whose peak is not above `highest`; all before it are."""
    low, high = item, peaks.size
    while low < high:
        middle = (low + high) // 2
        if peaks[middle] > highest:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def place_in_slots(peaks, scales, by_module, costs, num_modules, amounts, caps, padded, dp_size,
                   num_slots, slack, first_size, ranks=None):  # fmt: skip
    """Cell `slot * dp_size + rank` of each item, or -1 where it fitted nowhere.

    Items are numbered dearest first: `peaks[i]`, the largest over modules of the floor of
    `costs[i * num_modules + k] * scales[k]`, never rises. `by_module[k * num_items:]` lists them by
    their cost in module k. A rank takes items that overfill it by at most the factor `slack`, and
    no more once it is full in a module that all items use. The cheapest items are held back so
    that no later microbatch stays empty. Items too dear for the room left are jumped over.
    `first_size` multiplies the size of the first slot in each module.
    """
    num_items = peaks.size
    cells = np.empty(num_items, np.int64)
    following = np.empty(num_items + 1, np.int64)
    for item in range(num_items):
        cells[item], following[item] = -1, item
    following[num_items] = num_items
    used = reserved(dp_size * num_slots, caps.size, dp_size, 1, ranks)
    count = np.zeros(dp_size * num_slots, np.int64)
    longest = np.zeros(dp_size * num_slots, np.int64)
    remaining = np.zeros(num_modules, np.int64)
    used_by_all = np.zeros(num_modules, np.bool_)
    for k in range(num_modules):
        used_by_all[k] = costs[by_module[k * num_items + num_items - 1] * num_modules + k] > 0
        for item in range(num_items):
            remaining[k] += costs[item * num_modules + k]
    next_dearest = np.zeros(num_modules, np.int64)
    target, inverse = np.empty(num_modules), np.empty(num_modules)
    fleet, fastest = np.empty(num_modules), np.empty(num_modules, np.int64)
    _set_fleet(num_modules, dp_size, ranks, fleet, fastest)
    most, room = np.empty(num_modules), np.empty(num_modules)
    num_left = num_items
    for slot in range(num_slots):
        if num_left == 0:
            break
        last = slot == num_slots - 1
        _set_sizes(costs, num_modules, by_module, next_dearest, cells, remaining, fleet, fastest,
                   num_slots - slot, target, inverse)  # fmt: skip
        load = np.zeros(dp_size * num_modules, np.int64)
        for k in range(num_modules):
            if slot == 0:
                target[k] *= first_size[k]
                inverse[k] /= first_size[k]
            most[k] = 4.0e18 if last else target[k] * slack
            room[k] = _most_room(k, num_modules, dp_size, load, most, ranks)
        is_full = np.zeros(dp_size, np.bool_)
        num_open, held = dp_size, dp_size * (num_slots - 1 - slot)
        highest = _highest_peak(room, num_modules, scales)
        item = _unplaced_from(0, following)
        while item < num_items and num_open > 0 and num_left > held:
            rank, possible = -1, True
            for k in range(num_modules):
                possible = possible and costs[item * num_modules + k] <= room[k]
            if possible:
                rank = _rank_with_room(
                    item, costs, num_modules, load, most, inverse, is_full, slot * dp_size,
                    amounts, caps, padded, used, count, longest, ranks,
                )  # fmt: skip
            if rank < 0:
                item = item + 1
                if item < num_items and peaks[item] > highest:
                    item = _first_not_above(item, highest, peaks)
                item = _unplaced_from(item, following)
                continue
            cells[item] = slot * dp_size + rank
            if caps.size:
                put(item, cells[item], amounts, caps.size, used, count, longest)
            full = False
            for k in range(num_modules):
                before = _room(rank, k, num_modules, load, most, ranks)
                load[rank * num_modules + k] += slowed(
                    costs[item * num_modules + k], rank, k, num_modules, ranks
                )
                remaining[k] -= costs[item * num_modules + k]
                full = full or (used_by_all[k] and load[rank * num_modules + k] >= target[k])
                if before >= room[k]:  # this rank had the most room: look for the next
                    room[k] = _most_room(k, num_modules, dp_size, load, most, ranks)
            if full and not last:
                is_full[rank] = True
                num_open -= 1
            highest = _highest_peak(room, num_modules, scales)
            num_left -= 1
            following[item] = item + 1
            item = _unplaced_from(item + 1, following)
    return cells
