"""The order a plain shuffled loader gives, as a plan: what every plan is compared with."""

import numpy as np
from numpy.typing import NDArray

from balancer.plan import Flag, Plan
from balancer.planner import EpochPlanner

__all__ = ["given_cells", "given_plan"]


def given_cells(num_samples: int, dp_size: int, num_slots: int) -> NDArray[np.int64]:
    """Microbatch `slot * dp_size + rank` of each position of a step's given order.

    Position p goes to rank p mod dp_size, and a rank fills one microbatch after the other: what
    torch's `DistributedSampler` with microbatches of a fixed number of samples does.

    Example:
        >>> given_cells(8, 2, 2)
        array([0, 1, 0, 1, 2, 3, 2, 3])
    """
    position = np.arange(num_samples)
    per_rank = -(-num_samples // dp_size)
    return (position // dp_size * num_slots // per_rank) * dp_size + position % dp_size


def given_plan(planner: EpochPlanner, plan: Plan) -> Plan:
    """The steps of `plan`, with the same samples and microbatches, in the order they were given.

    Limits are not kept, for a plain loader knows none. A microbatch without a sample gets a
    filler, as in a plan. There are no certificates; those of `plan` bound these steps too.

    Args:
        planner: The planner that made the plan.
        plan: Steps of one epoch of it.
    """
    steps = [_given_step(planner, plan, step) for step in range(plan.num_steps)]
    return Plan.concatenate(steps)


def _given_step(planner: EpochPlanner, plan: Plan, step: int) -> Plan:
    dp_size, num_slots = plan.topology.dp_size, plan.num_microbatches(step)
    number = plan.first_step + step
    ids, flags = planner.step_ids(plan.epoch, number)
    cells = given_cells(len(ids), dp_size, num_slots)
    empty = np.setdiff1d(np.arange(dp_size * num_slots), cells)
    if empty.size:
        cheapest = ids[np.argmin(planner.costs.total[ids])]
        ids = np.append(ids, np.full(empty.size, cheapest))
        flags = np.append(flags, np.full(empty.size, Flag.FILLER, np.int8))
        cells = np.append(cells, empty)
    order = np.argsort(cells, kind="stable")
    return Plan(
        topology=plan.topology,
        sample_ids=ids[order],
        flags=flags[order].astype(np.int8),
        offsets=np.cumsum([0, *np.bincount(cells, minlength=dp_size * num_slots)]),
        step_slots=np.array([0, num_slots]),
        dropped=np.zeros(0, np.int64),
        alone=np.zeros(0, np.int64),
        epoch=plan.epoch,
        first_step=number,
    )
