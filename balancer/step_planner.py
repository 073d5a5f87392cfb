"""plan_step: places the samples of one step on its ranks and microbatches."""

from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.bounds import Certificate, step_bound
from balancer.candidates import Candidate, given_order, quantised_time, solve
from balancer.effort import Effort, checked_effort
from balancer.errors import ArgumentError, CapacityError, PlanError
from balancer.kernels.by_cell import order_by_cell
from balancer.limits import Limits
from balancer.modality_sync import solve_synced
from balancer.oversize import Oversize, oversize_ids
from balancer.pipeline_planner import check_fillers, solve_pipelines
from balancer.plan import Flag, Plan
from balancer.priced import PricedSamples
from balancer.problem import StepProblem, build_problem
from balancer.sorting import stable_order
from balancer.topology import Topology, check_choice

__all__ = ["Oversize", "oversize_ids", "plan_from_assignment", "plan_step"]


def plan_step(
    costs: PricedSamples,
    topology: Topology,
    *,
    sample_ids: ArrayLike | None = None,
    flags: NDArray[np.int8] | None = None,
    oversize: Oversize = "error",
    fill: bool = False,
    effort: Effort = "default",
    epoch: int = 0,
    step: int = 0,
) -> Plan:
    """Plan of one step that holds exactly the given samples.

    Tries, in this order and until one is within 0.1 % of the lower bound: under the microbatch
    barrier slots sized by their dearest sample; vector greedy on ranks, then on microbatches;
    greedy on summed costs (longest processing time first: without limits at most 4/3 of the best
    possible under the step barrier; Graham, 1969); best-fit by the tightest limit. The best is
    refined by levelling within slots, moves and swaps, beyond local optima as far as the effort
    allows (up to 2**17 placements: all are searched), and compared with the given order. Under the
    microbatch barrier and a limit, a small step that is still 2 % above its bound is tried with
    several dear samples in each microbatch of one slot, which stays if it gains 1 %. For pipelines
    see `balancer.pipeline_planner.solve_pipelines`; a rank runs its microbatches in the plan's
    order.

    Args:
        costs: Costs of the whole dataset, rows by sample id.
        topology: Ranks, microbatches, barrier and limits.
        sample_ids: Ids of the step in their given order; every row of `costs` when not given.
            Within a microbatch samples keep this order.
        flags: `Flag` of each id; all real when not given.
        oversize: What happens to a sample that exceeds a limit by itself: `"error"`, `"drop"` it
            and list it, or run it `"alone"` in a microbatch over the limit.
        fill: Whether microbatches without a sample get a filler, the step's cheapest sample.
        effort: Work that the search may take: `"fast"`, `"default"` (tens of milliseconds), or what
            a number of seconds on one core stands for. Counted and never timed (see
            `balancer.effort`), so that every rank computes the same plan.
        epoch: Written to the plan.
        step: Written to the plan.

    Returns:
        A plan of one step. O(n * (dp_size + num_microbatches)) for n samples, plus the refinement.

    Raises:
        ArgumentError: An id is outside `costs`, stands there twice, or a choice is unknown.
        SampleError: The model cannot take one of the samples.
        CapacityError: A sample is over a limit and `oversize` is `"error"`, or the step does not
            fit `max_microbatches`; the message says what would.
        PlanError: There are fewer samples than microbatches and `fill` is false.

    Example:
        >>> from balancer.cost import Costs
        >>> costs = Costs.from_values([8, 1, 1, 6], tokens=[8, 1, 1, 6])
        >>> plan = plan_step(costs, Topology(dp_size=2))
        >>> [plan.microbatch(step=0, index=0, dp_rank=rank).tolist() for rank in (0, 1)]
        [[0], [1, 2, 3]]
        >>> plan.certificates[0].gap
        0.0
    """
    check_choice("oversize", oversize, get_args(Oversize))
    effort = checked_effort(effort)
    given, by_id = _checked_ids(costs, sample_ids, flags)
    given_flags = np.zeros(len(given), np.int8) if flags is None else np.asarray(flags, np.int8)
    costs.check_legal(given)
    over = oversize_ids(costs, topology, oversize, sample_ids=given)
    is_over = np.isin(given, over) if over.size else np.zeros(len(given), np.bool_)
    dropped = np.sort(given[is_over]) if oversize == "drop" else np.zeros(0, np.int64)
    if oversize == "drop":
        given, given_flags, is_over = given[~is_over], given_flags[~is_over], is_over[~is_over]
        by_id = stable_order(given)
    if len(given) < topology.dp_size * topology.num_microbatches and not fill:
        raise PlanError(
            f"step {step} has {len(given)} samples for {topology.dp_size} ranks x "
            f"{topology.num_microbatches} microbatches; every microbatch needs one: give more "
            "samples, fewer microbatches, or fill=True"
        )
    if not len(given):
        raise PlanError(f"step {step} has no samples left; nothing can be delivered in it")
    problem = build_problem(costs, given, is_over, topology, effort, by_id)
    given_cells = given_order(problem.position, topology.dp_size, topology.num_microbatches)
    given_value = quantised_time(problem, topology, given_cells, topology.num_microbatches)
    if topology.barrier == "pipeline":
        best, num_slots, bound, binds = solve_pipelines(problem, topology, step)
    else:
        in_order = Candidate("given order", given_cells, given_value)
        if topology.modality_sync in ("spread", "uniform"):
            working = costs.select(problem.ids).values > 0
            found = solve_synced(problem, topology, step, in_order, working)
        else:
            found = solve(problem, topology, step, in_order)
        best, num_slots, bound, binds = found
    certificate = Certificate(
        step_time=problem.to_cost(best.value),
        given_time=problem.to_cost(given_value),
        lower_bound=problem.to_cost(bound),
        binds=binds,
        planner=best.name,
    )
    plan = _emit(
        problem, topology, num_slots, cells=best.cells, flags=given_flags[problem.position],
        dropped=dropped, alone=np.sort(given[is_over]), certificate=certificate,
        epoch=epoch, step=step, deferred=best.deferred,
    )  # fmt: skip
    if topology.max_in_flight is not None and (plan.flags == Flag.FILLER).any():
        check_fillers(plan, costs)
    return plan


