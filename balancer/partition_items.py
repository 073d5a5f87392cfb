"""What users give to `partition`, checked and turned into the whole numbers that kernels take."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.errors import ArgumentError, CapacityError, SampleError
from balancer.partition_bounds import PartitionProblem
from balancer.sorting import stable_order

__all__ = ["Counts", "Items", "build_items", "refuse_oversize"]

Counts = Literal["free", "equal", "within_one"]

_COST_BITS, _SUM_BITS = 40, 53  # sums stay exact as float64 too


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """The items of a partition: samples, or groups of samples that stay together.

    Attributes:
        problem: Weights and limits of the items, dearest first.
        item_of: Item of each sample, int64.
        exponent: Power of two of the weights' unit.
        limits: Names of the limits, in the order of the problem's amounts.
    """

    problem: PartitionProblem
    item_of: NDArray[np.int64]
    exponent: int
    limits: tuple[str, ...]

    def samples_of(self, item: int) -> list[int]:
        """Samples that make up an item."""
        return [int(sample) for sample in np.flatnonzero(self.item_of == item)]


def build_items(
    costs: ArrayLike,
    num_parts: int,
    counts: Counts,
    groups: ArrayLike | None,
    speeds: ArrayLike | None,
    limits: Mapping[str, ArrayLike],
    amounts: Mapping[str, ArrayLike],
) -> Items:
    """Check everything and number the items dearest first, then by their first sample.

    Raises:
        ArgumentError: A shape, a speed, a limit or a count is not allowed.
        SampleError: A cost or amount is NaN, infinite or negative.
    """
    values, largest = _costs(costs)
    exponent = _exponent(largest, len(values))
    weights = (values * 2.0**-exponent + 0.5).astype(np.int64)  # to the nearest
    item_of, num_items = _grouped(groups, len(values))
    if groups is not None:
        weights = _sums(weights, item_of, num_items)
    order = stable_order(weights, descending=True)
    low, high = _count_range(counts, num_items, num_parts)
    table, caps = _limits(limits, amounts, len(values), num_parts)
    if table.shape[1]:
        table = np.stack([_sums(column, item_of, num_items) for column in table.T], axis=1)
    inverse = np.ones(num_parts) if speeds is None else 1.0 / _speeds(speeds, num_parts)
    problem = PartitionProblem(
        weights=weights[order],
        inverse=inverse,
        equal_speeds=speeds is None or bool((inverse == inverse[0]).all()),
        amounts=table[order].ravel() if table.shape[1] else table.ravel(),
        caps=caps.ravel(),
        num_caps=caps.shape[1],
        low=low,
        high=high,
    )
    rank = np.empty(num_items, np.int64)
    rank[order] = np.arange(num_items)
    return Items(
        problem=problem,
        item_of=rank if groups is None else rank[item_of],
        exponent=exponent,
        limits=tuple(limits),
    )


def refuse_oversize(items: Items) -> None:
    """Refuse items that no part can hold by themselves.

    Raises:
        CapacityError: Names the limit, the samples, their amount and the smallest limit that works.
    """
    problem = items.problem
    table = problem.amounts.reshape(-1, problem.num_caps)
    caps = problem.caps.reshape(-1, problem.num_caps)
    for name, column, cap in zip(items.limits, table.T, caps.T, strict=True):
        over = np.flatnonzero(column > cap.max())
        if len(over):
            item = int(over[column[over].argmax()])
            samples = items.samples_of(item)
            what = f"sample {samples[0]} has"
            if len(samples) > 1:
                what = f"the group of samples {_listed(samples)} has"
            raise CapacityError(
                f"limits[{name!r}] is at most {cap.max()} on any part, but {what} {column[item]} "
                f"and cannot be split; raise the limit to {column[item]}, or leave it out",
                sample_ids=[sample for at in over for sample in items.samples_of(int(at))],
            )


def _listed(samples: Sequence[int]) -> str:
    shown = ", ".join(map(str, samples[:6]))
    return shown + (", ..." if len(samples) > 6 else "")


def _costs(costs: ArrayLike) -> tuple[NDArray[np.float64], float]:
    """Costs as float64, one a sample, and the largest."""
    values = np.ascontiguousarray(costs, np.float64)
    if values.ndim != 1:
        raise ArgumentError(f"costs has shape {values.shape}; allowed: one number a sample")
    if not len(values):
        return values, 0.0
    largest = float(values.max())
    if not (values.min() >= 0.0 and largest < np.inf):
        wrong = np.flatnonzero(~((values >= 0.0) & (values < np.inf)))
        raise SampleError(
            f"costs[{wrong[0]}] is {values[wrong[0]]:g}; allowed: finite numbers >= 0",
            sample_ids=wrong.tolist(),
        )
    return values, largest


def _exponent(largest: float, num_samples: int) -> int:
    """Power of two that leaves the dearest 40 bits, and the sum below 2**53."""
    bits = min(_COST_BITS, _SUM_BITS - num_samples.bit_length())
    return max(-1000, math.frexp(largest)[1] - bits)


def _grouped(groups: ArrayLike | None, num_samples: int) -> tuple[NDArray[np.int64], int]:
    """Item of each sample, items numbered by their first sample, and how many there are."""
    if groups is None:
        return np.arange(num_samples), num_samples
    ids = np.asarray(groups)
    if ids.shape != (num_samples,) or ids.dtype.kind not in "iu":
        raise ArgumentError(
            f"groups has shape {ids.shape} and type {ids.dtype}; allowed: one whole number for "
            f"each of the {num_samples} samples, a negative one for a sample on its own"
        )
    ids = ids.astype(np.int64)
    alone = ids < 0
    ids[alone] = ids.max(initial=-1) + 1 + np.arange(int(alone.sum()))
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse], len(first)


def _sums(
    values: NDArray[np.int64], item_of: NDArray[np.int64], num_items: int
) -> NDArray[np.int64]:
    sums = np.zeros(num_items, np.int64)
    np.add.at(sums, item_of, values)
    return sums


def _count_range(counts: Counts, num_items: int, num_parts: int) -> tuple[int, int]:
    """Least and most items of a part; no part stays empty where there are items for all."""
    if counts == "free":
        return int(num_items >= num_parts), num_items
    low, left = divmod(num_items, num_parts)
    if counts == "equal" and left:
        raise ArgumentError(
            f"counts is 'equal', but {num_items} items cannot be shared out equally to num_parts="
            f"{num_parts}; use counts='within_one', or give {num_items - left} or "
            f"{num_items - left + num_parts} items"
        )
    return low, low + int(left > 0)


def _speeds(speeds: ArrayLike, num_parts: int) -> NDArray[np.float64]:
    """Speeds as float64, one a part."""
    values = np.ascontiguousarray(speeds, np.float64)
    if values.shape != (num_parts,):
        raise ArgumentError(
            f"speeds has shape {values.shape}; allowed: one speed for each of the {num_parts} parts"
        )
    wrong = np.flatnonzero(~((values > 0.0) & (values < np.inf)))
    if len(wrong):
        raise ArgumentError(
            f"speeds[{wrong[0]}] is {values[wrong[0]]:g}; allowed: finite numbers > 0; leave out "
            "parts that are to get nothing"
        )
    if values.max() / values.min() > 2.0**40:
        raise ArgumentError(
            f"speeds are from {values.min():g} to {values.max():g}; allowed: at most a factor of "
            "2**40 apart; leave out the slowest parts"
        )
    return values


def _limits(
    limits: Mapping[str, ArrayLike],
    amounts: Mapping[str, ArrayLike],
    num_samples: int,
    num_parts: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Amounts `(num_samples, number of limits)` and caps `(num_parts, number of limits)`."""
    if not limits and not amounts:
        return np.empty((num_samples, 0), np.int64), np.empty((num_parts, 0), np.int64)
    unused = [name for name in amounts if name not in limits]
    if unused:
        raise ArgumentError(
            f"amounts has {unused[0]!r}, but limits only {list(limits)}; give a limit for it"
        )
    table = np.ones((num_samples, len(limits)), np.int64)
    caps = np.empty((num_parts, len(limits)), np.int64)
    for at, (name, limit) in enumerate(limits.items()):
        most = np.asarray(limit)
        whole = most.dtype.kind in "iu" and most.shape in ((), (num_parts,))
        if not whole or (most < 1).any():
            raise ArgumentError(
                f"limits[{name!r}] is {limit!r}; allowed: a whole number >= 1, or one for each of "
                f"the {num_parts} parts"
            )
        caps[:, at] = most
        if name in amounts:
            table[:, at] = _amount(name, amounts[name], num_samples)
        elif name != "samples":
            raise ArgumentError(
                f"limits has {name!r}, but amounts only {list(amounts)}; give the amount of each "
                "sample (known without: 'samples')"
            )
    return table, caps


def _amount(name: str, amount: ArrayLike, num_samples: int) -> NDArray[np.int64]:
    values = np.asarray(amount)
    if values.shape != (num_samples,) or values.dtype.kind not in "iu":
        raise ArgumentError(
            f"amounts[{name!r}] has shape {values.shape} and type {values.dtype}; allowed: one "
            f"whole number for each of the {num_samples} samples"
        )
    if (values < 0).any() or int(values.max(initial=0)) * max(num_samples, 1) >= 2**62:
        at = int(np.argmin(values)) if (values < 0).any() else int(np.argmax(values))
        raise SampleError(
            f"amounts[{name!r}][{at}] is {values[at]}; allowed: whole numbers >= 0 whose sum is "
            "below 2**62",
            sample_ids=[at],
        )
    return values.astype(np.int64)
