"""Greedy placement of items on parts: the first assignment that a search then improves.

Items are numbered dearest first and have whole `weights`. A part takes `load * inverse[part]`
time, `inverse` being one over its speed. Amount `a` of item `i` is `amounts[i * num_caps + a]`;
part `p` holds at most `caps[p * num_caps + a]` of it. Every part gets `low` to `high` items.
Kernels return the part of each item, or -1 for one that fitted nowhere.
"""

import numpy as np

from balancer.kernels.compiled import kernel

__all__ = ["fits_part", "place_by_fit", "place_by_load", "place_by_time"]


@kernel
def _before(a, b, load, count):
    """Whether part a is to be filled before part b: less load, then fewer items, then index."""
    if load[a] != load[b]:
        return load[a] < load[b]
    if count[a] != count[b]:
        return count[a] < count[b]
    return a < b


@kernel
def _sift_down(heap, size, load, count):
    """Restore the heap order below its root."""
    at, part = 0, heap[0]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _before(heap[child + 1], heap[child], load, count):
            child += 1
        if not _before(heap[child], part, load, count):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = part


@kernel
def place_by_load(weights, num_parts, low, high):
    """Each item, dearest first, to the least loaded part that may take one more.

    Longest processing time first (Graham, 1969), on a heap: O(n log num_parts). At most
    4/3 - 1/(3 num_parts) of the least possible largest load where counts are free.
    """
    parts = np.empty(weights.size, np.int64)
    load = np.zeros(num_parts, np.int64)
    count = np.zeros(num_parts, np.int64)
    heap = np.arange(num_parts)
    size, extras = num_parts, weights.size - num_parts * low
    for item in range(weights.size):
        while count[heap[0]] >= high or (count[heap[0]] >= low and extras == 0):
            size -= 1
            heap[0] = heap[size]
            _sift_down(heap, size, load, count)
        part = heap[0]
        extras -= count[part] >= low
        parts[item] = part
        load[part] += weights[item]
        count[part] += 1
        _sift_down(heap, size, load, count)
    return parts


@kernel
def fits_part(item, part, amounts, caps, num_caps, used):
    """Whether `item` can join `part` without breaking a cap."""
    for a in range(num_caps):
        if used[part * num_caps + a] + amounts[item * num_caps + a] > caps[part * num_caps + a]:
            return False
    return True


@kernel
def place_by_time(weights, inverse, amounts, caps, num_caps, low, high):
    """Each item, dearest first, to the part that then ends first, of those it fits.

    Ties go to fewer items, then to the lower index. O(n * num_parts * num_caps).
    """
    num_parts = inverse.size
    parts = np.empty(weights.size, np.int64)
    load = np.zeros(num_parts, np.int64)
    count = np.zeros(num_parts, np.int64)
    used = np.zeros(num_parts * num_caps, np.int64)
    extras = weights.size - num_parts * low
    for item in range(weights.size):
        best, best_time = -1, 0.0
        for part in range(num_parts):
            if count[part] >= high or (count[part] >= low and extras == 0):
                continue
            time = float(load[part] + weights[item]) * inverse[part]
            earlier = time < best_time or (time == best_time and count[part] < count[best])
            if (best < 0 or earlier) and fits_part(item, part, amounts, caps, num_caps, used):
                best, best_time = part, time
        parts[item] = best
        if best >= 0:
            extras -= count[best] >= low
            load[best] += weights[item]
            count[best] += 1
            for a in range(num_caps):
                used[best * num_caps + a] += amounts[item * num_caps + a]
    return parts


@kernel
def place_by_fit(order, tightest, amounts, caps, num_caps, num_parts, low, high):
    """Best fit: each item in `order` to the part with least room left in its tightest amount.

    To bound the time of a part as well, pass its load as one more amount. Stops at the first item
    that fits nowhere. O(n * num_parts * num_caps).
    """
    parts = np.full(order.size, -1)
    count = np.zeros(num_parts, np.int64)
    used = np.zeros(num_parts * num_caps, np.int64)
    extras = order.size - num_parts * low
    for item in order:
        best, best_room, a = -1, np.int64(0), tightest[item]
        for part in range(num_parts):
            if count[part] >= high or (count[part] >= low and extras == 0):
                continue
            room = caps[part * num_caps + a] - used[part * num_caps + a]
            if (best < 0 or room < best_room) and fits_part(
                item, part, amounts, caps, num_caps, used
            ):
                best, best_room = part, room
        if best < 0:
            break
        parts[item] = best
        extras -= count[best] >= low
        count[best] += 1
        for b in range(num_caps):
            used[best * num_caps + b] += amounts[item * num_caps + b]
    return parts
