"""How a partition is found: starts that keep the limits, a search from each, the best of them."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.partition_differencing import place_by_differences
from balancer.kernels.partition_place import place_by_fit, place_by_load, place_by_time
from balancer.kernels.partition_search import improve
from balancer.partition_bounds import PartitionProblem, last_end_bound
from balancer.sorting import stable_order

__all__ = ["Effort", "Found", "Method", "find_partition", "find_start", "work_of"]

Method = Literal["auto", "greedy", "karmarkar_karp"]
Effort = Literal["fast", "default"] | float

_LOOKS_A_SECOND = 2**26  # items the search looks at in about a second
_DIFFERENCING = 2**22  # items x parts up to which differencing is tried beside the greedy
_FEW = 256  # items for which all starts are searched from by default
_BISECTIONS = 12
_SHARE = 2.0**20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """How far a search goes; the same on every host, since it counts and does not time.

    Attributes:
        tolerance: Gap to the lower bound at which it ends.
        budget: Items it looks at.
        patience: Items it looks at in vain after no single exchange helps.
        beside: Whether other starts are tried where the first is above the tolerance.
        enough: Gap at which other starts are not tried any more.
        search_all: Whether to search from other starts even if they end later than the best found.
    """

    tolerance: float
    budget: int
    patience: int
    beside: bool = True
    enough: float = 0.0
    search_all: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The part of each item, the time the last part ends, its bound and where they are from."""

    parts: NDArray[np.int64]
    last_end: float
    bound: float
    binds: str
    method: str


