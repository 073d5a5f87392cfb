"""Fewer bins under several capacities by repacking a few bins at a time."""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.packing_balanced import balanced_fill
from balancer.kernels.packing_fill import draw

__all__ = ["repack"]

_MOST_BINS = 40


@kernel
def _add_shares(amounts, item, caps, weights, spare, b):
    for a in range(caps.size):
        spare[b] -= weights[a] * amounts[item * caps.size + a] / caps[a]


@kernel
def _squared_spare(amounts, items, bins, num_bins, caps, weights):
    """Sum over bins of the squared weighted share of the capacities that is left."""
    spare = np.full(num_bins, weights.sum())
    for item in items:
        _add_shares(amounts, item, caps, weights, spare, bins[item])
    return (spare * spare).sum()


@kernel
def _pick(state, spare, num_bins, count, picked, chosen):
    """Draw `count` different bins into `picked`, every second one the emptiest of eight."""
    num = 0
    while num < count:
        b = draw(state, num_bins)
        for _ in range(7 if num & 1 else 0):
            other = draw(state, num_bins)
            if spare[other] > spare[b]:
                b = other
        while chosen[b]:
            b = b + 1 if b + 1 < num_bins else 0
        chosen[b] = True
        picked[num] = b
        num += 1


@kernel
def _by_rank(items, ranks):
    """Items in ascending order of rank (Shell's sort, gaps of Ciura, 2001)."""
    items = items.copy()
    for gap in (1750, 701, 301, 132, 57, 23, 10, 4, 1):
        for t in range(gap, items.size):
            item, place = items[t], t
            while place >= gap and ranks[items[place - gap]] > ranks[item]:
                items[place] = items[place - gap]
                place -= gap
            items[place] = item
    return items


@kernel
def _close_gap(bins, b, last, first, after, spare):
    """Give bin `last` the number `b`."""
    first[b], spare[b] = first[last], spare[last]
    item = first[b]
    while item >= 0:
        bins[item] = b
        item = after[item]


@kernel
def repack(bins, num_bins, share_rank, column_rank, column, amounts, caps, weights, rounds, enough,
           state):  # fmt: skip
    """Change `bins` in place, `rounds` times some random bins at once; returns how many are left.

    Each time the samples of up to 40 bins are filled anew with noise. Kept are fewer bins, or as
    many with the room left in fewer of them. Ranks are the places of each sample in the orders
    that `balanced_fill` takes. Bins keep numbers without gaps.
    """
    first, after = np.full(num_bins, -1, np.int64), np.empty(bins.size, np.int64)
    spare = np.full(num_bins, weights.sum())
    for item in range(bins.size):
        _add_shares(amounts, item, caps, weights, spare, bins[item])
        after[item] = first[bins[item]]
        first[bins[item]] = item
    places, new = np.empty(bins.size, np.int64), np.empty(bins.size, np.int64)
    old = np.empty(bins.size, np.int64)
    chosen, picked = np.zeros(num_bins, np.bool_), np.empty(_MOST_BINS, np.int64)
    for _ in range(rounds):
        if num_bins <= enough or num_bins < 2:
            break
        count = min(num_bins, 2 + draw(state, _MOST_BINS - 1))
        _pick(state, spare, num_bins, count, picked, chosen)
        size = 0
        for k in range(count):
            chosen[picked[k]] = False
            item = first[picked[k]]
            while item >= 0:
                places[size], old[item] = item, k
                size += 1
                item = after[item]
        items = places[:size].copy()
        order, by_column = _by_rank(items, share_rank), _by_rank(items, column_rank)
        noise = 0.25 * (1 << draw(state, 5))
        made = balanced_fill(order, by_column, column, amounts, caps, noise, state, places, new)
        if made > count or (
            made == count
            and _squared_spare(amounts, items, new, made, caps, weights)
            < _squared_spare(amounts, items, old, count, caps, weights)
        ):
            continue
        for k in range(count):
            first[picked[k]], spare[picked[k]] = -1, weights.sum()
        for item in items:
            b = picked[new[item]]
            bins[item] = b
            after[item] = first[b]
            first[b] = item
            _add_shares(amounts, item, caps, weights, spare, b)
        for _ in range(count - made):
            b = picked[made:count].max()  # the highest first, so that the last bin is never empty
            for k in range(made, count):
                if picked[k] == b:
                    picked[k] = -1
            num_bins -= 1
            if b != num_bins:
                _close_gap(bins, b, num_bins, first, after, spare)
    return num_bins
