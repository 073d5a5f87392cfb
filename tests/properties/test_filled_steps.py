"""Steps filled by tokens: every step fits its microbatches, whatever the order brings."""

import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from balancer.__main__ import main
from balancer.cost import Costs
from balancer.errors import ArgumentError, PlanError
from balancer.kernels.fill import fill_cells
from balancer.plan import Flag
from balancer.planner import EpochPlanner
from balancer.resume import rest_after, resumed
from balancer.step_planner import oversize_ids
from balancer.topology import Limits, Topology
from loaders.sampler import BalancedBatchSampler
from tests import naive_fill
from tests.properties import planning


@st.composite
def planners(draw):
    """Epoch planners whose steps are filled under limits of any kind."""
    limits = draw(planning.limits().filter(lambda given: set(given.given) - {"samples"}))
    topology = Topology(
        dp_size=draw(st.integers(1, 3)),
        num_microbatches=draw(st.integers(1, 3)),
        barrier=draw(st.sampled_from(["step", "microbatch"])),
        limits=limits,
    )
    costs = draw(planning.costs(min_samples=2, max_samples=60))
    oversize = draw(st.sampled_from(["drop", "alone"]))
    assume(oversize == "alone" or oversize_ids(costs, topology, "drop", sample_ids=None).size
           < len(costs))  # fmt: skip
    try:
        return EpochPlanner(
            costs, topology, global_batch_size=None, oversize=oversize,
            seed=draw(st.integers(0, 99)), tail=draw(st.sampled_from(["drop", "pad", "filler"])),
        )  # fmt: skip
    except PlanError:
        assume(False)


@given(planners(), st.integers(0, 3))
def test_every_filled_step_fits_its_microbatches(planner, epoch):
    """I1, I3, I5: all samples once or dropped, limits kept, never more microbatches than asked."""
    plan = planner.plan_epoch(epoch) if planner.steps(epoch).end else None
    assume(plan is not None)
    plan.check(planner.costs, expected_ids=np.arange(len(planner.costs)))
    each = planner.topology.num_microbatches
    assert (np.diff(plan.step_slots) == each).all()
    assert planner.microbatches_per_epoch(epoch) == int(plan.step_slots[-1])
    if planner.tail == "drop":
        assert (plan.flags == Flag.REAL).all()
    else:
        assert planner.oversize == "drop" or not plan.dropped.size


@given(planners(), st.integers(0, 3))
def test_a_step_ends_where_the_next_sample_has_no_room(planner, epoch):
    """Bounds are those of plain Python over the whole order; the rest is left to the tail."""
    steps, costs, topology = planner.steps(epoch), planner.costs, planner.topology
    order = planner.order.ids_at(np.arange(planner.order.num_samples), epoch)
    alone = set(oversize_ids(costs, topology, planner.oversize, sample_ids=None).tolist())
    expected = naive_fill.step_bounds(
        order.tolist(), costs, topology, alone if planner.oversize == "alone" else set()
    )
    complete = steps.end_of_complete - steps.first
    assert steps.bounds[: complete + 1].tolist() == expected
    assert steps.end == complete + (planner.tail != "drop")
    delivered = [steps.members(step) for step in range(steps.end)]
    ids = [each for members, flags in delivered for each in members[flags == Flag.REAL]]
    assert [*ids, *steps.cut] == order.tolist()


@given(planners(), st.data())
@settings(max_examples=30)
def test_a_filled_step_is_planned_from_its_number_alone(planner, data):
    """Contract 7 and I16: a fresh planner, and one resumed at any step, plan what was planned."""
    epoch = data.draw(st.integers(0, 2))
    end = planner.steps(epoch).end
    assume(end)
    step = data.draw(st.integers(0, end - 1))
    plan = planner.plan(epoch, step)
    fresh = EpochPlanner.from_settings(planner.costs, planner.settings)
    assert fresh.fingerprint == planner.fingerprint
    assert fresh.plan(epoch, step).fingerprint == plan.fingerprint
    later = resumed(fresh, rest_after(planner, epoch=epoch, step=step))
    assert later.steps(epoch).end == end
    for again in range(step, end):
        ids = later.step_ids(epoch, again)[0].tolist()
        assert ids == planner.step_ids(epoch, again)[0].tolist()


@given(planners(), st.data())
@settings(max_examples=30)
def test_the_rest_of_a_filled_epoch_can_change_its_ranks(planner, data):
    """I17: at a step boundary other ranks take over, and every sample is still delivered once."""
    assume(planner.tail == "filler")
    step = data.draw(st.integers(0, planner.steps(0).end - 1))
    before = [planner.step_ids(0, each)[0] for each in range(step)]
    other = EpochPlanner(
        planner.costs, Topology(dp_size=2, limits=planner.topology.limits),
        global_batch_size=data.draw(st.sampled_from([None, 2, 5])), seed=planner.seed,
        oversize=planner.oversize, tail="filler",
    )  # fmt: skip
    rest = resumed(other, rest_after(planner, epoch=0, step=step))
    steps = rest.steps(0)
    after = [steps.members(each)[0] for each in range(steps.first, steps.end)]
    ids = np.concatenate([*before, *after])
    assert (
        sorted(ids.tolist())
        == np.setdiff1d(np.arange(len(planner.costs)), planner.order.left_out).tolist()
    )


