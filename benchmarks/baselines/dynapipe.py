"""DynaPipe's microbatches: runs of samples sorted by length, dealt to ranks by cost."""

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Topology
from benchmarks.baselines.cells import cells_of_ranks, num_cells, whole, without_empty
from benchmarks.karmarkar_karp import karmarkar_karp

__all__ = ["contiguous_runs", "dynapipe_runs"]


def dynapipe_runs(costs: Costs, topology: Topology) -> NDArray[np.int64]:
    """Runs of the samples sorted by length with the least maximum, Karmarkar-Karp over ranks.

    Jiang et al. 2023 (DynaPipe, arXiv:2311.10418, EuroSys 2024), and github.com/awslabs/
    optimizing-multitask-training-through-dynamic-pipelines. They choose the runs that minimise
    (pp_size - 1) * dearest + sum / dp_size; costs add up here and the number of runs is given, so
    the sum is the same for all and bisection on the dearest gives the optimum of their dynamic
    program. Every rank gets equally many runs, and runs them from short samples to long.
    """
    order = np.lexsort((costs.patches, costs.tokens))
    prices = whole(costs.total)
    runs = contiguous_runs(prices[order].tolist(), num_cells(topology))
    loads = [int(prices[order[begin:end]].sum()) for begin, end in runs]
    loads += [0] * (num_cells(topology) - len(runs))
    runs += [(0, 0)] * (len(loads) - len(runs))
    ranks = [
        [order[slice(*runs[run])].tolist() for run in sorted(part)]
        for part in karmarkar_karp(loads, topology.dp_size, equal_size=True)
    ]
    return without_empty(cells_of_ranks(ranks, len(costs)), costs.tokens, topology)


def contiguous_runs(prices: list[int], num_runs: int) -> list[tuple[int, int]]:
    """Begin and end of at most `num_runs` runs, none empty, with the least largest sum.

    Has `num_runs` where there are as many prices: the dearest run is halved while one is missing.
    """
    low, high = max(prices), sum(prices)
    while low < high:
        middle = (low + high) // 2
        if len(_runs_within(prices, middle)) <= num_runs:
            high = middle
        else:
            low = middle + 1
    runs = _runs_within(prices, low)
    while len(runs) < min(num_runs, len(prices)):
        long = (index for index, (begin, end) in enumerate(runs) if end - begin > 1)
        dearest = max(long, key=lambda index: sum(prices[slice(*runs[index])]))
        begin, end = runs[dearest]
        middle = _middle(prices, begin, end)
        runs[dearest : dearest + 1] = [(begin, middle), (middle, end)]
    return runs


def _runs_within(prices: list[int], most: int) -> list[tuple[int, int]]:
    """Runs that are each as long as a sum of `most` allows."""
    ends, total = [], 0
    for index, price in enumerate(prices):
        if total + price > most and total:
            ends.append(index)
            total = 0
        total += price
    return list(zip([0, *ends], [*ends, len(prices)], strict=True))


def _middle(prices: list[int], begin: int, end: int) -> int:
    """Where the larger half of a run is smallest."""
    sums = np.cumsum(prices[begin:end])[:-1]
    return begin + 1 + int(np.argmin(np.maximum(sums, sum(prices[begin:end]) - sums)))
