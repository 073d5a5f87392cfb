"""Lower bounds of a partition's last end: under equal counts, unequal speeds and limits."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.partition_bound import load_bounds

__all__ = ["PartitionProblem", "last_end_bound"]

_ROUNDING = 1.0 - 2.0**-40  # quotients and sums of floats below are off by less


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProblem:
    """Items to share out, as the kernels take them.

    Attributes:
        weights: Quantised cost of each item, dearest first, int64; their sum is below 2**53.
        inverse: One over the speed of each part, float64.
        equal_speeds: Whether all parts are equally fast.
        amounts: Amount a of item i at `[i * num_caps + a]`, int64.
        caps: Most of amount a that part p may hold at `[p * num_caps + a]`, int64.
        num_caps: Number of amounts.
        low: Least items of a part.
        high: Most items of a part.
    """

    weights: NDArray[np.int64]
    inverse: NDArray[np.float64]
    equal_speeds: bool
    amounts: NDArray[np.int64]
    caps: NDArray[np.int64]
    num_caps: int
    low: int
    high: int

    @property
    def num_parts(self) -> int:
        """Parts to share the items out to."""
        return len(self.inverse)


def last_end_bound(problem: PartitionProblem) -> tuple[float, str]:
    """Time at which the last part ends at the earliest, whatever the partition, and what binds.

    The largest of: what holds for parts that are alike (`kernels.partition_bound.load_bounds`), on
    the fastest part; the j largest items on the j fastest parts (Horvath, Lam and Sethi, 1977); the
    m largest as if they all cost what the m-th does; the cheapest items on the slowest part; and
    the mean where parts can hold no more than limits and counts let them. O(n) for parts that are
    alike, else O(n log n).
    """
    weights, inverse = problem.weights, problem.inverse
    if not len(weights):
        return 0.0, "mean load"
    mean, together, counted = load_bounds(weights, problem.num_parts, problem.low, problem.high)
    largest = int(weights[0])
    met = (together, "largest sample" if together == largest else "largest samples together")
    whole = [met, (counted, "equal counts")]
    if problem.equal_speeds:
        whole.insert(0, (mean, "mean load"))
    least = float(inverse[0]) if problem.equal_speeds else float(inverse.min())
    load, binds = max(whole, key=lambda bound: bound[0])
    bounds = [(float(load) * least, binds)]
    if not problem.equal_speeds:
        bounds += _speed_bounds(problem)
    if problem.num_caps:
        bounds.append((_capped_mean(weights, inverse, _most(problem)) * _ROUNDING, "limits"))
    return max(bounds, key=lambda bound: bound[0])


def _speed_bounds(problem: PartitionProblem) -> list[tuple[float, str]]:
    """Bounds of parts of unequal speed."""
    weights, speeds = problem.weights, 1.0 / np.sort(problem.inverse)
    sums, capacity = np.cumsum(weights), np.cumsum(speeds)
    largest = min(len(weights), problem.num_parts - 1)
    bounds = [(float(sums[-1] / capacity[-1]) * _ROUNDING, "mean load")]
    if largest:
        together = sums[:largest] / capacity[:largest]
        j = int(together.argmax())
        name = "largest sample" if j == 0 else "largest samples on the fastest parts"
        bounds.append((float(together[j]) * _ROUNDING, name))
    alike = weights * _ends_of_alike(speeds, len(weights))
    bounds.append((float(alike.max()) * _ROUNDING, "largest samples together"))
    if problem.low:
        least = np.cumsum(weights[::-1])[problem.low - 1]
        alone = weights[::-1][: problem.num_parts] / speeds[::-1]
        slowest = max(float(least / speeds[-1]), float(alone.max()))
        bounds.append((slowest * _ROUNDING, "slowest part"))
    counted = np.full(problem.num_parts, sums[min(problem.high, len(sums)) - 1], np.float64)
    bounds.append((_capped_mean(weights, problem.inverse, counted) * _ROUNDING, "equal counts"))
    return bounds


def _ends_of_alike(speeds: NDArray[np.float64], num_items: int) -> NDArray[np.float64]:
    """Least time in which parts of these speeds do 1, 2, ... items of cost 1.

    The m dearest items take at least as long as m items that all cost what the m-th does.
    """
    enough = (num_items + len(speeds)) / speeds.sum()
    counts = np.minimum(np.floor(enough * speeds) + 1, num_items).astype(np.int64)
    number = np.arange(1, counts.sum() + 1) - np.repeat(np.cumsum(counts) - counts, counts)
    ends = np.sort(number / np.repeat(speeds, counts))
    return ends[:num_items]


def _most(problem: PartitionProblem) -> NDArray[np.float64]:
    """Load that each part can hold at most under its caps, items taken in fractions."""
    table = problem.amounts.reshape(-1, problem.num_caps)
    caps = problem.caps.reshape(problem.num_parts, problem.num_caps)
    most = np.full(problem.num_parts, np.inf)
    for column, cap in zip(table.T, caps.T, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            density = np.where(column > 0, problem.weights / column, np.inf)
        order = np.argsort(-density, kind="stable")
        held = np.concatenate([[0.0], np.cumsum(column[order].astype(np.float64))])
        load = np.concatenate([[0.0], np.cumsum(problem.weights[order].astype(np.float64))])
        free = int((column == 0).sum())  # these come first and fill nothing
        most = np.minimum(most, np.interp(cap.astype(np.float64), held[free:], load[free:]))
    return most


def _capped_mean(
    weights: NDArray[np.int64], inverse: NDArray[np.float64], most: NDArray[np.float64]
) -> float:
    """Least time T at which the parts, none above its `most`, have the whole load done.

    Infinite where they cannot hold it.
    """
    total = float(weights.sum())
    full_at = most * inverse
    order = np.argsort(full_at, kind="stable")
    held = np.concatenate([[0.0], np.cumsum(most[order])])
    speeds = 1.0 / inverse[order]
    open_speed = np.concatenate([np.cumsum(speeds[::-1])[::-1], [0.0]])
    if held[-1] < total * _ROUNDING:
        return np.inf
    times = (total - held[:-1]) / open_speed[:-1]
    enough = np.flatnonzero(times <= full_at[order])
    return float(max(times[enough[0]], 0.0)) if len(enough) else float(full_at[order[-1]])
