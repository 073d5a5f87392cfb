"""The given order: what a plain loader does."""

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.given_order import given_cells
from balancer.topology import Topology
from benchmarks.baselines.cells import without_empty

__all__ = ["arrival"]


def arrival(costs: Costs, topology: Topology) -> NDArray[np.int64]:
    """The given order: rank p mod dp_size, microbatch after microbatch.

    torch.utils.data.DistributedSampler with microbatches of a fixed number of samples.
    """
    cells = given_cells(len(costs), topology.dp_size, topology.num_microbatches)
    return without_empty(cells, costs.tokens, topology)
