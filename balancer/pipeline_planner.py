"""Candidate placements of a step on pipelines, and the choice of the best of them."""

import numpy as np
from numpy.typing import NDArray

from balancer.bounds import step_bound
from balancer.candidates import Candidate, are_few, fewest_that_fit, given_order, keeps_limits
from balancer.deferral import defer_language
from balancer.errors import CapacityError, PlanError
from balancer.kernels.fill import fill_cells
from balancer.kernels.pipeline_exact import place_pipelines_exactly
from balancer.kernels.pipeline_place import place_at_targets
from balancer.kernels.placement import fill_empty, place_by_amount
from balancer.pipeline_bounds import Fluid, fluid, microbatch_counts
from balancer.pipeline_refinement import searched
from balancer.pipeline_schedule import pipeline_schedule
from balancer.pipeline_value import (
    in_flight_cap,
    peak_in_flight,
    pipeline_value,
    rank_major,
    slot_major,
)
from balancer.plan import Plan
from balancer.priced import PricedSamples
from balancer.problem import StepProblem
from balancer.sorting import stable_order
from balancer.topology import Topology

__all__ = ["check_fillers", "solve_pipelines"]

_FLOOR = 0.2
"""Share of the mean size of a microbatch that is added to every target: small targets are met only
by whole samples."""

_TRIED_COUNTS = 4
"""Numbers of microbatches that are planned where there is a choice."""


def solve_pipelines(
    problem: StepProblem, topology: Topology, step: int
) -> tuple[Candidate, int, int, str]:
    """Best candidate on pipelines, its number of microbatches, the bound and what binds.

    Ranks are loaded evenly; each one's microbatches get the sizes of the fluid optimum, then moves
    and swaps of samples and microbatches are judged by simulation, always at the slowest rank, and
    annealed where the effort is in seconds; where there are but few placements, all are tried. Of
    several numbers of microbatches the most promising are planned. Then language work is deferred
    where the topology allows it and it is faster (`balancer.deferral`).

    Raises:
        CapacityError: No allowed number of microbatches fits.
    """
    counts = microbatch_counts(problem, topology)
    best = None
    if len(counts) > 1:
        best = _best_of_counts(problem, topology, counts)
    if best is None:
        stride = topology.pp_size if topology.schedule == "interleaved" else 1

        def best_of(problem: StepProblem, num_slots: int) -> Candidate | None:
            return _best_candidate(problem, topology, fluid(problem, topology, num_slots))

        best = fewest_that_fit(problem, topology, step, counts[0], stride, best_of)
    candidate, num_slots = _unless_given_is_better(problem, topology, *best)
    bound, binds = step_bound(problem, topology, num_slots=num_slots)
    if topology.deferral:
        goal = int(bound * problem.budget.good_enough)
        candidate = defer_language(problem, topology, candidate, num_slots, goal)
    return candidate, num_slots, bound, binds


def check_fillers(plan: Plan, costs: PricedSamples) -> None:
    """Refuse a plan of one step whose fillers break `max_in_flight`; the search knew none.

    Raises:
        CapacityError: They do.
    """
    try:
        plan.check(costs)
    except PlanError as error:
        raise CapacityError(
            f"step {plan.first_step} needs fillers, and with them {error}; raise max_in_flight, or "
            "give the step more samples"
        ) from error


def _best_of_counts(
    problem: StepProblem, topology: Topology, counts: range
) -> tuple[Candidate, int] | None:
    """The best over some numbers of microbatches; None where none of them fits."""
    best = None
    for num_slots in _promising(problem, topology, counts):
        candidate = _best_candidate(problem, topology, fluid(problem, topology, num_slots))
        if candidate is not None and (best is None or candidate.value < best[0].value):
            best = (candidate, num_slots)
    return best


def _promising(problem: StepProblem, topology: Topology, counts: range) -> list[int]:
    """The numbers at which (dearest microbatch + constant) * (pp_size - 1 + number) is least.

    The dearest microbatch is a mean one or the dearest sample, whichever is more, at the stage
    where it takes longest. After Hydraulis (Li et al. 2024, arXiv:2412.07894), there for each
    pipeline after packing. The fewest are always tried.
    """
    works = problem.costs.reshape(problem.num_items, 2, topology.num_stages).sum(axis=1)
    mean = works.sum(axis=0) / topology.dp_size
    numbers = np.array(counts)
    dearest = np.maximum(mean / numbers[:, None], works.max(axis=0)).max(axis=1)
    constant = problem.constants.reshape(2, topology.num_stages).sum(axis=0).max()
    time = (dearest + constant) * (topology.pp_size - 1 + numbers)
    order = numbers[np.argsort(time, kind="stable")]
    spread = [counts[0], order[0], counts[-1], *order[1:]]
    return sorted(dict.fromkeys(int(number) for number in spread[:_TRIED_COUNTS]))


