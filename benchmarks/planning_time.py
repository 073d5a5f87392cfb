"""Planning time of one large step, beside sorting the same number of costs."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from balancer.cost import CostFunction
from balancer.topology import Barrier, Topology
from benchmarks.measure import Record, median_seconds
from benchmarks.planners import PlannerChoice
from benchmarks.traces import Trace, trace_costs

__all__ = ["measure_planning_time"]

_COLD = """
import time
import numpy as np
from balancer.cost import Costs
from balancer.step_planner import plan_step
from balancer.topology import Limits, Topology

rng = np.random.default_rng(0)
values = rng.lognormal(size=(256, 2))
tokens = np.ceil(values[:, 0] * 100).astype(np.int64)
costs = Costs.from_values(values, modules=("vision", "language"), tokens=tokens)
topology = Topology(
    dp_size=4, num_microbatches=4, barrier="{barrier}", limits=Limits(max_tokens=10**6),
    pp_size=4 if "{barrier}" == "pipeline" else 1,
)
started = time.perf_counter()
plan_step(costs, topology)
cold = time.perf_counter()
plan_step(costs, topology)
print(cold - started - (time.perf_counter() - cold))
"""


def measure_planning_time(
    *,
    name: str,
    traces: Mapping[str, Trace],
    cost: CostFunction,
    planners: Mapping[str, PlannerChoice],
    topologies: Mapping[str, Topology],
    barriers: Sequence[Barrier] | None,
    sizes: Mapping[str, Sequence[int]],
    repeats: int,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Median time to plan one step, over the median time of `np.argsort` of its costs.

    Both are timed in this process, warm and compiled, on the same samples. `compile_seconds` is
    the first call less the second, in a fresh process.

    Args:
        name: Name of the experiment in the records.
        traces: Traces by name; a step has each sample once, more often where they are too few.
        cost: What samples are priced by.
        planners: Planner choices by name.
        topologies: Topologies by name.
        barriers: Barriers to set on each topology; its own when `None`.
        sizes: Samples of the step, by the name of the topology.
        repeats: Timed calls of each.
        seed: Seed of the draw.
        quick: Few repeats, to see that it runs.
    """
    calls = 3 if quick else repeats
    rng = np.random.default_rng(seed)
    settings = [
        (replace(topology, barrier=barrier), size)
        for key, topology in topologies.items()
        for barrier in barriers or [topology.barrier]
        for size in sizes[key]
    ]
    records = []
    for trace in traces.values():
        costs, _ = trace_costs(trace, cost)
        for topology, size in settings:
            rows = rng.permutation(max(size, len(costs)))[:size] % len(costs)
            step, ids = costs.select(rows), rng.permutation(size)
            sort_s = median_seconds(partial(np.argsort, step.total), repeats=10 * calls)
            for planner in planners.values():
                call = partial(planner, step, topology, ids)
                plan_s, proof = median_seconds(call, repeats=calls), call().certificates[0]
                records += [
                    Record(
                        experiment=name, data=trace.name, planner=planner.name,
                        topology=f"{topology}_n{size}", barrier=topology.barrier, metric=metric,
                        value=value, unit=unit, n=calls,
                    )
                    for metric, value, unit in (
                        ("planning_seconds", plan_s, "s"),
                        ("argsort_seconds", sort_s, "s"),
                        ("planning_over_argsort", plan_s / sort_s, "ratio"),
                        ("planned_over_bound", proof.step_time / proof.lower_bound, "ratio"),
                    )
                ]  # fmt: skip
    measured = dict.fromkeys(topology.barrier for topology, _ in settings)
    return records + [_compile_record(name, barrier, 1 if quick else 3) for barrier in measured]


def _compile_record(name: str, barrier: str, processes: int) -> Record:
    script = _COLD.format(barrier=barrier)
    seconds = [
        float(
            subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(processes)
    ]
    return Record(
        experiment=name, data="synthetic", planner="balanced", topology="dp4_m4", barrier=barrier,
        metric="compile_seconds", value=float(np.median(seconds)), unit="s", n=processes,
    )  # fmt: skip
