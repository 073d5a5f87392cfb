"""Groups of bins with equal content, and the ids they stand for.

Samples of equal length are interchangeable, so bins are handled in groups: `num` bins of
consecutive numbers that hold the same lengths. A group is a row of the flat array `groups`, with
the columns below; its content is that of its parent and `COPIES` more of one length.
"""

import numpy as np

from balancer.kernels.compiled import kernel

__all__ = [
    "BASE", "COPIES", "FIRST", "NEXT", "NUM", "PARENT", "ROOM", "SIZE", "WIDTH", "copied",
    "empty_groups", "write_ids",
]  # fmt: skip

PARENT = 0  # row of the group this one came from, or -1
BASE = 1  # bin b has the sorted samples BASE + b * COPIES and the following ones
COPIES = 2  # samples of one length that each bin has beyond its parent's
FIRST = 3  # number of the first bin
NUM = 4  # bins that (still) have just this content
ROOM = 5  # what still fits into each of the bins
SIZE = 6  # samples in each bin
NEXT = 7  # a link for whoever builds the groups
WIDTH = 8


@kernel
def empty_groups(num_lengths):
    """Space for the groups of so many distinct lengths; seldom too little."""
    return np.empty((64 + 3 * num_lengths) * WIDTH, np.int64)


@kernel
def copied(array, end, size):
    """An array of `size` that begins like `array` does up to `end`."""
    larger = np.empty(size, np.int64)
    for k in range(end):  # a slice assignment takes seconds to compile
        larger[k] = array[k]
    return larger


@kernel
def write_ids(groups, num_groups, num_bins, order):
    """Sample ids bin by bin, longest first, and where each bin begins. O(samples).

    `order` has the ids longest first. Returns (ids, offsets).
    """
    offsets = np.empty(num_bins + 1, np.int64)
    offsets[0] = 0
    for g in range(num_groups):
        first = groups[g * WIDTH + FIRST]
        for b in range(first, first + groups[g * WIDTH + NUM]):
            offsets[b + 1] = groups[g * WIDTH + SIZE]
    for b in range(num_bins):
        offsets[b + 1] += offsets[b]
    ids = np.empty(order.size, np.int64)
    for g in range(num_groups):
        first = groups[g * WIDTH + FIRST]
        for b in range(first, first + groups[g * WIDTH + NUM]):
            row, end = g * WIDTH, offsets[b + 1]
            while row >= 0:
                copies = groups[row + COPIES]
                begin = groups[row + BASE] + b * copies
                end -= copies
                for k in range(copies):
                    ids[end + k] = order[begin + k]
                row = groups[row + PARENT]
    return ids, offsets
