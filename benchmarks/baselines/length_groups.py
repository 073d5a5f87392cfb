"""Samples of like length together."""

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Topology
from benchmarks.baselines.arrival_order import arrival
from benchmarks.baselines.cells import largest_first

__all__ = ["length_grouped"]


def length_grouped(costs: Costs, topology: Topology) -> NDArray[np.int64]:
    """Sorted by tokens, longest first, then dealt like the given order.

    transformers, trainer_pt_utils.py, `get_length_grouped_indices` sorts within a pool of batches
    and `DistributedLengthGroupedSampler` deals the sorted samples to the ranks one by one. The
    pool here is the step, so that all planners run the same samples in it.
    """
    cells = np.empty(len(costs), np.int64)
    cells[largest_first(costs.tokens)] = arrival(costs, topology)
    return cells
