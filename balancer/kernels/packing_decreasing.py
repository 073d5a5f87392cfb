"""Best-fit and first-fit decreasing into bins of one capacity, on groups of equal bins.

Both take the distinct lengths in descending order with how often each occurs. All samples of one
length that a rule puts into equal bins are put there at once, so that the time depends on the
number of distinct lengths and not on the number of samples. The result is that of the rule applied
sample by sample, longest first. Returned are (groups, number of groups, number of bins).
"""

import numpy as np

from balancer.kernels.compiled import inlined, kernel
from balancer.kernels.packing_groups import (
    BASE,
    COPIES,
    FIRST,
    NEXT,
    NUM,
    PARENT,
    ROOM,
    SIZE,
    WIDTH,
    copied,
    empty_groups,
)  # fmt: skip
from balancer.kernels.packing_index import add, discard, next_member, num_words

__all__ = ["best_fit_decreasing", "first_fit_decreasing"]


@inlined
def _write(groups, g, parent, base, copies, first, num, room, size):
    row = g * WIDTH
    groups[row + PARENT] = parent
    groups[row + BASE] = base - first * copies
    groups[row + COPIES] = copies
    groups[row + FIRST] = first
    groups[row + NUM] = num
    groups[row + ROOM] = room
    groups[row + SIZE] = size
    groups[row + NEXT] = -1


@inlined
def _split(groups, g, parent, item, count, length):
    """Write groups `g` and maybe `g + 1`: the first bins of row `parent`, filled with a length.

    Each bin takes as many copies as fit, the last one what is left of `count`. Takes the bins from
    the parent and returns (groups written, samples placed); there is space for two.
    """
    first, num = groups[parent + FIRST], groups[parent + NUM]
    room, size = groups[parent + ROOM], groups[parent + SIZE]
    copies = room // length if length > 0 else count
    full = num if num * copies <= count else count // copies
    written = 0
    if full > 0:
        used = room - copies * length
        _write(groups, g, parent, item, copies, first, full, used, size + copies)
        written += 1
    placed = full * copies
    rest = count - placed
    if full < num and rest > 0:
        begin, used = first + full, room - rest * length
        _write(groups, g + written, parent, item + placed, rest, begin, 1, used, size + rest)
        written += 1
        placed += rest
        full += 1
    groups[parent + FIRST] += full
    groups[parent + NUM] -= full
    return written, placed


@inlined
def _new_bins(groups, g, num_bins, count, length, capacity):
    """Write group `g` of as many empty bins as `count` copies need; returns how many."""
    copies = capacity // length if length > 0 else count
    num = (count + copies - 1) // copies
    _write(groups, g, -1, 0, 0, num_bins, num, capacity, 0)
    return num


@inlined
def _enqueue(groups, g, shift, heads, tails, words, summary):
    """Put a group in the queue of its room, behind those that have as much."""
    row = g * WIDTH
    room = groups[row + ROOM]
    bucket = room >> shift
    word = words[bucket >> 6]
    if (word >> (bucket & 63)) & 1 == 0:
        add(words, summary, bucket)
        heads[bucket] = row
        tails[bucket] = row
    elif groups[tails[bucket] + ROOM] <= room:
        groups[tails[bucket] + NEXT] = row
        tails[bucket] = row
    elif groups[heads[bucket] + ROOM] > room:
        groups[row + NEXT] = heads[bucket]
        heads[bucket] = row
    else:
        before = heads[bucket]
        while groups[groups[before + NEXT] + ROOM] <= room:
            before = groups[before + NEXT]
        groups[row + NEXT] = groups[before + NEXT]
        groups[before + NEXT] = row


@inlined
def _dequeue(groups, row, before, bucket, heads, tails, words, summary):
    """Take a group that has no bins left out of its queue."""
    after = groups[row + NEXT]
    if before < 0:
        heads[bucket] = after
        if after < 0:
            discard(words, summary, bucket)
    else:
        groups[before + NEXT] = after
    if after < 0:
        tails[bucket] = before


