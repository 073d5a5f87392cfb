"""Candidate placements of a step, and the choice of the best of them."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.bounds import step_bound
from balancer.covers import Cover
from balancer.errors import CapacityError
from balancer.kernels.exact import place_exactly
from balancer.kernels.fill import fill_cells
from balancer.kernels.placement import place_by_amount, place_on_ranks
from balancer.kernels.steptime import line_loads, step_value
from balancer.kernels.two_tier import place_in_two_tiers
from balancer.pipeline_value import pipeline_value
from balancer.pooled_slots import pooled
from balancer.problem import StepProblem
from balancer.refinement import refined
from balancer.roomier_limits import roomier_limits
from balancer.slotted import slotted, without_empty
from balancer.sorting import stable_order
from balancer.topology import Topology

__all__ = [
    "Candidate",
    "are_few",
    "best_placement",
    "fewest_slots",
    "fewest_that_fit",
    "given_order",
    "keeps_limits",
    "quantised_time",
    "refined",
    "solve",
]

_PROMISING = 1.01
"""Microbatch barrier: step time over its bound at which no further placement is tried."""

_LARGE = 2**22
"""Samples times ranks from which on comparing all of them takes tens of milliseconds."""

_FEW_PLACEMENTS = 2**17
"""Up to so many placements the best is sought among all, in a few milliseconds at most."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An assignment of a step's items to cells `slot * dp_size + rank`, and its step time.

    Attributes:
        name: How the assignment was found.
        cells: Cell of each item, int64.
        value: Quantised step time.
        deferred: Items whose language work runs in the next microbatch, bool; `None` for none.
    """

    name: str
    cells: NDArray[np.int64]
    value: int
    deferred: NDArray[np.bool_] | None = None


def given_order(position: NDArray[np.int64], dp_size: int, num_slots: int) -> NDArray[np.int64]:
    """Cells of the given order: position p goes to rank p mod dp_size, then slot after slot.

    This is what torch's DistributedSampler and fixed-size microbatches do.
    """
    local, rank = np.divmod(position, dp_size)
    per_rank = -(-len(position) // dp_size)
    cells: NDArray[np.int64] = (local * num_slots // per_rank) * dp_size + rank
    return cells


def quantised_time(
    problem: StepProblem, topology: Topology, cells: NDArray[np.int64], num_slots: int
) -> int:
    """Quantised step time of an assignment to `num_slots` microbatches of each rank."""
    if topology.barrier == "pipeline":
        return pipeline_value(problem, topology, cells, num_slots)
    num_groups = 1 if topology.barrier == "step" else num_slots
    load = line_loads(
        cells, problem.costs, problem.num_modules, topology.dp_size, num_groups,
        problem.kernel_ranks(problem.num_modules),
    )  # fmt: skip
    return int(step_value(load, problem.num_modules, topology.dp_size))


def solve(
    problem: StepProblem, topology: Topology, step: int, given: Candidate
) -> tuple[Candidate, int, int, str]:
    """Best candidate for the fewest microbatches that fit, with the lower bound of the step.

    `given` is the step in its given order, which the result is never worse than where it is legal.
    """
    bound, binds = step_bound(problem, topology)
    first = max(topology.num_microbatches, fewest_slots(problem, topology.dp_size))

    def best_of(problem: StepProblem, num_slots: int) -> Candidate | None:
        return _best_candidate(problem, topology, num_slots, bound, given)

    best, num_slots = fewest_that_fit(problem, topology, step, first, 1, best_of)
    return best, num_slots, bound, binds


def fewest_that_fit(
    problem: StepProblem,
    topology: Topology,
    step: int,
    first: int,
    stride: int,
    best_of: Callable[[StepProblem, int], Candidate | None],
) -> tuple[Candidate, int]:
    """Best candidate of the first number of microbatches that has one; that number.

    Raises:
        CapacityError: No allowed number has one; the message says which would.
    """
    most = topology.max_microbatches or max(
        problem.num_items + stride - 1, topology.num_microbatches
    )
    fullest = most  # with a cap on tokens in flight a filler might break it, so there are none
    if topology.max_in_flight is not None:
        fullest = max(problem.num_items // topology.dp_size, topology.num_microbatches)
    best: Candidate | None = None
    num_slots = first
    while best is None and num_slots <= min(most, fullest):
        best = best_of(problem, num_slots)
        num_slots += stride if best is None else 0
    if best is not None:
        return best, num_slots

    def fits(roomier: StepProblem) -> bool:
        fewest = max(topology.num_microbatches, fewest_slots(roomier, topology.dp_size))
        allowed = range(-(-fewest // stride) * stride, min(most, fullest) + 1, stride)
        return any(best_of(roomier, number) is not None for number in allowed)

    while topology.max_in_flight is None or num_slots <= fullest:
        if best_of(problem, num_slots) is not None:
            enough = roomier_limits(problem, topology, most, fits)
            raised = " or ".join(f"max_{name} to {value}" for name, value in enough.items())
            raise CapacityError(
                f"the {problem.num_items} samples of step {step} do not fit {topology.dp_size} "
                f"ranks x max_microbatches={most} under {topology.limits.given}; set "
                f"max_microbatches to {num_slots} or to None, or raise {raised or 'the limits'}"
            )
        num_slots += stride
    raise CapacityError(
        f"no order of the samples of step {step} was found that keeps max_in_flight="
        f"{topology.max_in_flight}, with up to {fullest} microbatches on each of "
        f"{topology.dp_size} ranks; raise max_in_flight"
    )


def fewest_slots(problem: StepProblem, dp_size: int) -> int:
    """Microbatches a rank needs at least, from the sum of each amount."""
    if not problem.caps.size:
        return 1
    sums = problem.amounts.reshape(-1, problem.caps.size).sum(axis=0)
    return int((-(-sums // problem.rooms(dp_size))).max())


def best_placement(
    problem: StepProblem, topology: Topology, num_slots: int, bound: int, cover: Cover | None = None
) -> Candidate | None:
    """The best placement that keeps the limits, refined; None where there is none.

    With a cover, placements are mended to keep it and compared by their faults first.
    """
    num_groups = 1 if topology.barrier == "step" else num_slots
    goal = int(bound * problem.budget.good_enough)
    best, fewest_faults = None, 0
    for name, cells in _placements(problem, topology, num_slots):
        if cells.min() < 0 or (name == "in order" and best is not None):
            continue
        without_empty(problem, topology, num_slots, cells)
        if cover is not None:
            cover.mend(problem, topology.dp_size, cells)
        faults = 0 if cover is None else cover.faults(cells)
        value = quantised_time(problem, topology, cells, num_slots)
        if best is None or (faults, value) < (fewest_faults, best.value):
            best, fewest_faults = Candidate(name, cells, value), faults
        enough = best.value <= (goal if num_groups == 1 else bound * _PROMISING)
        if (enough or _is_large(problem, topology)) and not fewest_faults:
            break
    if cover is None and are_few(problem, num_slots * topology.dp_size):
        return _best_of_all(problem, topology, num_slots, bound, best)
    if best is not None and best.value > goal:
        value = refined(problem, topology, best.cells, num_slots, goal, cover)
        best = Candidate(best.name, best.cells, value)
        if cover is None and (found := pooled(problem, topology, num_slots, bound, value)):
            best = Candidate("pooled slots", *found)
    return best


def are_few(problem: StepProblem, num_cells: int) -> bool:
    """Whether all placements can be tried: refinement does not reach them all under tight caps."""
    most = _FEW_PLACEMENTS
    return problem.num_items < most.bit_length() and num_cells**problem.num_items <= most


def _best_of_all(
    problem: StepProblem, topology: Topology, num_slots: int, bound: int, best: Candidate | None
) -> Candidate | None:
    """The best of all placements that keep the limits; `best` where none is better."""
    if best is not None and best.value <= bound:
        return best
    cells = np.zeros(problem.num_items, np.int64)
    least = 2**62 if best is None else best.value
    value = place_exactly(
        cells, problem.costs, problem.num_modules, problem.amounts, problem.caps, problem.padded,
        topology.dp_size, num_slots, 1 if topology.barrier == "step" else num_slots, least,
        problem.kernel_ranks(problem.num_modules),
    )  # fmt: skip
    return Candidate("exact search", cells, int(value)) if value < least else best


def _best_candidate(
    problem: StepProblem, topology: Topology, num_slots: int, bound: int, given: Candidate
) -> Candidate | None:
    """The best of all candidates that keep the limits, refined; None where there is none."""
    best = best_placement(problem, topology, num_slots, bound)
    comparable = num_slots == topology.num_microbatches
    if comparable and (best is None or given.value < best.value):
        return given if keeps_limits(problem, topology, given.cells) else best
    return best


def _placements(
    problem: StepProblem, topology: Topology, num_slots: int
) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Candidate placements, the most promising first."""
    limits = (problem.amounts, problem.caps, problem.padded)
    size = (topology.dp_size, num_slots)
    if topology.barrier == "microbatch" and num_slots > 1:
        yield "slots", slotted(problem, topology, num_slots, np.ones(problem.num_modules))
    if _is_large(problem, topology):
        columns = (problem.shares, problem.num_share_modules)
        if topology.barrier == "step":
            columns = (problem.totals, 1)
        order = stable_order(problem.totals, descending=True)
        num_groups = math.isqrt(topology.dp_size)
        yield "two tiers", place_in_two_tiers(order, *columns, *limits, *size, num_groups)
    shares = (problem.shares, problem.num_share_modules)
    by_share = problem.kernel_ranks(problem.num_share_modules)
    yield "vector greedy", place_on_ranks(problem.order, *shares, *shares, *limits, *size, by_share)
    dearest = stable_order(problem.totals, descending=True)
    totals, by_total = (problem.totals, 1), problem.kernel_ranks(1)
    yield "scalar greedy", place_on_ranks(dearest, *shares, *totals, *limits, *size, by_total)
    if problem.caps.size:
        amounts = problem.amounts.reshape(-1, problem.caps.size)
        tightest = (amounts / problem.caps).max(axis=1)
        order = np.argsort(-tightest, kind="stable")
        num_cells = size[0] * size[1]
        yield "best fit", place_by_amount(order, *limits, num_cells, size[0], 1, by_total)
        if not topology.rank_limits:  # never better, but legal wherever steps were filled like this
            yield "in order", fill_cells(stable_order(problem.position), *limits, num_cells)


def _is_large(problem: StepProblem, topology: Topology) -> bool:
    """Whether comparing every sample with every rank takes too long: the first legal one is kept.

    Only among equal ranks; there two tiers are as good under the step barrier.
    """
    return problem.ranks is None and problem.num_items * topology.dp_size >= _LARGE


def keeps_limits(problem: StepProblem, topology: Topology, cells: NDArray[np.int64]) -> bool:
    """Whether an assignment to `num_microbatches` leaves no microbatch empty and breaks no cap."""
    num_cells = topology.dp_size * topology.num_microbatches
    count = np.bincount(cells, minlength=num_cells)
    if problem.num_items >= num_cells and not count.all():
        return False
    amounts = problem.amounts.reshape(problem.num_items, problem.caps.size)
    for column in range(problem.caps.size):
        if problem.padded and column == 0:
            longest = np.zeros(num_cells, np.int64)
            np.maximum.at(longest, cells, amounts[:, 0])
            held = longest * count
        else:
            held = np.zeros(num_cells, np.int64)
            np.add.at(held, cells, amounts[:, column])
        if (held.reshape(-1, topology.dp_size) > problem.rank_caps(topology.dp_size, column)).any():
            return False
    return True
