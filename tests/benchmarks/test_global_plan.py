"""The global_plan experiment on a small batch."""

import numpy as np
import pytest

from balancer.cost import Costs
from balancer.plan import Plan
from benchmarks.baselines import token_greedy
from benchmarks.global_plan import bimodal_costs, lockstep, measure_global_plan
from benchmarks.planners import Balanced, Baseline


def test_ours_is_nearer_to_an_even_split_loses_nothing_and_keeps_the_limit() -> None:
    """Beside a greedy on tokens, on the same batches."""
    records = measure_global_plan(
        name="global_plan",
        sizes=[[512, 8], [1024, 16]],
        num_microbatches=3,
        max_tokens=16384,
        longest=16384,
        planners={
            "balanced": Balanced(effort="fast"),
            "token_greedy": Baseline(name="token_greedy", assign=token_greedy),
        },
        most_samples={"token_greedy": 512},
        num_batches=3,
        seed=0,
        quick=False,
    )
    values = {(r.planner, r.topology, r.metric): r.value for r in records}
    for module in ("vision", "language", "all"):
        ours = values["balanced", "dp8_m3_n512", f"lockstep_{module}"]
        theirs = values["token_greedy", "dp8_m3_n512", f"lockstep_{module}"]
        assert 1 <= ours < 1.01
        assert ours < theirs
    for topology in ("dp8_m3_n512", "dp16_m3_n1024"):
        assert values["balanced", topology, "samples_lost"] == 0
        assert values["balanced", topology, "microbatches_over_limit"] == 0
    assert ("token_greedy", "dp16_m3_n1024", "lockstep_all") not in values


def test_default_effort_evens_out_each_module() -> None:
    """Vision, a fifth of the cost, within 0.2 % of an even split as language is."""
    records = measure_global_plan(
        name="global_plan", sizes=[[512, 8]], num_microbatches=3, max_tokens=16384,
        longest=16384, planners={"balanced": Balanced()}, most_samples={}, num_batches=3, seed=0,
        quick=False,
    )  # fmt: skip
    values = {r.metric: r.value for r in records}
    for module in ("vision", "language"):
        assert values[f"lockstep_{module}"] <= 1.002
    assert values["samples_lost"] == values["microbatches_over_limit"] == 0


def test_lockstep_counts_the_slowest_rank_of_every_microbatch() -> None:
    """By hand: two ranks, two microbatches, one module apart from the other."""
    values = [[0, 3], [8, 5], [2, 7], [4, 1]]
    costs = Costs.from_values(values, modules=("vision", "language"))
    plan = Plan.from_cells([[[[0], [1]], [[2], [3]]]])
    expected = [(8 + 4) / 7, (5 + 7) / 8, (12 + 12) / 15]
    assert lockstep(plan, costs) == pytest.approx(np.array(expected))


def test_batches_have_the_text_and_images_that_are_promised() -> None:
    """Images of 64 to 1,280 tokens, four patches each, at most six; three microbatches fit."""
    costs = bimodal_costs(4096, 16384, 3)
    assert costs.images.max() == 6
    assert abs((costs.images > 0).mean() - 0.6) < 0.03
    assert (costs.patches >= 4 * 64 * costs.images).all()
    assert (costs.patches <= 4 * 1280 * costs.images).all()
    assert (costs.tokens >= costs.patches // 4).all()
    assert 0.8 < costs.tokens.sum() / (64 * 3 * 16384) < 1