def plan_from_assignment(
    costs: PricedSamples,
    sample_ids: ArrayLike,
    cells: ArrayLike,
    topology: Topology,
    *,
    num_slots: int,
    flags: NDArray[np.int8] | None = None,
    epoch: int = 0,
    step: int = 0,
) -> Plan:
    """Plan of one step from the microbatch `cells[i] = slot * dp_size + rank` of each sample.

    For planners of one's own and for baselines: nothing is moved, and limits are not enforced
    (`Plan.check` tells). Microbatches without a sample get a filler.

    Raises:
        ArgumentError: Lengths differ or a cell is outside the step.
    """
    given, by_id = _checked_ids(costs, sample_ids, flags)
    given_flags = np.zeros(len(given), np.int8) if flags is None else np.asarray(flags, np.int8)
    assigned = np.ascontiguousarray(cells, np.int64)
    num_cells = num_slots * topology.dp_size
    if assigned.shape != given.shape or ((assigned < 0) | (assigned >= num_cells)).any():
        raise ArgumentError(
            f"cells needs one number from 0 to {num_cells - 1} for each of {len(given)} samples"
        )
    problem = build_problem(costs, given, np.zeros(len(given), np.bool_), topology, by_id=by_id)
    placed = assigned[problem.position]
    bound, binds = step_bound(problem, topology, num_slots=num_slots)
    given_cells = given_order(problem.position, topology.dp_size, num_slots)
    certificate = Certificate(
        step_time=problem.to_cost(quantised_time(problem, topology, placed, num_slots)),
        given_time=problem.to_cost(quantised_time(problem, topology, given_cells, num_slots)),
        lower_bound=problem.to_cost(bound),
        binds=binds,
        planner="assignment",
    )
    return _emit(
        problem, topology, num_slots, cells=placed,
        flags=given_flags[problem.position], dropped=np.zeros(0, np.int64),
        alone=np.zeros(0, np.int64), certificate=certificate, epoch=epoch, step=step,
    )  # fmt: skip


