"""Stable order of whole numbers, digit by digit."""

import numpy as np

from balancer.kernels.compiled import kernel

__all__ = ["radix_order"]


@kernel
def _starts(keys, flipped, place_bits, digit_bits, starts, packed):
    """Where the keys of each digit begin, digit after digit; packs each key with its position."""
    num_digits = np.int64(1) << digit_bits
    mask = num_digits - 1
    for i in range(keys.size):
        key = abs(keys[i] - flipped)
        packed[i] = (key << place_bits) | i
        for first in range(0, starts.size, num_digits):
            starts[first + (key & mask)] += 1
            key >>= digit_bits
    for first in range(0, starts.size, num_digits):
        begin = np.int64(0)
        for digit in range(first, first + num_digits):
            count = starts[digit]
            starts[digit] = begin
            begin += count


@kernel
def radix_order(keys, flipped, place_bits, digit_bits, num_passes):
    """Positions that sort `keys` ascending, equal keys in their given order.

    With the largest key as `flipped` the order is descending, otherwise `flipped` is 0. Keys are
    >= 0 and below `2**(digit_bits * num_passes)`, positions below `2**place_bits`; together they
    have at most 63 bits. Sorts by the last digit first (Knuth, volume 3, section 5.2.5).
    O(size * num_passes + 2**digit_bits * num_passes).
    """
    starts = np.zeros(num_passes << digit_bits, np.int64)
    packed, other = np.empty(keys.size, np.int64), np.empty(keys.size, np.int64)
    _starts(keys, flipped, place_bits, digit_bits, starts, packed)
    mask = (np.int64(1) << digit_bits) - 1
    for turn in range(num_passes):
        shift, first = place_bits + turn * digit_bits, turn << digit_bits
        for i in range(keys.size):
            digit = first + ((packed[i] >> shift) & mask)
            other[starts[digit]] = packed[i]
            starts[digit] += 1
        packed, other = other, packed
    places = (np.int64(1) << place_bits) - 1
    for i in range(keys.size):
        packed[i] &= places
    return packed
