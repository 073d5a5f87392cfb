"""Step time of a plan, simulated from sample costs."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError
from balancer.kernels.pipeline import rank_times
from balancer.kernels.pipeline_deferral import deferred_times
from balancer.pipeline_check import in_flight_peaks
from balancer.pipeline_schedule import pipeline_schedule
from balancer.pipeline_stages import stage_shares
from balancer.pipeline_value import deferral_schedule
from balancer.plan import Plan
from balancer.priced import PricedSamples
from balancer.ranks import slowness
from balancer.stage_roles import language_modules
from balancer.topology import Topology

__all__ = ["cell_costs", "cell_times", "step_times", "tokens_in_flight"]


def cell_costs(plan: Plan, costs: PricedSamples) -> NDArray[np.float64]:
    """Cost of each microbatch in each module, float64 `(num_microbatches, num_modules)`.

    Rows are in the order of `plan.offsets`; repeats and fillers count, since they run. Language
    work that is passed on counts where it runs.
    """
    values = costs.select(plan.sample_ids).values
    if not len(values):
        return np.zeros((0, len(costs.modules)))
    cells: NDArray[np.float64] = np.add.reduceat(values, plan.offsets[:-1], axis=0)
    if plan.deferred.size:
        runs, language = plan.language_cell_of_sample(), language_modules(plan.topology.stages)
        for column, name in enumerate(costs.modules):
            if name in language:
                cells[:, column] = np.bincount(runs, values[:, column], minlength=len(cells))
    return cells


def cell_times(plan: Plan, costs: PricedSamples) -> NDArray[np.float64]:
    """Time of each microbatch in each module: `cell_costs` over the speed of its rank.

    Speeds count as planners take them: as `balancer.ranks.slowness`.
    """
    return cell_costs(plan, costs) * _slowness(plan, costs.modules)


def _slowness(plan: Plan, modules: tuple[str, ...]) -> NDArray[np.float64]:
    """Time over cost of each microbatch in each module; one number where all ranks are alike."""
    topology = plan.topology
    if not topology.rank_speeds:
        return np.ones(1)
    slow, unit = slowness(topology.rank_speeds, topology.dp_size, modules)
    return np.tile(slow * unit, (int(plan.step_slots[-1]), 1))


def step_times(plan: Plan, costs: PricedSamples) -> NDArray[np.float64]:
    """Time of each step, in the unit of the costs, float64 `(num_steps,)`.

    Under the step barrier a step takes as long as its dearest rank. Under the microbatch barrier
    ranks wait in every slot: for the dearest microbatch where modules are summed, and once for
    each module, for the dearest in it, where they run in turn. Under the pipeline barrier a step
    takes as long as its slowest rank, whose microbatches run through the stages in order, as
    simulated by `balancer.kernels.pipeline`. A rank takes cost over speed.

    Example:
        >>> from balancer.topology import Topology
        >>> from balancer.cost import Costs
        >>> costs = Costs.from_values([3, 1, 2, 2])
        >>> cells = [[[[0], [1]], [[2], [3]]]]
        >>> step_times(Plan.from_cells(cells), costs)
        array([5.])
        >>> per_step = Topology(dp_size=2, num_microbatches=2, barrier="step")
        >>> step_times(Plan.from_cells(cells, topology=per_step), costs)
        array([5.])
    """
    topology = plan.topology
    if topology.barrier == "pipeline":
        loads = _stage_loads(cell_costs(plan, costs), topology, costs.modules)
        return _pipeline_times(plan, loads * _slowness(plan, ("pipeline",)))
    cells = cell_times(plan, costs)
    if topology.barrier == "step" or topology.modules == "summed":
        cells = cells.sum(axis=1, keepdims=True)
    by_slot = cells.reshape(-1, topology.dp_size, cells.shape[1])
    times = np.zeros(plan.num_steps)
    for step in range(plan.num_steps):
        slots = by_slot[plan.step_slots[step] : plan.step_slots[step + 1]]
        if topology.barrier == "step":
            times[step] = slots.sum(axis=0).max()
        else:
            times[step] = slots.max(axis=1).sum()
    return times


def tokens_in_flight(plan: Plan, costs: PricedSamples) -> NDArray[np.float64]:
    """Most tokens that a pipeline rank of each data-parallel rank holds at once in each step.

    Float64 `(num_steps, dp_size)`; what `Topology.max_in_flight` limits. Under the padded layout
    they are those allocated. Where language work is deferred they are the most that either the
    encoder work or the language work of the microbatches held comes to.

    Raises:
        ArgumentError: The plan is not for the pipeline barrier.
    """
    topology = plan.topology
    if topology.barrier != "pipeline":
        raise ArgumentError(
            f"plan is for barrier={topology.barrier!r}; microbatches are in flight together only "
            'under "pipeline"'
        )
    own = replace(plan, deferred=np.zeros(0, np.bool_)).amounts(costs)["tokens"]
    peaks = in_flight_peaks(own, plan.step_slots, topology)
    if not plan.deferred.size:
        return peaks
    language = in_flight_peaks(plan.amounts(costs)["tokens"], plan.step_slots, topology)
    return np.maximum(peaks, language)


def _stage_loads(
    cells: NDArray[np.float64], topology: Topology, modules: tuple[str, ...]
) -> NDArray[np.float64]:
    """Time of each microbatch in the forward of each stage, then in the backward of each."""
    stages = cells @ stage_shares(topology, modules).T + topology.microbatch_cost
    forward = topology.forward_share
    return np.concatenate([stages * forward, stages * (1.0 - forward)], axis=1)


def _pipeline_times(plan: Plan, loads: NDArray[np.float64]) -> NDArray[np.float64]:
    """Time of the slowest rank in each step."""
    dp_size = plan.topology.dp_size
    times = np.zeros(plan.num_steps)
    hands = np.zeros((len(loads) // dp_size, dp_size), np.int64)
    if plan.deferred.size:
        hands.ravel()[plan.cell_of_sample()[plan.deferred]] = 1
    for step, slots in enumerate(
        np.split(loads.reshape(-1, dp_size, loads.shape[1]), plan.step_slots[1:-1])
    ):
        schedule = pipeline_schedule(plan.topology, len(slots))
        by_rank = np.ascontiguousarray(slots.transpose(1, 0, 2)).ravel()
        passes = hands[plan.step_slots[step] : plan.step_slots[step + 1]]
        if passes.any():
            flags = np.ascontiguousarray(passes.T).ravel()
            each = deferred_times(
                by_rank, flags, dp_size, deferral_schedule(schedule, plan.topology)
            )
        else:
            each = rank_times(
                by_rank, dp_size, schedule.lane, schedule.after, schedule.duration, schedule.pp_size
            )
        times[step] = each.max()
    return times
