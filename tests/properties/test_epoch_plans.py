"""Promises of a whole epoch: membership, tails, reports, purity, the same plan everywhere."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.errors import BalancerError, SampleError
from balancer.plan import Flag, Plan
from balancer.planner import EpochPlanner
from balancer.step_planner import oversize_ids, plan_step
from balancer.topology import Limits, Topology
from tests.properties import planning

TAILS = st.sampled_from(["drop", "pad", "filler"])


@st.composite
def planners(draw):
    """An epoch planner of any kind that can be built."""
    costs = draw(planning.costs(min_samples=3, max_samples=60))
    topology = draw(planning.topologies(max_dp=3, max_slots=2))
    cells = topology.dp_size * topology.num_microbatches
    oversize = draw(st.sampled_from(["drop", "alone"]))
    tail = draw(TAILS)
    over = oversize_ids(costs, topology, oversize, sample_ids=None)
    kept = len(costs) - (len(over) if oversize == "drop" else 0)
    size = draw(st.integers(cells, 3 * cells))
    assume(kept >= (size if tail == "drop" else 1))
    return EpochPlanner(
        costs,
        topology,
        global_batch_size=size,
        seed=draw(st.integers(0, 2**40)),
        shuffle=draw(st.booleans()),
        oversize=oversize,
        tail=tail,
        window_steps=draw(st.integers(1, 4)),
    )


@given(planners(), st.integers(0, 1000))
def test_an_epoch_delivers_every_sample_once_or_reports_it(planner, epoch):
    """Contract 2: real and dropped ids together are all ids; only flagged ones repeat."""
    plan = planner.plan_epoch(epoch)
    plan.check(planner.costs, expected_ids=np.arange(len(planner.costs)))
    assert np.array_equal(plan.dropped, planner.dropped(epoch))
    repeats = np.count_nonzero(plan.flags == Flag.REPEAT)
    assert bool(repeats) <= (planner.tail == "pad")
    if planner.tail == "pad":
        assert (plan.flags != Flag.FILLER).all() or planner.topology.limits.given


@given(planners(), st.integers(0, 1000))
def test_all_ranks_have_as_many_microbatches_as_was_announced(planner, epoch):
    """Contract 3: every rank's count is the exact, announced one, whatever the tail."""
    plan = planner.plan_epoch(epoch)
    announced = planner.microbatches_per_epoch(epoch)
    for rank in range(planner.topology.dp_size):
        microbatches = list(plan.for_rank(rank))
        assert len(microbatches) == announced
        assert all(len(ids) for ids in microbatches)


@given(planners(), st.integers(0, 1000), st.data())
def test_a_step_is_planned_from_its_number_alone(planner, epoch, data):
    """Contract 7: planning one step gives what planning the epoch gives for it."""
    step = data.draw(st.integers(0, planner.num_steps - 1))
    alone, epoch_plan = planner.plan(epoch, step), planner.plan_epoch(epoch)
    for index in range(alone.num_microbatches(0)):
        for rank in range(planner.topology.dp_size):
            ours = alone.microbatch(step=0, index=index, dp_rank=rank)
            theirs = epoch_plan.microbatch(step=step, index=index, dp_rank=rank)
            assert ours.tolist() == theirs.tolist()
    assert alone.certificates[0] == epoch_plan.certificates[step]


@given(planners(), st.integers(0, 1000))
def test_a_sample_moves_by_fewer_steps_than_the_window_has(planner, epoch):
    """Contract 6: nothing leaves its window, and windows never make the epoch longer."""
    plan = planner.plan_epoch(epoch)
    ids, displacement = planner.displacement(plan)
    assert sorted(ids.tolist()) == sorted(plan.sample_ids[plan.flags == Flag.REAL].tolist())
    assert np.abs(displacement).max(initial=0) < planner.window_steps
    strict = EpochPlanner(
        planner.costs,
        planner.topology,
        global_batch_size=planner.global_batch_size,
        seed=planner.seed,
        shuffle=planner.shuffle,
        oversize=planner.oversize,
        tail=planner.tail,
    ).plan_epoch(epoch)
    times = [sum(c.step_time for c in p.certificates) for p in (plan, strict)]
    assert times[0] <= times[1] * (1 + 1e-9)


