"""The exact-gap benchmark: its evaluation is the library's, and no plan beats its optimum."""

import numpy as np
import pytest

from balancer.pipeline import step_times
from balancer.planner import plan_from_assignment
from balancer.topology import Topology
from benchmarks import baselines
from benchmarks.exact_gap import assignments, draw_instance, measure_exact_gap, optimum
from benchmarks.exact_times import all_times
from benchmarks.planners import Balanced, Baseline

_TOPOLOGIES = {
    "step": Topology(dp_size=2, num_microbatches=2, barrier="step"),
    "microbatch": Topology(dp_size=2, num_microbatches=2),
    "summed": Topology(dp_size=2, num_microbatches=2, modules="summed"),
    "pipeline": Topology(dp_size=2, num_microbatches=2, barrier="pipeline", pp_size=3),
    "speeds": Topology(dp_size=4, barrier="step", rank_speeds=(1, 1, 0.5, 0.25)),
}


@pytest.mark.parametrize("topology", _TOPOLOGIES.values(), ids=_TOPOLOGIES)
def test_times_of_all_assignments_are_those_of_the_library(topology: Topology) -> None:
    costs, _ = draw_instance(1, topology, 6, limited=False)
    cells = assignments(6, topology)[::97]
    times = all_times(cells, costs, topology)
    for row, time in zip(cells, times, strict=True):
        plan = plan_from_assignment(
            costs, np.arange(6), row, topology, num_slots=topology.num_microbatches
        )
        assert step_times(plan, costs)[0] == pytest.approx(time, rel=1e-9)


def test_a_limit_leaves_a_plan_and_raises_the_optimum() -> None:
    free = draw_instance(3, _TOPOLOGIES["step"], 6, limited=False)
    tight = draw_instance(3, _TOPOLOGIES["step"], 6, limited=True)
    assert tight[1].limits.max_tokens is not None
    assert optimum(*free) <= optimum(*tight) < np.inf


def test_records_set_ours_beside_the_baselines() -> None:
    records = measure_exact_gap(
        name="exact_gap",
        planners={
            "balanced": Balanced(),
            "arrival": Baseline(name="arrival", assign=baselines.arrival),
        },
        topologies={"step": _TOPOLOGIES["step"], "pipeline": _TOPOLOGIES["pipeline"]},
        num_samples=[5, 6], num_instances=9, quick_instances=4, seed=0, quick=True,
    )  # fmt: skip
    values = {(r.data, r.planner, r.barrier, r.metric): r.value for r in records}
    assert all(r.n == 4 for r in records)
    for barrier in ("step", "pipeline"):
        ours = values["random", "balanced", barrier, "gap_to_optimum_worst"]
        assert abs(ours) < 1e-9
        assert values["random", "arrival", barrier, "gap_to_optimum_worst"] > 0.1
        assert values["random", "balanced", barrier, "optimum_over_bound_worst"] >= -1e-9
        assert values["random_limited", "balanced", barrier, "no_plan_found"] == 0
    assert ("random_limited", "arrival", "step", "gap_to_optimum_worst") not in values
