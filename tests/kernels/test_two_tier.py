"""Placement in two tiers: against its plain form, and in whole plans."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer import candidates
from balancer.cost import Costs
from balancer.kernels.two_tier import place_in_two_tiers
from balancer.step_planner import plan_step
from balancer.topology import Limits, Topology
from tests.kernels.problems import small_problems
from tests.naive_two_tier import place_in_two_tiers as naive


@given(small_problems(max_dp=7, alike=True), st.data())
def test_two_tiers_equal_the_oracle(problem, data):
    """The compiled placement and its plain form choose the same cells."""
    num_groups = data.draw(st.integers(1, problem.dp_size))
    size = (problem.dp_size, problem.num_slots, num_groups)
    order, shares, modules, *limits = problem.arrays()
    placed = place_in_two_tiers(order, shares, modules, *limits, *size)
    expected = naive(
        problem.order, problem.costs, problem.amounts, problem.caps, problem.padded, *size
    )
    assert placed.tolist() == expected


@pytest.fixture
def _every_step_is_large(monkeypatch):
    monkeypatch.setattr(candidates, "_LARGE", 1)


@pytest.mark.usefixtures("_every_step_is_large")
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    dp_size=st.integers(1, 40),
    num_microbatches=st.integers(1, 3),
    max_tokens=st.none() | st.integers(100, 400),
    barrier=st.sampled_from(["step", "microbatch"]),
    modules=st.sampled_from(["in_turn", "summed"]),
)
def test_plans_of_large_steps_conserve_keep_limits_and_are_never_worse_than_the_given_order(
    seed, dp_size, num_microbatches, max_tokens, barrier, modules
):
    """The same promises as for small steps."""
    rng = np.random.default_rng(seed)
    size = dp_size * num_microbatches * int(rng.integers(1, 6))
    tokens = rng.integers(1, 100, size)
    vision = rng.integers(0, 300, size) * rng.integers(0, 2, size)
    costs = Costs.from_values(
        np.stack([vision, tokens], axis=1), modules=("vision", "language"), tokens=tokens
    )
    topology = Topology(
        dp_size=dp_size, num_microbatches=num_microbatches, barrier=barrier, modules=modules,
        limits=Limits(max_tokens=max_tokens),
    )  # fmt: skip
    plan = plan_step(costs, topology)
    plan.check(costs, expected_ids=np.arange(size))
    certificate = plan.certificates[0]
    assert certificate.lower_bound <= certificate.step_time
    if plan.num_microbatches(0) == num_microbatches and max_tokens is None:
        assert certificate.step_time <= certificate.given_time


def test_a_step_on_a_thousand_ranks_is_near_its_bound():
    """Two tiers lose next to nothing where no sample is dear."""
    rng = np.random.default_rng(4)
    tokens = rng.integers(1, 1000, 16_384)
    costs = Costs.from_values(tokens, tokens=tokens)
    plan = plan_step(costs, Topology(dp_size=1024, num_microbatches=4, barrier="step"))
    assert plan.certificates[0].planner == "two tiers"
    assert plan.certificates[0].step_time <= 1.001 * plan.certificates[0].lower_bound
