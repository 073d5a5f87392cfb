"""Samples in order of length, and packing in the order given."""

import numpy as np

from balancer.kernels.compiled import kernel

__all__ = ["longest_first", "next_fit", "runs"]


@kernel
def longest_first(lengths, longest, order):
    """Counting sort: writes the ids, longest first and then ascending, to `order`.

    Returns (distinct lengths descending, counts). `longest` is the largest length, all are >= 0.
    O(samples + longest).
    """
    place = np.zeros(longest + 1, order.dtype)
    for i in range(lengths.size):
        place[lengths[i]] += 1
    distinct = 0
    for length in range(longest + 1):
        distinct += place[length] > 0
    values, counts = np.empty(distinct, np.int64), np.empty(distinct, np.int64)
    begin, t = 0, 0
    for length in range(longest, -1, -1):
        count = place[length]
        if count > 0:
            values[t], counts[t] = length, count
            t += 1
        place[length] = begin
        begin += count
    for i in range(lengths.size):
        order[place[lengths[i]]] = i
        place[lengths[i]] += 1
    return values, counts


@kernel
def runs(lengths, order):
    """(distinct lengths, how often each occurs), in an order that has equal ones together."""
    distinct = 1 if order.size else 0
    for i in range(1, order.size):
        distinct += lengths[order[i]] != lengths[order[i - 1]]
    values, counts = np.empty(distinct, np.int64), np.empty(distinct, np.int64)
    t, begin = 0, 0
    for i in range(1, order.size + 1):
        if i == order.size or lengths[order[i]] != lengths[order[begin]]:
            values[t], counts[t] = lengths[order[begin]], i - begin
            t, begin = t + 1, i
    return values, counts


@kernel
def next_fit(lengths, capacity, padded, amounts, caps):
    """Where each bin begins if samples keep their order, as offsets.

    A bin is closed for the first sample that does not fit. Amount a of sample i is
    `amounts[i * caps.size + a]`.
    """
    offsets = np.empty(lengths.size + 1, np.int64)
    used = np.zeros(caps.size, np.int64)
    num_bins, begin, held = 0, 0, 0
    for i in range(lengths.size):
        if padded:
            after = max(held, lengths[i])
            fits = after * (i - begin + 1) <= capacity
        else:
            after = held + lengths[i]
            fits = after <= capacity
        for a in range(caps.size):
            fits = fits and used[a] + amounts[i * caps.size + a] <= caps[a]
        if i == 0 or not fits:
            offsets[num_bins] = i
            num_bins += 1
            begin, after = i, lengths[i]
            for a in range(caps.size):
                used[a] = 0
        held = after
        for a in range(caps.size):
            used[a] += amounts[i * caps.size + a]
    offsets[num_bins] = lengths.size
    return offsets[: num_bins + 1].copy()
