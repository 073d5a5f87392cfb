"""What makes a plan right where samples belong together: no group is split over microbatches."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.errors import PlanError

__all__ = ["checked_items"]


def checked_items(
    sample_ids: NDArray[np.int64], cells: NDArray[np.int64], group_ids: ArrayLike | None
) -> NDArray[np.bool_]:
    """Which placed samples are the first of their group; all where there are no groups.

    Raises:
        PlanError: A microbatch holds a part of a group.
    """
    if group_ids is None:
        return np.ones(len(sample_ids), np.bool_)
    _, first, group, sizes = np.unique(
        np.asarray(group_ids), return_index=True, return_inverse=True, return_counts=True
    )
    keys = cells * len(sizes) + group[sample_ids]
    _, at, counts = np.unique(keys, return_index=True, return_counts=True)
    split = at[counts % sizes[group[sample_ids[at]]] != 0]
    if split.size:
        at_fault = sample_ids[split.min()]
        raise PlanError(
            f"microbatch {cells[split.min()]} of the plan holds sample {at_fault} without the "
            f"whole of its group, samples {np.flatnonzero(group == group[at_fault]).tolist()}"
        )
    begins: NDArray[np.bool_] = first[group[sample_ids]] == sample_ids
    return begins
