"""Planners in use elsewhere, as functions: which microbatch each sample of a step goes to.

Each takes the costs of one step's samples, in their given order, and the topology, and returns the
cell `slot * dp_size + rank` of each sample, int64 `(num_samples,)`. Every baseline places the same
samples and leaves no microbatch empty. None of them knows the costs: they see the tokens only.
"""

from bisect import bisect_left, insort
from heapq import heapify, heapreplace

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.given_order import given_cells
from balancer.topology import Topology

__all__ = ["arrival", "best_fit", "length_grouped", "token_greedy"]

_CAPACITY_STEP = 1 / 64
_INT = NDArray[np.int64]


def arrival(costs: Costs, topology: Topology) -> _INT:
    """The given order: rank p mod dp_size, microbatch after microbatch.

    torch.utils.data.DistributedSampler with microbatches of a fixed number of samples.
    """
    return given_cells(len(costs), topology.dp_size, topology.num_microbatches)


def length_grouped(costs: Costs, topology: Topology) -> _INT:
    """Sorted by tokens, longest first, then dealt like the given order.

    transformers, trainer_pt_utils.py, `get_length_grouped_indices` sorts within a pool of batches
    and `DistributedLengthGroupedSampler` deals the sorted samples to the ranks one by one. The
    pool here is the step, so that all planners run the same samples in it.
    """
    cells = np.empty(len(costs), np.int64)
    cells[_longest_first(costs)] = arrival(costs, topology)
    return cells


def token_greedy(costs: Costs, topology: Topology) -> _INT:
    """Longest first, each to the microbatch with the fewest tokens so far (then the first).

    Longest processing time (Graham, 1969) on tokens over all microbatches of all ranks, as in
    verl, utils/seqlen_balancing.py, `greedy_partition`.
    """
    loads = [(0, cell) for cell in range(_num_cells(topology))]
    heapify(loads)
    cells = np.empty(len(costs), np.int64)
    for sample in _longest_first(costs).tolist():
        load, cell = loads[0]
        cells[sample] = cell
        heapreplace(loads, (load + int(costs.tokens[sample]), cell))
    return _without_empty(cells, costs.tokens, topology)


def best_fit(costs: Costs, topology: Topology) -> _INT:
    """Best-fit decreasing on tokens into as many bins as microbatches, dealt in turn.

    Packing to a token budget (Krell et al. 2021, arXiv:2107.02027; Ding et al. 2024,
    arXiv:2404.10830). The budget is `max_tokens` if the bins suffice under it, else the least at
    which they do, in steps of 1/64 of the mean. Bins go to ranks in the order they were opened.
    """
    order = _longest_first(costs)
    lengths = costs.tokens[order].tolist()
    num_cells = _num_cells(topology)
    mean = -(-sum(lengths) // num_cells)
    capacity = topology.limits.max_tokens or max(mean, lengths[0])
    bins = _best_fit_decreasing(lengths, capacity, num_cells)
    while bins is None:
        capacity += max(1, int(mean * _CAPACITY_STEP))
        bins = _best_fit_decreasing(lengths, capacity, num_cells)
    cells = np.empty(len(costs), np.int64)
    cells[order] = bins
    return _without_empty(cells, costs.tokens, topology)


def _best_fit_decreasing(lengths: list[int], capacity: int, num_bins: int) -> list[int] | None:
    """Bin of each length (descending), or None where `num_bins` do not suffice. O(n log n)."""
    free: list[tuple[int, int]] = []
    bins, opened = [], 0
    for length in lengths:
        place = bisect_left(free, (length, -1))
        if place < len(free):
            room, chosen = free.pop(place)
        elif opened < num_bins and length <= capacity:
            room, chosen = capacity, opened
            opened += 1
        else:
            return None
        bins.append(chosen)
        insort(free, (room - length, chosen))
    return bins


def _longest_first(costs: Costs) -> _INT:
    return np.argsort(-costs.tokens, kind="stable")


def _num_cells(topology: Topology) -> int:
    return topology.dp_size * topology.num_microbatches


def _without_empty(cells: _INT, tokens: _INT, topology: Topology) -> _INT:
    """Give each empty microbatch the shortest sample of the one that holds the most samples."""
    counts = np.bincount(cells, minlength=_num_cells(topology))
    for empty in np.flatnonzero(counts == 0):
        crowded = int(np.argmax(counts))
        inside = np.flatnonzero(cells == crowded)
        cells[inside[np.argmin(tokens[inside])]] = empty
        counts[crowded] -= 1
        counts[empty] += 1
    return cells