@given(planners(), st.integers(0, 1000))
def test_steps_hold_what_a_plain_shuffled_loader_would_give_them(planner, epoch):
    """Contract 6: membership of steps does not depend on the ranks or the microbatches."""
    assume(planner.window_steps == 1)
    limits = Limits(layout=planner.topology.limits.layout)
    if planner.topology.limits.given and planner.oversize == "drop":
        limits = planner.topology.limits
    one_rank = EpochPlanner(
        planner.costs,
        Topology(dp_size=1, limits=limits),
        global_batch_size=planner.global_batch_size,
        seed=planner.seed,
        shuffle=planner.shuffle,
        oversize=planner.oversize,
        tail=planner.tail,
    )
    assert one_rank.num_steps == planner.num_steps
    for step in range(planner.num_steps):
        ids, flags = one_rank.step_ids(epoch, step)
        plan = planner.plan(epoch, step)
        real = plan.sample_ids[plan.flags == Flag.REAL]
        assert sorted(real.tolist()) == sorted(ids[flags == Flag.REAL].tolist())


@given(planners(), st.integers(0, 1000))
def test_a_saved_plan_is_read_back_byte_for_byte(planner, epoch):
    """A plan that was saved and loaded has the same fingerprint and certificates."""
    import tempfile

    plan = planner.plan_epoch(epoch)
    with tempfile.TemporaryDirectory() as folder:
        plan.save(f"{folder}/plan.npz")
        loaded = Plan.load(f"{folder}/plan.npz")
    assert loaded.fingerprint == plan.fingerprint
    assert loaded.certificates == plan.certificates
    assert loaded.topology == plan.topology


def test_epochs_differ_and_return_and_lengths_do_not_cycle():
    """Contract 9: the order depends on (seed, epoch) only; step means have no memory."""
    lengths = np.random.default_rng(0).lognormal(5, 1, 64 * 500).astype(np.int64) + 1
    costs = Costs.from_values(lengths.astype(float), tokens=lengths)
    planner = EpochPlanner(costs, Topology(dp_size=8), global_batch_size=64)
    first, second = planner.step_ids(0, 0)[0], planner.step_ids(1, 0)[0]
    assert first.tolist() != second.tolist()
    assert planner.step_ids(0, 0)[0].tolist() == first.tolist()
    means = np.array([lengths[planner.step_ids(0, s)[0]].mean() for s in range(500)])
    lag_one = np.corrcoef(means[:-1], means[1:])[0, 1]
    assert abs(lag_one) < 0.15


PROGRAM = """
import json, random, sys
import numpy as np
rank = int(sys.argv[1])
random.seed(rank); np.random.seed(rank)
from balancer.cost import Costs
from balancer.planner import EpochPlanner
from balancer.topology import Limits, Topology
rng = np.random.default_rng(7)
values = rng.lognormal(0, 2, (4000, 2))
costs = Costs.from_values(values, modules=("vision", "language"), tokens=rng.integers(1, 90, 4000))
topology = Topology(dp_size=8, num_microbatches=4, limits=Limits(max_tokens=600))
planner = EpochPlanner(costs, topology, global_batch_size=256, seed=3)
print(json.dumps([planner.fingerprint, planner.plan_epoch(epoch=rank - rank).fingerprint]))
"""


def test_every_rank_and_process_computes_the_same_plan():
    """Contract 1: other hash seeds, global seeds and thread counts give the same bytes."""
    results = set()
    for rank in range(2):
        environment = os.environ | {
            "PYTHONHASHSEED": str(rank),
            "NUMBA_NUM_THREADS": str(1 + rank),
            "OMP_NUM_THREADS": str(1 + rank),
        }
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(rank)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        )
        results.add(tuple(json.loads(done.stdout)))
    assert len(results) == 1


