"""Plans ordered by release times: what stays, what is never slower, what it gains."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.limits import Limits
from balancer.pipeline import step_times, tokens_in_flight
from balancer.planner import EpochPlanner, plan_step
from balancer.release import late_ready_last, prepared_step_times
from balancer.topology import Topology
from tests.naive_release import best, flow_shop

_TOPOLOGIES = {
    "step": Topology(dp_size=2, num_microbatches=4, barrier="step"),
    "microbatch": Topology(dp_size=2, num_microbatches=4),
    "summed": Topology(dp_size=2, num_microbatches=4, modules="summed"),
    "unequal": Topology(dp_size=2, num_microbatches=4, rank_speeds=(1, 0.5)),
    "pipeline": Topology(dp_size=2, num_microbatches=4, barrier="pipeline", pp_size=2),
    "in_flight": Topology(
        dp_size=2, num_microbatches=4, barrier="pipeline", pp_size=2,
        limits=Limits(max_tokens=900), max_in_flight=1500,
    ),
}  # fmt: skip


def drawn(seed, size=24, *, ratio=1.0):
    """Lognormal costs and CPU seconds that do not go together; `ratio` is prep over work."""
    rng = np.random.default_rng(seed)
    work = rng.lognormal(sigma=1.0, size=(size, 2))
    prep = rng.lognormal(sigma=1.5, size=size)
    prep *= ratio * work.sum() / prep.sum()
    return Costs.from_values(
        work, modules=("vision", "language"), tokens=rng.integers(1, 99, size), prep=prep
    )


@settings(max_examples=8, deadline=None)
@pytest.mark.parametrize("topology", _TOPOLOGIES.values(), ids=_TOPOLOGIES)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_what_runs_together_stays_and_nothing_is_slower(topology, seed, workers):
    """Legal, conserved, the same microbatches (slots, where ranks wait); never slower."""
    costs = drawn(seed)
    plan = plan_step(costs, topology, effort="fast")
    ordered = late_ready_last(plan, costs, prep_workers=workers)
    ordered.check(costs, expected_ids=np.arange(len(costs)))
    before, after = (
        prepared_step_times(each, costs, prep_workers=workers) for each in (plan, ordered)
    )
    assert (after <= before).all()
    assert (after >= step_times(ordered, costs) * (1 - 1e-6)).all()
    assert np.allclose([c.step_time for c in ordered.certificates], step_times(ordered, costs))
    joint = topology.barrier == "microbatch"
    for ranks in [(0, 1)] if joint else [(0,), (1,)]:
        held, still = (
            sorted(
                tuple(tuple(each.microbatch(step=0, index=k, dp_rank=r).tolist()) for r in ranks)
                for k in range(each.num_microbatches(0))
            )
            for each in (plan, ordered)
        )
        assert held == still
    if topology.barrier != "pipeline":
        assert np.allclose(step_times(plan, costs), step_times(ordered, costs))
    if topology.max_in_flight is not None:
        assert tokens_in_flight(ordered, costs).max() <= topology.max_in_flight


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_under_the_step_barrier_no_order_is_faster(seed, workers):
    """Each rank's time is the least of all orders of its microbatches, by brute force."""
    costs = drawn(seed)
    ordered = late_ready_last(
        plan_step(costs, _TOPOLOGIES["step"], effort="fast"), costs, prep_workers=workers
    )
    times = []
    for rank in range(2):
        held = list(ordered.for_rank(rank))
        prep = [costs.prep[ids].sum() / workers for ids in held]
        work = [costs.values[ids].sum() for ids in held]
        times.append(best(lambda order, p=prep, w=work: flow_shop(order, p, w), len(held)))
    assert np.isclose(prepared_step_times(ordered, costs, prep_workers=workers)[0], max(times))


def test_epochs_are_ordered_step_by_step():
    """A plan of several steps is ordered as each of its steps is."""
    costs = drawn(4, size=72)
    planner = EpochPlanner(costs, _TOPOLOGIES["microbatch"], global_batch_size=24)
    whole = late_ready_last(planner.plan_epoch(0), costs, prep_workers=2)
    for step in range(3):
        alone = late_ready_last(planner.plan(0, step), costs, prep_workers=2)
        for index in range(4):
            for rank in range(2):
                assert np.array_equal(
                    whole.microbatch(step=step, index=index, dp_rank=rank),
                    alone.microbatch(step=0, index=index, dp_rank=rank),
                )


@pytest.mark.parametrize("name", ["step", "microbatch", "pipeline"])
def test_what_it_gains_at_the_start_of_an_epoch(name):
    """Prep as dear as work, two workers a rank: less waiting for the CPU, a few per cent a step."""
    waits = np.zeros(2)
    for seed in range(10):
        costs = drawn(seed, ratio=2.0)
        plan = plan_step(costs, _TOPOLOGIES[name], effort="fast")
        for at, each in enumerate((plan, late_ready_last(plan, costs, prep_workers=2))):
            waits[at] += prepared_step_times(each, costs, prep_workers=2)[0]
    assert waits[1] < 0.98 * waits[0]


@pytest.mark.parametrize(
    ("costs", "options", "message"),
    [
        (Costs.from_values([1.0, 2.0], prep=[1, 1], unit="FLOPs"), {}, "costs are in 'FLOPs'"),
        (Costs.from_values([1.0, 2.0]), {}, "costs have no prep"),
        (Costs.from_values([1.0, 2.0], prep=[1, 1]), {"prep_workers": 0}, "prep_workers is 0"),
    ],
)
def test_what_cannot_be_ordered_is_refused(costs, options, message):
    """Costs in another unit than prep, no prep, no workers."""
    plan = plan_step(costs, Topology(dp_size=1, num_microbatches=2))
    with pytest.raises(ArgumentError, match=message):
        late_ready_last(plan, costs, **{"prep_workers": 1} | options)
