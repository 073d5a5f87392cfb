"""A plan with its microbatches in another order."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from balancer.plan import Plan

__all__ = ["reordered"]


def reordered(plan: Plan, cells: NDArray[np.int64]) -> Plan:
    """The plan whose c-th microbatch is the given one's `cells[c]`-th; see `Plan.cell`.

    Example:
        >>> reordered(Plan.from_cells([[[[0]], [[1, 2]]]]), np.array([1, 0])).sample_ids
        array([1, 2, 0])
    """
    sizes = np.diff(plan.offsets)[cells]
    places = np.repeat(plan.offsets[cells] - (np.cumsum(sizes) - sizes), sizes)
    places = places + np.arange(len(plan.sample_ids))
    return replace(
        plan,
        sample_ids=plan.sample_ids[places],
        flags=plan.flags[places],
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    )
