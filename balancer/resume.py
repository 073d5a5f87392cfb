"""Resume: an epoch that one planner began, planned on by another."""

import numpy as np
from numpy.typing import NDArray

from balancer.epoch_rest import EpochRest
from balancer.planner import EpochPlanner

__all__ = ["rest_after", "resumed"]


def rest_after(planner: EpochPlanner, *, epoch: int, step: int) -> EpochRest:
    """Where the rest of an epoch begins once all steps before `step` are delivered.

    `microbatches` is for the caller to fill in. Costs nothing.
    """
    return planner.steps(epoch).rest_after(step, planner.settings)


def resumed(planner: EpochPlanner, rest: EpochRest) -> EpochPlanner:
    """A planner that plans only the rest of one epoch, and all others as it did.

    The rest may come from a planner of other topology, limits or `global_batch_size`, if its costs,
    seed and shuffle were the same. Every sample that was not delivered is delivered once. With
    strict membership and the same `global_batch_size` the steps hold what they would have held;
    with another, the rest of the order is cut anew. Steps left of an interrupted window keep the
    samples that it gave them, or are cut anew in their order; windows begin again after it.

    Rebuilds the plan of that window if there is one; else it costs nothing.

    Example:
        >>> from balancer.cost import Costs
        >>> from balancer.topology import Topology
        >>> costs = Costs.from_values(range(1, 13))
        >>> four, two = (EpochPlanner(costs, Topology(dp_size=size), global_batch_size=4)
        ...              for size in (4, 2))
        >>> plan = resumed(two, rest_after(four, epoch=0, step=1)).plan_epoch(0)
        >>> plan.first_step, plan.num_steps
        (1, 2)
    """
    return planner.with_rest(rest, _interrupted_ids(planner, rest))


def _interrupted_ids(planner: EpochPlanner, rest: EpochRest) -> NDArray[np.int64]:
    """Ids that an interrupted window still holds: step by step, in the order of the epoch."""
    window, epoch = rest.window, rest.epoch
    if window is None:
        return np.zeros(0, np.int64)
    begun = EpochRest(epoch=epoch, first_step=window.first_step, place=window.place)
    begun_by = EpochPlanner.from_settings(planner.costs, window.settings)
    begun_by = begun_by.with_rest(begun, np.zeros(0, np.int64))
    steps = begun_by.steps(epoch).window_of(window.first_step)
    given = np.concatenate([begun_by.step_ids(epoch, step)[0] for step in steps])
    held = [given[np.isin(given, begun_by.plan(epoch, step).sample_ids)] for step in steps]
    ids: NDArray[np.int64] = np.concatenate(held)[window.delivered :]
    return ids
