"""Lower bounds under the pipeline barrier: of a step's samples, and of microbatches as they are."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.pipeline_deferral import deferred_total
from balancer.kernels.pipeline_fluid import fluid_sizes, priced_total
from balancer.load_bounds import partition_bound
from balancer.pipeline_schedule import pipeline_schedule
from balancer.pipeline_value import amount_sides
from balancer.problem import StepProblem
from balancer.stage_roles import language_stages
from balancer.topology import Topology

__all__ = ["Fluid", "fluid", "microbatch_counts", "order_bound", "pipeline_bound"]

_NUM_GROUPS = 8
_NUM_ROUNDS = 1000
_NUM_ROUNDS_EACH = 250
"""Rounds for each number of microbatches where there is a choice of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fluid:
    """Best sizes of one rank's microbatches if samples could be split at will.

    Attributes:
        bound: Quantised time that no plan with as many microbatches can beat.
        limited: Whether it is the limits that make a hundredth of it or more.
        targets: Quantised work of each microbatch in each cost column, float64
            `(num_microbatches, num_columns)`, constants not counted.
    """

    bound: int
    limited: bool
    targets: NDArray[np.float64]


def fluid(
    problem: StepProblem, topology: Topology, num_microbatches: int, *, rounds: int = _NUM_ROUNDS
) -> Fluid:
    """Fluid sizes and their bound; O(rounds * (operations + microbatches * groups * columns)).

    Samples are grouped by where in the model their cost lies. The bound charges each sample by
    itself, so it holds whatever the groups are.
    """
    schedule = pipeline_schedule(topology, num_microbatches)
    rows, fill_rows = _groups(problem, topology.dp_size)
    unit = max(float(rows.sum()), float(problem.constants.sum()), 1.0)
    sizes, prices, tolls = fluid_sizes(
        rows.ravel() / unit, fill_rows.ravel(), problem.constants / unit, schedule.lane,
        schedule.after, schedule.duration, schedule.pp_size, num_microbatches, rounds,
    )  # fmt: skip
    tolls *= unit
    charged = _charged(problem, topology, prices, tolls, num_microbatches)
    fixed = float((prices.reshape(num_microbatches, -1) * problem.constants).sum())
    bound = charged / topology.dp_size + fixed - float(tolls.sum())
    bound /= 1.0 if problem.ranks is None else float((1.0 / problem.ranks.slow(1)).mean())
    shares = sizes.reshape(num_microbatches, len(rows))
    targets = (shares[:, :, None] * rows).sum(axis=1)
    return Fluid(
        bound=int(bound * (1 - 1e-12)),
        limited=float(tolls.sum()) > 0.01 * bound,
        targets=targets,
    )


def _charged(
    problem: StepProblem,
    topology: Topology,
    prices: NDArray[np.float64],
    tolls: NDArray[np.float64],
    num_microbatches: int,
) -> float:
    """What all samples pay at least, wherever they run."""
    fills = (problem.amounts.reshape(problem.num_items, -1) / problem.caps).ravel()
    if not topology.deferral:
        return float(priced_total(problem.costs, fills, prices, tolls, num_microbatches))
    boundary = language_stages(topology.stages).start
    return float(
        deferred_total(
            problem.costs, fills, prices, tolls, amount_sides(problem, topology),
            num_microbatches, topology.num_stages, boundary,
        )
    )  # fmt: skip


def pipeline_bound(
    problem: StepProblem, topology: Topology, *, num_slots: int | None = None
) -> tuple[int, str]:
    """Quantised time that no plan of these samples can beat, and what binds.

    The largest of: the stage with the most work, split over ranks, after the least any sample
    takes to reach it and to go back; the dearest sample through all stages and back; the fluid
    bound (see `fluid`), the least over the numbers of microbatches that a plan may have.
    """
    counts = microbatch_counts(problem, topology, num_slots)
    rounds = _NUM_ROUNDS if len(counts) == 1 else _NUM_ROUNDS_EACH
    best = _stage_bound(problem, topology, counts[0])
    through = int((problem.costs.reshape(problem.num_items, -1).sum(axis=1)).max())
    through = (through + int(problem.constants.sum())) * _fastest(problem)
    if through > best[0]:
        best = (through, "largest sample")
    filled = min(
        (fluid(problem, topology, count, rounds=rounds) for count in counts),
        key=lambda sizes: sizes.bound,
    )
    if filled.bound > best[0]:
        best = (filled.bound, "limits" if filled.limited else "pipeline fill")
    return best


