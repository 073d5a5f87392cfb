"""Lower bounds of a step's time, and the certificate that sets a plan beside them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.problem import StepProblem

__all__ = ["Certificate", "partition_bound", "step_bound"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Step time of a plan beside a lower bound that no plan of the same samples can beat.

    Attributes:
        step_time: Time of the planned step, in the unit of the costs.
        given_time: Time of the same samples in the order they were given, whatever the limits.
        lower_bound: Time below which no plan of these samples on this topology can come.
        binds: What the bound comes from: `"mean load"`, `"largest sample"`, or
            `"largest samples together"` (some rank must take several of the dearest).
        planner: The candidate that was best, for example `"slots"` or `"given order"`.

    Example:
        >>> Certificate(step_time=10.2, given_time=14.0, lower_bound=10.0, binds="mean load",
        ...             planner="slots").gap
        0.02
    """

    step_time: float
    given_time: float
    lower_bound: float
    binds: str
    planner: str

    @property
    def gap(self) -> float:
        """Step time over its lower bound, minus one, rounded to 12 digits; 0 for a free step."""
        return round(self.step_time / self.lower_bound - 1.0, 12) if self.lower_bound else 0.0


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


def step_bound(problem: StepProblem, dp_size: int) -> tuple[int, str]:
    """Quantised time that no plan of the problem's samples on `dp_size` ranks can beat.

    Under either barrier a step takes at least the summed costs of any one rank; where modules run
    in turn it also takes, for each module, at least the largest sum of that module over ranks,
    and these add up. What binds is named for the module with the largest part.
    """
    bound, binds = partition_bound(problem.totals, dp_size)
    if problem.num_modules > 1:
        parts = [
            partition_bound(problem.costs[k :: problem.num_modules], dp_size)
            for k in range(problem.num_modules)
        ]
        in_turn = sum(part for part, _ in parts)
        if in_turn > bound:
            bound, binds = in_turn, max(parts)[1]
    return bound, binds
