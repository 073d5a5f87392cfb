"""An epoch begun by one planner and finished by others: every sample once, members as promised."""

import json

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.epoch_rest import EpochRest
from balancer.plan import Flag
from balancer.planner import EpochPlanner
from balancer.resume import rest_after, resumed
from balancer.step_planner import oversize_ids
from balancer.topology import Limits, Topology
from tests.properties import planning

SIZES = [4, 6, 8]


@st.composite
def planners(draw, costs, *, tail, limited=False):
    """A planner of these costs with any topology, batch size and window."""
    topology = Topology(
        dp_size=draw(st.integers(1, 4)),
        num_microbatches=1,
        limits=Limits(max_tokens=draw(st.integers(60, 110))) if limited else Limits(),
    )
    kept = len(costs) - len(oversize_ids(costs, topology, "drop", sample_ids=None))
    assume(kept >= max(SIZES))
    return EpochPlanner(
        costs,
        topology,
        global_batch_size=draw(st.sampled_from(SIZES)),
        seed=3,
        oversize="drop",
        tail=tail,
        window_steps=draw(st.integers(1, 4)),
    )


def real_ids(plan):
    return plan.sample_ids[plan.flags == Flag.REAL].tolist()


def run_chain(draw, costs, *, tail, limited):
    """Ids delivered and reported as dropped in an epoch that up to five planners share."""
    planner = draw(planners(costs, tail=tail, limited=limited))
    delivered, dropped = [], set()
    for _ in range(draw(st.integers(1, 4))):
        steps = planner.steps(1)
        count = draw(st.integers(0, min(3, steps.end - steps.first)))
        stop = steps.first + count
        for step in range(steps.first, stop):
            plan = planner.plan(1, step)
            delivered += real_ids(plan)
            dropped |= set(plan.dropped.tolist())
        dropped |= set(planner.order.left_out.tolist())
        if stop == steps.end:
            break
        rest = EpochRest.from_json(json.loads(json.dumps(
            rest_after(planner, epoch=1, step=stop).to_json())))  # fmt: skip
        planner = resumed(draw(planners(costs, tail=tail, limited=limited)), rest)
        assert planner.steps(1).first == stop
    for step in range(planner.steps(1).first, planner.steps(1).end):
        if step >= stop:
            plan = planner.plan(1, step)
            delivered += real_ids(plan)
            dropped |= set(plan.dropped.tolist())
    return delivered, dropped | set(planner.dropped(1).tolist()), planner


@given(planning.costs(min_samples=10, max_samples=70), st.sampled_from(["drop", "filler"]),
       st.booleans(), st.data())  # fmt: skip
def test_a_chain_of_planners_delivers_every_sample_once(costs, tail, limited, data):
    """Whatever changes at step boundaries, no sample comes twice and each not reported comes."""
    delivered, dropped, planner = run_chain(data.draw, costs, tail=tail, limited=limited)
    assert len(delivered) == len(set(delivered))
    assert set(delivered) | dropped == set(range(len(costs)))
    if not limited:
        assert not set(delivered) & dropped
        assert len(dropped) < (planner.global_batch_size if tail == "drop" else 1)


@given(st.integers(40, 90), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.data())
def test_steps_keep_their_members_if_only_ranks_change(size, before, after, window, data):
    """With the same batch size each remaining step holds exactly what it would have held."""
    costs = Costs.from_values(np.random.default_rng(size).lognormal(0, 1.5, size))
    first, second = (
        EpochPlanner(costs, Topology(dp_size=d), global_batch_size=8, window_steps=window)
        for d in (before, after)
    )
    step = data.draw(st.integers(0, first.num_steps - 1))
    second = resumed(second, rest_after(first, epoch=0, step=step))
    window_end = step if window == 1 else -(-step // window) * window
    for each in range(step, first.num_steps):
        ours, theirs = second.plan(0, each).sample_ids, first.plan(0, each).sample_ids
        if window == 1 or each < window_end:
            assert sorted(ours.tolist()) == sorted(theirs.tolist())
    assert second.num_steps == first.num_steps == second.steps(0).end


@given(st.integers(20, 60), st.sets(st.integers(0, 18)), st.booleans(), st.integers(0, 5))
def test_what_is_left_out_never_reorders_the_rest(size, left_out, shuffle, epoch):
    """The order without some samples is the order of all, with these passed over."""
    tokens = np.ones(size, np.int64)
    tokens[list(left_out)] = 100
    costs = Costs.from_values(np.ones(size), tokens=tokens)

    def order(limits):
        planner = EpochPlanner(
            costs, Topology(dp_size=1, limits=limits), global_batch_size=1, shuffle=shuffle,
            oversize="drop",
        )  # fmt: skip
        return planner.order.ids_at(np.arange(planner.order.num_samples), epoch).tolist()

    everything = order(Limits())
    assert order(Limits(max_tokens=10)) == [i for i in everything if i not in left_out]


@given(st.data())
def test_settings_make_the_same_planner_again(data):
    """A planner rebuilt from its settings, through JSON, plans the same."""
    costs = Costs.from_values(np.arange(1.0, 41.0), tokens=np.arange(1, 41))
    topology = data.draw(planning.topologies(max_dp=3, max_slots=2, limited=False))
    planner = EpochPlanner(
        costs, topology, global_batch_size=8, seed=data.draw(st.integers(0, 2**63 - 1)),
        window_steps=data.draw(st.integers(1, 3)), tail=data.draw(st.sampled_from(["drop", "pad"])),
    )  # fmt: skip
    copy = EpochPlanner.from_settings(costs, json.loads(json.dumps(planner.settings)))
    assert (copy.settings, copy.topology) == (planner.settings, planner.topology)
    assert copy.plan(2, 1).fingerprint == planner.plan(2, 1).fingerprint


def test_settings_hold_speeds_limits_and_stages():
    """Nested values survive: a rebuilt topology equals the first."""
    costs = Costs.from_values(np.ones((40, 2)), modules=("vision", "language"), tokens=[3] * 40)
    limits = (Limits(max_tokens=9), Limits(max_tokens=12))
    for topology in (
        Topology(dp_size=2, rank_speeds=(1.0, 0.5), rank_limits=limits, num_microbatches=2),
        Topology(dp_size=2, rank_speeds={"vision": (1, 2), "language": (1, 1)}),
        Topology(
            dp_size=2, barrier="pipeline", pp_size=2, num_microbatches=2,
            stages=({"vision": 1.0, "language": 0.5}, {"language": 0.5}),
        ),
    ):  # fmt: skip
        planner = EpochPlanner(costs, topology, global_batch_size=8)
        copy = EpochPlanner.from_settings(costs, json.loads(json.dumps(planner.settings)))
        assert copy.topology == planner.topology
        assert copy.fingerprint == planner.fingerprint