def _best_candidate(problem: StepProblem, topology: Topology, sizes: Fluid) -> Candidate | None:
    """The first placement that keeps the limits, searched; None where there is none.

    Of few placements the best of all.
    """
    num_slots, num_columns = sizes.targets.shape
    if are_few(problem, topology.dp_size * num_slots):
        return _best_of_all(problem, topology, num_slots)
    floor = np.maximum(sizes.targets.mean(axis=0) * _FLOOR, 1.0)
    limits = (problem.amounts, problem.caps, problem.padded)
    size, ranks = (topology.dp_size, num_slots), problem.kernel_ranks(1)
    name, cells = "fluid sizes", place_at_targets(
        problem.order, problem.shares, problem.num_share_modules, problem.costs, num_columns,
        1.0 / (sizes.targets + floor).ravel(), *limits, *size,
        problem.kernel_ranks(problem.num_share_modules),
    )  # fmt: skip
    if cells.min() < 0:
        amounts = problem.amounts.reshape(-1, problem.caps.size)
        order = np.argsort(-(amounts / problem.caps).max(axis=1), kind="stable")
        name, cells = "best fit", place_by_amount(order, *limits, size[0] * size[1], *size, ranks)
    if cells.min() < 0 and not topology.rank_limits:
        order = stable_order(problem.position)
        name, cells = "in order", fill_cells(order, *limits, size[0] * size[1])
    if cells.min() < 0:
        return None
    fill_empty(problem.order, size[0] * size[1], cells, problem.amounts, problem.caps, *size, ranks)
    excess, value, cells = searched(problem, topology, cells, sizes)
    return None if excess else Candidate(name, slot_major(cells, *size), value)


def _best_of_all(problem: StepProblem, topology: Topology, num_slots: int) -> Candidate | None:
    """The best of all placements that keep the limits; None where there is none."""
    cells, most = np.zeros(problem.num_items, np.int64), 2**62
    schedule = pipeline_schedule(topology, num_slots)
    value = place_pipelines_exactly(
        cells, problem.costs, problem.constants, (problem.amounts, problem.caps, problem.padded),
        topology.dp_size, num_slots,
        (schedule.lane, schedule.after, schedule.duration, schedule.num_stages, schedule.pp_size),
        in_flight_cap(topology), most, pipeline_value(problem, topology, cells[:0], num_slots),
        problem.kernel_ranks(1),
    )  # fmt: skip
    if value == most:
        return None
    return Candidate("exact search", slot_major(cells, topology.dp_size, num_slots), int(value))


def _unless_given_is_better(
    problem: StepProblem, topology: Topology, candidate: Candidate, num_slots: int
) -> tuple[Candidate, int]:
    """The candidate, or the given order where that is legal and faster."""
    dp_size, given_slots = topology.dp_size, topology.num_microbatches
    cells = given_order(problem.position, dp_size, given_slots)
    value = pipeline_value(problem, topology, cells, given_slots)
    better = value < candidate.value and keeps_limits(problem, topology, cells)
    if better and topology.max_in_flight is not None:
        tokens = _cell_tokens(
            problem, rank_major(cells, dp_size, given_slots), dp_size * given_slots
        )
        peaks = peak_in_flight(tokens.reshape(dp_size, -1), topology, given_slots)
        better = int(peaks.max()) <= in_flight_cap(topology)
    return (
        (Candidate("given order", cells, value), given_slots) if better else (candidate, num_slots)
    )


def _cell_tokens(
    problem: StepProblem, cells: NDArray[np.int64], num_cells: int
) -> NDArray[np.int64]:
    """Tokens of each cell, as laid out; amount 0 is tokens wherever there is a cap in flight."""
    tokens = problem.amounts[:: problem.caps.size]
    if not problem.padded:
        held = np.zeros(num_cells, np.int64)
        np.add.at(held, cells, tokens)
        return held
    longest = np.zeros(num_cells, np.int64)
    np.maximum.at(longest, cells, tokens)
    return longest * np.bincount(cells, minlength=num_cells)