@pytest.mark.parametrize("barrier", ["step", "microbatch"])
@pytest.mark.parametrize("seed", range(5))
def test_text_only_samples_do_not_pile_up_in_one_microbatch(barrier, seed):
    """A third of the samples cost nothing in the vision module; they are spread all the same."""
    rng = np.random.default_rng(seed)
    size = 512
    text_only = rng.random(size) < 0.35
    vision = np.where(text_only, 0.0, rng.lognormal(1.0, 0.6, size))
    language = rng.lognormal(1.0, 0.6, size)
    costs = Costs.from_values(np.stack([vision, language], 1), modules=("vision", "language"))
    plan = EpochPlanner(
        costs,
        Topology(dp_size=4, num_microbatches=8, barrier=barrier),
        global_batch_size=size,
        shuffle=False,
    ).plan(0, 0)
    cells = plan.cell_of_sample()
    per_cell = np.bincount(cells, weights=text_only[plan.sample_ids])
    assert per_cell.max() <= 3 * text_only.sum() / len(per_cell)
    held = np.bincount(cells)
    language_load = np.bincount(cells, weights=language[plan.sample_ids])
    assert language_load.max() <= 1.5 * language_load.mean()
    assert (per_cell < held).all()


def test_samples_the_model_cannot_take_are_an_error_or_left_out_and_listed():
    """Illegal samples are named, or dropped and reported, whatever their rows say."""
    costs = replace(
        Costs.from_values([1.0] * 10, tokens=[5] * 10),
        illegal=np.array([3, 7]),
        illegal_because="the rule takes no image of 1 x 9000 pixels, in sample 3",
    )
    with pytest.raises(
        SampleError, match=r"in sample 3; .*: 3, 7 \(2 in all\); pass illegal"
    ) as error:
        EpochPlanner(costs, Topology(dp_size=2), global_batch_size=4)
    assert error.value.sample_ids == (3, 7)
    planner = EpochPlanner(costs, Topology(dp_size=2), global_batch_size=4, illegal="drop")
    plan = planner.plan_epoch(0)
    plan.check(costs, expected_ids=np.arange(10))
    assert plan.dropped.tolist() == [3, 7]
    with pytest.raises(SampleError, match="samples that the model cannot take: 7"):
        plan_step(costs, Topology(dp_size=2), sample_ids=[1, 7])


def refused(match, **changes):
    arguments = {
        "costs": Costs.from_values([1.0] * 10, tokens=[5] * 10),
        "topology": Topology(dp_size=2),
        "global_batch_size": 4,
    } | changes
    costs, topology = arguments.pop("costs"), arguments.pop("topology")
    with pytest.raises(BalancerError, match=match):
        EpochPlanner(costs, topology, **arguments)


def test_bad_input_is_refused_at_construction_by_name():
    """Contract 12: the argument, the value and the cure are in the message."""
    empty = Costs.from_values(np.zeros((0, 1)), tokens=[])
    tight = Topology(dp_size=2, max_microbatches=1, limits=Limits(max_tokens=7))
    refused("costs has no sample to plan", costs=empty)
    refused("fewer than global_batch_size=16.*tail", global_batch_size=16)
    refused("global_batch_size is 0; allowed", global_batch_size=0)
    refused("global_batch_size is 2.5; allowed", global_batch_size=2.5)
    refused("seed is -1; allowed", seed=-1)
    refused("seed is .*; allowed: whole numbers from 0", seed=2**63)
    refused("tail is 'keep'; allowed: 'drop', 'pad', 'filler'", tail="keep")
    refused("oversize is 'skip'; allowed", oversize="skip")
    refused("raise it to at least 8", topology=Topology(dp_size=4, num_microbatches=2))
    refused(
        "sample 0 has 5 tokens, more than max_tokens=4 .*raise max_tokens to 5, or pass oversize",
        topology=Topology(dp_size=2, limits=Limits(max_tokens=4)),
    )
    refused("raise max_microbatches to at least 2", topology=tight)
    refused(
        "all are over a limit or illegal",
        topology=Topology(dp_size=2, limits=Limits(max_tokens=4)),
        oversize="drop",
    )
    for name, value in (("dp_size", 0), ("num_microbatches", -1), ("max_microbatches", 0)):
        with pytest.raises(BalancerError, match=f"{name} is {value}; allowed"):
            Topology(**({"dp_size": 2} | {name: value}))
    with pytest.raises(BalancerError, match="max_tokens is 0; allowed"):
        Limits(max_tokens=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_impossible_costs_are_refused_with_the_sample_id(bad):
    with pytest.raises(BalancerError, match=r"language cost of sample 2 is .*allowed"):
        Costs.from_values([1.0, 1.0, bad])
