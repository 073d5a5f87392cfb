"""Step time of the default effort over that of a long search for the same step."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from tqdm import tqdm

from balancer.cost import CostFunction
from balancer.errors import ArgumentError
from balancer.pipeline import step_times
from balancer.step_planner import plan_step
from benchmarks.measure import Record
from benchmarks.planners import Balanced
from benchmarks.step_time import steps_of
from benchmarks.step_time_limits import limited_topology
from benchmarks.traces import Trace, trace_costs

__all__ = ["measure_search_gap"]

_NAMES = {"in_turn": "microbatch_in_turn", "summed": "microbatch_summed"}


def measure_search_gap(
    *,
    name: str,
    traces: Mapping[str, Trace],
    cost: CostFunction,
    sizes: Sequence[Sequence[int]],
    barriers: Sequence[str],
    max_tokens: int,
    effort: float,
    quick_effort: float,
    samples_per_rank: int,
    num_steps: int,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Records of every trace, size and barrier, and of the mean over all of a barrier.

    Both plans are of the same samples by the same objective, the simulated step time; an effort in
    seconds is counted work, so the search takes about as long on any machine like the one where
    `balancer.effort` was set. The means are printed as they come.

    Args:
        name: Name of the experiment in the records.
        traces: Traces by name.
        cost: What samples are priced by.
        sizes: Ranks and microbatches.
        barriers: Names as of `benchmarks.step_time_limits.limited_topology`.
        max_tokens: Token limit of a microbatch.
        effort: Effort of the long search, in seconds.
        quick_effort: Effort of the quick form.
        samples_per_rank: Samples of a step over ranks.
        num_steps: Steps for each trace, size and barrier.
        seed: Seed of the shuffled order.
        quick: The first size and one step only, and less effort.
    """
    present = [trace for trace in traces.values() if trace.present]
    if not present:
        raise ArgumentError("traces: none is there; set trace_dir, or use data=embedded")
    sizes = sizes[:1] if quick else sizes
    effort, count = (quick_effort, 1) if quick else (effort, num_steps)
    records: list[Record] = []
    logs: dict[str, list[float]] = {}
    cases = [(barrier, size, trace) for barrier in barriers for size in sizes for trace in present]
    for barrier, (dp_size, number), trace in tqdm(cases, desc=name, disable=None):
        costs, _ = trace_costs(trace, cost)
        topology = limited_topology(dp_size, number, barrier, max_tokens)
        over = np.empty(count)
        for index, ids in enumerate(steps_of(costs, topology, samples_per_rank, count, seed)):
            planned, searched = (
                step_times(plan_step(costs, topology, sample_ids=ids, effort=each), costs)[0]
                for each in ("default", effort)
            )
            over[index] = planned / searched
        logs.setdefault(barrier, []).append(float(np.log(over).mean()))
        if (dp_size, number) == tuple(sizes[-1]) and trace is present[-1]:
            mean = float(np.exp(np.mean(logs[barrier])))
            print(f"{barrier}: default plan over searched plan {mean:.4f}", file=sys.stderr)
        records += [
            Record(
                experiment=name, data=trace.name, planner=Balanced().name, topology=str(topology),
                barrier=_NAMES.get(barrier, barrier), metric=metric, value=value, unit="ratio",
                n=count,
            )
            for metric, value in (
                ("step_time_over_search", float(np.exp(logs[barrier][-1]))),
                ("step_time_over_search_worst", float(over.max())),
            )
        ]  # fmt: skip
    means = [
        Record(
            experiment=name, data="all", planner=Balanced().name, topology="all",
            barrier=_NAMES.get(barrier, barrier), metric="step_time_over_search",
            value=float(np.exp(np.mean(values))), unit="ratio", n=len(values),
        )
        for barrier, values in logs.items()
    ]  # fmt: skip
    searches = [replace(mean, metric="search_effort", value=effort, unit="s") for mean in means]
    return [*records, *means, *searches]
