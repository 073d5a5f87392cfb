"""Bins filled one after the other so that several amounts run out together.

Samples are in columns by their other amounts and sorted by amount 0 (descending) within each.
A bin begins with the sample that takes the largest share of a capacity. Then each column offers
the sample whose amount 0 is in proportion to its other amounts, and the offer is taken that brings
the bin nearest to what a bin should hold: the capacities, in proportion to how scarce each is
(the norm-based greedy of Panigrahi et al., 2011, "Heuristics for vector bin packing").
"""

import numpy as np

from balancer.kernels.compiled import inlined, kernel
from balancer.kernels.packing_fill import draw

__all__ = ["balanced_fill"]

_LEAST_WEIGHT = 1e-3
_LAST_ITEMS = 1.5


@inlined
def _alive_from(jump, place):
    """First place from `place` on that is not taken (union-find with path halving)."""
    while jump[place] != place:
        jump[place] = jump[jump[place]]
        place = jump[place]
    return place


@inlined
def _first_within(amounts, num_caps, items, begin, end, most):
    """First place in `[begin, end)` whose amount 0 is at most `most`."""
    while begin < end:
        middle = (begin + end) // 2
        if amounts[items[middle] * num_caps] <= most:
            end = middle
        else:
            begin = middle + 1
    return begin


@inlined
def _fits(amounts, item, room):
    fits = True
    for a in range(room.size):
        fits = fits and amounts[item * room.size + a] <= room[a]
    return fits


@inlined
def _distance(amounts, item, need, weights, inverse):
    """Weighted squared distance from what the bin still needs, as shares of the capacities."""
    total = 0.0
    for a in range(need.size):
        rest = need[a] - amounts[item * need.size + a] * inverse[a]
        total += weights[a] * rest * rest
    return total


@inlined
def _proportional(amounts, item, room, need, inverse):
    """Amount 0 in the same proportion to the need as the item's largest other amount."""
    share, rest = 0.0, 0.0
    for a in range(1, need.size):
        share = max(share, amounts[item * need.size + a] * inverse[a])
        rest = max(rest, need[a])
    if share <= 0.0 or rest <= 0.0:
        return room[0]
    part = max(0.0, need[0]) * min(1.0, share / rest)
    return min(room[0], np.int64(part / inverse[0]))


@inlined
def _offer(amounts, items, jump, begin, end, most, room):
    """Place in a column of the largest amount 0 within `most`, else of the least; -1 if too much.

    `end` is behind the last place that is not taken.
    """
    place = _alive_from(jump, _first_within(amounts, room.size, items, begin, end, most))
    if place >= end or not _fits(amounts, items[place], room):
        place = end - 1
    return place if _fits(amounts, items[place], room) else -1


@inlined
def _choose(amounts, items, jump, begins, ends, room, need, weights, inverse, last, factors):
    """Place of the best offer of all columns, or -1 where nothing fits."""
    best, least = -1, np.inf
    for column in range(ends.size):
        begin = begins[column]
        while ends[column] > begin and jump[ends[column] - 1] != ends[column] - 1:
            ends[column] -= 1
        if ends[column] == begin:
            continue
        first = items[_alive_from(jump, begin)]
        most = _proportional(amounts, first, room, need, inverse)
        for turn in range(2 if last else 1):
            place = _offer(
                amounts, items, jump, begin, ends[column], most if turn == 0 else room[0], room
            )
            if place < 0:
                break
            distance = _distance(amounts, items[place], need, weights, inverse) * factors[column]
            if distance < least:
                best, least = place, distance
    return best


@kernel
def _column_ranges(items, column):
    """Where each column begins and ends in `items`."""
    begins, ends = np.empty(items.size, np.int64), np.empty(items.size, np.int64)
    num = 0
    for place in range(items.size):
        if place == 0 or column[items[place]] != column[items[place - 1]]:
            begins[num] = place
            num += 1
        ends[num - 1] = place + 1
    return begins[:num], ends[:num].copy()


@kernel
def balanced_fill(order, items, column, amounts, caps, noise, state, places, bins):
    """Write the bin of each item to `bins`; returns how many bins.

    `order` has the items by largest share, descending; `items` the same by column, then by amount
    0, descending. With `noise` a column's distances are multiplied by up to `1 + noise`. `places`
    is scratch.
    """
    num_caps, size = caps.size, order.size
    inverse, total = 1.0 / caps, np.zeros(num_caps)
    begins, ends = _column_ranges(items, column)
    factors = np.ones(ends.size)
    for k in range(ends.size if noise > 0 else 0):
        factors[k] += noise * draw(state, 1024) / 1024.0
    jump = np.arange(size + 1)
    for place in range(size):
        places[items[place]] = place
        for a in range(num_caps):
            total[a] += amounts[items[place] * num_caps + a] * inverse[a]
    need, weights = np.empty(num_caps), np.empty(num_caps)
    room = np.empty(num_caps, np.int64)
    num_bins, left, t = 0, size, 0
    while left > 0:
        scarcest = max(1e-300, total.max())
        for a in range(num_caps):
            room[a], need[a] = caps[a], max(0.0, total[a] / scarcest)
            weights[a] = max(_LEAST_WEIGHT, need[a] ** 8)
        while jump[places[order[t]]] != places[order[t]]:
            t += 1
        place = places[order[t]]
        while place >= 0:
            item = items[place]
            jump[place] = place + 1
            bins[item] = num_bins
            left -= 1
            for a in range(num_caps):
                room[a] -= amounts[item * num_caps + a]
                need[a] -= amounts[item * num_caps + a] * inverse[a]
                total[a] -= amounts[item * num_caps + a] * inverse[a]
            if left == 0:
                break
            needed, mean = 0.0, 0.0
            for a in range(num_caps):
                needed += weights[a] * max(0.0, need[a])
                mean += weights[a] * total[a] / left
            last = needed <= _LAST_ITEMS * mean
            place = _choose(
                amounts, items, jump, begins, ends, room, need, weights, inverse, last, factors
            )
        num_bins += 1
    return num_bins
