"""partition: share samples out to k parts so that the last one ends as early as possible."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.errors import ArgumentError
from balancer.partition_items import Counts, build_items, refuse_oversize
from balancer.partition_limits import limits_error
from balancer.partition_methods import Effort, Method, find_partition, work_of
from balancer.topology import check_choice, check_count

__all__ = ["Counts", "Effort", "Method", "Partition", "partition"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partition:
    """Which part each sample is in, beside a lower bound that no partition can beat.

    Attributes:
        parts: Part of each sample, int64 `(num_samples,)`.
        loads: Summed cost of each part, float64 `(num_parts,)`.
        counts: Samples of each part, int64 `(num_parts,)`.
        speeds: Speed of each part, float64 `(num_parts,)`.
        makespan: Largest load over speed.
        lower_bound: Makespan below which no partition under the same rules can come.
        binds: What the bound comes from: `"mean load"`, `"largest sample"`,
            `"largest samples together"`, `"largest samples on the fastest parts"`,
            `"slowest part"`, `"equal counts"` or `"limits"`.
        method: The start that was best after the search: `"greedy"`, `"best_fit"` or
            `"karmarkar_karp"`.

    Example:
        >>> found = partition([4, 3, 3, 2], 2)
        >>> found.members(int(found.parts[0])).tolist(), found.gap
        ([0, 3], 0.0)
    """

    parts: NDArray[np.int64]
    loads: NDArray[np.float64]
    counts: NDArray[np.int64]
    speeds: NDArray[np.float64]
    makespan: float
    lower_bound: float
    binds: str
    method: str

    def __len__(self) -> int:
        return len(self.loads)

    @property
    def gap(self) -> float:
        """Makespan over its lower bound, minus one, rounded to 12 digits; 0 if nothing costs."""
        return round(self.makespan / self.lower_bound - 1.0, 12) if self.lower_bound else 0.0

    def members(self, part: int) -> NDArray[np.int64]:
        """Samples of a part, ascending."""
        return np.flatnonzero(self.parts == part)


def partition(
    costs: ArrayLike,
    num_parts: int,
    *,
    method: Method = "auto",
    counts: Counts = "free",
    groups: ArrayLike | None = None,
    speeds: ArrayLike | None = None,
    limits: Mapping[str, ArrayLike] | None = None,
    amounts: Mapping[str, ArrayLike] | None = None,
    effort: Effort = "default",
) -> Partition:
    """Share samples out to parts so that the largest load over speed is as small as possible.

    No part stays empty where there are samples (or groups) for all. The same inputs give the same
    partition on any host. About O(n log n), and O(n * num_parts) with limits or unequal speeds.

    Args:
        costs: Cost of each sample, finite, >= 0.
        num_parts: Number of parts.
        method: `"greedy"`: longest processing time first (Graham, 1969) and a local search;
            `"karmarkar_karp"`: largest differencing (Karmarkar and Karp, 1982) and the search, or
            the greedy start where that breaks a limit; `"auto"`: the greedy, and the other beside
            it where that leaves a gap that matters and differencing is quick.
        counts: Samples of a part, a group counting as one: `"free"`, `"equal"`, or
            `"within_one"` of each other.
        groups: Group of each sample; samples of a group stay together. Negative: on its own.
        speeds: Speed of each part, > 0; all the same when not given.
        limits: Most that a part may hold of each amount, by name: one number, or one a part.
        amounts: What each sample has of these, whole numbers; not needed for `"samples"`.
        effort: `"fast"`, `"default"`, or about how many seconds to search (counted in steps of
            work, so that the result does not depend on the host).

    Raises:
        ArgumentError: An argument is not allowed; the message says what is.
        SampleError: A cost or an amount is NaN, infinite or negative.
        CapacityError: A sample or group is above a limit by itself, or no partition within the
            limits was found; the message has the smallest limit that works.

    Example:
        >>> partition([8, 4, 4, 2, 1, 1], 2, counts="equal").loads.tolist()
        [10.0, 10.0]
        >>> partition([6, 3, 3], 3, speeds=[1, 0.5, 0.5]).makespan
        6.0
    """
    check_count("num_parts", num_parts)
    check_choice("method", method, get_args(Method))
    check_choice("counts", counts, get_args(Counts))
    _check_effort(effort)
    items = build_items(costs, num_parts, counts, groups, speeds, limits or {}, amounts or {})
    problem = items.problem
    if method == "karmarkar_karp" and not problem.equal_speeds:
        raise ArgumentError(
            "method is 'karmarkar_karp', which takes equal speeds only; use 'auto' or 'greedy'"
        )
    if problem.num_caps:
        refuse_oversize(items)
    work = work_of(effort, len(problem.weights))
    found = find_partition(problem, method, work)
    if found is None:
        raise limits_error(items)
    loads = np.bincount(found.parts, weights=problem.weights, minlength=num_parts)
    parts = found.parts[items.item_of]
    return Partition(
        parts=parts,
        loads=np.ldexp(loads, items.exponent),
        counts=np.bincount(parts, minlength=num_parts),
        speeds=1.0 / problem.inverse if speeds is None else np.array(speeds, np.float64),
        makespan=math.ldexp(found.last_end, items.exponent),
        lower_bound=math.ldexp(min(found.bound, found.last_end), items.exponent),
        binds=found.binds,
        method=found.method,
    )


def _check_effort(effort: object) -> None:
    if effort in ("fast", "default"):
        return
    number = isinstance(effort, (int, float)) and not isinstance(effort, bool)
    if not number or not 0.0 < effort <= 86400.0:  # type: ignore[operator]
        raise ArgumentError(
            f"effort is {effort!r}; allowed: 'fast', 'default', or a number of seconds > 0 and at "
            "most 86400"
        )
