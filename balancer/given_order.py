"""The order a plain shuffled loader gives, as a plan: what every plan is compared with."""

import numpy as np
from numpy.typing import NDArray

from balancer.candidates import given_order
from balancer.plan import Plan
from balancer.planner import EpochPlanner, plan_from_assignment

__all__ = ["given_cells", "given_plan"]


def given_cells(num_samples: int, dp_size: int, num_slots: int) -> NDArray[np.int64]:
    """Microbatch `slot * dp_size + rank` of each position of a step's given order.

    Position p goes to rank p mod dp_size, and a rank fills one microbatch after the other: what
    torch's `DistributedSampler` with microbatches of a fixed number of samples does.

    Example:
        >>> given_cells(8, 2, 2)
        array([0, 1, 0, 1, 2, 3, 2, 3])
    """
    return given_order(np.arange(num_samples), dp_size, num_slots)


def given_plan(planner: EpochPlanner, plan: Plan) -> Plan:
    """The steps of `plan`, with the same samples and microbatches, in the order they were given.

    Limits are not kept, for a plain loader knows none. A microbatch without a sample gets a
    filler, as in a plan.

    Args:
        planner: The planner that made the plan.
        plan: Steps of one epoch of it.
    """
    steps = []
    for step in range(plan.num_steps):
        ids, flags = planner.step_ids(plan.epoch, plan.first_step + step)
        num_slots = plan.num_microbatches(step)
        steps.append(
            plan_from_assignment(
                planner.costs,
                ids,
                given_cells(len(ids), plan.topology.dp_size, num_slots),
                plan.topology,
                num_slots=num_slots,
                flags=flags,
                epoch=plan.epoch,
                step=plan.first_step + step,
            )
        )
    return Plan.concatenate(steps)
