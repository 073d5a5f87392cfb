"""Promises of the plan of one step, for any samples, topology and limits."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from balancer.bounds import partition_bound, step_bound
from balancer.candidates import given_order
from balancer.cost import Costs
from balancer.errors import CapacityError, PlanError
from balancer.pipeline import step_times
from balancer.plan import Flag, Plan
from balancer.planner import plan_from_assignment, plan_step
from balancer.problem import build_problem
from balancer.step_planner import oversize_ids
from balancer.topology import Limits, Topology
from tests import naive
from tests.properties import planning

OVERSIZE = st.sampled_from(["drop", "alone"])


def enough(costs, topology):
    return len(costs) >= topology.dp_size * topology.num_microbatches


@given(planning.costs(), planning.topologies(), OVERSIZE)
def test_every_sample_is_placed_once_or_reported_and_no_limit_is_broken(costs, topology, oversize):
    """Contracts 2, 3 and 4: conservation, equal counts, no empty microbatch, limits."""
    over = oversize_ids(costs, topology, oversize, sample_ids=None)
    assume(oversize == "alone" or over.size < len(costs))
    plan = plan_step(costs, topology, oversize=oversize, fill=True)
    plan.check(costs, expected_ids=np.arange(len(costs)))
    assert plan.num_microbatches(0) >= topology.num_microbatches
    assert bool(plan.alone.size) <= (oversize == "alone")
    assert bool(plan.dropped.size) <= (oversize == "drop")
    if enough(costs, topology) and not topology.limits.given:
        assert (plan.flags == Flag.REAL).all()


@given(planning.costs(), planning.topologies())
def test_a_plan_is_never_worse_than_the_given_order(costs, topology):
    """Contract 8: bound <= step time, and step time <= given order where that keeps the limits."""
    assume(enough(costs, topology))
    plan = plan_step(costs, topology, oversize="alone")
    certificate = plan.certificates[0]
    tolerance = 1 + 1e-9
    assert certificate.lower_bound <= certificate.step_time * tolerance
    cells = given_order(np.arange(len(costs)), topology.dp_size, topology.num_microbatches)
    given = plan_from_assignment(
        costs, np.arange(len(costs)), cells, topology, num_slots=topology.num_microbatches
    )
    assert np.isclose(certificate.given_time, given.certificates[0].step_time)
    try:
        given.check(costs)
    except PlanError:
        return
    if plan.num_microbatches(0) == topology.num_microbatches:
        assert certificate.step_time <= certificate.given_time * tolerance


@given(planning.costs(), planning.topologies())
def test_the_certificate_is_the_simulated_step_time(costs, topology):
    """The certified step time is what the simulator finds for the plan, up to quantisation."""
    plan = plan_step(costs, topology, oversize="alone", fill=True)
    if (plan.flags == Flag.FILLER).any():
        return  # a filler runs on top of the samples that were planned
    assert np.allclose(step_times(plan, costs), plan.certificates[0].step_time, rtol=1e-9)


@given(planning.costs(), planning.topologies(), st.randoms(use_true_random=False))
def test_a_plan_depends_on_ids_and_not_on_rows(costs, topology, random):
    """Contract 1: samples keep their microbatches when they are given in another order.

    Ids stay; only the given order changes, which the two fallbacks alone may look at.
    """
    assume(enough(costs, topology))
    shuffled = list(range(len(costs)))
    random.shuffle(shuffled)
    first = plan_step(costs, topology, oversize="alone")
    second = plan_step(costs, topology, sample_ids=shuffled, oversize="alone")
    found_by = {plan.certificates[0].planner for plan in (first, second)}
    assume(not found_by & {"given order", "in order"})
    for cell in range(len(first.offsets) - 1):
        ours = first.sample_ids[first.offsets[cell] : first.offsets[cell + 1]]
        theirs = second.sample_ids[second.offsets[cell] : second.offsets[cell + 1]]
        assert sorted(ours.tolist()) == sorted(theirs.tolist())


@given(planning.costs(), planning.topologies(limited=False), st.integers(-20, 20))
def test_scaling_all_costs_by_a_power_of_two_changes_no_plan(costs, topology, power):
    """Plans depend on ratios of costs, not on their unit."""
    assume(enough(costs, topology))
    scaled = Costs.from_values(costs.values * 2.0**power, modules=costs.modules)
    first, second = plan_step(costs, topology), plan_step(scaled, topology)
    assert first.sample_ids.tolist() == second.sample_ids.tolist()
    assert first.offsets.tolist() == second.offsets.tolist()


@given(planning.costs(), planning.topologies(limited=False))
def test_a_module_without_cost_changes_no_plan(costs, topology):
    """Appending a module that costs nothing leaves every sample where it was."""
    assume(enough(costs, topology))
    values = np.concatenate([costs.values, np.zeros((len(costs), 1))], axis=1)
    wider = Costs.from_values(values, modules=(*costs.modules, "idle"))
    first, second = plan_step(costs, topology), plan_step(wider, topology)
    assert first.sample_ids.tolist() == second.sample_ids.tolist()


@given(planning.costs(max_samples=7, max_modules=2), st.data())
def test_small_steps_are_within_the_proven_bound_of_the_best(costs, data):
    """The bound is below the best of all plans; the step barrier is within 4/3 - 1/(3 D) of it."""
    sizes = [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (1, 3)]
    dp_size, num_slots = data.draw(st.sampled_from(sizes))
    barrier = data.draw(st.sampled_from(["step", "microbatch"]))
    topology = Topology(dp_size=dp_size, num_microbatches=num_slots, barrier=barrier)
    assume(enough(costs, topology))
    ids = np.arange(len(costs))
    problem = build_problem(costs, ids, np.zeros(len(ids), np.bool_), topology)
    rows = problem.costs.reshape(len(ids), -1).tolist()
    best = naive.best_possible(rows, dp_size, num_slots, 1 if barrier == "step" else num_slots)
    bound, _ = step_bound(problem, topology)
    assert bound <= best
    planned = plan_step(costs, topology).certificates[0].step_time
    optimum = problem.to_cost(best)
    assert planned >= optimum * (1 - 1e-9)
    if barrier == "step" or (num_slots == 1 and problem.num_modules == 1):
        assert planned <= optimum * (4 / 3 - 1 / (3 * dp_size)) * (1 + 1e-9)


@given(planning.costs(max_samples=7, max_modules=2), st.integers(100, 200), st.data())
def test_bounds_that_know_the_limits_are_below_the_best_legal_plan(costs, max_tokens, data):
    """No legal plan of a small step under a token limit comes below its lower bound."""
    dp_size, num_slots = data.draw(st.sampled_from([(2, 1), (1, 2), (2, 2), (1, 3)]))
    modules = data.draw(st.sampled_from(["in_turn", "summed"]))
    topology = Topology(
        dp_size=dp_size,
        num_microbatches=num_slots,
        max_microbatches=num_slots,
        modules=modules,
        limits=Limits(max_tokens=max_tokens),
    )
    assume(enough(costs, topology))
    ids = np.arange(len(costs))
    problem = build_problem(costs, ids, np.zeros(len(ids), np.bool_), topology)
    rows = problem.costs.reshape(len(ids), -1).tolist()
    amounts = problem.amounts.tolist()
    best = naive.best_possible(rows, dp_size, num_slots, num_slots, amounts, max_tokens)
    bound, _ = step_bound(problem, topology)
    if best is None:
        with pytest.raises(CapacityError):
            plan_step(costs, topology)
        return
    assert bound <= best
    try:
        planned = plan_step(costs, topology).certificates[0].step_time
    except CapacityError:
        return  # greedy packing may miss the only legal plan of a tight step
    assert planned >= problem.to_cost(best) * (1 - 1e-9)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=7), st.integers(1, 3))
def test_partition_bound_is_below_the_best_split(weights, num_parts):
    """No split of the weights has a largest sum below the bound."""
    best = naive.best_possible([[w] for w in [*weights, *[0] * num_parts]][:9], num_parts, 1, 1)
    if len(weights) + num_parts <= 9:
        assert partition_bound(np.array(weights), num_parts)[0] <= best


def test_a_plan_from_cells_that_empties_a_microbatch_is_refused():
    """The proof can fail: an empty microbatch, a lost sample, a broken limit."""
    costs = Costs.from_values([1, 1, 1], tokens=[5, 5, 5])
    with pytest.raises(PlanError, match="microbatch 1 of the plan is empty"):
        Plan.from_cells([[[[0, 1, 2], []]]]).check(costs)
    with pytest.raises(PlanError, match="sample 2 is neither delivered nor reported"):
        Plan.from_cells([[[[0], [1]]]]).check(costs, expected_ids=[0, 1, 2])
    with pytest.raises(PlanError, match="sample 1 is delivered twice"):
        Plan.from_cells([[[[0, 1], [1]]]]).check(costs)
