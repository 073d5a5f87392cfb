"""Searches that shorten a step from a placement: local search, then annealing."""

import numpy as np
from numpy.typing import NDArray

from balancer.covers import Cover
from balancer.effort import annealing_chances
from balancer.kernels.refine import refine
from balancer.kernels.search import anneal
from balancer.problem import StepProblem
from balancer.topology import Topology

__all__ = ["refined"]

_ROUND_OF_ITEM = 1_500
"""Proposals of one annealing for each sample: long enough for it to settle. Several of them, each
from the best so far, find more than a longer one does."""

_LONGEST_ROUND = 3_000_000


def refined(
    problem: StepProblem,
    topology: Topology,
    cells: NDArray[np.int64],
    num_slots: int,
    goal: int,
    cover: Cover | None = None,
) -> int:
    """Quantised step time of a placement after searches, in place, that keep the cover.

    Local search; where the effort allows, then rounds of annealing, and local search once more.
    """
    step = (
        cells, problem.costs, problem.num_modules, problem.amounts, problem.caps,
        problem.padded, topology.dp_size, num_slots,
        1 if topology.barrier == "step" else num_slots, goal,
    )  # fmt: skip
    ranks, left = problem.kernel_ranks(problem.num_modules), problem.budget.proposals

    def covered() -> tuple[object, object]:
        return ranks, None if cover is None else cover.kernel(cells)

    value = int(refine(*step, problem.budget.exchanges, *covered()))
    round_number, longest = 0, min(_ROUND_OF_ITEM * problem.num_items, _LONGEST_ROUND)
    while left >= problem.num_items and value > goal:
        round_number += 1
        warmth, proposals = min(value >> 8, (value - goal) >> 2), min(left, longest)
        value = int(anneal(*step, proposals, warmth, round_number, annealing_chances(), *covered()))
        left -= proposals
    if round_number and value > goal:
        value = int(refine(*step, problem.budget.exchanges, *covered()))
    return value
