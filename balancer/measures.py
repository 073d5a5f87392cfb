"""Measures of a plan: imbalance, idle time, padding, fill of the limits."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.pipeline import cell_times, step_times
from balancer.plan import Plan
from balancer.priced import PricedSamples

__all__ = ["Imbalance", "Measures", "Microbatch", "measure_plan"]

_FLOAT = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imbalance:
    """Max over mean of the ranks' cost, >= 1, over all places where it was taken.

    Places at which no rank has any cost are left out; with no place at all every number is 1.
    """

    mean: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Microbatch:
    """One microbatch of a plan: where it is and what it holds."""

    step: int
    index: int
    dp_rank: int
    samples: int
    tokens: int
    patches: int
    images: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """How well one placement of the samples keeps the ranks together.

    Where ranks differ in speed, what is said of their cost holds of their time.

    Attributes:
        step_imbalance: Of each rank's cost in a step, over the steps.
        microbatch_imbalance: Of each rank's cost in its `index`-th microbatch, over all of them.
        module_imbalance: The same for each module alone, by its name, at the places where ranks
            wait: steps under the step barrier, microbatches under the others.
        idle_fraction: Share of all ranks' time that they wait for others: 1 - mean cost of a
            rank / time, both summed over the steps.
        rank_busy: Time that each rank works, over all steps, in the unit of the costs: cost over
            speed, under the pipeline barrier the mean of its pipeline ranks.
        rank_idle: Share of `total_time` that each rank does not work.
        total_time: Sum of the simulated step times, in the unit of the costs.
        time_over_bound: Step time over its lower bound, geometric mean over the steps; `nan`
            without certificates. Steps of no cost are left out.
        worst_over_bound: The largest of the steps.
        padding_fraction: Share of the allocated tokens that no sample fills; 0 when packed.
        fill: For each limit that is set, by the name of the amount, what the microbatches hold
            over the limit of their rank: mean, and max.
        largest: The microbatch with the most tokens (then patches, then the first).
    """

    step_imbalance: Imbalance
    microbatch_imbalance: Imbalance
    module_imbalance: dict[str, Imbalance]
    idle_fraction: float
    rank_busy: tuple[float, ...]
    rank_idle: tuple[float, ...]
    total_time: float
    time_over_bound: float
    worst_over_bound: float
    padding_fraction: float
    fill: dict[str, tuple[float, float]]
    largest: Microbatch


def measure_plan(
    plan: Plan, costs: PricedSamples, *, lower_bounds: _FLOAT | None = None
) -> Measures:
    """Measures of a plan that has at least one sample.

    Args:
        plan: The plan.
        costs: Costs of the whole dataset, rows by sample id.
        lower_bounds: Lower bound of each step's time, `(num_steps,)`; those of the plan's
            certificates when not given.

    Example:
        >>> from balancer.cost import Costs
        >>> costs = Costs.from_values([3.0, 1.0, 2.0, 2.0])
        >>> round(measure_plan(Plan.from_cells([[[[0, 2], [1, 3]]]]), costs).idle_fraction, 6)
        0.2
    """
    if lower_bounds is None:
        lower_bounds = np.array([certificate.lower_bound for certificate in plan.certificates])
    bounds = lower_bounds
    modules = cell_times(plan, costs)
    amounts = plan.amounts(costs)
    times = step_times(plan, costs)
    by_step = np.repeat(np.arange(plan.num_steps), np.diff(plan.step_slots))
    slots = modules.sum(axis=1).reshape(-1, plan.topology.dp_size)
    steps = _sum_by_step(slots, by_step)
    columns = {
        name: modules[:, column].reshape(-1, plan.topology.dp_size)
        for column, name in enumerate(costs.modules)
    }
    if plan.topology.barrier == "step":
        columns = {name: _sum_by_step(loads, by_step) for name, loads in columns.items()}
    total_time = float(times.sum())
    over = times[bounds > 0] / bounds[bounds > 0] if bounds.size else np.zeros(0)
    busy = float(slots.mean(axis=1).sum()) / plan.topology.pp_size
    rank_busy = slots.sum(axis=0) / plan.topology.pp_size
    rank_idle = 1.0 - rank_busy / total_time if total_time else np.zeros(len(rank_busy))
    real_tokens = int(costs.select(plan.sample_ids).tokens.sum())
    allocated = int(amounts["tokens"].sum())
    return Measures(
        step_imbalance=_imbalance(steps),
        microbatch_imbalance=_imbalance(slots),
        module_imbalance={name: _imbalance(loads) for name, loads in columns.items()},
        idle_fraction=1.0 - busy / total_time if total_time else 0.0,
        rank_busy=tuple(rank_busy.tolist()),
        rank_idle=tuple(rank_idle.tolist()),
        total_time=total_time,
        time_over_bound=float(np.exp(np.log(over).mean())) if over.size else float("nan"),
        worst_over_bound=float(over.max()) if over.size else float("nan"),
        padding_fraction=1.0 - real_tokens / allocated if allocated else 0.0,
        fill=_fill(plan, amounts),
        largest=_largest(plan, amounts),
    )


def _fill(plan: Plan, amounts: dict[str, NDArray[np.int64]]) -> dict[str, tuple[float, float]]:
    """Mean and max over the microbatches of what each holds over its own rank's limit."""
    topology = plan.topology
    rank_limits = topology.rank_limits or (topology.limits,)
    fill = {}
    for name in topology.limits.given:
        limits = np.resize([each.given[name] for each in rank_limits], len(amounts[name]))
        shares = amounts[name] / limits
        fill[name] = (float(shares.mean()), float(shares.max()))
    return fill


def _sum_by_step(slots: _FLOAT, by_step: NDArray[np.int64]) -> _FLOAT:
    """Each rank's cost in each step, from its cost in each slot."""
    return np.add.reduceat(slots, np.flatnonzero(np.diff(by_step, prepend=-1)), axis=0)


def _imbalance(loads: _FLOAT) -> Imbalance:
    """Of loads `(places, ranks)`."""
    means = loads.mean(axis=1)
    ratios = loads.max(axis=1)[means > 0] / means[means > 0]
    if not ratios.size:
        ratios = np.ones(1)
    return Imbalance(
        mean=float(ratios.mean()), p95=float(np.quantile(ratios, 0.95)), max=float(ratios.max())
    )


def _largest(plan: Plan, amounts: dict[str, NDArray[np.int64]]) -> Microbatch:
    cell = int(np.lexsort((-amounts["patches"], -amounts["tokens"]))[0])
    slot, dp_rank = divmod(cell, plan.topology.dp_size)
    step = int(np.searchsorted(plan.step_slots, slot, side="right")) - 1
    return Microbatch(
        step=plan.first_step + step,
        index=slot - int(plan.step_slots[step]),
        dp_rank=dp_rank,
        **{name: int(amount[cell]) for name, amount in amounts.items()},
    )
