"""Best-fit decreasing to a token budget."""

from bisect import bisect_left, insort

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Topology
from benchmarks.baselines.cells import (
    largest_first,
    num_cells,
    with_least_budget,
    without_empty,
)

__all__ = ["best_fit"]


def best_fit(costs: Costs, topology: Topology) -> NDArray[np.int64]:
    """Best-fit decreasing on tokens into as many bins as microbatches, dealt in turn.

    Packing to a token budget (Krell et al. 2021, arXiv:2107.02027; Ding et al. 2024,
    arXiv:2404.10830). The budget is `max_tokens` if the bins suffice under it, else the least at
    which they do, in steps of 1/64 of the mean. Bins go to ranks in the order they were opened.
    """
    order = largest_first(costs.tokens)
    lengths = costs.tokens[order].tolist()
    bins = num_cells(topology)
    mean = -(-sum(lengths) // bins)
    cells = np.empty(len(costs), np.int64)
    cells[order] = with_least_budget(
        topology.limits.max_tokens or max(mean, lengths[0]),
        mean,
        lambda budget: _best_fit_decreasing(lengths, budget, bins),
    )
    return without_empty(cells, costs.tokens, topology)


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