@inlined
def _best_room(groups, length, shift, heads, words, summary):
    """Group row with the least room >= `length`, the row before it in its bucket, the bucket."""
    bucket = next_member(words, summary, length >> shift)
    before = -1
    while bucket >= 0:
        before, row = -1, heads[bucket]
        while row >= 0 and groups[row + ROOM] < length:
            before, row = row, groups[row + NEXT]
        if row >= 0:
            return row, before, bucket
        bucket = next_member(words, summary, bucket + 1)
    return -1, before, bucket


@kernel
def best_fit_decreasing(lengths, counts, capacity, shift):
    """Each sample to the bin with the least room that takes it.

    Among bins with as much room, to the one that has had it longest. Rooms are indexed by a bitmap
    of `room >> shift`; those of one bit are kept in ascending order.
    """
    size = (capacity >> shift) + 1
    words = np.zeros(num_words(size), np.int64)
    summary = np.zeros(num_words(words.size), np.int64)
    heads, tails = np.empty(size, np.int64), np.empty(size, np.int64)
    groups = empty_groups(lengths.size)
    g, num_bins, item = np.int64(0), np.int64(0), np.int64(0)  # not literals: one compilation
    shortest = lengths[-1] if lengths.size else 0
    for t in range(lengths.size):
        length, count = lengths[t], counts[t]
        while count > 0:
            if (g + 3) * WIDTH > groups.size:
                groups = copied(groups, g * WIDTH, 2 * groups.size)
            row, before, bucket = _best_room(groups, length, shift, heads, words, summary)
            fresh = row < 0
            if fresh:
                num_bins += _new_bins(groups, g, num_bins, count, length, capacity)
                row = g * WIDTH
                g += 1
            written, placed = _split(groups, g, row, item, count, length)
            if not fresh and groups[row + NUM] == 0:
                _dequeue(groups, row, before, bucket, heads, tails, words, summary)
            for k in range(written):
                if groups[(g + k) * WIDTH + ROOM] >= shortest:
                    _enqueue(groups, g + k, shift, heads, tails, words, summary)
            g += written
            item += placed
            count -= placed
    return groups, g, num_bins


@kernel
def _set_leaf(tree, leaves, place, room):
    node = leaves + place
    tree[node] = room
    node >>= 1
    while node > 0:
        most = max(tree[2 * node], tree[2 * node + 1])
        if tree[node] == most:
            break
        tree[node] = most
        node >>= 1


@kernel
def first_fit_decreasing(lengths, counts, capacity):
    """Each sample to the first bin that takes it.

    A tree over the bins has the largest room below each of its nodes (Johnson, 1974); a group
    stands at its first bin.
    """
    total, num_samples = 0, 0
    for t in range(lengths.size):
        total += lengths[t] * counts[t]
        num_samples += counts[t]
    leaves = 1
    while leaves < min(num_samples, 2 * total // max(1, capacity) + 1) + 1:
        leaves *= 2
    tree, group_at = np.full(2 * leaves, -1, np.int64), np.empty(leaves, np.int64)
    groups = empty_groups(lengths.size)
    g, num_bins, item = np.int64(0), np.int64(0), np.int64(0)  # not literals: one compilation
    for t in range(lengths.size):
        length, count = lengths[t], counts[t]
        while count > 0:
            if (g + 3) * WIDTH > groups.size:
                groups = copied(groups, g * WIDTH, 2 * groups.size)
            if tree[1] >= length:
                node = 1
                while node < leaves:
                    node *= 2
                    if tree[node] < length:
                        node += 1
                row = group_at[node - leaves]
            else:
                num_bins += _new_bins(groups, g, num_bins, count, length, capacity)
                row = g * WIDTH
                g += 1
            written, placed = _split(groups, g, row, item, count, length)
            for k in range(written):
                place = groups[(g + k) * WIDTH + FIRST]
                group_at[place] = (g + k) * WIDTH
                _set_leaf(tree, leaves, place, groups[(g + k) * WIDTH + ROOM])
            if groups[row + NUM] > 0:
                group_at[groups[row + FIRST]] = row
                _set_leaf(tree, leaves, groups[row + FIRST], groups[row + ROOM])
            g += written
            item += placed
            count -= placed
    return groups, g, num_bins
