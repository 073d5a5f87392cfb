"""Placement of a step in slots sized by their dearest sample, and no microbatch left empty."""

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.placement import fill_empty
from balancer.kernels.slots import place_in_slots
from balancer.problem import StepProblem
from balancer.topology import Topology

__all__ = ["slotted", "without_empty"]

_SLACK = 1.002
"""How far a slot may be overfilled: more makes the slots unequal (2 % cost up to 1 % of a step),
none leaves gaps."""


def slotted(
    problem: StepProblem, topology: Topology, num_slots: int, first_size: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Cell of each item, slot by slot; -1 where one does not fit.

    `first_size` is the size of the first slot in each module, over what its dearest sample or an
    even share asks for.
    """
    cells: NDArray[np.int64] = place_in_slots(
        problem.peaks, problem.scales, problem.by_module, problem.costs, problem.num_modules,
        problem.amounts, problem.caps, problem.padded, topology.dp_size, num_slots, _SLACK,
        first_size, problem.kernel_ranks(problem.num_modules),
    )  # fmt: skip
    return cells


def without_empty(
    problem: StepProblem, topology: Topology, num_slots: int, cells: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The placement with its empty microbatches filled, in place."""
    fill_empty(
        problem.order, num_slots * topology.dp_size, cells, problem.amounts, problem.caps,
        topology.dp_size, 1, problem.kernel_ranks(1),
    )  # fmt: skip
    return cells
