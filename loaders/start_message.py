"""The line that says, when a loader starts, what its plan does with the data."""

import logging

from balancer.given_order import given_plan
from balancer.groups import GroupedCosts
from balancer.measures import measure_plan
from balancer.plan import Plan
from balancer.planner import EpochPlanner
from balancer.step_planner import oversize_ids

__all__ = ["log_start"]

_log = logging.getLogger("loaders")


def log_start(planner: EpochPlanner, plan: Plan) -> None:
    """Log a line about the epoch of a plan at level INFO; `plan` is the first step planned.

    Fill and imbalance (max over mean of the ranks' cost, mean over the microbatches) are those of
    this step, beside the imbalance of the same step in the order of a plain shuffled loader.
    """
    if not _log.isEnabledFor(logging.INFO):
        return
    topology, steps = planner.topology, planner.steps(plan.epoch)
    ours = measure_plan(plan, planner.costs)
    given = measure_plan(given_plan(planner, plan), planner.costs)
    each = planner.microbatches_per_step
    alone = oversize_ids(planner.costs, topology, planner.oversize, sample_ids=None)
    fill = "".join(f", {name} {mean:.0%} full" for name, (mean, _) in ours.fill.items())
    rows = "groups" if isinstance(planner.costs, GroupedCosts) else "samples"
    _log.info(
        "evenstep: %d %s -> %d steps of %s microbatches on %d ranks, %d %s a step%s; "
        "imbalance %.3f (%.3f in the given order); %d dropped, %d alone",
        len(planner.costs),
        rows,
        steps.end,
        each or f"{topology.num_microbatches} or more",
        topology.dp_size,
        len(plan.sample_ids),
        rows,
        fill,
        ours.microbatch_imbalance.mean,
        given.microbatch_imbalance.mean,
        len(planner.dropped(plan.epoch)),
        len(alone) if planner.oversize == "alone" else 0,
    )
