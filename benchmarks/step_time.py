"""Step time over its lower bound, for planners side by side on the same samples."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from balancer.cost import CostFunction, Costs
from balancer.errors import ArgumentError, PlanError
from balancer.pipeline import step_times
from balancer.plan import Flag, Plan
from balancer.planner import EpochPlanner
from balancer.step_planner import oversize_ids
from balancer.topology import Barrier, Topology
from benchmarks.measure import Record
from benchmarks.planners import Balanced, PlannerChoice
from benchmarks.traces import Trace, trace_costs

__all__ = ["Place", "measure_places", "measure_step_time", "steps_of"]

_FLOAT = NDArray[np.float64]
_Key = tuple[str, str, str, str]
"""Trace, planner, topology, barrier."""
_QUICK_STEPS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where steps are planned.

    Attributes:
        topology: Ranks, microbatches, barrier and limits.
        barrier: Name of the barrier in records.
        num_steps: Steps for each trace.
    """

    topology: Topology
    barrier: str
    num_steps: int


def measure_step_time(
    *,
    name: str,
    traces: Mapping[str, Trace],
    cost: CostFunction,
    planners: Mapping[str, PlannerChoice],
    topologies: Mapping[str, Topology],
    barriers: Sequence[Barrier] | None,
    samples_per_rank: int,
    num_steps: int,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Records of every trace, topology, barrier and planner, and of the mean over the traces.

    A step has `samples_per_rank * dp_size` samples, those a shuffled loader gives it. Steps of
    consecutive epochs are taken until there are `num_steps`.

    Args:
        name: Name of the experiment in the records.
        traces: Traces by name; those whose file is absent are skipped with a notice.
        cost: What samples are priced by.
        planners: Planner choices by name.
        topologies: Topologies by name.
        barriers: Barriers to set on each topology; its own when `None`.
        samples_per_rank: Samples of a step over ranks.
        num_steps: Steps for each trace, topology and barrier.
        seed: Seed of the shuffled order.
        quick: One step each, to see that it runs.
    """
    places = [
        Place(
            topology=replace(topology, barrier=barrier),
            barrier=barrier,
            num_steps=_QUICK_STEPS if quick else num_steps,
        )
        for topology in topologies.values()
        for barrier in (barriers or [topology.barrier])
    ]
    return measure_places(
        name=name, traces=traces, cost=cost, planners=planners, places=places,
        samples_per_rank=samples_per_rank, seed=seed,
    )  # fmt: skip


def measure_places(
    *,
    name: str,
    traces: Mapping[str, Trace],
    cost: CostFunction,
    planners: Mapping[str, PlannerChoice],
    places: Sequence[Place],
    samples_per_rank: int,
    seed: int,
) -> list[Record]:
    """Records as of `measure_step_time`, of every trace, place and planner.

    Samples over a limit by themselves are left out, with a notice; `samples_left_out` counts them
    and those that the model cannot take. `steps_of_an_epoch` tells how many steps a trace has: more
    than those are drawn from further shuffles of it.
    """
    present = [trace for trace in traces.values() if trace.present]
    for trace in traces.values():
        if not trace.present:
            print(f"data={trace.name}: there is no {trace.path}, skipped", file=sys.stderr)
    if not present:
        raise ArgumentError("traces: none is there; set trace_dir, or use data=embedded")
    ratios: dict[_Key, _FLOAT] = {}
    times: dict[_Key, _FLOAT] = {}
    over: dict[_Key, int] = {}
    draws: dict[_Key, dict[str, int]] = {}
    first = next(iter(planners.values())).name
    for trace in tqdm(present, desc=name, unit="trace", disable=None):
        costs, left_out = trace_costs(trace, cost)
        if left_out:
            print(f"data={trace.name}: {left_out} samples the model cannot take", file=sys.stderr)
        told: set[str] = set()
        for place in places:
            topology = place.topology
            steps = steps_of(costs, topology, samples_per_rank, place.num_steps, seed)
            over_limit = len(costs) - len(fitting_ids(costs, topology))
            if over_limit and str(place.topology.limits) not in told:
                told.add(str(place.topology.limits))
                print(f"data={trace.name}: {over_limit} samples are over {topology.limits.given} "
                      "by themselves, left out", file=sys.stderr)  # fmt: skip
            draws[trace.name, first, str(topology), place.barrier] = {
                "samples_left_out": left_out + over_limit,
                "steps_of_an_epoch": (len(costs) - over_limit)
                // (samples_per_rank * topology.dp_size),
            }
            for planner in planners.values():
                key = (trace.name, planner.name, str(topology), place.barrier)
                times[key], bounds, over[key] = _times_and_bounds(planner, costs, topology, steps)
                ratios[key] = times[key] / bounds
    return [
        *_records(name, ratios), *_speedups(name, times), *_means(name, ratios), *_over(name, over),
        *_draws(name, draws),
    ]  # fmt: skip


def steps_of(
    costs: Costs, topology: Topology, samples_per_rank: int, num_steps: int, seed: int
) -> list[NDArray[np.int64]]:
    """Ids of the first steps of as many epochs as are needed, of samples within the limits."""
    fitting = fitting_ids(costs, topology)
    planner = EpochPlanner(
        costs.select(fitting),
        topology,
        global_batch_size=samples_per_rank * topology.dp_size,
        seed=seed,
    )
    places = [divmod(index, planner.num_steps) for index in range(num_steps)]
    return [fitting[planner.step_ids(epoch, step)[0]] for epoch, step in places]


def fitting_ids(costs: Costs, topology: Topology) -> NDArray[np.int64]:
    """Ids of the samples that are within the limits by themselves, ascending."""
    over = oversize_ids(costs, topology, "drop", sample_ids=np.arange(len(costs)))
    return np.setdiff1d(np.arange(len(costs)), over)


def _times_and_bounds(
    planner: PlannerChoice, costs: Costs, topology: Topology, steps: Sequence[NDArray[np.int64]]
) -> tuple[_FLOAT, _FLOAT, int]:
    """Simulated time of each step, its lower bound, and how many steps break a limit."""
    times, bounds, over = np.empty(len(steps)), np.empty(len(steps)), 0
    for index, ids in enumerate(steps):
        plan = planner(costs, topology, ids)
        _check_same_samples(plan, ids)
        times[index] = step_times(plan, costs)[0]
        bounds[index] = plan.certificates[0].lower_bound
        try:
            plan.check(costs)
        except PlanError:
            over += 1
    return times, bounds, over


def _check_same_samples(plan: Plan, ids: NDArray[np.int64]) -> None:
    """Raise PlanError unless the plan holds each sample of the step once."""
    if not np.array_equal(np.sort(plan.sample_ids[plan.flags == Flag.REAL]), np.sort(ids)):
        raise PlanError("a planner placed other samples than those of the step")


def _records(name: str, ratios: Mapping[_Key, _FLOAT]) -> list[Record]:
    records = []
    for (data, planner, topology, barrier), values in ratios.items():
        numbers = {
            "step_time_over_bound": float(np.exp(np.log(values).mean())),
            "step_time_over_bound_worst": float(values.max()),
        }
        records += [
            Record(
                experiment=name, data=data, planner=planner, topology=topology, barrier=barrier,
                metric=metric, value=value, unit="ratio", n=len(values),
            )
            for metric, value in numbers.items()
        ]  # fmt: skip
    return records


def _speedups(name: str, times: Mapping[_Key, _FLOAT]) -> list[Record]:
    """Time of each other planner over ours, where ours was run."""
    ours = Balanced().name
    return [
        Record(
            experiment=name, data=data, planner=ours, topology=topology, barrier=barrier,
            metric=f"speedup_vs_{planner}", unit="ratio", n=len(time),
            value=float(time.sum() / times[data, ours, topology, barrier].sum()),
        )
        for (data, planner, topology, barrier), time in times.items()
        if planner != ours and (data, ours, topology, barrier) in times
    ]  # fmt: skip


def _means(name: str, ratios: Mapping[_Key, _FLOAT]) -> list[Record]:
    """Geometric mean over the traces of each planner, topology and barrier; then over these."""
    if len({data for data, *_ in ratios}) == 1:
        return []
    logs: dict[tuple[str, str, str], list[float]] = {}
    for (_, planner, topology, barrier), values in ratios.items():
        for group in (topology, "all"):
            logs.setdefault((planner, group, barrier), []).append(float(np.log(values).mean()))
    return [
        Record(
            experiment=name, data="all", planner=planner, topology=topology, barrier=barrier,
            metric="step_time_over_bound", value=float(np.exp(np.mean(values))), unit="ratio",
            n=len(values),
        )
        for (planner, topology, barrier), values in logs.items()
    ]  # fmt: skip


def _over(name: str, over: Mapping[_Key, int]) -> list[Record]:
    """Steps in which a planner breaks a limit, where it does."""
    return [
        Record(
            experiment=name, data=data, planner=planner, topology=topology, barrier=barrier,
            metric="steps_over_limit", value=float(count), unit="steps", n=count,
        )
        for (data, planner, topology, barrier), count in over.items()
        if count
    ]  # fmt: skip


def _draws(name: str, draws: Mapping[_Key, Mapping[str, int]]) -> list[Record]:
    """What the steps of each trace were drawn from, under the name of the first planner."""
    return [
        Record(
            experiment=name, data=data, planner=planner, topology=topology, barrier=barrier,
            metric=metric, value=float(count), unit=metric.partition("_")[0], n=1,
        )
        for (data, planner, topology, barrier), counts in draws.items()
        for metric, count in counts.items()
    ]  # fmt: skip
