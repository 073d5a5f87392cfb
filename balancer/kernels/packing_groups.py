"""Groups of bins with equal content, and the ids they stand for.

Samples of equal length are interchangeable, so bins are handled in groups: `num` bins of
consecutive numbers that hold the same lengths. A group is a row of the flat array `groups`, with
the columns below; its content is that of its parent and `COPIES` more of one length.
"""

import numpy as np
from numba import njit

__all__ = [
    "BASE", "COPIES", "FIRST", "NEXT", "NUM", "PARENT", "ROOM", "SIZE", "WIDTH", "empty_groups",
    "with_room_for_two", "write_ids",
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


@njit(nogil=True)
def empty_groups():
    """Space for some groups."""
    return np.empty(256 * WIDTH, np.int64)


@njit(nogil=True)
def with_room_for_two(groups, num_groups):
    """The same groups with space for at least two more."""
    if (num_groups + 2) * WIDTH <= groups.size:
        return groups
    larger = np.empty(2 * groups.size, np.int64)
    larger[: groups.size] = groups
    return larger


@njit(nogil=True)
def write_ids(groups, num_groups, num_bins, order):
    """Sample ids bin by bin, longest first, and where each bin begins. O(samples).

    `order` has the ids longest first. Returns (ids, offsets).
    """
    last = np.empty(num_bins, np.int64)
    for g in range(num_groups):
        row = g * WIDTH
        for b in range(groups[row + FIRST], groups[row + FIRST] + groups[row + NUM]):
            last[b] = row
    offsets = np.empty(num_bins + 1, np.int64)
    offsets[0] = 0
    ids = np.empty(order.size, np.int64)
    for b in range(num_bins):
        row = last[b]
        end = offsets[b] + groups[row + SIZE]
        offsets[b + 1] = end
        while row >= 0:
            copies = groups[row + COPIES]
            begin = groups[row + BASE] + b * copies
            end -= copies
            for k in range(copies):
                ids[end + k] = order[begin + k]
            row = groups[row + PARENT]
    return ids, offsets