def work_of(effort: Effort, num_items: int) -> _Work:
    """What an effort stands for; seconds are counted as `2**26` items looked at each."""
    if effort == "fast":
        return _Work(tolerance=1e-4, budget=32 * num_items + 2**10, patience=0, beside=False)
    if effort == "default":
        patience = min(2**13, 2**17 // max(num_items, 1))  # only small partitions gain by it
        return _Work(
            tolerance=8e-6,
            budget=2**15 + 32 * num_items,
            patience=patience,
            enough=0.0 if num_items <= _FEW else 1e-4,
            search_all=num_items <= _FEW,
        )
    budget = int(float(effort) * _LOOKS_A_SECOND)
    return _Work(tolerance=0.0, budget=budget, patience=budget)


def find_partition(problem: PartitionProblem, method: Method, work: _Work) -> Found | None:
    """Best partition found, or `None` where no start keeps the limits.

    Starts are tried in turn, each improved, until one is within the tolerance of the bound.
    """
    bound, binds = last_end_bound(problem)
    if bound == np.inf:
        return None
    goal, best = bound * (1.0 + work.tolerance), None
    for name in _starts(problem, method, work):
        parts = _start(name, problem, bound)
        if parts is None or (best is not None and name == "fallback"):
            continue
        if best is not None and not work.search_all and _last_end(parts, problem) > best.last_end:
            continue
        end, _ = improve(
            parts, problem.weights, problem.inverse, problem.amounts, problem.caps,
            problem.num_caps, problem.low, problem.high, goal, work.budget, work.patience,
        )  # fmt: skip
        if best is None or end < best.last_end:
            shown = "greedy" if name == "fallback" else name
            best = Found(parts=parts, last_end=end, bound=bound, binds=binds, method=shown)
        if best.last_end <= max(goal, bound * (1.0 + work.enough)):
            break
    return best


def find_start(problem: PartitionProblem) -> NDArray[np.int64] | None:
    """Some partition that keeps the limits, or `None` where none is found."""
    parts = _greedy(problem)
    if parts is None:
        parts = _fitted(problem, np.inf)
    return _even_amounts(problem) if parts is None else parts


def _starts(problem: PartitionProblem, method: Method, work: _Work) -> list[str]:
    """Starts to try, the most promising first."""
    if method == "karmarkar_karp":
        return ["karmarkar_karp", "fallback"]
    starts = ["greedy"]
    if problem.num_caps and work.beside:
        starts.append("best_fit")
    small = len(problem.weights) * problem.num_parts <= _DIFFERENCING
    counted = problem.high - problem.low <= 1
    if method == "auto" and problem.equal_speeds and work.beside and (small or counted):
        starts.append("karmarkar_karp")
    return starts


def _start(name: str, problem: PartitionProblem, bound: float) -> NDArray[np.int64] | None:
    """A start by its name, or `None` where it breaks a limit."""
    if name == "karmarkar_karp":
        chunk = problem.num_parts if problem.high - problem.low <= 1 else 1
        parts = place_by_differences(problem.weights, problem.num_parts, chunk)
        return parts if _within(parts, problem) else None
    if name == "best_fit":
        return _bisected(problem, bound)
    return find_start(problem)


def _greedy(problem: PartitionProblem) -> NDArray[np.int64] | None:
    if problem.num_caps == 0 and problem.equal_speeds:
        loaded: NDArray[np.int64] = place_by_load(
            problem.weights, problem.num_parts, problem.low, problem.high
        )
        return loaded
    parts: NDArray[np.int64] = place_by_time(
        problem.weights, problem.inverse, problem.amounts, problem.caps, problem.num_caps,
        problem.low, problem.high,
    )  # fmt: skip
    return None if (parts < 0).any() else parts


def _bisected(problem: PartitionProblem, bound: float) -> NDArray[np.int64] | None:
    """Best fit into the least time of a part that it works for, by bisection (MULTIFIT).

    Coffman, Garey and Johnson, 1978, here with the limits as further sizes.
    """
    best, below, above = None, bound, 2.0 * bound
    for _ in range(_BISECTIONS):
        middle = (below + above) / 2.0
        parts = _fitted(problem, middle)
        if parts is None:
            below = middle
        else:
            best, above = parts, middle
    return best


def _fitted(problem: PartitionProblem, most_time: float) -> NDArray[np.int64] | None:
    """Best fit with the load as a further amount that a part holds `most_time` of."""
    table, caps = _tables(problem)
    if np.isfinite(most_time):
        most = np.floor(most_time / problem.inverse)
        caps = np.column_stack([caps, np.minimum(most, 2.0**62).astype(np.int64)])
        table = np.column_stack([table, problem.weights])
    shares = table / np.maximum(caps.mean(axis=0), 0.5)
    largest = np.floor(shares.max(axis=1) * _SHARE).astype(np.int64)
    parts = place_by_fit(
        stable_order(largest, descending=True), shares.argmax(axis=1), table.ravel(),
        caps.ravel(), caps.shape[1], problem.num_parts, problem.low, problem.high,
    )  # fmt: skip
    return None if (parts < 0).any() else parts


def _even_amounts(problem: PartitionProblem) -> NDArray[np.int64] | None:
    """Start that shares out the amounts themselves, as evenly as the limits ask for."""
    table, caps = _tables(problem)
    if caps.shape[1] == 1:
        shares, room = table[:, 0], caps[:, 0].astype(np.float64)
    else:
        means = np.maximum(caps.mean(axis=0), 0.5)
        shares = np.floor((table / means).sum(axis=1) * _SHARE).astype(np.int64)
        room = (caps / means).sum(axis=1) * _SHARE
    order = stable_order(shares, descending=True)
    amounts = replace(
        problem,
        weights=shares[order],
        inverse=1.0 / room,
        equal_speeds=bool((room == room[0]).all()),
        amounts=np.zeros(0, np.int64),
        caps=np.zeros(0, np.int64),
        num_caps=0,
    )
    found = find_partition(amounts, "auto", replace(work_of("default", len(shares)), beside=True))
    if found is None:
        return None
    parts = np.empty(len(order), np.int64)
    parts[order] = found.parts
    return parts if _within(parts, problem) else None


def _last_end(parts: NDArray[np.int64], problem: PartitionProblem) -> float:
    """Time the last part ends."""
    loads = np.bincount(parts, weights=problem.weights, minlength=problem.num_parts)
    return float((loads * problem.inverse).max())


def _tables(problem: PartitionProblem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Amounts, a row an item, and caps, a row a part."""
    shape = (-1, problem.num_caps)
    return problem.amounts.reshape(shape), problem.caps.reshape(shape)


def _within(parts: NDArray[np.int64], problem: PartitionProblem) -> bool:
    """Whether a partition keeps the limits."""
    if problem.num_caps == 0:
        return True
    table, caps = _tables(problem)
    used = np.zeros_like(caps)
    np.add.at(used, parts, table)
    return bool((used <= caps).all())
