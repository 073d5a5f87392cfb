"""DistTrain's reordering of a global batch: between ranks, and of microbatches in a pipeline."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Topology
from benchmarks.baselines.cells import cells_of_ranks, whole, without_empty
from benchmarks.baselines.greedy import longest_processing_time

__all__ = ["disttrain_order", "pipeline_order"]


def disttrain_order(costs: Costs, topology: Topology) -> NDArray[np.int64]:
    """Dearest first to the cheapest rank, cut into microbatches of like counts, these reordered.

    Zhang et al. 2024 (DistTrain, arXiv:2408.04275, SIGCOMM 2025), intra- and inter-microbatch
    reordering. The size of a sample is its cost over all modules. A rank's samples stay in the
    order the greedy placed them, so alike ones share a microbatch.
    """
    sizes = whole(costs.total)
    ranks = []
    for samples in longest_processing_time(sizes, topology.dp_size):
        ends = np.linspace(0, len(samples), topology.num_microbatches + 1).round().astype(int)
        batches = [samples[begin:end] for begin, end in pairwise(ends)]
        loads = [int(sizes[batch].sum()) for batch in batches]
        order = pipeline_order(loads, topology.pp_size)
        ranks.append([batches[index] for index in order])
    return without_empty(cells_of_ranks(ranks, len(costs)), costs.tokens, topology)


def pipeline_order(loads: Sequence[int], pp_size: int) -> list[int]:
    """The smallest microbatch first, the `pp_size - 1` next small last, between them what fits.

    1F1B leaves the first stage idle after its first forward until that microbatch comes back,
    which `pp_size - 1` forwards fill (backward at twice the forward: three times the load each).
    From then on one forward fills the time of the microbatch that is coming back next.
    """
    rising = sorted(range(len(loads)), key=lambda index: loads[index])
    order, tail, pending = rising[:1], rising[1:pp_size], rising[pp_size:]
    for warm_up in range(pp_size - 1, 0, -1):
        room = 3 * (pp_size - 1) * loads[order[0]] - sum(loads[index] for index in order[1:])
        _take_nearest(pending, order, loads, room / warm_up)
    returning = 1
    while pending:
        _take_nearest(pending, order, loads, loads[order[min(returning, len(order) - 1)]])
        returning += 1
    return order + tail[::-1]


def _take_nearest(
    pending: list[int], order: list[int], loads: Sequence[int], target: float
) -> None:
    if pending:
        order.append(min(pending, key=lambda index: abs(loads[index] - target)))
        pending.remove(order[-1])
