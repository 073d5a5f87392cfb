"""BalanceReport: what a plan gives and what it costs, beside the order the samples came in."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError
from balancer.measures import Measures, measure_plan
from balancer.plan import Flag, Plan
from balancer.priced import PricedSamples
from balancer.report_text import report_text
from balancer.topology import Barrier
from balancer.windows import displacement_summary

__all__ = ["BalanceReport", "balance_report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceReport:
    """Numbers about a plan; `str()` of it is a table to paste, `to_dict()` plain numbers.

    Imbalance is max / mean of the ranks' cost, so 1 is perfect.

    Attributes:
        samples: Samples delivered, repeats and fillers not counted.
        steps: Steps of the plan.
        step_samples: Samples of a step, counted likewise: fewest, mean and most.
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
    step_samples: tuple[int, float, int]
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
        return report_text(self)


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
        step_samples=_step_samples(plan),
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


def _step_samples(plan: Plan) -> tuple[int, float, int]:
    slots = plan.cell_of_sample() // plan.topology.dp_size
    steps = np.searchsorted(plan.step_slots, slots[plan.flags == Flag.REAL], side="right") - 1
    counts = np.bincount(steps, minlength=plan.num_steps)
    return int(counts.min()), float(counts.mean()), int(counts.max())


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
