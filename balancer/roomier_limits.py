"""The smallest limits under which samples fit: what to tell who set them too low."""

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.placement import place_by_amount
from balancer.limits import padded_to
from balancer.problem import StepProblem
from balancer.topology import Topology

__all__ = ["roomier_limits"]


def roomier_limits(problem: StepProblem, topology: Topology, num_slots: int) -> dict[str, int]:
    """For each limit that alone keeps the samples out, the smallest value under which they fit.

    By best-fit into `num_slots` microbatches a rank, which the planner tries too. Empty where ranks
    have limits of their own, or no single limit is at fault. Takes some twenty placements a limit.
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
        low, high = int(problem.caps[column]), int(sums[column]) * problem.num_items
        if not _fit(problem, _with_cap(problem, column, high), num_cells):
            continue
        while low + 1 < high:
            middle = (low + high) // 2
            if _fit(problem, _with_cap(problem, column, middle), num_cells):
                high = middle
            else:
                low = middle
        limit = np.array([limits.given[name] + high - limits.room[name]])
        rounded = padded_to(limit, limits.pad_microbatch_to) if name == "tokens" else limit
        enough[name] = int(rounded[0])
    return enough


def _with_cap(problem: StepProblem, column: int, cap: int) -> NDArray[np.int64]:
    caps = problem.caps.copy()
    caps[column] = cap
    return caps


def _fit(problem: StepProblem, caps: NDArray[np.int64], num_cells: int) -> bool:
    """Whether best-fit finds a place for every sample."""
    amounts = problem.amounts.reshape(problem.num_items, -1)
    order = np.argsort(-(amounts / caps).max(axis=1), kind="stable")
    cells = place_by_amount(order, problem.amounts, caps, problem.padded, num_cells)
    return bool(cells.min() >= 0)
