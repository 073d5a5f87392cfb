"""Other starts for a search: a first slot that holds several dear samples of every rank.

Where a step has some more dear samples than a multiple of the ranks, slots sized by one dear sample
each leave the last of them to a few ranks, and all others wait. In one slot together what counts is
the sum: a rank that takes three of the cheaper ones is as long as one with two of the dearest. The
price is larger microbatches, so this is tried only under a limit that says how large they may be
and while a step is well above its bound, and is kept only if it gains enough.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.placement import fill_empty
from balancer.kernels.slots import place_in_slots
from balancer.problem import StepProblem
from balancer.refinement import local_search, refined
from balancer.topology import Topology

__all__ = ["pooled", "pooled_slots"]

_SLACK = 1.002
"""As for even slots."""

_SIZES = (2.0, 3.0)
"""Size of the first slot over what its dearest sample or an even share asks for. Then twice all
there is: no rank is full, so the last of the dear samples go there too."""

_UNEVEN = 1.02
"""Step time over its bound up to which a step is even enough."""

_WORTH = 0.99
"""Step time over that with smaller microbatches from which on larger ones are not worth it."""

_LARGE = 2**15
"""Samples times ranks from which on steps are seldom so uneven, and searches take long."""


def pooled(
    problem: StepProblem, topology: Topology, num_slots: int, bound: int, value: int
) -> tuple[NDArray[np.int64], int] | None:
    """A faster placement than one that takes `value`, searched from pooled slots, and its time.

    None where none is faster by 1 %, `value` is within 2 % of `bound`, the step is large, or no
    limit says how large microbatches may be. Of the starts, the one that local search makes the
    shortest gets the search of the effort.
    """
    if topology.barrier != "microbatch" or problem.num_items * topology.dp_size >= _LARGE:
        return None
    if value <= bound * _UNEVEN or not problem.caps.size:
        return None
    goal = int(bound * problem.budget.good_enough)
    best, least = None, 0.0
    for cells in pooled_slots(problem, topology, num_slots):
        other = local_search(problem, topology, cells, num_slots, goal)
        if best is None or other <= least * _WORTH:
            best, least = cells, other
    if best is None:
        return None
    found = refined(problem, topology, best, num_slots, goal)
    return (best, found) if found <= value * _WORTH else None


def pooled_slots(
    problem: StepProblem, topology: Topology, num_slots: int
) -> Iterator[NDArray[np.int64]]:
    """Placements whose first slot is large, that with the smallest one first; none of one slot."""
    modules, dp_size = problem.num_modules, topology.dp_size
    sizes = [size for size in _SIZES if size < num_slots]
    for size in (*sizes, 2 * num_slots) if num_slots > 1 else ():
        placed = place_in_slots(
            problem.peaks, problem.scales, problem.by_module, problem.costs, modules,
            problem.amounts, problem.caps, problem.padded, dp_size, num_slots, _SLACK,
            np.full(modules, float(size)), problem.kernel_ranks(modules),
        )  # fmt: skip
        if placed.min() < 0:
            continue
        fill_empty(
            problem.order, num_slots * dp_size, placed, problem.amounts, problem.caps,
            dp_size, 1, problem.kernel_ranks(1),
        )  # fmt: skip
        yield placed
