"""Promises of a step's plan on pipelines: bounds, the given order, memory in flight."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from balancer.bounds import step_bound
from balancer.candidates import given_order, quantised_time
from balancer.cost import Costs
from balancer.errors import CapacityError, PlanError
from balancer.pipeline import step_times, tokens_in_flight
from balancer.plan import Flag
from balancer.planner import plan_from_assignment, plan_step
from balancer.problem import build_problem
from balancer.topology import Limits, Topology
from tests import naive_pipeline
from tests.kernels.pipelines import shapes
from tests.properties import planning


@st.composite
def topologies(draw, *, limited=True, **options):
    """Pipelines of every schedule, with stages of any modules `m0`, `m1`, ... and constants."""
    shape = draw(shapes(max_pp=3, **({"max_microbatches": 4} | options)))
    limits = draw(planning.limits()) if limited else Limits()
    in_flight = limits.max_tokens if limited and draw(st.booleans()) else None
    return shape.topology(
        dp_size=draw(st.integers(1, 4)),
        limits=limits,
        forward_share=draw(st.sampled_from([1 / 3, 0.5, 1.0])),
        microbatch_cost=draw(st.sampled_from([0.0, 0.5])),
        max_in_flight=in_flight and int(in_flight * draw(st.sampled_from([1, 1.5, 3]))),
    )


def enough(costs, topology):
    return len(costs) >= topology.dp_size * topology.num_microbatches


@given(planning.costs(), topologies())
def test_plans_keep_limits_and_memory_in_flight(costs, topology):
    """Conservation, equal counts, every limit, and tokens in flight within their cap."""
    try:
        plan = plan_step(costs, topology, oversize="alone", fill=True)
    except CapacityError:
        assert topology.max_in_flight is not None  # too low for these samples
        return
    plan.check(costs, expected_ids=np.arange(len(costs)))
    if topology.schedule == "interleaved":
        assert plan.num_microbatches(0) % topology.pp_size == 0
    clear = not plan.alone.size and (plan.flags == Flag.REAL).all()
    if topology.max_in_flight is not None and clear:
        assert tokens_in_flight(plan, costs).max() <= topology.max_in_flight


@given(planning.costs(), topologies())
def test_plans_are_never_slower_than_the_given_order(costs, topology):
    """Bound <= step time <= given order, where that is legal; the simulator finds the same time."""
    assume(enough(costs, topology))
    try:
        plan = plan_step(costs, topology, oversize="alone")
    except CapacityError:
        return  # the cap in flight is too low for these samples
    certificate, tolerance = plan.certificates[0], 1 + 1e-9
    assert certificate.lower_bound <= certificate.step_time * tolerance
    if (plan.flags == Flag.REAL).all():  # a filler runs on top of the samples that were planned
        assert np.allclose(step_times(plan, costs), certificate.step_time, rtol=1e-9)
    slots = topology.num_microbatches
    cells = given_order(np.arange(len(costs)), topology.dp_size, slots)
    before = plan_from_assignment(costs, np.arange(len(costs)), cells, topology, num_slots=slots)
    assert np.isclose(certificate.given_time, before.certificates[0].step_time)
    try:
        before.check(costs)
    except PlanError:
        return
    fits = topology.max_in_flight is None or (
        tokens_in_flight(before, costs).max() <= topology.max_in_flight
    )
    if fits and plan.num_microbatches(0) == slots:
        assert certificate.step_time <= certificate.given_time * tolerance


@given(planning.costs(max_samples=6), topologies(limited=False, max_microbatches=3), st.data())
def test_the_bound_is_below_every_plan(costs, topology, data):
    """No assignment and order of any samples is faster than the bound for its microbatches."""
    assume(enough(costs, topology))
    ids = np.arange(len(costs))
    problem = build_problem(costs, ids, np.zeros(len(ids), np.bool_), topology)
    slots = topology.num_microbatches
    bound, _ = step_bound(problem, topology, num_slots=slots)
    num_cells = topology.dp_size * slots
    for _ in range(20):
        cells = np.array(data.draw(st.permutations([k % num_cells for k in range(len(costs))])))
        assert bound <= quantised_time(problem, topology, cells, slots)


@settings(max_examples=25)
@given(planning.costs(min_samples=3, max_samples=5, max_modules=2), st.data())
def test_small_bounds_and_plans_beside_the_best_of_all(costs, data):
    """Bound <= best of all plans, which is the one that is planned."""
    dp_size, slots = data.draw(st.sampled_from([(1, 2), (1, 3), (2, 1), (2, 2)]))
    assume(len(costs) >= dp_size * slots)
    topology = Topology(dp_size=dp_size, num_microbatches=slots, barrier="pipeline", pp_size=2)
    ids = np.arange(len(costs))
    problem = build_problem(costs, ids, np.zeros(len(ids), np.bool_), topology)
    num_cells = dp_size * slots
    best = min(
        quantised_time(problem, topology, np.array(cells), slots)
        for cells in product(range(num_cells), repeat=len(costs))
        if len(set(cells)) == num_cells
    )
    bound, _ = step_bound(problem, topology)
    planned = plan_step(costs, topology).certificates[0].step_time
    assert bound <= best
    assert planned == problem.to_cost(best)


@given(planning.costs(max_samples=5, max_modules=2), st.integers(100, 160), st.booleans())
def test_under_limits_small_plans_are_the_best_of_all_legal_ones(costs, max_tokens, in_flight):
    """Bound <= best legal plan of two ranks and two microbatches, which is the one planned."""
    limits = Limits(max_tokens=max_tokens)
    topology = Topology(
        dp_size=2, num_microbatches=2, max_microbatches=2, barrier="pipeline", pp_size=2,
        limits=limits, max_in_flight=int(1.5 * max_tokens) if in_flight else None,
    )  # fmt: skip
    assume(len(costs) >= 4)
    ids = np.arange(len(costs))
    problem = build_problem(costs, ids, np.zeros(len(ids), np.bool_), topology)
    tokens, legal = problem.amounts[:: problem.caps.size], []
    for cells in product(range(4), repeat=len(costs)):
        held = np.bincount(cells, weights=tokens, minlength=4).astype(int)
        rank_peaks = [naive_pipeline.peak("1f1b", 2, 1, held[rank::2]) for rank in (0, 1)]
        within = held.max() <= max_tokens and len(set(cells)) == 4
        if within and not (in_flight and max(rank_peaks) > topology.max_in_flight):
            legal.append(quantised_time(problem, topology, np.array(cells), 2))
    bound, _ = step_bound(problem, topology, num_slots=2)
    if not legal:
        with pytest.raises(CapacityError):
            plan_step(costs, topology)
        return
    planned = plan_step(costs, topology).certificates[0].step_time
    assert bound <= min(legal)
    assert planned == problem.to_cost(min(legal))


@given(planning.costs(), topologies(limited=False), st.randoms(use_true_random=False))
def test_plans_depend_on_ids_and_not_on_rows(costs, topology, random):
    """Samples keep their microbatches when they are given in another order."""
    assume(enough(costs, topology))
    shuffled = list(range(len(costs)))
    random.shuffle(shuffled)
    first, second = plan_step(costs, topology), plan_step(costs, topology, sample_ids=shuffled)
    assume("given order" not in {p.certificates[0].planner for p in (first, second)})
    for cell in range(len(first.offsets) - 1):
        ours = first.sample_ids[first.offsets[cell] : first.offsets[cell + 1]]
        theirs = second.sample_ids[second.offsets[cell] : second.offsets[cell + 1]]
        assert sorted(ours.tolist()) == sorted(theirs.tolist())


@given(planning.costs(min_samples=12), st.integers(2, 3), st.sampled_from([0.0, 0.3, 30.0]))
def test_a_free_number_of_microbatches_stays_in_its_range(costs, pp_size, constant):
    """Any number up to the maximum may be taken, and its bound holds for all of them."""
    topology = Topology(
        dp_size=2, num_microbatches=2, max_microbatches=6, barrier="pipeline", pp_size=pp_size,
        microbatch_cost=constant,
    )  # fmt: skip
    plan = plan_step(costs, topology)
    assert 2 <= plan.num_microbatches(0) <= 6
    fixed = plan_step(costs, Topology(
        dp_size=2, num_microbatches=2, max_microbatches=2, barrier="pipeline", pp_size=pp_size,
        microbatch_cost=constant,
    ))  # fmt: skip
    assert plan.certificates[0].lower_bound <= fixed.certificates[0].step_time * (1 + 1e-9)
    assert plan.certificates[0].step_time <= fixed.certificates[0].step_time * 1.001


def test_samples_without_any_cost_can_be_planned():
    """Nothing to balance: the step takes the constants alone."""
    costs = Costs.from_values(np.zeros((8, 2)), modules=("vision", "language"))
    free = Topology(dp_size=2, num_microbatches=2, barrier="pipeline", pp_size=2)
    assert plan_step(costs, free).certificates[0].step_time == 0.0


def test_the_bound_allows_for_a_microbatch_without_samples():
    """Eleven samples in twelve microbatches: the empty one may be a rank's first or last."""
    values = [1.06488319, 0.93608178, 1.37741882, 1.05384993, 0.76503424, 1.19817256, 1.91937579,
              1.60566898, 0.70337323, 0.53115004, 0.73224712]  # fmt: skip
    topology = Topology(
        dp_size=2, num_microbatches=1, barrier="pipeline", pp_size=2, schedule="eager_1f1b",
        microbatch_cost=0.5, limits=Limits(max_samples=1),
    )  # fmt: skip
    certificate = plan_step(Costs.from_values(values), topology).certificates[0]
    assert certificate.lower_bound <= certificate.step_time
