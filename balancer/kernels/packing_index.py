"""A set of small whole numbers as a bitmap of two levels, asked for the next member.

Bit `i` of word `w` stands for the number `64 * w + i`; `summary` has one bit for each word that is
not zero. Both are int64 arrays; the sign bit is a bit like the others.
"""

import numpy as np

from balancer.kernels.compiled import inlined, kernel

__all__ = ["add", "discard", "next_member", "num_words"]

_DE_BRUIJN = 0x03F79D71B4CB0A89
_PLACE_OF_BIT = np.zeros(64, np.int64)
for _bit in range(64):
    _PLACE_OF_BIT[((_DE_BRUIJN << _bit) % 2**64) >> 58] = _bit


@kernel
def num_words(size):
    """Words for the numbers 0 to `size - 1`; `num_words` of these are the summary's words."""
    return (size + 63) // 64


@inlined
def add(words, summary, number):
    """Put a number into the set."""
    word = number >> 6
    words[word] |= np.int64(1) << (number & 63)
    summary[word >> 6] |= np.int64(1) << (word & 63)


@inlined
def discard(words, summary, number):
    """Take a number out of the set."""
    word = number >> 6
    words[word] &= ~(np.int64(1) << (number & 63))
    if words[word] == 0:
        summary[word >> 6] &= ~(np.int64(1) << (word & 63))


@inlined
def _lowest_bit(word):
    """Place of the lowest bit set, by a de Bruijn sequence (Leiserson, Prokop, Randall, 1998)."""
    return _PLACE_OF_BIT[(((word & -word) * np.int64(_DE_BRUIJN)) >> 58) & 63]


@inlined
def next_member(words, summary, number):
    """Smallest member >= `number`, or -1. O(1) but for a scan over the summary's words."""
    word = number >> 6
    if word >= words.size:
        return -1
    rest = words[word] & (np.int64(-1) << (number & 63))
    if rest != 0:
        return (word << 6) + _lowest_bit(rest)
    word += 1
    top = word >> 6
    if top >= summary.size:
        return -1
    rest = summary[top] & (np.int64(-1) << (word & 63))
    while rest == 0:
        top += 1
        if top >= summary.size:
            return -1
        rest = summary[top]
    word = (top << 6) + _lowest_bit(rest)
    return (word << 6) + _lowest_bit(words[word])
