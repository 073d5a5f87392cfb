"""Microbatches whose language work is passed on say so, on both sides of the pair."""

from dataclasses import replace

import numpy as np

from balancer.cost import Costs
from balancer.planner import plan_from_assignment
from balancer.topology import Topology
from loaders.step_facts import step_microbatches


def test_what_a_microbatch_passes_on_arrives_in_the_next_of_its_rank():
    """Ids passed on are the deferred ones of the plan, and arrive one index later."""
    costs = Costs.from_values(np.ones((12, 2)), modules=("vision", "language"))
    topology = Topology(
        dp_size=2, num_microbatches=3, barrier="pipeline", pp_size=2, deferral=True,
        stages=({"vision": 1}, {"language": 1}),
    )  # fmt: skip
    cells = np.arange(12) // 2  # samples 0 and 1 on rank 0, 2 and 3 on rank 1, then the next index
    plan = plan_from_assignment(costs, np.arange(12), cells, topology, num_slots=3)
    plan = replace(plan, deferred=np.isin(plan.sample_ids, [1, 6]))
    plan.check(costs)
    facts = {
        (batch.facts.dp_rank, batch.facts.index): batch.facts
        for batch in step_microbatches(plan, costs, dp_ranks=[0, 1])
    }
    passed = {place: each.passed_on_ids for place, each in facts.items() if each.passed_on_ids}
    arriving = {place: each.arriving_ids for place, each in facts.items() if each.arriving_ids}
    assert passed == {(0, 0): (1,), (1, 1): (6,)}
    assert arriving == {(0, 1): (1,), (1, 2): (6,)}
