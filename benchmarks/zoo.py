"""Step time of every baseline beside ours; the quick form takes some of the traces."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from balancer.cost import CostFunction
from balancer.topology import Barrier, Topology
from benchmarks.measure import Record
from benchmarks.planners import PlannerChoice
from benchmarks.step_time import measure_step_time
from benchmarks.traces import Trace

__all__ = ["measure_zoo"]


def measure_zoo(
    *,
    name: str,
    traces: Mapping[str, Trace],
    quick_traces: Sequence[str],
    cost: CostFunction,
    planners: Mapping[str, PlannerChoice],
    topologies: Mapping[str, Topology],
    barriers: Sequence[Barrier] | None,
    samples_per_rank: int,
    num_steps: int,
    quick_steps: int,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Records of `measure_step_time` on all traces, or on a few with few steps.

    Args:
        name: Name of the experiment in the records.
        traces: Traces by name.
        quick_traces: Names of the traces of the quick form.
        cost: What samples are priced by.
        planners: Planner choices by name.
        topologies: Topologies by name.
        barriers: Barriers to set on each topology; its own when `None`.
        samples_per_rank: Samples of a step over ranks.
        num_steps: Steps for each trace, topology and barrier.
        quick_steps: Steps of the quick form.
        seed: Seed of the shuffled order.
        quick: Whether to run the quick form.
    """
    chosen = {key: trace for key, trace in traces.items() if not quick or key in quick_traces}
    records = measure_step_time(
        name=name,
        traces=chosen,
        cost=cost,
        planners=planners,
        topologies=topologies,
        barriers=barriers,
        samples_per_rank=samples_per_rank,
        num_steps=quick_steps if quick else num_steps,
        seed=seed,
        quick=False,
    )
    return [*records, *_best_rivals(records)]


def _best_rivals(records: Sequence[Record]) -> list[Record]:
    """Speedup over the best rival of each trace: `speedup_vs_best`; its mean and least over traces.

    A mean over traces is geometric. `n` of a trace's record is its steps, else traces.
    """
    speedups: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for record in records:
        if record.metric.startswith("speedup_vs_"):
            of_place = speedups.setdefault((record.topology, record.barrier), {})
            of_place.setdefault(record.data, []).append(record)
    found = []
    for of_place in speedups.values():
        best = [min(rivals, key=lambda each: each.value) for rivals in of_place.values()]
        found += [replace(each, metric="speedup_vs_best") for each in best]
        values = np.array([each.value for each in best])
        numbers = {"speedup_vs_best": np.exp(np.log(values).mean())}
        numbers["speedup_vs_best_worst"] = values.min()
        found += [
            replace(best[0], data="all", metric=metric, value=float(value), n=len(best))
            for metric, value in numbers.items()
        ]
    return found
