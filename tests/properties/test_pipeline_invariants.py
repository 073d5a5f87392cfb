"""Invariants of plans on pipelines: scale, empty modules, determinism, elasticity, groups."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.limits import Limits
from balancer.pipeline_stages import encoder_first
from balancer.planner import EpochPlanner, plan_step
from balancer.topology import Topology


def drawn(seed, size=24, num_modules=2):
    """Lognormal costs with samples of one module only; tokens and patches."""
    rng = np.random.default_rng(seed)
    values = rng.lognormal(sigma=1.0, size=(size, num_modules))
    values[rng.random(values.shape) < 0.3] = 0.0
    values[:, -1] += 0.1
    modules = ("vision", "audio", "language")[-num_modules:] if num_modules != 2 else (
        "vision", "language",
    )  # fmt: skip
    return Costs.from_values(
        values, modules=modules, tokens=rng.integers(1, 50, size), patches=rng.integers(0, 9, size)
    )


def pipeline(**options):
    return Topology(
        **{"dp_size": 2, "num_microbatches": 4, "barrier": "pipeline", "pp_size": 2} | options
    )


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.sampled_from([-20, -3, 1, 30]), st.booleans())
def test_scaling_all_costs_by_a_power_of_two_changes_no_plan(seed, power, defer):
    """I12: the plan does not depend on the unit of the costs; times scale with it."""
    costs = drawn(seed)
    scaled = replace(costs, values=costs.values * 2.0**power)
    stages = ({"vision": 1}, {"vision": 1}, {"language": 1}, {"language": 1})
    options = {"pp_size": 4, "stages": stages, "deferral": True} if defer else {}
    plan, other = (plan_step(each, pipeline(**options)) for each in (costs, scaled))
    assert other.fingerprint == plan.fingerprint
    assert other.certificates[0].step_time == plan.certificates[0].step_time * 2.0**power


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_a_module_without_cost_changes_no_plan(seed):
    """I13: an audio column of zeros, on the encoders' stage, leaves plan and certificate alone."""
    costs = drawn(seed)
    zeros = np.zeros((len(costs), 1))
    wider = Costs.from_values(
        np.hstack([costs.values[:, :1], zeros, costs.values[:, 1:]]),
        modules=("vision", "audio", "language"), tokens=costs.tokens, patches=costs.patches,
    )  # fmt: skip
    plan = plan_step(costs, pipeline(pp_size=3, stages=encoder_first(3)))
    stages = encoder_first(3, encoders=("vision", "audio"))
    other = plan_step(wider, pipeline(pp_size=3, stages=stages))
    assert other.sample_ids.tolist() == plan.sample_ids.tolist()
    assert other.offsets.tolist() == plan.offsets.tolist()
    assert other.certificates == plan.certificates


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_text_only_steps_are_planned_as_if_there_were_no_vision(seed):
    """I14: samples of one module alone are placed as by that module's cost."""
    costs = drawn(seed, num_modules=2)
    text = costs.values[:, 1]
    both = Costs.from_values(np.stack([np.zeros_like(text), text], axis=1),
                             modules=("vision", "language"))  # fmt: skip
    alone = plan_step(Costs.from_values(text), pipeline())
    plan = plan_step(both, pipeline())
    assert plan.sample_ids.tolist() == alone.sample_ids.tolist()
    assert plan.certificates == alone.certificates


def test_the_same_inputs_give_the_same_bytes():
    """I15: another call, and steps planned in another order, end at the same fingerprints."""
    costs = drawn(5, size=96)
    first, second = (
        EpochPlanner(costs, pipeline(), global_batch_size=24, seed=3) for _ in range(2)
    )
    forwards = [first.plan(1, step).fingerprint for step in range(first.num_steps)]
    backwards = [second.plan(1, step).fingerprint for step in reversed(range(second.num_steps))]
    assert forwards == backwards[::-1]
    assert len(set(forwards)) == len(forwards)


def test_pipelines_may_grow_between_steps():
    """I16, I17: two ranks, then four from the next step on: every sample once, same membership."""
    costs = drawn(6, size=96)
    planners = [
        EpochPlanner(costs, pipeline(dp_size=dp_size, num_microbatches=4), global_batch_size=24)
        for dp_size in (2, 4)
    ]
    plans = [planners[step >= 2].plan(0, step) for step in range(4)]
    ids = np.concatenate([plan.sample_ids for plan in plans])
    assert sorted(ids.tolist()) == list(range(96))
    for step, plan in enumerate(plans):
        plan.check(costs, expected_ids=planners[0].step_ids(0, step)[0])


@pytest.mark.parametrize("pp_size", [2, 4])
@pytest.mark.parametrize("virtual_stages", [1, 2])
@pytest.mark.parametrize("max_tokens", [60, 100])
def test_interleaved_microbatches_come_in_whole_groups(pp_size, virtual_stages, max_tokens):
    """E3 (verl PR 1617): their number is a multiple of pp_size, also where limits ask for more."""
    costs = drawn(7, size=64)
    schedule = "interleaved" if virtual_stages > 1 else "1f1b"
    topology = pipeline(
        pp_size=pp_size, virtual_stages=virtual_stages, schedule=schedule,
        limits=Limits(max_tokens=max_tokens),
    )  # fmt: skip
    plan = plan_step(costs, topology)
    plan.check(costs, expected_ids=np.arange(64))
    assert plan.num_microbatches(0) * 2 * max_tokens >= costs.tokens.sum()
    if virtual_stages > 1:
        assert plan.num_microbatches(0) % pp_size == 0
        with pytest.raises(ArgumentError, match="give a multiple of it"):
            replace(topology, num_microbatches=pp_size + 1)
