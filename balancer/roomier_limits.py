"""The smallest limits under which samples fit: what to tell who set them too low."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from balancer.kernels.placement import place_by_amount
from balancer.problem import StepProblem
from balancer.topology import Topology

__all__ = ["roomier_limits"]


def roomier_limits(
    problem: StepProblem,
    topology: Topology,
    num_slots: int,
    fits: Callable[[StepProblem], bool],
) -> dict[str, int]:
    """For each limit that alone keeps the samples out, the smallest value under which they fit.

    First by best-fit into `num_slots` microbatches a rank, some twenty placements a limit; then
    lowered as far as the planner itself finds a plan, as `fits` says, in some five more. Of the
    value named it does, of one less it does not. Empty where ranks have limits of their own, or no
    single limit is at fault.
    """
    limits = topology.limits
    names = [name for name in limits.room if name != "samples"]
    names += ["samples"] if limits.max_samples is not None else []
    enough: dict[str, int] = {}
    if topology.rank_limits or len(names) != len(problem.caps):
        return enough
    num_cells = topology.dp_size * num_slots
    sums = problem.amounts.reshape(problem.num_items, -1).sum(axis=0)
    for column, name in enumerate(names):
        unit = limits.pad_microbatch_to if name == "tokens" else 1
        cap, total = int(problem.caps[column]), int(sums[column])

        def roomier(more: int, column: int = column, unit: int = unit) -> StepProblem:
            caps = problem.caps.copy()
            caps[column] += more * unit
            return replace(problem, caps=caps)

        most = -(-(total * problem.num_items - cap) // unit)
        if not _fit(roomier(most), num_cells):
            continue
        most = _least(lambda more: _fit(roomier(more), num_cells), 0, most)
        too_few = max((-(-total // num_cells) - 1 - cap) // unit, 0)
        more = _least(lambda more: fits(roomier(more)), min(too_few, most - 1), most)
        enough[name] = limits.given[name] // unit * unit + more * unit
    return enough


def _least(holds: Callable[[int], bool], low: int, high: int) -> int:
    """A number above `low` and up to `high` that holds and of which one less does not."""
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _fit(problem: StepProblem, num_cells: int) -> bool:
    """Whether best-fit finds a place for every sample."""
    amounts, caps = problem.amounts.reshape(problem.num_items, -1), problem.caps
    order = np.argsort(-(amounts / caps).max(axis=1), kind="stable")
    cells = place_by_amount(order, problem.amounts, caps, problem.padded, num_cells)
    return bool(cells.min() >= 0)
