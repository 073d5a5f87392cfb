"""Order of an epoch: a seeded pseudo-random permutation with O(1) memory and random access."""

import numpy as np

from balancer.kernels.compiled import kernel

__all__ = ["permuted", "positions_of"]


@kernel
def _mix(value):
    """Finaliser of SplitMix64 (Steele, Lea and Flood, 2014): 64 bits in, 64 well-mixed bits out."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@kernel
def _network(size, seed, epoch):
    """Bits of half a value, their mask, and the key of the epoch's Feistel network."""
    half = np.uint64(1)
    while (np.uint64(1) << (half * np.uint64(2))) < np.uint64(size):
        half += np.uint64(1)
    mask = (np.uint64(1) << half) - np.uint64(1)
    key = _mix(_mix(np.uint64(seed)) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(epoch + 1))
    return half, mask, key


@kernel
def permuted(positions, size, seed, epoch):
    """Sample id at each position of the epoch's order, for positions in `[0, size)`.

    A balanced Feistel network over the next even number of bits, walked until it lands inside
    `size` (cycle walking; Black and Rogaway, 2002), so it is a permutation whatever `size` is.
    Expected O(1) a position: the domain is less than four times `size`.
    """
    half, mask, key = _network(size, seed, epoch)
    ids = np.empty(positions.size, np.int64)
    for index in range(positions.size):
        value = np.uint64(positions[index])
        while True:
            left, right = value >> half, value & mask
            for turn in range(6):
                mixed = _mix((right ^ key) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(turn + 1))
                left, right = right, left ^ (mixed & mask)
            value = (left << half) | right
            if value < np.uint64(size):
                break
        ids[index] = np.int64(value)
    return ids


@kernel
def positions_of(ids, size, seed, epoch):
    """Position of each sample id in the epoch's order: `permuted` backwards."""
    half, mask, key = _network(size, seed, epoch)
    positions = np.empty(ids.size, np.int64)
    for index in range(ids.size):
        value = np.uint64(ids[index])
        while True:
            left, right = value >> half, value & mask
            for turn in range(6, 0, -1):
                mixed = _mix((left ^ key) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(turn))
                left, right = right ^ (mixed & mask), left
            value = (left << half) | right
            if value < np.uint64(size):
                break
        positions[index] = np.int64(value)
    return positions
