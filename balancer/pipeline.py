"""Step time of a plan, simulated from sample costs."""

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.plan import Plan

__all__ = ["cell_costs", "step_times"]


def cell_costs(plan: Plan, costs: Costs) -> NDArray[np.float64]:
    """Cost of each microbatch in each module, float64 `(num_microbatches, num_modules)`.

    Rows are in the order of `plan.offsets`; repeats and fillers count, since they run.
    """
    values = costs.values[plan.sample_ids]
    if not len(values):
        return np.zeros((0, len(costs.modules)))
    return np.add.reduceat(values, plan.offsets[:-1], axis=0)


def step_times(plan: Plan, costs: Costs) -> NDArray[np.float64]:
    """Time of each step, in the unit of the costs, float64 `(num_steps,)`.

    Under the step barrier a step takes as long as its dearest rank. Under the microbatch barrier
    ranks wait in every slot: for the dearest microbatch where modules are summed, and once for
    each module, for the dearest in it, where they run in turn.

    Example:
        >>> from balancer.topology import Topology
        >>> costs = Costs.from_values([3, 1, 2, 2])
        >>> cells = [[[[0], [1]], [[2], [3]]]]
        >>> step_times(Plan.from_cells(cells), costs)
        array([5.])
        >>> per_step = Topology(dp_size=2, num_microbatches=2, barrier="step")
        >>> step_times(Plan.from_cells(cells, topology=per_step), costs)
        array([5.])
    """
    topology = plan.topology
    cells = cell_costs(plan, costs)
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
