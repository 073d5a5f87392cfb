"""BalanceReport: what a plan gives and what it costs, beside the order the samples came in."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError
from balancer.measures import Imbalance, Measures, measure_plan
from balancer.plan import Flag, Plan
from balancer.priced import PricedSamples
from balancer.topology import WAITS, Barrier
from balancer.windows import displacement_summary

__all__ = ["BalanceReport", "balance_report"]

_IDS_SHOWN = 8
_RANKS_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceReport:
    """Numbers about a plan; `str()` of it is a table to paste, `to_dict()` plain numbers.

    Imbalance is max / mean of the ranks' cost, so 1 is perfect.

    Attributes:
        samples: Samples delivered, repeats and fillers not counted.
        steps: Steps of the plan.
        microbatches: Microbatches of each rank over all steps.
        dp_size: Data-parallel ranks.
        barrier: Where ranks wait.
        unit: Unit of the costs.
        planned: Measures of the plan.
        given: Measures of the order the samples were given in, when that was asked for.
        speedup: Time of the given order over time of the plan, summed over the steps; from the
            certificates, or from the given plan where there are none; `nan` with neither.
        binds: Steps by what their lower bound comes from.
        planners: Steps by the planner that was best.
        dropped: Ids that are not delivered.
        repeated: Ids delivered a second time to complete a step, ascending.
        fillers: Ids that stand in without a loss, ascending, once for each place.
        alone: Ids over a limit, alone in a microbatch.
        displacement: Steps that samples moved within their windows, `mean`, `p99` and `max` by
            source; empty where that was not asked for.
    """

    samples: int
    steps: int
    microbatches: int
    dp_size: int
    barrier: Barrier
    unit: str
    planned: Measures
    given: Measures | None
    speedup: float
    binds: dict[str, int]
    planners: dict[str, int]
    dropped: tuple[int, ...]
    repeated: tuple[int, ...]
    fillers: tuple[int, ...]
    alone: tuple[int, ...]
    displacement: dict[int, dict[str, float]]

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain numbers, strings, lists and dicts; `nan` becomes `None`."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    def __str__(self) -> str:
        return _text(self)


def balance_report(
    plan: Plan,
    costs: PricedSamples,
    *,
    given: Plan | None = None,
    displacement: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    sources: NDArray[np.int64] | None = None,
) -> BalanceReport:
    """Measure a plan, and beside it the same samples in the order they were given.

    Args:
        plan: The plan.
        costs: Costs of the whole dataset, rows by sample id.
        given: Plan that leaves the samples where they came; it has the steps of `plan`.
        displacement: Ids and the steps that each moved, of `EpochPlanner.displacement`.
        sources: Source of every sample of the dataset, by id; all of one source, 0, if not given.

    Raises:
        ArgumentError: A plan is empty, `costs` is not what the plan was made with (it lacks a
            sample, or gives other step times than the certificates), or `given` has another
            number of steps or ranks.

    Example:
        >>> from balancer.cost import Costs
        >>> costs = Costs.from_values([3.0, 1.0, 2.0, 2.0])
        >>> report = balance_report(Plan.from_cells([[[[0, 1], [2, 3]]]]), costs,
        ...                         given=Plan.from_cells([[[[0, 2], [1, 3]]]]))
        >>> report.planned.step_imbalance.max, report.given.step_imbalance.max, report.speedup
        (1.0, 1.25, 1.25)
    """
    _check(plan, costs, "plan")
    if given is not None:
        _check(given, costs, "given")
        if (given.num_steps, given.topology.dp_size) != (plan.num_steps, plan.topology.dp_size):
            raise ArgumentError(
                f"given has {given.num_steps} steps on {given.topology.dp_size} ranks, plan has "
                f"{plan.num_steps} on {plan.topology.dp_size}; give a plan of the same steps"
            )
    certificates = plan.certificates
    bounds = np.array([certificate.lower_bound for certificate in certificates])
    planned = measure_plan(plan, costs)
    _check_times(plan, planned)
    before = None if given is None else measure_plan(given, costs, lower_bounds=bounds)
    if certificates:
        given_time = sum(certificate.given_time for certificate in certificates)
        time = sum(certificate.step_time for certificate in certificates)
    else:
        given_time = before.total_time if before else float("nan")
        time = planned.total_time
    flags, ids = plan.flags, plan.sample_ids
    return BalanceReport(
        samples=int((flags == Flag.REAL).sum()),
        steps=plan.num_steps,
        microbatches=int(plan.step_slots[-1]),
        dp_size=plan.topology.dp_size,
        barrier=plan.topology.barrier,
        unit=costs.unit,
        planned=planned,
        given=before,
        speedup=float(given_time / time) if time else 1.0,
        binds=dict(Counter(certificate.binds for certificate in certificates)),
        planners=dict(Counter(certificate.planner for certificate in certificates)),
        dropped=tuple(plan.dropped.tolist()),
        repeated=tuple(np.sort(ids[flags == Flag.REPEAT]).tolist()),
        fillers=tuple(np.sort(ids[flags == Flag.FILLER]).tolist()),
        alone=tuple(plan.alone.tolist()),
        displacement=_displacement(displacement, sources),
    )


def _displacement(
    displacement: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
    sources: NDArray[np.int64] | None,
) -> dict[int, dict[str, float]]:
    if displacement is None:
        return {}
    ids, moved = displacement
    return displacement_summary(moved, None if sources is None else sources[ids])


def _check(plan: Plan, costs: PricedSamples, name: str) -> None:
    if not plan.num_steps or not len(plan.sample_ids):
        raise ArgumentError(f"{name} has no samples; plan at least one step")
    last = int(plan.sample_ids.max())
    if last >= len(costs):
        raise ArgumentError(
            f"costs has {len(costs)} rows, {name} holds sample {last}; give the costs of the data "
            "the plan was made for"
        )


def _check_times(plan: Plan, planned: Measures) -> None:
    """Refuse costs with which the plan takes another time than it was certified for."""
    if plan.certificates:
        certified = sum(certificate.step_time for certificate in plan.certificates)
        if abs(planned.total_time - certified) > 1e-6 * max(certified, planned.total_time):
            raise ArgumentError(
                f"costs give the plan a time of {planned.total_time:.6g}, it was certified for "
                f"{certified:.6g}; give the costs (data and model) the plan was made with"
            )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and np.isnan(value) else value


def _text(report: BalanceReport) -> str:
    """Plain text of a report: a headline, one line a measure, one line for each exception."""
    lines = [
        f"{report.samples} samples -> {report.steps} steps on {report.dp_size} ranks, "
        f"{report.microbatches} microbatches each; {WAITS[report.barrier]}",
        "",
        *_table(report),
        "",
    ]
    if report.speedup == report.speedup:
        lines.append(f"speed-up over the given order  {report.speedup:.3f}")
    if report.binds:
        lines.append(f"what binds (steps)             {_counts(report.binds)}")
        lines.append(f"best planner (steps)           {_counts(report.planners)}")
    lines.append(f"busy, idle of each rank        {_ranks(report.planned)}")
    largest = report.planned.largest
    lines.append(
        f"largest microbatch             {largest.tokens} tokens, {largest.patches} patches, "
        f"{largest.images} images, {largest.samples} samples (step {largest.step}, microbatch "
        f"{largest.index}, rank {largest.dp_rank})"
    )
    for what, ids in (
        ("dropped", report.dropped),
        ("repeated to fill a step", report.repeated),
        ("fillers without loss", report.fillers),
        ("alone, over a limit", report.alone),
    ):
        if ids:
            lines.append(f"{what:<30} {_ids(ids)}")
    for source, moved in report.displacement.items():
        of = f" of source {source}" if len(report.displacement) > 1 else ""
        lines.append(
            f"{'steps moved in their window':<30} {moved['mean']:.2f} mean, "
            f"{moved['p99']:.1f} p99, {moved['max']:.0f} max{of}"
        )
    return "\n".join(lines)


def _table(report: BalanceReport) -> list[str]:
    """Rows of measures, the given order (where known) left of the plan."""
    columns = {"given order": report.given, "planned": report.planned}
    shown = {head: _cells(measures) for head, measures in columns.items() if measures}
    heads = list(shown)
    rows = [("max/mean over ranks: mean, p95, max", *("" for _ in heads))]
    rows += [(name, *(shown[head][name] for head in heads)) for name in shown["planned"]]
    first = max(len(row[0]) for row in rows)
    widths = [max(len(head), *(len(row[1 + i]) for row in rows)) for i, head in enumerate(heads)]

    def line(name: str, cells: Sequence[str]) -> str:
        padded = "   ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        return f"{name:<{first}}   {padded}".rstrip()

    return [line("", heads), *(line(row[0], row[1:]) for row in rows)]


def _cells(measures: Measures) -> dict[str, str]:
    """Shown measures by name."""
    cells = {
        "  each step": _three(measures.step_imbalance),
        "  each microbatch": _three(measures.microbatch_imbalance),
    }
    if len(measures.module_imbalance) > 1:
        for name, imbalance in measures.module_imbalance.items():
            cells[f"  {name} alone"] = _three(imbalance)
    cells["idle"] = f"{measures.idle_fraction:.1%}"
    if measures.time_over_bound == measures.time_over_bound:
        cells["step time over bound: mean, worst"] = (
            f"{measures.time_over_bound:.3f} {measures.worst_over_bound:.3f}"
        )
    if measures.padding_fraction:
        cells["padding"] = f"{measures.padding_fraction:.1%}"
    for name, (mean, most) in measures.fill.items():
        cells[f"of max_{name}: mean, max"] = f"{mean:.1%} {most:.1%}"
    return cells


def _three(imbalance: Imbalance) -> str:
    return f"{imbalance.mean:.3f} {imbalance.p95:.3f} {imbalance.max:.3f}"


def _ranks(measures: Measures) -> str:
    """Busy time and idle share of each rank; of many, of the least and the most busy."""
    busy = measures.rank_busy
    ranks = range(len(busy))
    if len(busy) > _RANKS_SHOWN:
        ranks_by_time = sorted(ranks, key=lambda rank: busy[rank])
        shown = [ranks_by_time[0], ranks_by_time[-1]]
    else:
        shown = list(ranks)
    cells = [f"{rank}: {busy[rank]:.4g} {measures.rank_idle[rank]:.1%}" for rank in shown]
    return (" ... " if len(busy) > _RANKS_SHOWN else ", ").join(cells)


def _counts(counts: dict[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in ordered)


def _ids(ids: Sequence[int]) -> str:
    shown = ", ".join(str(sample_id) for sample_id in ids[:_IDS_SHOWN])
    more = f", ... {len(ids) - _IDS_SHOWN} more" if len(ids) > _IDS_SHOWN else ""
    return f"{len(ids)} samples: {shown}{more}"
