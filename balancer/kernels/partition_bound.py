"""Lower bounds of the largest load of a partition into parts that are alike."""

import numpy as np

from balancer.kernels.compiled import kernel

__all__ = ["load_bounds"]


@kernel
def _common_divisor(weights):
    """Greatest common divisor of the weights; 1 where there are only zeros."""
    divisor = np.int64(0)
    for weight in weights:
        left = weight
        while left > 0:
            divisor, left = left, divisor % left
        if divisor == 1:
            break
    return max(divisor, np.int64(1))


@kernel
def load_bounds(weights, num_parts, low, high):
    """Least largest load by the mean, by items that must meet, and by the counts.

    `weights` descend; each part holds `low` to `high` items. The mean is rounded up to a multiple
    of what divides all weights. For every j some part holds j + 1 of the j * num_parts + 1
    largest items (j = 0: the largest), and as many of the cheapest besides as `low` asks for.
    Mirrored, some part holds j + 1 of the j * num_parts + 1 cheapest, and at most the dearest
    besides; the others share what it leaves. O(n).
    """
    num_items = weights.size
    sums = np.zeros(num_items + 1, np.int64)
    for item in range(num_items):
        sums[item + 1] = sums[item] + weights[item]
    total, divisor = sums[num_items], _common_divisor(weights)
    mean = -(-total // (num_parts * divisor)) * divisor
    together, counted, left_by_one = np.int64(0), np.int64(0), np.int64(0)
    for j in range((num_items - 1) // num_parts + 1 if num_items else 0):
        end = j * num_parts + 1
        heavy = sums[end] - sums[end - j - 1]
        together = max(together, heavy)
        if j < low:
            counted = max(counted, heavy + total - sums[num_items - (low - j - 1)])
        if j < high and num_parts > 1:
            begin = num_items - end
            most = sums[begin + j + 1] - sums[begin] + sums[min(high - j - 1, num_items)]
            left_by_one = max(left_by_one, total - most)
    if num_parts > 1:
        counted = max(counted, -(-left_by_one // (num_parts - 1)))
    return mean, together, counted
