"""plan_window: several steps planned together, so that their samples suit each other better.

A dear sample makes its step long, and a step has only so much work to fill the other ranks with.
Within a window of consecutive steps samples may change places: dear ones gather in the same steps,
or spread over all of them, whichever plans shorter. A sample never leaves its window, and every
step keeps its number of samples.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.effort import Effort
from balancer.errors import ArgumentError
from balancer.plan import Flag, Plan
from balancer.priced import PricedSamples
from balancer.sorting import stable_order
from balancer.step_planner import Oversize, plan_step
from balancer.topology import Topology, check_count

__all__ = ["displacement", "displacement_summary", "plan_window"]


def plan_window(
    costs: PricedSamples,
    topology: Topology,
    *,
    sample_ids: ArrayLike,
    num_steps: int,
    oversize: Oversize = "error",
    effort: Effort = "default",
    epoch: int = 0,
    first_step: int = 0,
) -> list[Plan]:
    """Plans of `num_steps` consecutive steps that share out the given samples among them.

    Tries the given membership (equal cuts of `sample_ids`), dear samples spread over the steps,
    and dear samples gathered in the same steps; keeps the one whose steps take the least time
    together, the given one where none is better. Costs three times the planning of the steps.

    Args:
        costs: Costs of the whole dataset, rows by sample id.
        topology: Ranks, microbatches, barrier and limits.
        sample_ids: Ids of the window in their given order; `num_steps` divides their number.
        num_steps: Steps of the window.
        oversize: As in `plan_step`.
        effort: As in `plan_step`, for each step of each of the three.
        epoch: Written to the plans.
        first_step: Number of the window's first step.

    Returns:
        One plan a step, in order; within a step samples keep their given order.

    Raises:
        ArgumentError: `num_steps` does not divide the number of samples.
        CapacityError: As `plan_step`.

    Example:
        >>> from balancer.cost import Costs
        >>> costs = Costs.from_values([8, 1, 8, 1, 1, 1, 1, 1])
        >>> plans = plan_window(costs, Topology(dp_size=2), sample_ids=range(8), num_steps=2)
        >>> [plan.certificates[0].step_time for plan in plans]
        [9.0, 2.0]
    """
    ids = np.ascontiguousarray(sample_ids, np.int64)
    check_count("num_steps", num_steps)
    if len(ids) % num_steps:
        raise ArgumentError(
            f"sample_ids has {len(ids)} samples, which num_steps={num_steps} does not divide; "
            "every step of a window has the same number"
        )
    best: list[Plan] = []
    for members in _memberships(costs.select(ids).total, num_steps):
        plans = [
            plan_step(
                costs,
                topology,
                sample_ids=ids[members == step],
                oversize=oversize,
                effort=effort,
                epoch=epoch,
                step=first_step + step,
            )
            for step in range(num_steps)
        ]
        if not best or _total_time(plans) < _total_time(best):
            best = plans
    return best


def displacement(
    plan: Plan, step_ids: Callable[[int, int], tuple[NDArray[np.int64], NDArray[np.int8]]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids of a plan's samples, ascending, and the steps each moved from its strict step.

    Args:
        plan: Plan of whole windows.
        step_ids: Ids and flags that an epoch's step has under strict membership.
    """
    ids, strict = [], []
    for step in range(plan.first_step, plan.first_step + plan.num_steps):
        members, flags = step_ids(plan.epoch, step)
        ids.append(members[flags == Flag.REAL])
        strict.append(np.full(len(ids[-1]), step))
    real = plan.flags == Flag.REAL
    slot = plan.cell_of_sample()[real] // plan.topology.dp_size
    planned = plan.first_step + np.searchsorted(plan.step_slots, slot, side="right") - 1
    by_id, by_strict_id = np.argsort(plan.sample_ids[real]), np.argsort(np.concatenate(ids))
    moved = planned[by_id] - np.concatenate(strict)[by_strict_id]
    return plan.sample_ids[real][by_id], moved


def displacement_summary(
    displacement: NDArray[np.int64], sources: NDArray[np.int64] | None = None
) -> dict[int, dict[str, float]]:
    """Mean, 99th percentile and maximum of the steps that samples moved, by source.

    Args:
        displacement: Steps each sample moved, forwards or back, int64.
        sources: Source of each sample; all of one source, 0, when not given.

    Example:
        >>> displacement_summary(np.array([0, -2, 1, 1]))
        {0: {'mean': 1.0, 'p99': 1.97, 'max': 2.0}}
    """
    moved = np.abs(displacement)
    groups = np.zeros(len(moved), np.int64) if sources is None else np.asarray(sources)
    return {
        int(source): {
            "mean": float(moved[groups == source].mean()),
            "p99": round(float(np.percentile(moved[groups == source], 99)), 12),
            "max": float(moved[groups == source].max()),
        }
        for source in np.unique(groups)
    }


def _total_time(plans: list[Plan]) -> float:
    return sum(plan.certificates[0].step_time for plan in plans)


def _memberships(totals: NDArray[np.float64], num_steps: int) -> Iterator[NDArray[np.int64]]:
    """Step of each sample of the window: as given, spread, gathered."""
    size = len(totals) // num_steps
    strict = np.arange(len(totals)) // size
    yield strict
    if num_steps > 1:
        dearest_first = np.argsort(-totals, kind="stable")
        yield _in_order_of_arrival(_spread(totals, dearest_first, num_steps), strict, num_steps)
        gathered = np.empty(len(totals), np.int64)
        gathered[dearest_first] = strict
        yield _in_order_of_arrival(gathered, strict, num_steps)


def _spread(
    totals: NDArray[np.float64], dearest_first: NDArray[np.int64], num_steps: int
) -> NDArray[np.int64]:
    """Each sample, dearest first, goes to the cheapest step that still has room."""
    room = [len(totals) // num_steps] * num_steps
    load = [0.0] * num_steps
    members = np.empty(len(totals), np.int64)
    for sample in dearest_first:
        step = min((s for s in range(num_steps) if room[s]), key=load.__getitem__)
        members[sample] = step
        room[step] -= 1
        load[step] += totals[sample]
    return members


def _in_order_of_arrival(
    members: NDArray[np.int64], strict: NDArray[np.int64], num_steps: int
) -> NDArray[np.int64]:
    """The same groups as steps in the order that their samples arrive in, on average.

    Keeps samples near their given step, and the steps free of any order of their costs.
    """
    arrival = np.bincount(members, strict, num_steps).astype(np.int64)
    number = np.empty(num_steps, np.int64)
    number[stable_order(arrival)] = np.arange(num_steps)
    return number[members]
