"""Tokens placed greedily, longest sample first."""

from heapq import heapify, heapreplace

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Topology
from benchmarks.baselines.cells import cells_of, largest_first, num_cells, without_empty

__all__ = ["longest_processing_time", "token_greedy"]


def longest_processing_time(sizes: NDArray[np.int64], num_parts: int) -> list[list[int]]:
    """Items of each part: the largest first, each to the part with the least (then the first).

    Longest processing time (Graham, 1969). Each part has its items in the order they came.
    """
    loads = [(0, part) for part in range(num_parts)]
    heapify(loads)
    parts: list[list[int]] = [[] for _ in range(num_parts)]
    for item in largest_first(sizes).tolist():
        load, part = loads[0]
        parts[part].append(item)
        heapreplace(loads, (load + int(sizes[item]), part))
    return parts


def token_greedy(costs: Costs, topology: Topology) -> NDArray[np.int64]:
    """Longest first, each to the microbatch with the fewest tokens so far (then the first).

    Longest processing time on tokens over all microbatches of all ranks, as in verl,
    utils/seqlen_balancing.py, `greedy_partition`.
    """
    parts = longest_processing_time(costs.tokens, num_cells(topology))
    return without_empty(cells_of(parts, len(costs)), costs.tokens, topology)
