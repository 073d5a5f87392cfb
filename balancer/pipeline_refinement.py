"""Searches that shorten a step on pipelines from a placement: local searches, then annealing."""

import numpy as np
from numpy.typing import NDArray

from balancer.candidates import keeps_limits
from balancer.effort import annealing_chances
from balancer.kernels.pipeline_search import search_pipelines
from balancer.kernels.placement import fill_empty, place_by_amount
from balancer.pipeline_bounds import Fluid
from balancer.pipeline_schedule import pipeline_schedule
from balancer.pipeline_value import in_flight_cap, rank_members, slot_major
from balancer.problem import StepProblem
from balancer.topology import Topology

__all__ = ["searched"]

_OPERATIONS_OF_MOVE = 40
"""What making a move takes, in operations simulated."""

_LOCAL_OPERATIONS = 3_000_000
"""Operations of the local searches; an effort that allows more anneals with the rest."""

_LEAST_MOVES = 2_000

_MOVES_OF_ITEM = 200
"""Moves of a local search for each sample, if the next is to have any."""

_MOST_SEARCHES = 16

_STRIDE = 3
"""Items that placements are turned by from one search to the next but one."""

_FIRST_ROUND = 40
_LONGEST_ROUND = 1_500
"""Moves of the first annealing and of the longest for each sample; each is twice the one before."""

_Found = tuple[int, int, NDArray[np.int64]]
"""Tokens over the cap, time of the slowest rank, cells."""


def searched(
    problem: StepProblem, topology: Topology, start: NDArray[np.int64], sizes: Fluid
) -> _Found:
    """The best that is found from a placement; cells are `rank * num_slots + slot`.

    Local searches; small steps leave moves for several, from other placements and other orders.
    Then rounds of annealing, each from the best so far. What a smaller effort does comes first and
    in the same way, so a larger one is never worse.
    """
    per_move = len(pipeline_schedule(topology, len(sizes.targets)).lane) + _OPERATIONS_OF_MOVE
    moves = problem.budget.operations // per_move
    local = max(_LEAST_MOVES, min(moves, _LOCAL_OPERATIONS // per_move))
    best = _locally_searched(problem, topology, start, sizes, local)
    left, length, seed = moves - local, _FIRST_ROUND * problem.num_items, _MOST_SEARCHES
    goal = _goal(problem, sizes)
    while left >= length and not _is_enough(best, goal):
        warmth = max(min(best[1] >> 8, (best[1] - goal) >> 2), 0)
        best = _search(problem, topology, best[2].copy(), sizes, length, seed, warmth)
        left, seed = left - length, seed + 1
        length = min(2 * length, _LONGEST_ROUND * problem.num_items)
    return best


def _locally_searched(
    problem: StepProblem, topology: Topology, start: NDArray[np.int64], sizes: Fluid, moves: int
) -> _Found:
    """The best of local searches that make so many moves together."""
    size = (topology.dp_size, len(sizes.targets))
    length, found = _MOVES_OF_ITEM * problem.num_items, []
    for seed in range(min(-(-moves // length), _MOST_SEARCHES)):
        turn = seed // 2 * _STRIDE
        cells = _turned(problem, topology, start, size, turn) if turn else start
        rank, slot = np.divmod(cells, size[1])
        cells = rank * size[1] + (slot + seed) % size[1]
        count = min(length, moves - seed * length)
        found.append(_search(problem, topology, cells, sizes, count, seed, 0))
        if _is_enough(found[-1], _goal(problem, sizes)):
            break
    return min(found, key=lambda each: each[:2])


def _goal(problem: StepProblem, sizes: Fluid) -> int:
    """Time at which a search stops."""
    return int(sizes.bound * problem.budget.good_enough)


def _is_enough(found: _Found, goal: int) -> bool:
    return found[0] == 0 and found[1] <= goal


def _search(
    problem: StepProblem, topology: Topology, cells: NDArray[np.int64], sizes: Fluid, moves: int,
    seed: int, warmth: int,
) -> _Found:  # fmt: skip
    """One search, in place; by annealing where there is any warmth."""
    size = (topology.dp_size, len(sizes.targets))
    schedule = pipeline_schedule(topology, size[1])
    excess, value = search_pipelines(
        cells, rank_members(cells, *size), problem.costs, problem.constants,
        (problem.amounts, problem.caps, problem.padded), *size,
        (schedule.lane, schedule.after, schedule.duration, schedule.num_stages,
         schedule.pp_size),
        in_flight_cap(topology), _goal(problem, sizes), moves, seed, warmth, annealing_chances(),
        problem.kernel_ranks(1),
    )  # fmt: skip
    return int(excess), int(value), cells


def _turned(
    problem: StepProblem,
    topology: Topology,
    start: NDArray[np.int64],
    size: tuple[int, int],
    turn: int,
) -> NDArray[np.int64]:
    """A placement that gives each item the cell of another, or one by best fit in turned order.

    `start` where neither keeps the limits.
    """
    cells = np.roll(start, turn)
    if not problem.caps.size or (
        size[1] == topology.num_microbatches
        and keeps_limits(problem, topology, slot_major(cells, *size))
    ):
        return cells
    limits, ranks = (problem.amounts, problem.caps, problem.padded), problem.kernel_ranks(1)
    order, num_cells = np.roll(problem.order, turn), size[0] * size[1]
    packed: NDArray[np.int64] = place_by_amount(order, *limits, num_cells, *size, ranks)
    if packed.min() < 0:
        return start
    fill_empty(problem.order, num_cells, packed, problem.amounts, problem.caps, *size, ranks)
    return packed
