"""Promises of plans that defer language work: pairs, limits, the bound, never slower; Entrain's."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from balancer.bounds import step_bound
from balancer.cost import Costs
from balancer.errors import CapacityError, PlanError
from balancer.limits import Limits
from balancer.pipeline import cell_costs, step_times, tokens_in_flight
from balancer.plan import Plan
from balancer.planner import plan_from_assignment, plan_step
from balancer.problem import build_problem
from balancer.topology import Topology
from tests.properties import planning

_APART = ({"vision": 1}, {"vision": 1}, {"language": 1}, {"language": 1})


def topology(**options):
    """Two stages of encoder, two of language model."""
    return Topology(
        **{"dp_size": 1, "num_microbatches": 3, "barrier": "pipeline", "pp_size": 4,
           "stages": _APART, "deferral": True} | options
    )  # fmt: skip


def priced(rows, **amounts):
    """Costs of (vision, language) rows."""
    return Costs.from_values(np.asarray(rows, float), modules=("vision", "language"), **amounts)


def random_costs(seed, size):
    rng = np.random.default_rng(seed)
    works = np.ceil(rng.lognormal(2.0, 0.8, (size, 2)))
    works[rng.random(size) < 0.2, 0] = 0
    return priced(works, tokens=works[:, 1].astype(int), patches=works[:, 0].astype(int))


@settings(max_examples=25)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 3), st.sampled_from(["1f1b", "eager_1f1b"]),
    st.sampled_from(["packed", "padded"]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_deferred_plans_are_legal_and_never_slower(seed, dp_size, schedule, layout, few, in_flight):
    """Pairs only, both microbatches within the limits, the simulator agrees, no time is lost."""
    costs = random_costs(seed, 8 * dp_size)
    limits = Limits(
        max_tokens=int(max(costs.tokens.max(), costs.tokens.sum() // (2 * dp_size)) * 1.2),
        max_patches=int(max(costs.patches.max(), costs.patches.sum() // (2 * dp_size)) * 1.2),
        max_samples=6 if few else None, layout=layout,
    )  # fmt: skip
    cap = int(limits.max_tokens * 2.5) if in_flight else None
    deferring = topology(dp_size=dp_size, schedule=schedule, limits=limits, max_in_flight=cap)
    try:
        plan = plan_step(costs, deferring)
    except CapacityError:
        return  # the cap in flight is too low for these samples
    plain = plan_step(costs, replace(deferring, deferral=False))
    plan.check(costs, expected_ids=np.arange(len(costs)))
    if cap is not None:
        assert tokens_in_flight(plan, costs).max() <= cap
    if plan.num_microbatches(0) == plain.num_microbatches(0):
        assert plan.certificates[0].step_time <= plain.certificates[0].step_time
    assert np.allclose(step_times(plan, costs), plan.certificates[0].step_time, rtol=1e-9)
    assert plan.certificates[0].lower_bound <= plan.certificates[0].step_time * (1 + 1e-9)


def all_deferrals(size, slots):
    """Every assignment of samples to microbatches and to when their language work runs."""
    for cells in product(range(slots), repeat=size):
        for late in product((False, True), repeat=size):
            yield np.array(cells), np.array(late)


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["1f1b", "eager_1f1b"]), st.booleans())
def test_the_bound_is_below_every_deferred_plan(seed, schedule, limited):
    """Certificates hold for plans that defer, by brute force over places, order and lateness."""
    costs = random_costs(seed, 5)
    limits = Limits()
    if limited:
        limits = Limits(
            max_tokens=max(int(costs.tokens.max()), int(costs.tokens.sum()) // 2),
            max_patches=max(int(costs.patches.max()), int(costs.patches.sum()) // 2),
        )
    deferring = topology(schedule=schedule, limits=limits, max_microbatches=3)
    ids = np.arange(len(costs))
    problem = build_problem(costs, ids, np.zeros(len(ids), np.bool_), deferring)
    bound = problem.to_cost(step_bound(problem, deferring, num_slots=3)[0])
    best, tried = np.inf, 0
    rng = np.random.default_rng(seed)
    for cells, late in all_deferrals(len(costs), 3):
        if len(set(cells)) < 3 or rng.random() > 0.1:
            continue
        plan = deferred_plan(costs, deferring, cells, late)
        try:
            plan.check(costs)
        except PlanError:
            continue
        tried += 1
        best = min(best, step_times(plan, costs)[0])
    assume(tried)
    assert bound <= best * (1 + 1e-9)


def deferred_plan(costs, deferring, cells, late):
    """Plan of one rank with samples in the microbatches of `cells`, some of them deferred."""
    order = np.argsort(cells, kind="stable")
    slots = deferring.num_microbatches
    plan = plan_from_assignment(
        costs, np.arange(len(costs)), np.asarray(cells), deferring, num_slots=slots
    )
    return replace(plan, deferred=np.asarray(late)[order])


def entrain_example():
    """Entrain's Figures 8 and 9: encoder and language work of 12 samples, and its own plan.

    Language loads of microbatches 1 to 6 are 3, 4, 8, 6, 6, 9 of 36 units, encoder loads 2 to 4 of
    18. Microbatch 3 passes 2 units to 2, 6 passes 3 to 1; the order is 3, 2, 6, 1, 4, 5.
    """
    language = [[3], [4], [2, 6], [6], [6], [3, 3, 3]]
    encoder = [[3], [4], [1, 2], [3], [3], [1, 0.5, 0.5]]
    passed = {(2, 0), (5, 0)}
    rows, cells, late = [], [], []
    for slot, index in enumerate([2, 1, 5, 0, 3, 4]):
        for k, work in enumerate(language[index]):
            rows.append([encoder[index][k], work])
            cells.append(slot)
            late.append((index, k) in passed)
    return priced(rows), cells, late


@pytest.mark.parametrize("schedule", ["1f1b", "eager_1f1b"])
def test_the_example_of_entrain_is_reached_or_beaten(schedule):
    """Its plan has six language microbatches of six units; ours takes no longer."""
    costs, cells, late = entrain_example()
    deferring = topology(num_microbatches=6, schedule=schedule)
    theirs = deferred_plan(costs, deferring, cells, late)
    theirs.check(costs, expected_ids=np.arange(len(costs)))
    loads = cell_costs(theirs, costs)
    assert loads[:, 1].tolist() == [6.0] * 6
    assert sorted(loads[:, 0]) == [2.0, 3.0, 3.0, 3.0, 3.0, 4.0]
    ours = plan_step(costs, deferring)
    assert ours.certificates[0].step_time <= step_times(theirs, costs)[0]
    without = plan_step(costs, replace(deferring, deferral=False))
    assert ours.certificates[0].step_time <= without.certificates[0].step_time


def test_deferral_can_beat_the_best_of_all_placements():
    """Eager 1F1B, two encoder stages, limits that leave no better pairs: 4 % below the optimum."""
    costs = priced(
        [[12, 8], [36, 4], [9, 9]], tokens=np.array([81, 41, 91]), patches=np.array([120, 360, 90])
    )
    deferring = topology(
        num_microbatches=2, max_microbatches=2, pp_size=3, stages=_APART[:3], forward_share=0.5,
        schedule="eager_1f1b", limits=Limits(max_tokens=170, max_patches=456),
    )  # fmt: skip
    best = plan_step(costs, replace(deferring, deferral=False))
    assert best.certificates[0].planner == "exact search"
    plan = plan_step(costs, deferring)
    plan.check(costs, expected_ids=np.arange(3))
    assert plan.deferred.any()
    assert step_times(best, costs).tolist() == [61.0]
    assert step_times(plan, costs).tolist() == [58.5]


def test_a_deferred_plan_survives_saving_and_joining(tmp_path):
    """What is deferred is part of the fingerprint, the file and plans of several steps."""
    costs, cells, late = entrain_example()
    deferring = topology(num_microbatches=6)
    plan = deferred_plan(costs, deferring, cells, late)
    plain = deferred_plan(costs, deferring, cells, np.zeros(len(late), bool))
    assert plain.deferred.size == 0
    assert plan.fingerprint != plain.fingerprint
    plan.save(tmp_path / "plan.npz")
    loaded = Plan.load(tmp_path / "plan.npz")
    assert loaded.fingerprint == plan.fingerprint
    assert loaded.deferred.tolist() == plan.deferred.tolist()
    joined = Plan.concatenate([plain, replace(plan, first_step=1)])
    assert joined.deferred.tolist() == [False] * len(late) + plan.deferred.tolist()
    assert step_times(joined, costs).tolist() == [
        step_times(plain, costs)[0], step_times(plan, costs)[0],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "late", "options", "message"),
    [
        ([0, 0, 1, 1, 2, 2], [1, 0, 0, 0, 0, 0], {"deferral": False}, "its topology does not"),
        ([0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1], {}, "passed on out of step 0"),
        ([0, 0, 1, 1, 2, 2], [1, 0, 1, 0, 0, 0], {}, "microbatch 1 of the plan gets language work"),
        ([0, 0, 1, 1, 2, 2], [1, 1, 0, 0, 0, 0], {}, "microbatch 0 of the plan has no language"),
        (
            [0, 0, 1, 1, 2, 2], [1, 0, 0, 0, 0, 0], {"limits": Limits(max_tokens=2)},
            "microbatch 1 of the plan holds 3 tokens, more than max_tokens=2",
        ),
        (
            [0, 0, 0, 1, 1, 2], [1, 0, 0, 0, 0, 0], {"limits": Limits(max_patches=2)},
            "microbatch 0 of the plan holds 3 patches",
        ),
        (
            [0, 0, 1, 1, 2, 2], [0, 1, 0, 0, 0, 0], {"limits": Limits(max_samples=2)},
            "microbatch 1 of the plan holds 3 samples",
        ),
        (
            [0, 0, 1, 1, 2, 2], [0, 0, 1, 0, 0, 0],
            {"limits": Limits(max_tokens=3), "max_in_flight": 5},
            "holds 6 tokens at once in step 0 of the plan, more than max_in_flight=5",
        ),
    ],
)  # fmt: skip
def test_check_finds_what_is_wrong_with_deferral(cells, late, options, message):
    """A plan that passes work on as it must not is refused, with what and where."""
    costs = priced(np.ones((6, 2)), tokens=[1] * 6, patches=[1] * 6)
    plan = deferred_plan(costs, topology(**options), cells, np.array(late, bool))
    with pytest.raises(PlanError, match=message):
        plan.check(costs)


def test_check_counts_tokens_in_flight_without_deferral_too():
    """max_in_flight is proved for any pipeline plan."""
    costs = Costs.from_values(np.ones(4), tokens=[3, 3, 1, 1])
    in_flight = Topology(
        dp_size=1, num_microbatches=4, barrier="pipeline", pp_size=2,
        limits=Limits(max_tokens=3), max_in_flight=4,
    )  # fmt: skip
    good = Plan.from_cells([[[[0]], [[2]], [[1]], [[3]]]], topology=in_flight)
    good.check(costs)
    with pytest.raises(PlanError, match="data-parallel rank 0 holds 6 tokens at once in step 0"):
        Plan.from_cells([[[[0]], [[1]], [[2]], [[3]]]], topology=in_flight).check(costs)


@settings(max_examples=20)
@given(planning.costs(min_samples=8, max_modules=1), st.booleans())
def test_plans_that_defer_nothing_keep_their_fingerprints(costs, allowed):
    """Without deferral the plan's bytes are what they were before there was any."""
    plan = plan_step(costs, Topology(dp_size=2, num_microbatches=2, barrier="pipeline", pp_size=2))
    marked = np.zeros(len(plan.sample_ids) if allowed else 0, np.bool_)
    assert replace(plan, deferred=marked).fingerprint == plan.fingerprint


def test_fillers_that_would_break_the_cap_in_flight_are_refused():
    """Two samples for four microbatches would fit by themselves; fillers count as well."""
    costs = Costs.from_values(np.ones(2), tokens=[3, 3])
    tight = Topology(
        dp_size=1, num_microbatches=4, max_microbatches=4, barrier="pipeline", pp_size=2,
        limits=Limits(max_tokens=3), max_in_flight=5,
    )  # fmt: skip
    loose = replace(tight, max_in_flight=6)
    plan_step(costs, loose, fill=True).check(costs)
    with pytest.raises(CapacityError, match="step 0 needs fillers, and with them"):
        plan_step(costs, tight, fill=True)
