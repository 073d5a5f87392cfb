"""WLB-LLM's packing: outliers dealt out from queues, the rest by workload."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Topology
from benchmarks.baselines.cells import largest_first, num_cells, without_empty

__all__ = ["wlb_queues"]

_INT = NDArray[np.int64]


def wlb_queues(
    costs: Costs, topology: Topology, *, thresholds: Sequence[float] = (0.5, 0.25)
) -> _INT:
    """Outliers one to each microbatch, the rest longest first to the least workload that fits.

    Wang et al. 2025 (WLB-LLM, arXiv:2503.17924, OSDI 2025), Algorithm 1: a queue of outliers that
    holds as many as there are microbatches gives each one; a document goes to the microbatch of
    least workload if its tokens fit, else to the shortest. What the paper keeps for later steps
    (queues not full, documents that fit nowhere) is placed in this step, so queues rarely matter.
    Workload is the sample's cost; tokens fit under `max_tokens`, without it everywhere.

    Args:
        costs: Costs of the step's samples.
        topology: Ranks, microbatches, limits.
        thresholds: Least tokens of each queue's outliers over those of the longest sample,
            descending. The paper tunes them offline.
    """
    workload = costs.total
    most = topology.limits.max_tokens or int(costs.tokens.sum())
    loads, lengths = np.zeros(num_cells(topology)), np.zeros(num_cells(topology), np.int64)
    cells = np.empty(len(costs), np.int64)
    dealt = _released(costs.tokens, len(loads), thresholds)
    for place, sample in enumerate(dealt):
        cells[sample] = place % len(loads)
    np.add.at(loads, cells[dealt], workload[dealt])
    np.add.at(lengths, cells[dealt], costs.tokens[dealt])
    released = set(dealt)
    for sample in largest_first(costs.tokens).tolist():
        if sample in released:
            continue
        cell = int(np.argmin(loads))
        if lengths[cell] + costs.tokens[sample] > most:
            shortest = int(np.argmin(lengths))
            cell = shortest if lengths[shortest] + costs.tokens[sample] <= most else cell
        cells[sample] = cell
        loads[cell] += workload[sample]
        lengths[cell] += costs.tokens[sample]
    return without_empty(cells, costs.tokens, topology)


def _released(tokens: _INT, num_microbatches: int, thresholds: Sequence[float]) -> list[int]:
    """Outliers that full queues release, in the order they came, queue after queue."""
    released: list[int] = []
    above = np.inf
    for threshold in thresholds:
        least = threshold * int(tokens.max())
        queue = np.flatnonzero((tokens >= least) & (tokens < above)).tolist()
        released += queue[: len(queue) // num_microbatches * num_microbatches]
        above = least
    return released
