"""Tokens rounded up, sample by sample and microbatch by microbatch, count against the limit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.errors import ArgumentError, CapacityError, PlanError
from balancer.plan import Plan
from balancer.planner import EpochPlanner, plan_step
from balancer.report import balance_report
from balancer.step_planner import oversize_ids
from balancer.topology import Limits, Topology
from tests.properties import planning

MULTIPLES = st.sampled_from([1, 2, 3, 8, 16])


def up(value, multiple):
    return -(-value // multiple) * multiple


def allocated(tokens, limits):
    """Tokens of a microbatch as the field rounds them, written out."""
    rounded = [up(int(value), limits.pad_sample_to) for value in tokens]
    laid = len(rounded) * max(rounded) if limits.layout == "padded" else sum(rounded)
    return up(laid, limits.pad_microbatch_to)


@given(planning.costs(), planning.topologies(), MULTIPLES, MULTIPLES)
def test_e5_b11_what_is_allocated_keeps_the_limit(costs, topology, sample, microbatch):
    """I3: rounded tokens of each microbatch are what `amounts` says and are within the limit."""
    limits = replace(topology.limits, pad_sample_to=sample, pad_microbatch_to=microbatch)
    topology = replace(topology, limits=limits)
    over = oversize_ids(costs, topology, "drop", sample_ids=None)
    assume(over.size < len(costs))
    plan = plan_step(costs, topology, oversize="drop", fill=True)
    plan.check(costs, expected_ids=np.arange(len(costs)))
    amounts = plan.amounts(costs)["tokens"]
    for cell in range(len(plan.offsets) - 1):
        ids = plan.sample_ids[plan.offsets[cell] : plan.offsets[cell + 1]]
        assert amounts[cell] == allocated(costs.tokens[ids], limits)
        assert limits.max_tokens is None or amounts[cell] <= limits.max_tokens


@given(st.lists(st.integers(1, 120), min_size=1, max_size=20), MULTIPLES, MULTIPLES)
def test_b2_a_sample_is_over_the_limit_once_rounded(tokens, sample, microbatch):
    """Exactly the samples whose rounded size exceeds the limit are refused; the cure works."""
    costs = Costs.from_values(np.ones(len(tokens)), tokens=tokens)
    limits = Limits(max_tokens=64, pad_sample_to=sample, pad_microbatch_to=microbatch)
    over = [i for i, size in enumerate(tokens) if up(up(size, sample), microbatch) > 64]
    topology = Topology(dp_size=1, limits=limits)
    if not over:
        assert not oversize_ids(costs, topology, "error", sample_ids=None).size
        return
    with pytest.raises(CapacityError, match="raise max_tokens to ") as caught:
        oversize_ids(costs, topology, "error", sample_ids=None)
    assert list(caught.value.sample_ids) == over
    enough = int(str(caught.value).split("raise max_tokens to ")[1].split(",")[0])
    cured = replace(topology, limits=replace(limits, max_tokens=enough))
    assert not oversize_ids(costs, cured, "error", sample_ids=None).size
    barely = replace(topology, limits=replace(limits, max_tokens=enough - 1))
    assert oversize_ids(costs, barely, "drop", sample_ids=None).size


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_b11_ten_samples_of_five_rounded_to_eight(layout):
    """B11: ten samples of 5 tokens, each rounded to 8, under 40: five a microbatch, not eight."""
    costs = Costs.from_values(np.ones(10), tokens=[5] * 10)
    limits = Limits(max_tokens=40, pad_sample_to=8, layout=layout)
    plan = plan_step(costs, Topology(dp_size=1, limits=limits))
    assert np.diff(plan.offsets).tolist() == [5, 5]
    assert (
        plan_step(costs, Topology(dp_size=1, limits=Limits(max_tokens=50))).num_microbatches(0) == 1
    )
    assert balance_report(plan, costs).planned.padding_fraction == pytest.approx(1 - 50 / 80)


def test_e5_context_parallel_rounds_each_sample():
    """E5: 4, 8, 6, 10 tokens with two ranks of context parallelism take 4, 8, 8, 12: 32 tokens."""
    costs = Costs.from_values(np.ones(4), tokens=[4, 8, 6, 10])
    plan = plan_step(costs, Topology(dp_size=1, limits=Limits(pad_sample_to=4)))
    assert plan.amounts(costs)["tokens"].tolist() == [32]
    tight = Topology(dp_size=1, limits=Limits(max_tokens=31, pad_sample_to=4))
    with pytest.raises(PlanError, match="holds 32 tokens"):
        replace(plan, topology=tight).check(costs)


def test_b11_the_microbatch_is_rounded_too():
    """A limit that is no multiple leaves room for whole multiples only."""
    costs = Costs.from_values(np.ones(6), tokens=[30] * 6)
    limits = Limits(max_tokens=100, pad_microbatch_to=64)
    plan = plan_step(costs, Topology(dp_size=1, limits=limits))
    assert plan.num_microbatches(0) == 3
    assert plan.amounts(costs)["tokens"].tolist() == [64, 64, 64]


def test_bad_roundings_are_refused():
    """Multiples are whole numbers, and a microbatch rounded up must be able to fit."""
    with pytest.raises(ArgumentError, match="pad_sample_to is 0"):
        Limits(pad_sample_to=0)
    with pytest.raises(
        ArgumentError,
        match="max_tokens is 32, which leaves no room beside what pad_microbatch_to=64",
    ):
        Limits(max_tokens=32, pad_microbatch_to=64)
    with pytest.raises(ArgumentError, match="max_in_flight is 128 with"):
        Topology(
            dp_size=1, barrier="pipeline", pp_size=2, max_in_flight=128,
            limits=Limits(max_tokens=64, pad_microbatch_to=8),
        )  # fmt: skip


def test_an_average_step_is_judged_by_rounded_tokens():
    """E6: what depends on the configuration fails at construction, rounding included."""
    costs = Costs.from_values(np.ones(8), tokens=[5] * 8)
    topology = Topology(
        dp_size=1, max_microbatches=1, limits=Limits(max_tokens=24, pad_sample_to=8)
    )
    EpochPlanner(costs, topology, global_batch_size=3)
    with pytest.raises(CapacityError, match="an average step has 32 tokens"):
        EpochPlanner(costs, topology, global_batch_size=4)


def test_a_rounded_plan_survives_saving(tmp_path):
    """Multiples come back with the plan; without them nothing shows, so fingerprints stay."""
    costs = Costs.from_values(np.ones(4), tokens=[5] * 4)
    plan = plan_step(costs, Topology(dp_size=1, limits=Limits(max_tokens=40, pad_sample_to=8)))
    plan.save(tmp_path / "plan.npz")
    assert Plan.load(tmp_path / "plan.npz").topology == plan.topology
    assert "pad_" not in repr(Limits(max_tokens=40))
    assert "pad_sample_to=8" in repr(plan.topology)
