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

from balancer.problem import StepProblem
from balancer.refinement import local_search, refined
from balancer.slotted import slotted, without_empty
from balancer.topology import Topology

__all__ = ["pooled", "pooled_slots"]

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
    sizes = [size for size in _SIZES if size < num_slots]
    for size in (*sizes, 2 * num_slots) if num_slots > 1 else ():
        first_size = np.full(problem.num_modules, float(size))
        placed = slotted(problem, topology, num_slots, first_size)
        if placed.min() >= 0:
            yield without_empty(problem, topology, num_slots, placed)