def _checked_ids(
    costs: PricedSamples, sample_ids: ArrayLike | None, flags: NDArray[np.int8] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ids of a step, and their order by id."""
    if sample_ids is None:
        return np.arange(len(costs)), np.arange(len(costs))
    ids = np.ascontiguousarray(sample_ids, np.int64)
    if ids.size and (ids.min() < 0 or ids.max() >= len(costs)):
        raise ArgumentError(
            f"sample_ids reach from {ids.min()} to {ids.max()}; costs has rows 0 to "
            f"{len(costs) - 1}"
        )
    by_id = stable_order(ids)
    if flags is None and ids.size > 1:
        ascending = ids[by_id]
        twice = ascending[1:][ascending[1:] == ascending[:-1]]
        if twice.size:
            raise ArgumentError(f"sample_ids has sample {twice[0]} twice; flag one as a repeat")
    return ids, by_id


def _fillers(
    problem: StepProblem,
    ranks: NDArray[np.int64],
    topology: Topology,
    alone: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The cheapest item that fits an empty microbatch of each of `ranks`, int64.

    Raises:
        CapacityError: None fits the limits of a rank.
    """
    fitting = np.flatnonzero(~np.isin(problem.ids, alone))
    pool = fitting if fitting.size else np.arange(problem.num_items)
    cheapest_first = pool[np.argsort(problem.totals[pool], kind="stable")]
    if problem.ranks is None:
        return np.full(ranks.size, cheapest_first[0])
    caps = problem.caps - problem.ranks.reserve
    amounts = problem.amounts.reshape(problem.num_items, problem.caps.size)[cheapest_first]
    fillers = np.empty(ranks.size, np.int64)
    for rank in np.unique(ranks):
        fits = (amounts <= caps[rank]).all(axis=1)
        if not fits.any():
            raise CapacityError(
                f"a microbatch of rank {rank} has no sample, for none of the step fits "
                f"rank_limits[{rank}] ({topology.rank_limits[rank].given}); raise "
                f"{_raised(topology.rank_limits[rank], amounts, caps[rank])}, or leave the rank "
                "out, by a smaller dp_size"
            )
        fillers[ranks == rank] = cheapest_first[fits.argmax()]
    return fillers


def _raised(limits: Limits, amounts: NDArray[np.int64], caps: NDArray[np.int64]) -> str:
    """What to raise limits of a rank to so that the sample which exceeds them least fits."""
    least = amounts[(amounts / caps).max(axis=1).argmin()]
    names = [name for name in limits.room if name != "samples"]
    return " and ".join(
        f"max_{name} to {limits.enough(name, least[column : column + 1])}"
        for column, name in enumerate(names)
        if least[column] > caps[column]
    )


def _emit(
    problem: StepProblem,
    topology: Topology,
    num_slots: int,
    *,
    cells: NDArray[np.int64],
    flags: NDArray[np.int8],
    dropped: NDArray[np.int64],
    alone: NDArray[np.int64],
    certificate: Certificate,
    epoch: int,
    step: int,
    deferred: NDArray[np.bool_] | None = None,
) -> Plan:
    """Plan from the cell of each item; samples of a microbatch stand in their given order."""
    num_cells = num_slots * topology.dp_size
    ids, position = problem.ids, problem.position
    counts = np.bincount(cells, minlength=num_cells)
    empty = np.flatnonzero(counts == 0)
    if empty.size:
        ids = np.append(ids, ids[_fillers(problem, empty % topology.dp_size, topology, alone)])
        flags = np.append(flags, np.full(empty.size, Flag.FILLER, np.int8))
        cells = np.append(cells, empty)
        position = np.append(position, np.arange(len(position), len(position) + empty.size))
    order = order_by_cell(cells, position, num_cells)
    return Plan(
        topology=topology,
        sample_ids=ids[order],
        flags=flags[order],
        offsets=np.concatenate([[0], np.cumsum(np.maximum(counts, 1))]),
        step_slots=np.array([0, num_slots]),
        dropped=dropped,
        alone=alone,
        certificates=(certificate,),
        epoch=epoch,
        first_step=step,
        deferred=np.zeros(0, np.bool_) if deferred is None else deferred[order],
    )
