"""Step times under a token limit, and default effort beside a search, on small steps."""

from balancer.flops.presets import preset
from benchmarks.planners import Balanced
from benchmarks.search_gap import measure_search_gap
from benchmarks.step_time_limits import measure_step_time_limits
from benchmarks.traces import Trace, trace_costs

_BARRIERS = ["step", "in_turn", "summed", "pipeline"]


def test_every_barrier_and_size_has_a_record() -> None:
    """Each barrier is named apart, and no step is faster than its bound."""
    records = measure_step_time_limits(
        name="limits", traces={"one": Trace(name="one")}, cost=preset("qwen2.5-vl-3b"),
        planners={"balanced": Balanced(effort="fast")}, dp_sizes={2: 1, 4: 1},
        num_microbatches=[2], barriers=_BARRIERS, max_tokens=32768, samples_per_rank=8, seed=0,
        quick=False,
    )  # fmt: skip
    over = [r for r in records if r.metric == "step_time_over_bound"]
    assert {(r.topology.split("_")[0], r.barrier) for r in over} == {
        (size, barrier)
        for size in ("dp2", "dp4")
        for barrier in ("step", "microbatch_in_turn", "microbatch_summed", "pipeline")
    }
    assert min(r.value for r in over) >= 1 - 1e-9
    assert not [r for r in records if r.metric == "steps_over_limit"]


def test_samples_over_the_limit_are_counted_and_told(capsys) -> None:
    """Of the embedded sizes some are over 1,024 tokens; steps come from further epochs, too."""
    trace, cost = Trace(name="one"), preset("qwen2.5-vl-3b")
    records = measure_step_time_limits(
        name="limits", traces={"one": trace}, cost=cost, planners={"any": Balanced(effort="fast")},
        dp_sizes={4: 3}, num_microbatches=[2], barriers=["step", "in_turn"], max_tokens=1024,
        samples_per_rank=64, seed=0, quick=False,
    )  # fmt: skip
    costs, illegal = trace_costs(trace, cost)
    over = int((costs.tokens > 1024).sum())
    values = {(r.barrier, r.metric): r.value for r in records}
    assert over > 0
    for barrier in ("step", "microbatch_in_turn"):
        assert values[barrier, "samples_left_out"] == illegal + over
        assert values[barrier, "steps_of_an_epoch"] == (len(costs) - over) // 256
    assert capsys.readouterr().err.count(f"{over} samples are over {{'tokens': 1024}}") == 1


def test_a_search_is_never_slower_than_the_default() -> None:
    """The search starts where the default starts and keeps the best it saw."""
    records = measure_search_gap(
        name="gap", traces={"one": Trace(name="one")}, cost=preset("qwen2.5-vl-3b"),
        sizes=[[2, 2]], barriers=["step", "in_turn"], max_tokens=32768, effort=0.1,
        quick_effort=0.1, samples_per_rank=8, num_steps=1, seed=0, quick=False,
    )  # fmt: skip
    assert {r.data for r in records} == {"one", "all"}
    assert min(r.value for r in records if r.unit == "ratio") >= 1 - 1e-9
    assert {r.value for r in records if r.metric == "search_effort"} == {0.1}
