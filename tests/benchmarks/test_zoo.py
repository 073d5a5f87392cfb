"""The zoo measures every trace, and in its quick form those it is told."""

from balancer.flops.presets import preset
from balancer.topology import Topology
from benchmarks.baselines import arrival
from benchmarks.measure import Record
from benchmarks.planners import Balanced, Baseline
from benchmarks.traces import Trace
from benchmarks.zoo import measure_zoo


def _zoo(*, quick: bool) -> list[Record]:
    return measure_zoo(
        name="zoo",
        traces={"one": Trace(name="one"), "two": Trace(name="two")},
        quick_traces=["two"],
        cost=preset("qwen2.5-vl-3b"),
        planners={
            "balanced": Balanced(),
            "arrival": Baseline(name="arrival", assign=arrival),
        },
        topologies={"small": Topology(dp_size=4, num_microbatches=2)},
        barriers=["step"],
        samples_per_rank=16,
        num_steps=2,
        quick_steps=1,
        seed=0,
        quick=quick,
    )


def _steps_of_traces(records: list[Record]) -> set[tuple[str, int]]:
    return {
        (r.data, r.n) for r in records if r.data != "all" and r.metric == "step_time_over_bound"
    }


def test_the_quick_form_takes_the_named_traces_and_fewer_steps() -> None:
    assert _steps_of_traces(_zoo(quick=True)) == {("two", 1)}
    assert _steps_of_traces(_zoo(quick=False)) == {("one", 2), ("two", 2)}


def test_the_best_rival_of_each_trace_and_the_mean_over_traces() -> None:
    """The speedup over the best rival is the least of a trace's, and its mean is geometric."""
    records = _zoo(quick=False)
    best = {r.data: r.value for r in records if r.metric == "speedup_vs_best"}
    least = {
        data: min(
            r.value for r in records if r.data == data and r.metric.startswith("speedup_vs_a")
        )
        for data in ("one", "two")
    }
    assert best["one"] == least["one"]
    assert best["two"] == least["two"]
    assert abs(best["all"] ** 2 - best["one"] * best["two"]) < 1e-9
