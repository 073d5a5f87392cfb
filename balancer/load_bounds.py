"""Lower bounds of the largest load: of a split into parts, and of slots under a limit."""

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["capacity_bound", "partition_bound"]


def partition_bound(weights: NDArray[np.int64], num_parts: int) -> tuple[int, str]:
    """Least possible largest sum when `weights` are split into `num_parts`, and what binds.

    The largest of: the mean, rounded up; the largest weight; and for every j the j + 1 smallest
    of the j * num_parts + 1 largest weights, since some part must hold j + 1 of those.
    O(n log n).

    Example:
        >>> partition_bound(np.array([5, 5, 5, 1]), 2)
        (10, 'largest samples together')
    """
    descending = np.sort(weights)[::-1]
    mean = -(-int(weights.sum()) // num_parts)
    bound, binds = mean, "mean load"
    if len(weights) and int(descending[0]) > bound:
        bound, binds = int(descending[0]), "largest sample"
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(descending)])
    j = np.arange(1, (len(weights) - 1) // num_parts + 1)
    if j.size:
        together = int((sums[j * num_parts + 1] - sums[j * num_parts - j]).max())
        if together > bound:
            bound, binds = together, "largest samples together"
    return bound, binds


def capacity_bound(
    costs: NDArray[np.int64], amounts: NDArray[np.int64], cap: int, dp_size: int
) -> int:
    """Least sum of slot times where microbatches hold at most `cap` of an amount.

    A slot made long by a dear sample cannot be filled on the other ranks beyond the cap. For every
    j: the j longest slots do at most the work that `j * dp_size * cap` of the amount can carry
    (filled by cost per amount, fractions allowed), and the others share the rest between the
    ranks. The longest slot takes the largest cost; samples above half the cap never share a
    microbatch, so the i-th longest takes at least the `(i - 1) * dp_size + 1`-th largest cost of
    those. O(n log n).

    Example:
        >>> capacity_bound(np.array([9, 1, 1, 1]), np.array([4, 2, 2, 2]), 4, 2)
        10
        >>> capacity_bound(np.array([9, 3, 3, 3]), np.array([4, 4, 4, 4]), 4, 2)
        12
    """
    order = np.argsort(-(costs / np.maximum(amounts, 0.5)), kind="stable")
    carried = np.concatenate([[0.0], np.cumsum(amounts[order].astype(np.float64))])
    work = np.concatenate([[0.0], np.cumsum(costs[order].astype(np.float64))])
    alone = np.sort(costs[2 * amounts > cap])[::-1]
    longest, bound, slot = int(costs.max(initial=0)), 0.0, 1
    while True:
        room = slot * dp_size * cap
        rest = max(0.0, work[-1] - float(np.interp(room, carried, work)))
        bound = max(bound, longest + rest / dp_size)
        if rest == 0.0:
            return math.ceil(float(bound) * (1 - 1e-12))  # whole, and safe from rounding
        later = slot * dp_size
        longest += int(alone[later]) if later < len(alone) else 0
        slot += 1
