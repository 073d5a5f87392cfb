"""Searches that shorten a step from a placement: local search, then annealing."""

import numpy as np
from numpy.typing import NDArray

from balancer.covers import Cover
from balancer.effort import annealing_chances
from balancer.kernels.level import level
from balancer.kernels.refine import refine
from balancer.kernels.search import anneal
from balancer.problem import StepProblem
from balancer.topology import Topology
from balancer.uneven_slots import uneven_slots, worst_module

__all__ = ["refined"]

_WARMTH = 10
"""Powers of two that a step time is divided by for the first temperature. A quarter of it is too
cold for steps of 256 samples; four times it too hot for those of 8,192, which never come back."""

_WIDTHS = (4, 32)
"""Microbatches that each visit of the levelling looks at: a few for a quick start, then more."""

_MANY_CELLS = 1024
"""Microbatches of a step from which on levelling looks at fewer exchanges of each."""

_GRANULAR = 1.01
"""Step time over the goal up to which the sizes of slots, not their dearest sample, matter."""

_AS_GOOD = 2048
"""Of starts that differ by less than one part in so many, the most even in its worst module goes
on: a search gains more than that later, and what it leaves is in that module."""


def refined(
    problem: StepProblem,
    topology: Topology,
    cells: NDArray[np.int64],
    num_slots: int,
    goal: int,
    cover: Cover | None = None,
) -> int:
    """Quantised step time of a placement after searches, in place, that keep the cover.

    Levelling, local search; where the effort allows, then rounds of annealing, each half as long
    again as the one before, from the best so far, and followed by local search: what a larger
    effort does begins with all that a smaller one does. Where a placement is nearly even but for
    its granularity, others are levelled too, and the search goes on from the best.
    """
    groups = 1 if topology.barrier == "step" else num_slots
    ranks, left = problem.kernel_ranks(problem.num_modules), problem.budget.proposals
    sizes = (problem.padded, topology.dp_size, num_slots)
    costs = (problem.costs, problem.num_modules, problem.amounts, problem.caps)
    step = (cells, *costs, *sizes, groups, goal)

    def covered() -> tuple[object, object]:
        return ranks, None if cover is None else cover.kernel(cells)

    if groups > 1 and problem.budget.levelling:
        value = _levelled(problem, topology, cells, num_slots, goal, cover)
        if cover is None and goal < value <= _GRANULAR * goal:
            worst = worst_module(problem, topology, cells, num_slots)
            for start in uneven_slots(problem, topology, cells, num_slots):
                other = _levelled(problem, topology, start, num_slots, goal, None)
                if other <= value + value // _AS_GOOD:
                    ratio = worst_module(problem, topology, start, num_slots)
                    if ratio < worst:
                        value, worst, cells[:] = other, ratio, start
    value = int(refine(*step, problem.budget.exchanges, *covered()))
    round_number, proposals = 0, problem.budget.first_round
    while left >= proposals >= problem.num_items and value > goal:
        round_number += 1
        warmth = min(value >> _WARMTH, (value - goal) >> 2)
        value = int(anneal(*step, proposals, warmth, round_number, annealing_chances(), *covered()))
        value = int(refine(*step, problem.budget.exchanges, *covered()))
        left -= proposals
        proposals += proposals // 2
    return value


def local_search(
    problem: StepProblem, topology: Topology, cells: NDArray[np.int64], num_slots: int, goal: int
) -> int:
    """Quantised step time of a placement after moves and swaps alone, in place."""
    return int(
        refine(
            cells, problem.costs, problem.num_modules, problem.amounts, problem.caps,
            problem.padded, topology.dp_size, num_slots,
            1 if topology.barrier == "step" else num_slots, goal, problem.budget.exchanges,
            problem.kernel_ranks(problem.num_modules), None,
        )
    )  # fmt: skip


def _levelled(
    problem: StepProblem,
    topology: Topology,
    cells: NDArray[np.int64],
    num_slots: int,
    goal: int,
    cover: Cover | None,
) -> int:
    """Step time of a placement after levelling, in place: first quickly, then thoroughly."""
    num_cells = topology.dp_size * num_slots
    budget = problem.budget.levelling * _MANY_CELLS // max(_MANY_CELLS, num_cells)
    value = 0
    for width in _WIDTHS:
        value = int(
            level(
                cells, problem.costs, problem.num_modules, problem.amounts, problem.caps,
                problem.padded, topology.dp_size, num_slots, goal, budget, width,
                problem.kernel_ranks(problem.num_modules),
                None if cover is None else cover.kernel(cells),
            )
        )  # fmt: skip
    return value
