"""Effort: counted work, the same on every rank, never a worse plan."""

import numpy as np
import pytest

from balancer.cost import Costs
from balancer.effort import checked_effort, search_budget
from balancer.errors import ArgumentError
from balancer.planner import EpochPlanner, plan_step, plan_window
from balancer.topology import Limits, Topology

TOPOLOGIES = [
    Topology(dp_size=4, num_microbatches=4),
    Topology(dp_size=4, num_microbatches=2, limits=Limits(max_tokens=900)),
    Topology(dp_size=4, num_microbatches=4, barrier="step"),
    Topology(dp_size=2, num_microbatches=4, barrier="pipeline", pp_size=2),
    Topology(dp_size=3, num_microbatches=3, rank_speeds=(1, 1, 0.4)),
]


def costs_of(seed, size=96):
    rng = np.random.default_rng(seed)
    values = rng.lognormal(0.0, 1.3, (size, 2))
    values[rng.random((size, 2)) < 0.3] = 0.0
    return Costs.from_values(
        values, modules=("vision", "language"), tokens=rng.integers(1, 100, size)
    )


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_effort_is_never_worse_than_fast_and_always_the_same(topology):
    """Default and seconds are never worse than fast; the same effort gives the same plan."""
    costs = costs_of(3)
    plans = [plan_step(costs, topology, effort=effort) for effort in ("fast", "default", 0.2)]
    times = [plan.certificates[0].step_time for plan in plans]
    assert max(times) == times[0]
    assert plan_step(costs, topology, effort=0.2).fingerprint == plans[2].fingerprint
    for plan in plans:
        plan.check(costs, expected_ids=np.arange(len(costs)))


@pytest.mark.parametrize("topology", [TOPOLOGIES[0], TOPOLOGIES[1], TOPOLOGIES[4]], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_more_effort_is_never_worse(topology, seed):
    """A search begins with all that one of less effort does, so its plan is as good or better."""
    costs = costs_of(seed)
    times = [
        plan_step(costs, topology, effort=effort).certificates[0].step_time
        for effort in (0.02, 0.03, 0.05, 0.08, 0.12)
    ]
    assert times == sorted(times, reverse=True)


def test_seconds_stand_for_as_many_proposals_in_steps_of_every_size():
    """A large step gets as many, in rounds that are as short as for one of 3,000 samples."""
    small, large = search_budget(1.0, 3000), search_budget(1.0, 100_000)
    assert small == large
    assert small.first_round * 10 < small.proposals


def test_seconds_find_better_plans_than_the_local_search():
    """On dear samples in turn, annealing is better on most steps."""
    topology = Topology(dp_size=4, num_microbatches=4)
    better = 0
    for seed in range(5):
        fast, searched = (
            plan_step(costs_of(seed), topology, effort=effort).certificates[0].step_time
            for effort in ("fast", 0.2)
        )
        better += searched < fast * (1 - 1e-4)
    assert better >= 3


@pytest.mark.parametrize("max_tokens", [None, 1300])
def test_on_pipelines_more_effort_is_never_worse(max_tokens):
    """Times descend with the effort, in local search and beyond it, and end lower."""
    topology = Topology(
        dp_size=2, num_microbatches=4, barrier="pipeline", pp_size=4,
        limits=Limits(max_tokens=max_tokens),
    )  # fmt: skip
    efforts = (0.002, 0.01, 0.03, 0.07, 0.11, 0.17, 0.3)
    for seed in range(2):
        times = [
            plan_step(costs_of(seed), topology, effort=effort).certificates[0].step_time
            for effort in efforts
        ]
        assert times == sorted(times, reverse=True)
        default = plan_step(costs_of(seed), topology).certificates[0].step_time
        assert times[-1] < min(times[0], default)


def test_effort_is_part_of_the_fingerprint_of_an_epoch():
    """Ranks that plan with another effort would plan otherwise, and their fingerprints tell."""
    costs, topology = costs_of(0), Topology(dp_size=2)
    of = [
        EpochPlanner(costs, topology, global_batch_size=16, effort=effort).fingerprint
        for effort in ("default", "fast", 1, 2.0)
    ]
    assert len(set(of)) == 4
    again = EpochPlanner(costs, topology, global_batch_size=16, effort=1.0)
    assert again.fingerprint == of[2]


def test_windows_and_epochs_pass_effort_on():
    """A window and an epoch of steps take as long as their steps planned with that effort."""
    costs, topology = costs_of(1), Topology(dp_size=2, num_microbatches=4)
    plans = plan_window(costs, topology, sample_ids=range(96), num_steps=1, effort=0.05)
    alone = plan_step(costs, topology, sample_ids=range(96), effort=0.05)
    assert plans[0].fingerprint == alone.fingerprint
    planner = EpochPlanner(costs, topology, global_batch_size=96, shuffle=False, effort=0.05)
    assert planner.plan(0, 0).fingerprint == alone.fingerprint


@pytest.mark.parametrize("effort", [0, -1, float("nan"), float("inf"), "slow", None, True])
def test_other_efforts_are_refused(effort):
    """Only the two names and numbers above 0 are allowed."""
    with pytest.raises(ArgumentError, match=r'effort is .*; allowed: "fast", "default", or'):
        checked_effort(effort)


def test_budgets_grow_with_effort_and_shrink_with_large_steps():
    """Fast is below default is below a second; by the cube of the samples above 2,048."""
    fast, default, second = (search_budget(effort, 2048) for effort in ("fast", "default", 1.0))
    assert fast.exchanges < default.exchanges < second.exchanges
    assert 0 == fast.proposals < default.proposals < second.proposals
    larger = search_budget("default", 4096)
    assert larger.exchanges == default.exchanges // 8
    assert larger.proposals == default.proposals // 8
