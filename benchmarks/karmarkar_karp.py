"""The partition that RLHF frameworks balance ranks with, as published: the peer to compare with.

Largest differencing on Python objects in a heap, after `karmarkar_karp` of verl
(github.com/verl-project/verl, verl/utils/seqlen_balancing.py; the same in AReaL and slime): every
state holds all `num_parts` subsets, also the empty ones, subsets compare by sum, number and
items. Written anew from the description; same result, same complexity.
"""

import heapq
from collections.abc import Sequence

__all__ = ["karmarkar_karp"]


class _Subset:
    """Items and their sum."""

    def __init__(self) -> None:
        self.total = 0
        self.items: list[tuple[int, int]] = []

    def put(self, item: int, cost: int) -> None:
        self.items.append((item, cost))
        self.total += cost

    def absorb(self, other: "_Subset") -> None:
        for item, cost in other.items:
            self.put(item, cost)

    def __lt__(self, other: "_Subset") -> bool:
        if self.total != other.total:
            return self.total < other.total
        if len(self.items) != len(other.items):
            return len(self.items) < len(other.items)
        return self.items < other.items


class _Partial:
    """A partition of some items, largest subset first; the largest spread comes out first."""

    def __init__(self, items: Sequence[tuple[int, int]], num_parts: int) -> None:
        self.subsets = [_Subset() for _ in range(num_parts)]
        for subset, (cost, item) in zip(self.subsets, items, strict=False):
            subset.put(item, cost)
        self.subsets.sort(reverse=True)

    @property
    def spread(self) -> int:
        return self.subsets[0].total - self.subsets[-1].total

    def absorb(self, other: "_Partial") -> None:
        for largest, smallest in zip(self.subsets, reversed(other.subsets), strict=True):
            largest.absorb(smallest)
        self.subsets.sort(reverse=True)

    def __lt__(self, other: "_Partial") -> bool:
        if self.spread != other.spread:
            return self.spread > other.spread
        return other.subsets[0] < self.subsets[0]


def karmarkar_karp(costs: Sequence[int], num_parts: int, *, equal_size: bool) -> list[list[int]]:
    """Items of each part, by largest differencing.

    With `equal_size` the first states are runs of `num_parts` items in order of cost, one in each
    subset; the number of items must then be a multiple of `num_parts`.
    """
    ascending = sorted((int(cost), item) for item, cost in enumerate(costs))
    chunk = num_parts if equal_size else 1
    heap = [
        _Partial(ascending[begin : begin + chunk], num_parts)
        for begin in range(0, len(ascending), chunk)
    ]
    heapq.heapify(heap)
    while len(heap) > 1:
        first, second = heapq.heappop(heap), heapq.heappop(heap)
        first.absorb(second)
        heapq.heappush(heap, first)
    return [[item for item, _ in subset.items] for subset in heap[0].subsets]
