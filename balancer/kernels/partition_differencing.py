"""Largest differencing into many parts, for few items a part.

A state is a partial partition: sets of items with their sums, largest first, and empty sets for
the rest. The two states of largest spread (largest less smallest sum) become one, the largest set
of one joining the smallest of the other, until one state is left.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.partition_sort import sort_by_key

__all__ = ["place_by_differences"]


@kernel
def _before(a, b, spread):
    return spread[a] > spread[b] or (spread[a] == spread[b] and a < b)


@kernel
def _sink(heap, at, size, spread):
    """Move the state at `at` down to its place: largest spread first, then lowest number."""
    state = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _before(heap[child + 1], heap[child], spread):
            child += 1
        if not _before(heap[child], state, spread):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = state


@kernel
def _compact(heap, size, begin, width, sums, heads, room_sums, room_heads):
    """Move the sets of all states that are left to the front; returns where free room begins."""
    end = 0
    for at in range(size):
        state = heap[at]
        for t in range(width[state]):
            room_sums[end + t] = sums[begin[state] + t]
            room_heads[end + t] = heads[begin[state] + t]
        begin[state] = end
        end += width[state]
    sums[:end] = room_sums[:end]
    heads[:end] = room_heads[:end]
    return end


@kernel
def _insert_all(sums, heads, begin, size):
    """Sort sets by sum, descending, then by head; quick where few are out of place."""
    for t in range(begin + 1, begin + size):
        value, head, at = sums[t], heads[t], t
        while at > begin and (
            sums[at - 1] < value or (sums[at - 1] == value and heads[at - 1] > head)
        ):
            sums[at], heads[at] = sums[at - 1], heads[at - 1]
            at -= 1
        sums[at], heads[at] = value, head


@kernel
def _sort(sums, heads, begin, size, below):
    """The same order whatever the sets; `below[head]` is room for minus the sum of a set."""
    for t in range(begin, begin + size):
        below[heads[t]] = -sums[t]
    sort_by_key(heads[begin : begin + size], below)
    for t in range(begin, begin + size):
        sums[t] = -below[heads[t]]


@kernel
def _unite(a, b, end, num_parts, begin, width, sums, heads, tails, after):
    """Write the union of states a and b at `end`; returns how many sets it has."""
    size = min(num_parts, width[a] + width[b])
    for t in range(size):
        at_a = begin[a] + t
        at_b = begin[b] + size - 1 - t
        in_a, in_b = t < width[a], size - 1 - t < width[b]
        if in_a and in_b:
            sums[end + t] = sums[at_a] + sums[at_b]
            heads[end + t] = heads[at_a]
            after[tails[heads[at_a]]] = heads[at_b]
            tails[heads[at_a]] = tails[heads[at_b]]
        else:
            sums[end + t] = sums[at_a] if in_a else sums[at_b]
            heads[end + t] = heads[at_a] if in_a else heads[at_b]
    return size


@kernel
def place_by_differences(weights, num_parts, chunk):
    """Part of each item by k-way differencing (Karmarkar and Karp, 1982; Korf, 2009).

    States begin with `chunk` items of consecutive weight each: 1 for free counts, `num_parts`
    for counts within one of each other, as then every union adds one item to each set. Items are
    numbered dearest first. O(n num_parts) where chunk is 1, else O(n log n). Parts are numbered by
    their sums, largest first.
    """
    num_items = weights.size
    num_states = -(-num_items // chunk)
    begin, width = np.arange(num_states) * chunk, np.full(num_states, chunk)
    if num_states:
        width[-1] = num_items - begin[-1]
    room = 2 * num_items + num_parts
    sums, heads = np.empty(room, np.int64), np.empty(room, np.int64)
    room_sums, room_heads = np.empty(num_items, np.int64), np.empty(num_items, np.int64)
    below = np.empty(num_items, np.int64)
    tails, after = np.arange(num_items), np.full(num_items, -1)
    sums[:num_items], heads[:num_items] = weights, np.arange(num_items)
    spread = np.empty(num_states, np.int64)
    for s in range(num_states):
        smallest = weights[begin[s] + width[s] - 1] if width[s] == num_parts else 0
        spread[s] = weights[begin[s]] - smallest
    heap, size, end = np.arange(num_states), num_states, num_items
    for at in range(size // 2 - 1, -1, -1):
        _sink(heap, at, size, spread)
    while size > 1:
        a = heap[0]
        size -= 1
        heap[0] = heap[size]
        _sink(heap, 0, size, spread)
        b = heap[0]
        if end + num_parts > room:
            heap[size] = a
            end = _compact(heap, size + 1, begin, width, sums, heads, room_sums, room_heads)
        united = _unite(a, b, end, num_parts, begin, width, sums, heads, tails, after)
        few = min(width[a], width[b]) <= 16
        begin[b], width[b] = end, united
        if few:
            _insert_all(sums, heads, end, united)
        else:
            _sort(sums, heads, end, united, below)
        smallest = sums[end + united - 1] if united == num_parts else 0
        spread[b] = sums[end] - smallest
        end += united
        _sink(heap, 0, size, spread)
    parts = np.empty(num_items, np.int64)
    for t in range(width[heap[0]] if num_states else 0):
        item = heads[begin[heap[0]] + t]
        while item >= 0:
            parts[item] = t
            item = after[item]
    return parts
