"""Promises of plans for ranks of unequal speed and limits."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from balancer.bounds import step_bound
from balancer.cost import Costs
from balancer.errors import ArgumentError, CapacityError
from balancer.load_bounds import partition_bound
from balancer.measures import measure_plan
from balancer.pipeline import step_times
from balancer.plan import Flag, Plan
from balancer.planner import plan_step
from balancer.problem import build_problem
from balancer.topology import Limits, Topology
from tests import naive
from tests.properties import planning

SPEEDS = st.sampled_from([1.0, 0.5, 0.25, 2.0, 0.3, 1.7])


def by_rank(speeds, dp_size):
    return st.lists(speeds, min_size=dp_size, max_size=dp_size)


@st.composite
def topologies(draw, modules, *, max_dp=4, max_slots=3, barriers=("step", "microbatch")):
    """Speeds by rank, or by rank and module; limits by rank, beside or instead of common ones."""
    dp_size = draw(st.integers(1, max_dp))
    barrier = draw(st.sampled_from([*barriers, "microbatch"]))
    turns = draw(st.sampled_from(["in_turn", "summed"]))
    speeds = draw(by_rank(SPEEDS, dp_size))
    if barrier == "microbatch" and turns == "in_turn" and draw(st.booleans()):
        speeds = {name: draw(by_rank(SPEEDS, dp_size)) for name in modules}
    own = [Limits(max_tokens=most, max_samples=20) for most in (100, 200, 300)]
    own += [Limits(max_tokens=150, max_samples=5)]
    return Topology(
        dp_size=dp_size,
        num_microbatches=draw(st.integers(1, max_slots)),
        barrier=barrier,
        modules=turns,
        rank_speeds=speeds if draw(st.booleans()) else (),
        limits=Limits(max_images=12) if draw(st.booleans()) else Limits(),
        rank_limits=draw(by_rank(st.sampled_from(own), dp_size)) if draw(st.booleans()) else (),
        **({"pp_size": 2} if barrier == "pipeline" else {}),
    )


@given(planning.costs(), st.data())
def test_plans_keep_the_limits_of_each_rank_and_their_certificates(costs, data):
    """Conservation, limits by rank, bound <= time, time == simulated time <= given order."""
    barriers = ("step", "microbatch", "pipeline")
    topology = data.draw(topologies(costs.modules, barriers=barriers))
    try:
        plan = plan_step(costs, topology, oversize="alone", fill=True, effort="fast")
    except CapacityError as error:
        reason = str(error)
    else:
        reason = ""
    if reason:
        assert "has no sample" in reason  # no sample is small enough for a filler of some rank
        return
    plan.check(costs, expected_ids=np.arange(len(costs)))
    amounts, lone = plan.amounts(costs), np.isin(plan.sample_ids[plan.offsets[:-1]], plan.alone)
    for rank, limits in enumerate(topology.rank_limits):
        for name, limit in limits.given.items():
            own = slice(rank, None, topology.dp_size)
            assert (amounts[name][own] <= limit)[~lone[own]].all()
    certificate = plan.certificates[0]
    assert certificate.lower_bound <= certificate.step_time * (1 + 1e-9)
    if (plan.flags == Flag.REAL).all():
        assert np.allclose(step_times(plan, costs), certificate.step_time, rtol=1e-6)


@given(planning.costs(max_samples=6, max_modules=2), st.data())
@settings(max_examples=60)
def test_small_steps_are_near_the_best_and_the_bound_below(costs, data):
    """Bound <= optimum over all plans by brute force <= planned <= 1.34 times the optimum."""
    dp_size, num_slots = data.draw(st.sampled_from([(2, 1), (3, 1), (2, 2)]))
    assume(len(costs) >= dp_size * num_slots)
    barrier = data.draw(st.sampled_from(["step", "microbatch"]))
    speeds = data.draw(by_rank(SPEEDS, dp_size))
    if barrier == "microbatch" and data.draw(st.booleans()):
        speeds = {name: data.draw(by_rank(SPEEDS, dp_size)) for name in costs.modules}
    tokens = data.draw(by_rank(st.integers(100, 250), dp_size))
    tokens[0] = 600
    topology = Topology(
        dp_size=dp_size,
        num_microbatches=num_slots,
        max_microbatches=num_slots,
        barrier=barrier,
        rank_speeds=speeds,
        rank_limits=[Limits(max_tokens=most) for most in tokens],
    )
    problem = build_problem(costs, np.arange(len(costs)), np.zeros(len(costs), bool), topology)
    rows = problem.costs.reshape(len(costs), -1).tolist()
    slow = np.ones((dp_size, problem.num_modules), int)
    if problem.ranks is not None:
        slow = problem.ranks.slow(problem.num_modules)
    ranks = (slow.tolist(), [[max(tokens) - most] for most in tokens])
    groups = 1 if barrier == "step" else num_slots
    amounts = problem.amounts.tolist()
    best = naive.best_possible(rows, dp_size, num_slots, groups, amounts, max(tokens), ranks)
    assume(best is not None)
    assert step_bound(problem, topology)[0] <= best
    try:
        planned = plan_step(costs, topology, effort=0.001).certificates[0].step_time
    except CapacityError:
        return  # greedy packing may miss the only legal plan of a tight step
    assert planned >= problem.to_cost(best) * (1 - 1e-9)
    assert planned <= problem.to_cost(best) * 1.34


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=9),
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
)
@settings(max_examples=60)
def test_the_unequal_bound_is_below_the_best_split(weights, slow):
    """No split takes less than the bound, by an exact solver (scipy HiGHS)."""
    size, parts = len(weights), len(slow)
    # variables: x[i, p] (item i on part p) and the makespan
    cost = np.zeros(size * parts + 1)
    cost[-1] = 1.0
    once = np.zeros((size, len(cost)))
    late = np.zeros((parts, len(cost)))
    for i in range(size):
        for p in range(parts):
            once[i, i * parts + p] = 1.0
            late[p, i * parts + p] = weights[i] * slow[p]
    late[:, -1] = -1.0
    solved = milp(
        cost,
        constraints=[LinearConstraint(once, 1, 1), LinearConstraint(late, -np.inf, 0)],
        integrality=[1] * (len(cost) - 1) + [0],
        bounds=Bounds(0, [1] * (len(cost) - 1) + [np.inf]),
    )
    assert partition_bound(np.array(weights), parts, np.array(slow))[0] <= solved.fun + 1e-6


@pytest.mark.parametrize("barrier", ["step", "microbatch", "pipeline"])
@pytest.mark.parametrize("modules", ["in_turn", "summed"])
def test_mixed_fleets_are_within_a_twentieth_of_the_bound(barrier, modules):
    """Speeds [1, 1, 0.5, 0.25] and steps of 128 samples: at most 1.05 of the lower bound."""
    pipeline = {"pp_size": 2} if barrier == "pipeline" else {}
    topology = Topology(
        dp_size=4, num_microbatches=4, barrier=barrier, modules=modules,
        rank_speeds=(1, 1, 0.5, 0.25), **pipeline,
    )  # fmt: skip
    for seed in range(5):
        rng = np.random.default_rng(seed)
        costs = Costs.from_values(rng.lognormal(0, 1, (128, 2)), modules=("vision", "language"))
        assert plan_step(costs, topology).certificates[0].gap <= 0.05


def test_ranks_do_work_by_their_speed_and_the_report_says_so():
    """A rank of a quarter of the speed gets a quarter of the work; all are busy to the end."""
    topology = Topology(dp_size=3, barrier="step", rank_speeds=(1.0, 0.5, 0.25))
    costs = Costs.from_values(np.ones(700))
    plan = plan_step(costs, topology)
    assert np.diff(plan.offsets).tolist() == [400, 200, 100]
    measures = measure_plan(plan, costs)
    assert measures.rank_busy == (400.0, 400.0, 400.0)
    assert measures.rank_idle == (0.0, 0.0, 0.0)


def test_plans_of_unequal_ranks_are_saved_and_loaded(tmp_path):
    """Speeds by module and limits by rank come back, with the fingerprint."""
    topology = Topology(
        dp_size=2,
        rank_speeds={"language": (1, 0.5)},
        rank_limits=[Limits(max_tokens=9), Limits(max_tokens=5)],
    )
    plan = plan_step(Costs.from_values([3, 2, 1], tokens=[3, 2, 1]), topology)
    plan.save(tmp_path / "plan.npz")
    loaded = Plan.load(tmp_path / "plan.npz")
    assert loaded.topology == topology
    assert loaded.fingerprint == plan.fingerprint


def test_equal_ranks_plan_and_fingerprint_as_ever():
    """Speeds of 1 and limits that are the same change no place; no speeds, no fingerprint."""
    costs = Costs.from_values(np.arange(1.0, 41.0), tokens=np.arange(1, 41))
    limits = Limits(max_tokens=100)
    plain = Topology(dp_size=4, num_microbatches=2, limits=limits)
    given_all = Topology(
        dp_size=4, num_microbatches=2, rank_speeds=[2.0] * 4, rank_limits=[limits] * 4
    )
    assert "rank" not in repr(plain)
    one, other = plan_step(costs, plain), plan_step(costs, given_all)
    assert one.sample_ids.tolist() == other.sample_ids.tolist()
    assert np.isclose(other.certificates[0].step_time * 2, one.certificates[0].step_time)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank_speeds": [1, 0]}, r"rank_speeds is 0 for rank 1; allowed: finite numbers above 0"),
        ({"rank_speeds": [1, -2]}, "rank_speeds is -2 for rank 1"),
        ({"rank_speeds": [1, float("nan")]}, "rank_speeds is nan for rank 1"),
        ({"rank_speeds": [1]}, "rank_speeds has 1 speeds for dp_size=2 ranks"),
        ({"rank_speeds": [1, 2000]}, "at most 1024 times as fast"),
        ({"rank_speeds": 3}, "rank_speeds is 3; allowed: one number"),
        ({"rank_speeds": {"a": (1, 1)}, "barrier": "step"}, "rank_speeds is a mapping"),
        ({"rank_limits": [Limits()]}, "one Limits object for each of dp_size=2"),
        ({"rank_limits": [Limits(max_tokens=1), Limits(max_images=1)]}, "the same amounts"),
        (
            {"rank_limits": [Limits(max_tokens=n, layout="padded") for n in (1, 2)]},
            "differ in max_tokens under",
        ),
    ],
)
def test_bad_speeds_and_limits_are_refused_by_name(options, message):
    """Zero, negative, missing and unknown speeds; limits that do not go together."""
    with pytest.raises(ArgumentError, match=message):
        Topology(dp_size=2, **options)


def test_speeds_must_name_the_modules_of_the_costs():
    """A mapping that leaves a module out is refused when costs are known."""
    topology = Topology(dp_size=2, rank_speeds={"vision": (1, 2)})
    with pytest.raises(ArgumentError, match="rank_speeds names the modules 'vision'"):
        plan_step(Costs.from_values([1, 2, 3]), topology)


def test_samples_that_no_rank_takes_are_named():
    """Within the loosest limits, but over one or the other on every rank."""
    limits = [Limits(max_tokens=10, max_images=1), Limits(max_tokens=5, max_images=4)]
    costs = Costs.from_values([1, 1, 1], tokens=[5, 9, 4], images=[1, 3, 2])
    with pytest.raises(CapacityError, match="sample 1 keeps all limits of none"):
        plan_step(costs, Topology(dp_size=2, rank_limits=limits))
    plan = plan_step(costs, Topology(dp_size=2, rank_limits=limits), oversize="drop")
    assert plan.dropped.tolist() == [1]
    plan.check(costs, expected_ids=[0, 1, 2])
