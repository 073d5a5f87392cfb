"""Multipack: as much of the order into a slot as its ranks can take under a token budget."""

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Topology
from benchmarks.baselines.cells import cells_of, num_cells, with_least_budget, without_empty
from benchmarks.baselines.greedy import longest_processing_time

__all__ = ["multipack_slots"]

_INT = NDArray[np.int64]


def multipack_slots(costs: Costs, topology: Topology) -> _INT:
    """Slot after slot, the longest run of the given order that its ranks can share in budget.

    github.com/imoneoi/multipack_sampler, multipack_sampler.py (2024): bisection on the run, judged
    by longest processing time over the ranks. The sampler runs until the samples end; here the
    slots are given, and the budget is the least, in steps of 1/64 of the mean, they suffice at.
    """
    mean = -(-int(costs.tokens.sum()) // num_cells(topology))
    slots = with_least_budget(
        max(mean, int(costs.tokens.max())),
        mean,
        lambda budget: _slots(costs.tokens, topology, budget),
    )
    return without_empty(cells_of(slots, len(costs)), costs.tokens, topology)


def _slots(tokens: _INT, topology: Topology, budget: int) -> list[list[int]] | None:
    """Samples of each cell, or None where slots do not suffice."""
    cells: list[list[int]] = []
    begin = 0
    for _ in range(topology.num_microbatches):
        ranks = _longest_run(tokens[begin:], topology.dp_size, budget)
        cells += [[begin + sample for sample in samples] for samples in ranks]
        begin += sum(map(len, ranks))
    return cells if begin == len(tokens) else None


def _longest_run(tokens: _INT, dp_size: int, budget: int) -> list[list[int]]:
    """Samples of each rank for the longest run found whose ranks keep the budget."""
    best: list[list[int]] = [[] for _ in range(dp_size)]
    low, high = 0, int(np.searchsorted(np.cumsum(tokens), budget * dp_size, side="right"))
    while low < high:
        middle = (low + high + 1) // 2
        ranks = longest_processing_time(tokens[:middle], dp_size)
        if max(int(tokens[samples].sum()) for samples in ranks) <= budget:
            low, best = middle, ranks
        else:
            high = middle - 1
    return best
