"""Lower bounds of the largest load: of a split into parts, and of slots under a limit."""

import math

import numpy as np
from numpy.typing import NDArray

from balancer.count_bounds import counted_bound
from balancer.sorting import stable_order

__all__ = ["capacity_bound", "partition_bound"]

_SEVERAL = "largest samples together"


def partition_bound(
    weights: NDArray[np.int64],
    num_parts: int,
    slow: NDArray[np.int64] | None = None,
    dearest_first: NDArray[np.int64] | None = None,
) -> tuple[int, str]:
    """Least possible largest sum when `weights` are split into `num_parts`, and what binds.

    The largest of: the mean, rounded up; the largest weight; and for every j the j + 1 smallest
    of the j * num_parts + 1 largest weights, since some part must hold j + 1 of those; and
    `counted_bound`, by how many parts must. O(n), and sorting unless the order is given.

    With `slow`, int64 `(num_parts,)`, a part's sum counts times its slowness. The j largest then
    take what the j fastest parts need for them together, and where the n largest are no less than
    w, some part is as late as the n-th of all the times at which parts complete items of w.

    Example:
        >>> partition_bound(np.array([5, 5, 5, 1]), 2)
        (10, 'largest samples together')
        >>> partition_bound(np.array([8, 4, 2, 1]), 2, np.array([1, 4]))
        (12, 'mean load')
    """
    if dearest_first is None:
        dearest_first = stable_order(weights, descending=True)
    descending = weights[dearest_first]
    if slow is not None:
        return _unequal_bound(descending, np.sort(slow))
    mean = -(-int(weights.sum()) // num_parts)
    bound, binds = mean, "mean load"
    if len(weights) and int(descending[0]) > bound:
        bound, binds = int(descending[0]), "largest sample"
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(descending)])
    j = np.arange(1, (len(weights) - 1) // num_parts + 1)
    if j.size:
        together = int((sums[j * num_parts + 1] - sums[j * num_parts - j]).max())
        if together > bound:
            bound, binds = together, _SEVERAL
    counted = counted_bound(descending, num_parts, bound)
    return (counted, _SEVERAL) if counted > bound else (bound, binds)


_MOST_ROUNDS = 16
"""Items of one size on one part, up to which `_unequal_bound` looks at parts that take several."""


def _unequal_bound(descending: NDArray[np.int64], slow: NDArray[np.int64]) -> tuple[int, str]:
    """`partition_bound` where a unit on part p takes `slow[p]`, ascending."""
    if not len(descending) or not descending[0]:
        return 0, "mean load"
    speed = np.cumsum(1.0 / slow)
    sums = np.cumsum(descending.astype(np.float64))
    few = sums[: len(slow)]
    largest = few / speed[: len(few)]
    mean = float(sums[-1] / speed[-1])
    times = np.sort(np.multiply.outer(np.arange(1, _MOST_ROUNDS + 1), slow), axis=None)
    times = times[times <= _MOST_ROUNDS * slow[0]]  # all that there are up to here
    count = min(len(times), len(descending))
    together = descending[:count].astype(np.float64) * times[:count]
    candidates = [
        (mean, "mean load"),
        (float(largest.max()), "largest sample" if largest.argmax() == 0 else _SEVERAL),
        (float(together.max()), "largest sample" if together.argmax() == 0 else _SEVERAL),
    ]
    bound, binds = max(candidates, key=lambda candidate: candidate[0])
    return _rounded_up(bound), binds


def _rounded_up(bound: float) -> int:
    """The bound as a whole number, safe from rounding."""
    return math.ceil(bound * (1 - 1e-12))


def capacity_bound(
    costs: NDArray[np.int64],
    amounts: NDArray[np.int64],
    cap: int,
    dp_size: int,
    slow: NDArray[np.int64] | None = None,
    room: int | None = None,
) -> int:
    """Least sum of slot times where microbatches hold at most `cap` of an amount.

    A slot made long by a dear sample cannot be filled on the other ranks beyond the cap. For every
    j: the j longest slots do at most the work that `j * dp_size * cap` of the amount can carry
    (filled by cost per amount, fractions allowed), and the others share the rest between the
    ranks. The longest slot takes the largest cost; samples above half the cap never share a
    microbatch, so the i-th longest takes at least the `(i - 1) * dp_size + 1`-th largest cost of
    those. O(n log n).

    Where ranks differ, `slow` is what a unit of cost takes on each, int64 `(dp_size,)`, `cap` the
    largest cap of any rank and `room` the sum of all of them.

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
    fastest = 1 if slow is None else int(slow.min())
    speed = float(dp_size) if slow is None else float((1.0 / slow).sum())
    in_slot = dp_size * cap if room is None else room
    longest, bound, slot = int(costs.max(initial=0)) * fastest, 0.0, 1
    while True:
        rest = max(0.0, work[-1] - float(np.interp(slot * in_slot, carried, work)))
        bound = max(bound, longest + rest / speed)
        if rest == 0.0:
            return _rounded_up(float(bound))
        later = slot * dp_size
        longest += int(alone[later]) * fastest if later < len(alone) else 0
        slot += 1
