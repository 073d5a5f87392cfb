"""Release times: microbatches whose samples are prepared late run late, where that is faster.

A rank's CPU workers prepare its microbatches in the order it runs them, and one can only start when
it is ready: at the start of an epoch, and wherever preparing is the bottleneck, the order decides
how long the accelerator waits. Later steps are prepared while earlier ones run; there the order
matters little. `late_ready_last` orders the microbatches of each step as if nothing of it were
prepared when it starts. What runs together stays together. On random steps of two ranks and four
microbatches, whose prep takes a quarter of the time of their work to as long, a step that starts
with nothing prepared then takes 3 to 8 % less (5 to 11 % on pipelines); but on pipelines it takes
6 to 11 % more where all is prepared in time, so there only an epoch's first step gains.

One rank's preparing and running are two machines that its microbatches pass one after the other:
with the rule of Johnson (1954) no order is faster. Ranks that wait in every microbatch prepare side
by side (a two-stage assembly, NP-hard; Potts et al., 1995), and pipelines have more machines: there
the rule is a start, and microbatches are moved one at a time while that is faster by simulation.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.checks import check_count
from balancer.errors import ArgumentError
from balancer.kernels.release import order_by_release, released_time
from balancer.pipeline import step_times
from balancer.pipeline_check import tokens_at
from balancer.pipeline_schedule import pipeline_schedule
from balancer.pipeline_stages import stage_shares
from balancer.pipeline_value import in_flight_cap
from balancer.plan import Plan
from balancer.priced import PricedSamples
from balancer.ranks import slowness
from balancer.reorder import reordered

__all__ = ["johnson_order", "late_ready_last", "prepared_step_times"]

_INT = NDArray[np.int64]
_NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """Microbatches that are put in one order: of a rank, or the slots of ranks that wait in each.

    Times are in nanoseconds times workers, so that a worker-second of preparing takes one of each.
    """

    step: int
    cells: _INT  # (num_slots, ranks that keep the order together)
    prep: _INT  # of the ranks one after the other
    loads: _INT  # (num_slots, num_columns)
    schedule: tuple[_INT | int, ...]
    tokens: _INT
    most: int

    def arguments(self) -> tuple[_INT, _INT, int, tuple[_INT | int, ...]]:
        """What kernels take after the order."""
        return self.prep, self.loads.ravel(), self.loads.shape[1], self.schedule


def johnson_order(prep: ArrayLike, work: ArrayLike) -> _INT:
    """Order in which jobs end first that are each prepared, then run, one at a time.

    Those that run longer than they are prepared come first, by ascending `prep`; then the others,
    by descending `work`; ties in the order given. No order ends sooner (Johnson 1954, Optimal
    two- and three-stage production schedules with setup times included). O(n log n).

    Example:
        >>> johnson_order([5, 1, 3], [2, 4, 4]).tolist()
        [1, 2, 0]
    """
    before, after = np.asarray(prep), np.asarray(work)
    late = before >= after
    order: _INT = np.lexsort((np.arange(len(late)), np.where(late, -after, before), late))
    return order


def late_ready_last(plan: Plan, costs: PricedSamples, *, prep_workers: int) -> Plan:
    """The same plan with the microbatches of each step in an order that waits less for the CPU.

    Under the step and the pipeline barrier each rank has an order of its own; under the microbatch
    barrier, and where modalities are kept in step, all ranks run the same slots in a new order.
    Samples that meet in a microbatch, or in a slot, stay together; limits and tokens in flight
    hold. Never slower, by `prepared_step_times`, than the order given. On pipelines the order also
    decides the time of a step whose samples are all ready, which may grow: certificates say so.

    Args:
        plan: Plan whose language work is not deferred.
        costs: Costs in seconds, with the CPU seconds of each sample in their `prep`, which
            `balancer.prep` estimates; rows by sample id.
        prep_workers: Workers of each rank.

    Raises:
        ArgumentError: Costs are not in seconds or have no `prep`, the plan defers language work, or
            `prep_workers` is no whole number above 0.

    Example:
        >>> from balancer.cost import Costs
        >>> costs = Costs.from_values([2.0, 3.0], prep=[6.0, 1.0])
        >>> plan = Plan.from_cells([[[[0]], [[1]]]])
        >>> ordered = late_ready_last(plan, costs, prep_workers=1)
        >>> ordered.sample_ids
        array([1, 0])
        >>> [prepared_step_times(p, costs, prep_workers=1).tolist() for p in (plan, ordered)]
        [[11.0], [9.0]]
    """
    cells = np.arange(len(plan.offsets) - 1)
    for line in _lines(plan, costs, prep_workers):
        cells[line.cells] = line.cells[_best_order(line)]
    ordered = reordered(plan, cells)
    if plan.topology.barrier != "pipeline" or not plan.certificates:
        return ordered
    times = step_times(ordered, costs)
    certificates = (
        replace(certificate, step_time=float(time))
        for certificate, time in zip(plan.certificates, times, strict=True)
    )
    return replace(ordered, certificates=tuple(certificates))


def prepared_step_times(
    plan: Plan, costs: PricedSamples, *, prep_workers: int
) -> NDArray[np.float64]:
    """Seconds of each step from when its samples begin to be prepared, float64 `(num_steps,)`.

    A microbatch starts when `prep_workers` workers of its rank have done the work of it and all
    before it, shared out evenly, and as `balancer.pipeline.step_times` says. Each step stands by
    itself: nothing of it is prepared before. Arguments and errors are those of `late_ready_last`.
    """
    times = np.zeros(plan.num_steps)
    for line in _lines(plan, costs, prep_workers):
        time = released_time(np.arange(len(line.cells)), *line.arguments())
        times[line.step] = max(times[line.step], time / prep_workers / _NANOSECONDS)
    return times


def _best_order(line: _Line) -> _INT:
    """The given order, or a shorter one."""
    num_slots, pp_size = len(line.cells), line.schedule[4]
    prep = line.prep.reshape(-1, num_slots).max(axis=0)
    work = line.loads.reshape(num_slots, -1, pp_size).sum(axis=1).max(axis=1)
    starts = [np.arange(num_slots)]
    if not line.most:  # it may hold more tokens at once
        starts.append(johnson_order(prep, work))
    times = [order_by_release(order, *line.arguments(), line.tokens, line.most) for order in starts]
    return starts[int(np.argmin(times))]


def _lines(plan: Plan, costs: PricedSamples, prep_workers: int) -> Iterator[_Line]:
    """Every line of every step."""
    topology = plan.topology
    prepared = np.add.reduceat(_prep(plan, costs, prep_workers), plan.offsets[:-1])
    loads = _loads(plan, costs) * prep_workers
    together = topology.barrier == "microbatch" or topology.modality_sync in ("spread", "uniform")
    is_pipeline = topology.barrier == "pipeline"
    most, tokens = in_flight_cap(topology), np.zeros(len(prepared), np.int64)
    if most:
        taken = costs.select(plan.sample_ids).tokens
        tokens = tokens_at(plan.cell_of_sample(), len(tokens), taken, topology.limits)
    for step in range(plan.num_steps):
        first, stop = (int(plan.step_slots[at]) * topology.dp_size for at in (step, step + 1))
        by_slot = np.arange(first, stop).reshape(-1, topology.dp_size)
        for cells in [by_slot] if together else by_slot.T[:, :, None]:
            own = loads[cells]  # (slots, ranks, columns)
            yield _Line(
                step=step,
                cells=cells,
                prep=np.ascontiguousarray(prepared[cells].T).ravel(),
                loads=own[:, 0] if is_pipeline else own.max(axis=1).sum(axis=1, keepdims=True),
                schedule=_schedule(plan, len(cells)),
                tokens=np.ascontiguousarray(tokens[cells[:, 0]]),
                most=most,
            )


def _schedule(plan: Plan, num_slots: int) -> tuple[_INT | int, ...]:
    """Operations of a line: of a pipeline, or one microbatch after the other."""
    if plan.topology.barrier != "pipeline":
        slots = np.arange(num_slots)
        return np.zeros_like(slots), np.full_like(slots, -1), slots, 1, 1
    schedule = pipeline_schedule(plan.topology, num_slots)
    return (
        schedule.lane, schedule.after, schedule.duration, schedule.num_stages, schedule.pp_size
    )  # fmt: skip


def _loads(plan: Plan, costs: PricedSamples) -> _INT:
    """Nanoseconds of each microbatch in each column: what ranks wait for apart, or stages twice.

    Samples are rounded before they are added up, so that sums do not depend on their order.
    """
    topology, values = plan.topology, costs.select(plan.sample_ids).values
    rounded = np.rint(values * _NANOSECONDS).astype(np.int64)
    cells = np.add.reduceat(rounded, plan.offsets[:-1], axis=0)
    modules = costs.modules
    if topology.barrier == "pipeline":
        cells, modules = _stage_loads(plan, cells, modules), ("pipeline",)
    elif topology.barrier == "step" or topology.modules == "summed":
        cells = cells.sum(axis=1, keepdims=True)
    if topology.rank_speeds:
        slow, unit = slowness(topology.rank_speeds, topology.dp_size, modules)
        times = cells.reshape(-1, topology.dp_size, cells.shape[1]) * (slow * unit)
        cells = np.rint(times).astype(np.int64).reshape(cells.shape)
    return cells


def _stage_loads(plan: Plan, cells: _INT, modules: tuple[str, ...]) -> _INT:
    """Nanoseconds of each microbatch in the forward of each stage, then in the backward of each."""
    topology = plan.topology
    stages = np.full((len(cells), topology.num_stages), topology.microbatch_cost * _NANOSECONDS)
    for column, share in zip(cells.T, stage_shares(topology, modules).T, strict=True):
        stages += column[:, None] * share
    forward = topology.forward_share
    both = np.concatenate([stages * forward, stages * (1.0 - forward)], axis=1)
    rounded: _INT = np.rint(both).astype(np.int64)
    return rounded


def _prep(plan: Plan, costs: PricedSamples, prep_workers: int) -> _INT:
    """Nanoseconds to prepare each sample of the plan."""
    check_count("prep_workers", prep_workers)
    if costs.unit != "s":
        raise ArgumentError(
            f"costs are in {costs.unit!r}; beside seconds of the CPU they must be in 's': give a "
            "calibrated cost model, see balancer.calibrate"
        )
    if plan.deferred.size:
        raise ArgumentError(
            "plan defers language work, which fixes the order of its microbatches; plan with "
            "deferral=False"
        )
    seconds = costs.select(plan.sample_ids).prep
    if seconds is None:
        raise ArgumentError(
            "costs have no prep, the CPU seconds of each sample; give them, see balancer.prep"
        )
    prepared: _INT = np.rint(seconds * _NANOSECONDS).astype(np.int64)
    return prepared
