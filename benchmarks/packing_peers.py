"""Packers in use elsewhere, re-implemented from their published descriptions, to be timed beside.

Each takes the lengths (int64) and the capacity and returns the samples of each bin, as lists, in
the form its users get them.
"""

from bisect import bisect_right
from collections import deque

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["first_fit_arrays", "knapsack", "segment_tree_best_fit"]

_INT = NDArray[np.int64]


def segment_tree_best_fit(lengths: _INT, capacity: int) -> list[list[int]]:
    """Best-fit decreasing by a segment tree over room, in Python.

    Ding et al. 2024, "Fewer Truncations Improve Language Modeling" (arXiv:2404.10830), section 3;
    TRL, data_utils.py, `_pack_bfd`, is this algorithm.
    """
    leaves = 1 << capacity.bit_length()
    tree = [0] * (2 * leaves)  # largest room below each node
    bins_at: dict[int, deque[int]] = {}
    bins: list[list[int]] = []
    for sample in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[sample])
        room = _least_room(tree, leaves, length)
        if room is None:
            room = capacity
            bins.append([])
            chosen = len(bins) - 1
        else:
            chosen = bins_at[room].popleft()
            if not bins_at[room]:
                _set(tree, leaves, room, 0)
        bins[chosen].append(sample)
        rest = room - length
        if rest > 0:
            waiting = bins_at.setdefault(rest, deque())
            if not waiting:
                _set(tree, leaves, rest, rest)
            waiting.append(chosen)
    return bins


def _least_room(tree: list[int], leaves: int, length: int) -> int | None:
    """Least room >= `length` that some bin has."""
    node = leaves + length
    if tree[node]:
        return length
    while node > 1:
        if node % 2 == 0 and tree[node + 1]:
            node += 1
            while node < leaves:
                node = 2 * node if tree[2 * node] else 2 * node + 1
            return node - leaves
        node //= 2
    return None


def _set(tree: list[int], leaves: int, room: int, value: int) -> None:
    node = leaves + room
    tree[node] = value
    while node > 1:
        node //= 2
        tree[node] = max(tree[2 * node], tree[2 * node + 1])


def knapsack(lengths: _INT, capacity: int) -> list[list[int]]:
    """Bin after bin, each time the longest sample left that still fits, by bisection.

    LLaMA-Factory, data/processor/processor_utils.py, `greedy_knapsack`.
    """
    order = np.argsort(lengths, kind="stable")
    sizes, ids = lengths[order].tolist(), order.tolist()
    bins = []
    while sizes:
        room, held = capacity, []
        while True:
            place = bisect_right(sizes, room) - 1
            if place < 0:
                break
            room -= sizes.pop(place)
            held.append(ids.pop(place))
        bins.append(held)
    return bins


def first_fit_arrays(lengths: _INT, capacity: int) -> list[list[int]]:
    """First-fit decreasing by a compiled scan over all bins.

    imoneoi/multipack_sampler, `ffd_check` and `ffd_with_result`: `np.sort(...)[::-1]`, then for
    each length a loop over the bins.
    """
    order = np.argsort(lengths, kind="stable")[::-1]
    chosen, num_bins = _first_fit(lengths[order], capacity)
    bins: list[list[int]] = [[] for _ in range(num_bins)]
    for sample, place in zip(order.tolist(), chosen.tolist(), strict=True):
        bins[place].append(sample)
    return bins


@njit
def _first_fit(lengths, capacity):  # type: ignore[no-untyped-def]
    rooms = np.empty(lengths.size, np.int64)
    chosen = np.empty(lengths.size, np.int64)
    num_bins = 0
    for t in range(lengths.size):
        place = 0
        while place < num_bins and rooms[place] < lengths[t]:
            place += 1
        if place == num_bins:
            rooms[place] = capacity
            num_bins += 1
        rooms[place] -= lengths[t]
        chosen[t] = place
    return chosen, num_bins