def microbatch_counts(
    problem: StepProblem, topology: Topology, num_slots: int | None = None
) -> range:
    """Numbers of microbatches that a plan may have; `num_slots` among them, where given.

    From `num_microbatches`, or what the amounts need at least, to `max_microbatches`. Any
    consecutive microbatches that a rank holds at once have at most `max_in_flight` tokens.
    """
    sums = problem.amounts.reshape(problem.num_items, problem.caps.size).sum(axis=0)
    needed = -(-sums // problem.rooms(topology.dp_size))
    least = max(topology.num_microbatches, int(needed.max(initial=1)))
    if topology.max_in_flight is not None:
        window = pipeline_schedule(topology, topology.num_stages * 2).window
        windows = -(-int(sums[0]) // (topology.max_in_flight * topology.dp_size))
        least = max(least, (windows - 1) * window + 1)
    step = topology.pp_size if topology.schedule == "interleaved" else 1
    least = -(-least // step) * step
    most = topology.max_microbatches or least
    if num_slots is not None:
        least, most = min(least, num_slots), max(most, num_slots)
    return range(least, max(least, most) + 1, step)


def order_bound(loads: NDArray[np.int64], topology: Topology) -> int:
    """Time below which no order of one rank's microbatches comes, from their work.

    `loads` is int64 `(num_microbatches, 2 * num_stages)`: forwards, then backwards. For each
    pipeline rank all its work, after the least way there and back of two microbatches; under 1F1B
    also the wait for the first backward that its other forwards cannot fill; and every microbatch
    through all stages and back. O(num_microbatches * num_stages).
    """
    pp_size, num_stages = topology.pp_size, topology.num_stages
    forward, backward = loads[:, :num_stages], loads[:, num_stages:]
    both = forward + backward
    bound = int(both.sum(axis=1).max())
    for p in range(pp_size):
        heads, tails = forward[:, :p].sum(axis=1), backward[:, :p].sum(axis=1)
        work = int(both[:, p::pp_size].sum()) + _least_pair(heads, tails)
        if topology.schedule == "1f1b":
            ahead = np.sort(forward[:, p])[::-1][: pp_size - p - 1].sum()
            work += max(0, int(both[:, p + 1 :].sum(axis=1).min()) - int(ahead))
        bound = max(bound, work)
    return bound


def _least_pair(heads: NDArray[np.int64], tails: NDArray[np.int64]) -> int:
    """Least head of one plus tail of another; of the same where there is but one."""
    if len(heads) == 1:
        return int(heads[0] + tails[0])
    first, second = np.argsort(heads, kind="stable")[:2]
    others = np.delete(tails, first).min()
    return int(min(heads[first] + others, heads[second] + tails[first]))


def _groups(problem: StepProblem, dp_size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean work on a rank of each group of samples, and how much of each cap it takes up.

    Samples of a group have their cost in like modules; groups have about equal work.
    """
    shares = problem.shares.reshape(problem.num_items, -1)
    centre = shares @ np.arange(shares.shape[1]) / np.maximum(shares.sum(axis=1), 1)
    order = np.argsort(centre, kind="stable")
    works = problem.costs.reshape(problem.num_items, -1)[order]
    reached = np.cumsum(works.sum(axis=1))
    group = (reached - 1).clip(0) * _NUM_GROUPS // max(int(reached[-1]), 1)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    amounts = problem.amounts.reshape(problem.num_items, problem.caps.size)[order]
    rows = np.add.reduceat(works, starts, axis=0) / dp_size
    fills = np.add.reduceat(amounts, starts, axis=0) / problem.rooms(dp_size)
    used = rows.sum(axis=1) > 0
    return rows[used], fills[used]


def _fastest(problem: StepProblem) -> int:
    """Least slowness of any rank."""
    return 1 if problem.ranks is None else int(problem.ranks.slow(1).min())


def _stage_bound(
    problem: StepProblem, topology: Topology, num_microbatches: int
) -> tuple[int, str]:
    """The best over pipeline ranks of their work split over data-parallel ranks, with the ways."""
    pp_size, num_stages = topology.pp_size, topology.num_stages
    works = problem.costs.reshape(problem.num_items, 2 * num_stages)
    best, binds = 0, "stage work"
    for p in range(pp_size):
        ways = [(works[:, at : at + p].sum(axis=1)).min() for at in (0, num_stages)]
        if problem.num_items < topology.dp_size * num_microbatches:
            ways = [0, 0]  # the first or the last microbatch of a rank may hold no sample
        fixed = [problem.constants[at : at + p].sum() for at in (0, num_stages)]
        each = problem.constants[p::pp_size].sum()
        slow = None if problem.ranks is None else problem.ranks.slow(1)[:, 0]
        split, why = partition_bound(works[:, p::pp_size].sum(axis=1), topology.dp_size, slow)
        rest = int(sum(ways) + sum(fixed) + num_microbatches * each)
        value = split + rest * _fastest(problem)
        if value > best:
            best, binds = value, "stage work" if why == "mean load" else why
    return best, binds
