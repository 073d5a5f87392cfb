"""What holds whatever is combined: barriers, limits, speeds, groups, windows, modalities, tails.

By the numbers of the invariants in ../contracts/README.md.
"""

import json
from collections import Counter

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from balancer.errors import CapacityError, PlanError
from balancer.given_order import given_plan
from balancer.groups import expand
from balancer.pipeline import step_times
from balancer.plan import Flag
from balancer.planner import EpochPlanner, plan_step
from balancer.resume import rest_after, resumed
from tests.properties.any_planner import allocated, planners, sample_sets


def planned(planner):
    """The plan of an epoch; none where a rank's own limits leave it without a sample."""
    try:
        return planner.plan_epoch(0)
    except CapacityError as error:
        message = str(error)
    assert planner.topology.rank_limits
    assert "has no sample" in message
    return assume(False)


@settings(max_examples=30)
@given(sample_sets(), st.data())
def test_samples_come_once_limits_hold_and_ranks_count_alike(samples, data):
    """I1, I2, I3, I5: counted here and not by `Plan.check`, which must agree."""
    planner = data.draw(planners(samples))
    plan, costs, topology = planned(planner), samples.each, planner.topology
    if samples.group_ids is not None:
        plan = expand(plan, samples.grouped)
    plan.check(costs, expected_ids=range(len(costs)), group_ids=samples.group_ids)
    seen = Counter(plan.sample_ids[plan.flags == Flag.REAL].tolist())
    seen.update(plan.dropped.tolist())
    assert seen == Counter(range(len(costs)))
    alone = set(plan.alone.tolist())
    by_rank = [list(plan.for_rank(rank)) for rank in range(topology.dp_size)]
    assert {len(cells) for cells in by_rank} == {planner.microbatches_per_epoch(0)}
    for rank, cells in enumerate(by_rank):
        limits = topology.rank_limits[rank] if topology.rank_limits else topology.limits
        for ids in cells:
            assert len(ids)
            if not alone & set(ids.tolist()):
                held = allocated(costs, limits, ids)
                assert all(held[name] <= most for name, most in limits.given.items())


@settings(max_examples=30)
@given(sample_sets(), st.data())
def test_times_are_between_the_bound_and_the_given_order(samples, data):
    """I6, I9: bound <= time, as simulated; the given order is not faster where it is legal."""
    planner = data.draw(planners(samples))
    plan, costs, topology = planned(planner), samples.priced, planner.topology
    times = np.array([each.step_time for each in plan.certificates])
    bounds = np.array([each.lower_bound for each in plan.certificates])
    assert (bounds <= times * (1 + 1e-9)).all()
    if (plan.flags == Flag.FILLER).any():
        return  # a filler runs on top of the samples that were planned
    assert np.allclose(step_times(plan, costs), times, rtol=1e-6)
    before = given_plan(planner, plan)
    try:
        before.check(costs)
    except PlanError:
        return  # over a limit, or an empty microbatch
    given_times = step_times(before, costs)
    if planner.window_steps == 1:
        assert (bounds <= given_times * (1 + 1e-6)).all()
    same_number = (np.diff(plan.step_slots) == topology.num_microbatches).all()
    if same_number and topology.modality_sync is None:
        assert times.sum() <= given_times.sum() * (1 + 1e-6)


@settings(max_examples=20)
@given(sample_sets(), st.data())
def test_a_plan_is_that_of_its_numbers_alone(samples, data):
    """I15, I16: a planner made again from its settings, backwards, plans every step the same."""
    planner = data.draw(planners(samples))
    planned(planner)
    steps = range(planner.num_steps)
    forwards = [planner.plan(0, step).fingerprint for step in steps]
    plain = json.loads(json.dumps(planner.settings))
    again = EpochPlanner.from_settings(samples.priced, plain)
    assert again.fingerprint == planner.fingerprint
    assert [again.plan(0, step).fingerprint for step in reversed(steps)] == forwards[::-1]


@settings(max_examples=20)
@given(sample_sets(), st.data(), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_is_not_looked_at(samples, data, random):
    """I11: samples keep their microbatches, but where an order that was given is kept."""
    planner = data.draw(planners(samples))
    ids = list(range(len(samples.priced)))
    assume(len(ids) >= planner.topology.dp_size * planner.topology.num_microbatches)
    plans = []
    for _ in range(2):
        try:
            plans.append(
                plan_step(
                    samples.priced, planner.topology, sample_ids=ids, oversize="alone",
                    effort="fast",
                )
            )  # fmt: skip
        except CapacityError:
            assume(False)
        random.shuffle(ids)
    names = {plan.certificates[0].planner for plan in plans}
    assume(not names & {"given order", "in order"})
    cells = [dict(zip(p.sample_ids.tolist(), p.cell_of_sample().tolist(), strict=True))
             for p in plans]  # fmt: skip
    assert cells[0] == cells[1]


@settings(max_examples=20)
@given(sample_sets(), st.data())
def test_other_ranks_go_on_where_an_epoch_was_left(samples, data):
    """I17: after any step another planner takes over; each sample once, or it is reported."""
    first, second = (data.draw(planners(samples)) for _ in range(2))
    left = data.draw(st.integers(0, first.num_steps))
    try:
        before = [first.plan(0, step) for step in range(left)]
        if left < first.num_steps:
            rest = resumed(second, rest_after(first, epoch=0, step=left))
            after = [rest.plan(0, step) for step in range(left, rest.steps(0).end)]
            dropped = set(rest.dropped(0).tolist())
        else:
            after, dropped = [], set()
    except CapacityError:
        assume(False)
    plans = before + after
    dropped |= {i for plan in plans for i in plan.dropped.tolist()}
    dropped |= set(first.order.left_out.tolist() if after else first.dropped(0).tolist())
    seen = Counter(i for plan in plans for i in plan.sample_ids[plan.flags == Flag.REAL].tolist())
    assert not seen or max(seen.values()) == 1
    assert set(seen) | dropped == set(range(len(samples.priced)))
