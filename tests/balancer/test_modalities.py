"""Which modules a microbatch uses, and which it lacks beside the other ranks'."""

import numpy as np
from hypothesis import assume, given

from balancer.cost import Costs
from balancer.modalities import missing_modules, used_modules
from balancer.planner import plan_step
from balancer.topology import Topology
from tests.properties import planning


@given(planning.costs(), planning.topologies())
def test_a_module_is_missing_only_beside_a_rank_that_uses_it(costs, topology):
    """A microbatch lacks a module exactly if it has no work there and another rank's has."""
    assume(len(costs) >= topology.dp_size * topology.num_microbatches)
    plan = plan_step(costs, topology, oversize="alone")
    used, missing = used_modules(plan, costs), missing_modules(plan, costs)
    for index in range(plan.num_microbatches(0)):
        cells = [plan.cell(step=0, index=index, dp_rank=r) for r in range(topology.dp_size)]
        for module in range(len(costs.modules)):
            works = [
                any(
                    costs.values[i, module] > 0
                    for i in plan.microbatch(step=0, index=index, dp_rank=rank)
                )
                for rank in range(topology.dp_size)
            ]
            assert [bool(used[cell, module]) for cell in cells] == works
            expected = [any(works) and not work for work in works]
            assert [bool(missing[cell, module]) for cell in cells] == expected


def test_image_samples_reach_every_rank_when_there_are_enough():
    """4 image and 60 text samples on 4 ranks: each rank runs the encoder, none is missing it."""
    vision = np.zeros(64)
    vision[[3, 17, 30, 44]] = 50.0
    costs = Costs.from_values(
        np.stack([vision, np.full(64, 2.0)], axis=1), modules=("vision", "language")
    )
    plan = plan_step(costs, Topology(dp_size=4))
    assert not missing_modules(plan, costs).any()
    vision[[3, 17]] = 0.0
    plan = plan_step(
        Costs.from_values(np.stack([vision, np.full(64, 2.0)], axis=1), modules=costs.modules),
        Topology(dp_size=4),
    )
    assert missing_modules(plan, costs)[:, 1].sum() == 0