@given(st.integers(0, 2**32 - 1), st.booleans(), st.integers(1, 80))
def test_filling_is_that_of_plain_python(seed, padded, num_cells):
    """The kernel and the oracle put every item in the same microbatch."""
    rng = np.random.default_rng(seed)
    amounts = rng.integers(1, 12, (rng.integers(1, 300), 2))
    caps = rng.integers(12, 40, 2)
    order = rng.permutation(len(amounts))
    cells = fill_cells(order, amounts.ravel(), caps, padded, num_cells)
    assert cells.tolist() == naive_fill.fill_cells(order, amounts, caps, padded, num_cells)


def test_i7_the_step_says_how_many_samples_it_has():
    """I7: steps differ in samples; the facts carry the number, and loss weights use the step's."""
    rng = np.random.default_rng(3)
    costs = Costs.from_values(np.ones(400), tokens=rng.integers(10, 200, 400))
    topology = Topology(dp_size=2, num_microbatches=2, limits=Limits(max_tokens=1000))
    planner = EpochPlanner(costs, topology, global_batch_size=None, tail="filler")
    sampler = BalancedBatchSampler(planner)
    for epoch in range(2):
        assert len(sampler) == planner.steps(epoch).end * 4
        facts = [batch.facts for batch in sampler]
        assert len(facts) == planner.steps(epoch).end * 4
        sizes = {each.step: each.step_samples for each in facts}
        assert len(set(sizes.values())) > 1
        for step, size in sizes.items():
            of_step = [each for each in facts if each.step == step]
            assert sum(len(each.sample_ids) for each in of_step) == size
            tokens = sum(sum(each.target_tokens) for each in of_step)
            assert all(each.step_target_tokens == tokens for each in of_step)


def test_b8_filled_steps_are_full():
    """B8: samples far smaller than the limit fill at least 95 % of it in every complete step."""
    rng = np.random.default_rng(0)
    costs = Costs.from_values(np.ones(20_000), tokens=rng.integers(1, 200, 20_000))
    topology = Topology(dp_size=4, num_microbatches=4, limits=Limits(max_tokens=3000))
    planner = EpochPlanner(costs, topology, global_batch_size=None)
    steps = planner.steps(0)
    totals = [costs.tokens[steps.members(step)[0]].sum() for step in range(steps.end)]
    assert min(totals) >= 0.95 * 3000 * 16
    planner.plan(0, 0).check(costs)


@pytest.mark.parametrize(
    ("topology", "options", "message"),
    [
        (Topology(dp_size=2), {}, "set max_tokens"),
        (Topology(dp_size=2, limits=Limits(max_samples=4)), {}, "set max_tokens"),
        (
            Topology(dp_size=2, limits=Limits(max_tokens=9)),
            {"window_steps": 2},
            "window_steps is 2 with global_batch_size=None",
        ),
        (
            Topology(dp_size=2, rank_limits=(Limits(max_tokens=9), Limits(max_tokens=8))),
            {},
            "rank_limits is",
        ),
    ],
)
def test_filled_steps_need_a_limit_that_ends_them(topology, options, message):
    """What could not be promised is refused at construction, with the cure."""
    costs = Costs.from_values(np.ones(20), tokens=[3] * 20)
    with pytest.raises(ArgumentError, match=message):
        EpochPlanner(costs, topology, global_batch_size=None, **options)


def test_c7_an_epoch_of_less_than_a_step_is_refused_or_delivered():
    """C7: all samples fit one step: dropped it is an error that says why, else one step."""
    costs = Costs.from_values(np.ones(5), tokens=[3] * 5)
    topology = Topology(dp_size=2, limits=Limits(max_tokens=100))
    with pytest.raises(PlanError, match="all fit one step"):
        EpochPlanner(costs, topology, global_batch_size=None)
    for tail, repeats in (("filler", 0), ("pad", 5)):
        planner = EpochPlanner(costs, topology, global_batch_size=None, tail=tail)
        plan = planner.plan_epoch(0)
        assert plan.num_steps == 1
        assert (plan.flags == Flag.REPEAT).sum() == repeats


def test_pipelines_can_be_filled():
    """Under the pipeline barrier every filled step fits too."""
    rng = np.random.default_rng(5)
    costs = Costs.from_values(np.ones(60), tokens=rng.integers(1, 60, 60))
    topology = Topology(
        dp_size=2, num_microbatches=4, barrier="pipeline", pp_size=2, max_microbatches=4,
        limits=Limits(max_tokens=100),
    )  # fmt: skip
    planner = EpochPlanner(costs, topology, global_batch_size=None, tail="filler")
    plan = planner.plan_epoch(0)
    plan.check(costs, expected_ids=np.arange(60))
    assert (np.diff(plan.step_slots) == 4).all()


def test_i7_the_report_says_how_many_samples_steps_have(capsys):
    """I7: without --global-batch-size steps are filled; the report gives the effective batch."""
    arguments = [
        "plan", "embedded", "--model", "qwen2.5-vl-7b", "--dp-size", "4", "--max-tokens", "16384",
        "--steps", "3", "--oversize", "drop", "--modality-sync", "spread", "--pad-sample-to", "8",
    ]  # fmt: skip
    assert main(arguments) == 0
    assert "samples of a step" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["report"]
    fewest, mean, most = report["step_samples"]
    assert fewest < mean < most
    assert report["samples"] == round(3 * mean)
    assert report["planned"]["fill"]["tokens"][0] > 0.85
