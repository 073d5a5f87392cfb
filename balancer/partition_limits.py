"""What to say where no partition keeps the limits: which one is in the way, and what would do."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from balancer.errors import CapacityError
from balancer.partition_bounds import PartitionProblem
from balancer.partition_items import Items
from balancer.partition_methods import find_start

__all__ = ["limits_error"]


def limits_error(items: Items) -> CapacityError:
    """The error that names a limit which alone is in the way, and the smallest that works.

    Where no single limit is, all of them are named.
    """
    problem = items.problem
    for at, name in enumerate(items.limits):
        more = _least_more(problem, [at])
        if more is not None:
            return CapacityError(_message(problem, at, name, more))
    more = _least_more(problem, list(range(problem.num_caps)))
    names = " and ".join(f"limits[{name!r}]" for name in items.limits)
    if more is None:
        return CapacityError(
            f"{names}: {len(problem.weights)} items do not fit {problem.num_parts} parts that each "
            f"hold at least {problem.low}, whatever the limits; use fewer parts"
        )
    return CapacityError(
        f"{names}: no partition of {len(problem.weights)} items to {problem.num_parts} parts keeps "
        f"them all; raising each by {more} works, and so may more parts"
    )


def _message(problem: PartitionProblem, at: int, name: str, more: int) -> str:
    caps = problem.caps[at :: problem.num_caps]
    total = int(problem.amounts[at :: problem.num_caps].sum())
    given = f"{caps[0]}" if (caps == caps[0]).all() else f"{caps.tolist()}"
    works = f"{caps[0] + more}" if (caps == caps[0]).all() else f"{more} more on each part"
    if total > int(caps.sum()):
        why = f"the samples have {total} together and {len(caps)} parts hold {int(caps.sum())}"
    else:
        why = f"no partition of the samples ({total} together) to {len(caps)} parts was found"
    return f"limits[{name!r}] is {given}, but {why}; the smallest that works is {works}"


def _least_more(problem: PartitionProblem, which: list[int]) -> int | None:
    """Least addition to some limits with which a partition is found; `None` if there is none."""
    table = problem.amounts.reshape(-1, problem.num_caps)
    above = int(max(table[:, at].sum() for at in which))
    if find_start(_raised(problem, which, above)) is None:
        return None
    below = 0
    while above - below > 1:
        middle = (below + above) // 2
        if find_start(_raised(problem, which, middle)) is None:
            below = middle
        else:
            above = middle
    return above


def _raised(problem: PartitionProblem, which: list[int], more: int) -> PartitionProblem:
    caps: NDArray[np.int64] = problem.caps.reshape(-1, problem.num_caps).copy()
    caps[:, which] += more
    return replace(problem, caps=caps.ravel())
