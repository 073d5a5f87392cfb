"""Plans in the order of the ids, for tests that are about workers: no kernel is compiled."""

from dataclasses import replace

import numpy as np

from balancer.plan import Plan
from loaders.loader import BalancedDataLoader


def without_planning(loader: BalancedDataLoader) -> BalancedDataLoader:
    """The loader, its samples dealt out as they come."""
    planner = loader.batch_sampler.planner
    slots, ranks = planner.topology.num_microbatches, planner.topology.dp_size

    def plan(epoch: int, step: int) -> Plan:
        begin = step * planner.global_batch_size
        ids = np.arange(begin, begin + planner.global_batch_size).reshape(slots, ranks, -1)
        dealt = Plan.from_cells([ids], topology=planner.topology)
        return replace(dealt, epoch=epoch, first_step=step)

    planner.plan = plan
    return loader
