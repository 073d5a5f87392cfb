"""Filling one bin after the other with lengths that add up to its capacity.

Where lengths are a sizeable share of the capacity, best-fit decreasing leaves room that no pair
or triple of other lengths would leave. Here each bin takes the longest sample left, then the
longest that fit, and ends with the one, two or three lengths that leave the least room. All
samples that can repeat a bin's content do so at once, so the time depends on the distinct lengths.

Contents are records in a flat int64 array: number of bins, room left in each, number of distinct
lengths, then pairs of a length and how often a bin has it.
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
)  # fmt: skip
from balancer.kernels.packing_index import add, discard, next_member, num_words

__all__ = ["contents_as_groups", "draw", "fill_bins", "give", "new_stock"]

_PAIRS_TRIED = 64


@kernel
def new_stock(longest):
    """An empty stock of samples by length: (counts, bitmap words, bitmap summary).

    The bitmap has `longest - length`, so that its next member is the next shorter length.
    """
    words = np.zeros(num_words(longest + 1), np.int64)
    return np.zeros(longest + 1, np.int64), words, np.zeros(num_words(words.size), np.int64)


@inlined
def give(stock, length, copies):
    """Put samples of one length into the stock."""
    counts, words, summary = stock
    if counts[length] == 0:
        add(words, summary, counts.size - 1 - length)
    counts[length] += copies


@inlined
def _take(stock, length, copies):
    counts, words, summary = stock
    counts[length] -= copies
    if counts[length] == 0:
        discard(words, summary, counts.size - 1 - length)


@inlined
def _longest_within(stock, room):
    """Largest length in the stock that is at most `room`, or -1."""
    counts, words, summary = stock
    if room < 0:
        return -1
    longest = counts.size - 1
    found = next_member(words, summary, longest - min(room, longest))
    return longest - found if found >= 0 else -1


@kernel
def draw(state, size):
    """A pseudo-random number in `[0, size)`; `state` is one uint64 (xorshift; Marsaglia, 2003)."""
    bits = state[0]
    bits ^= bits << np.uint64(13)
    bits ^= bits >> np.uint64(7)
    bits ^= bits << np.uint64(17)
    state[0] = bits
    return np.int64((bits >> np.uint64(33)) % np.uint64(size))


@inlined
def _best_pair(stock, room, limit, least, enough, offset):
    """One or two lengths <= `limit` that leave less than `least` of `room`: (left, a, b) or -1s.

    One before two; of pairs, the most alike first, or those from `offset` further apart. Ends with
    the first that leave at most `enough`.
    """
    counts = stock[0]
    a = _longest_within(stock, min(room, limit))
    if a < 0:
        return least, -1, -1
    best_a, best_b = -1, -1
    if room - a < least:
        least, best_a = room - a, a
    b = _longest_within(stock, min(max(1, room // 2 - offset), limit))
    for _ in range(_PAIRS_TRIED):
        if b <= 0 or least <= enough or room - b - limit >= least:
            break
        a = _longest_within(stock, min(room - b, limit))
        if (a > b or (a == b and counts[a] > 1)) and room - a - b < least:
            least, best_a, best_b = room - a - b, a, b
        b = _longest_within(stock, b - 1)
    return least, best_a, best_b


@kernel
def _best_end(stock, room, limit, enough, thirds, spread, state):
    """Up to three lengths to end a bin with, -1 where fewer.

    The fewest that leave at most `enough` of `room`, or else those that leave the least.
    """
    offset = draw(state, spread) if spread > 1 else 0
    least, a, b = _best_pair(stock, room, limit, room, enough, offset)
    third = -1
    step = max(1, room // 3 // thirds)
    t = room // 3 - (draw(state, step) if spread > 1 else 0)
    for _ in range(thirds):
        t = _longest_within(stock, t)
        if t <= 0 or least <= enough:
            break
        _take(stock, t, 1)
        left, two_a, two_b = _best_pair(stock, room - t, limit, least, enough, offset)
        give(stock, t, 1)
        if left < least:
            least, a, b, third = left, two_a, two_b, t
        t -= step
    return a, b, third


@inlined
def _put(contents, begin, end, length, copies):
    """Add copies of a length to the record that begins at `begin`; returns its end."""
    for k in range(begin + 3, end, 2):
        if contents[k] == length:
            contents[k + 1] += copies
            return end
    contents[end], contents[end + 1] = length, copies
    contents[begin + 2] += 1
    return end + 2


@kernel
def _fill_one(stock, contents, begin, longest, capacity, enough, thirds, spread, state):
    """Write the content of one bin at `begin` and take it from the stock; returns its end."""
    contents[begin], contents[begin + 2] = 1, 0
    end, room, copies = begin + 3, capacity, 1
    length = longest
    while True:
        _take(stock, length, copies)
        end = _put(contents, begin, end, length, copies)
        room -= copies * length
        length = _longest_within(stock, min(longest, room))
        if length <= 0 or room <= 2 * length:
            break
        copies = min(stock[0][length], (room + length - 1) // length - 2)
    if length > 0:
        for part in _best_end(stock, room, longest, enough, thirds, spread, state):
            if part > 0:
                _take(stock, part, 1)
                end = _put(contents, begin, end, part, 1)
                room -= part
    contents[begin + 1] = room
    return end


@kernel
def fill_bins(stock, samples, capacity, enough, thirds, spread, state, contents, end):
    """Fill bins from the stock until it is empty; records are appended to `contents` at `end`.

    All lengths are > 0. With `spread > 1` the last lengths are looked for from random places.
    Returns (contents, end, bins, sum over bins of the room left, squared).
    """
    bins, squares = 0, 0.0
    longest = stock[0].size - 1
    most = 2 * int((2.0 * capacity) ** 0.5) + 16  # distinct lengths in a bin: 1 + 2 + ... fit
    while samples > 0:
        longest = _longest_within(stock, longest)
        if end + most > contents.size:
            contents = copied(contents, end, 2 * contents.size + most)
        begin = end
        end = _fill_one(stock, contents, begin, longest, capacity, enough, thirds, spread, state)
        more = samples
        held = 0
        for k in range(begin + 3, end, 2):
            more = min(more, stock[0][contents[k]] // contents[k + 1])
            held += contents[k + 1]
        if more > 0:
            for k in range(begin + 3, end, 2):
                _take(stock, contents[k], more * contents[k + 1])
        contents[begin] = more + 1
        samples -= held * (more + 1)
        bins += more + 1
        squares += float(more + 1) * float(contents[begin + 1]) ** 2
    return contents, end, bins, squares


@kernel
def contents_as_groups(contents, end, lengths, counts):
    """The records as groups of bins: (groups, number of groups, number of bins)."""
    nexts = np.empty(lengths[0] + 1, np.int64)
    item = 0
    for t in range(lengths.size):
        nexts[lengths[t]] = item
        item += counts[t]
    groups = np.empty(max(1, end) * WIDTH, np.int64)
    g, first, begin = 0, 0, 0
    while begin < end:
        num = contents[begin]
        parent, size = -1, 0
        stop = begin + 3 + 2 * contents[begin + 2]
        for k in range(begin + 3, stop, 2):
            length, copies = contents[k], contents[k + 1]
            row = g * WIDTH
            size += copies
            groups[row + PARENT] = parent
            groups[row + BASE] = nexts[length] - first * copies
            groups[row + COPIES] = copies
            groups[row + FIRST] = first
            groups[row + NUM] = num if k + 2 == stop else 0
            groups[row + ROOM] = contents[begin + 1]
            groups[row + SIZE] = size
            groups[row + NEXT] = -1
            nexts[length] += num * copies
            parent = row
            g += 1
        first += num
        begin = stop
    return groups, g, first
