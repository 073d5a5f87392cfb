"""Other starts for a search: slots of which the first has less of one module.

A long text fills half of a microbatch's language cost and leaves too little room for the images
that the other ranks' microbatches of the slot have, whatever is exchanged. Such samples are in the
first slot, for it takes the dearest of all. With fewer images there, and more in the later slots,
no rank is short of them.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.steptime import line_loads
from balancer.problem import StepProblem
from balancer.slotted import slotted, without_empty
from balancer.topology import Topology

__all__ = ["uneven_slots", "worst_module"]

_SIZES = ((0.65, 1.0), (0.7, 1.06))
"""Size of the first slot over that of the others: in the module it is most uneven in, and in all
others. Tried on texts with images, 64 samples a rank in three slots of which the first was 1.2 %
uneven: vision from 1.005 to 1.0015 of an even split."""

_LARGE = 2**23
"""Samples times ranks from which on a placement takes too long to be tried again."""


def uneven_slots(
    problem: StepProblem, topology: Topology, cells: NDArray[np.int64], num_slots: int
) -> Iterator[NDArray[np.int64]]:
    """Placements whose first slot is smaller in the module that it is most uneven in, in `cells`.

    None where modules do not run in turn, or there is one slot.
    """
    modules = problem.num_modules
    if modules == 1 or num_slots == 1 or problem.num_items * topology.dp_size >= _LARGE:
        return
    first = _loads(problem, topology, cells, num_slots)[0]
    means = np.maximum(first.mean(axis=0), 1.0)
    uneven = int((first.max(axis=0) / means).argmax())
    for fewer, others in _SIZES:
        sizes = np.full(modules, others)
        sizes[uneven] = fewer
        placed = slotted(problem, topology, num_slots, sizes)
        if placed.min() >= 0:
            yield without_empty(problem, topology, num_slots, placed)


def worst_module(
    problem: StepProblem, topology: Topology, cells: NDArray[np.int64], num_slots: int
) -> float:
    """Time of a placement in a module over that of an even split, the largest of all modules."""
    loads = _loads(problem, topology, cells, num_slots)
    even = np.maximum(loads.sum(axis=(0, 1)) / topology.dp_size, 1.0)
    return float((loads.max(axis=1).sum(axis=0) / even).max())


def _loads(
    problem: StepProblem, topology: Topology, cells: NDArray[np.int64], num_slots: int
) -> NDArray[np.int64]:
    """Load of each microbatch, `(num_slots, dp_size, num_modules)`."""
    ranks = problem.kernel_ranks(problem.num_modules)
    load: NDArray[np.int64] = line_loads(
        cells, problem.costs, problem.num_modules, topology.dp_size, num_slots, ranks
    )
    return load.reshape(num_slots, topology.dp_size, problem.num_modules)
