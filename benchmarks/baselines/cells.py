"""What the baselines share: the cells of a step, sizes as whole numbers, and a token budget."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from balancer.topology import Topology

__all__ = [
    "cells_of",
    "cells_of_ranks",
    "largest_first",
    "num_cells",
    "whole",
    "with_least_budget",
    "without_empty",
]

_BUDGET_STEP = 1 / 64
_WHOLE = 2**40
_INT = NDArray[np.int64]
_FLOAT = NDArray[np.float64]
_Packed = TypeVar("_Packed")


def num_cells(topology: Topology) -> int:
    """Microbatches of a step over all ranks."""
    return topology.dp_size * topology.num_microbatches


def largest_first(sizes: _INT | _FLOAT) -> _INT:
    """Samples by size, descending; equal ones in the given order."""
    return np.argsort(-sizes, kind="stable")


def whole(values: _FLOAT, *, total: int = _WHOLE) -> _INT:
    """Costs as whole numbers that sum up to about `total`, so that sums are exact."""
    whole_sum = float(values.sum())
    scaled = np.zeros(len(values)) if whole_sum == 0 else values * (total / whole_sum)
    return np.rint(scaled).astype(np.int64)


def cells_of(groups: Iterable[Sequence[int]], num_samples: int) -> _INT:
    """Cell of each sample, from the samples of each cell."""
    cells = np.empty(num_samples, np.int64)
    for cell, samples in enumerate(groups):
        cells[list(samples)] = cell
    return cells


def cells_of_ranks(ranks: Sequence[Sequence[Sequence[int]]], num_samples: int) -> _INT:
    """Cell of each sample, from the microbatches of each rank; ranks have equally many."""
    return cells_of((samples for slot in zip(*ranks, strict=True) for samples in slot), num_samples)


def with_least_budget(start: int, mean: int, pack: Callable[[int], _Packed | None]) -> _Packed:
    """What `pack` makes of the first budget it does not refuse, in steps of 1/64 of the mean."""
    budget, packed = start, pack(start)
    while packed is None:
        budget += max(1, int(mean * _BUDGET_STEP))
        packed = pack(budget)
    return packed


def without_empty(cells: _INT, tokens: _INT, topology: Topology) -> _INT:
    """Give each empty microbatch the shortest sample of the one that holds the most samples.

    Does so while a microbatch holds more than one, so all have a sample where there are enough.
    """
    counts = np.bincount(cells, minlength=num_cells(topology))
    for empty in np.flatnonzero(counts == 0):
        crowded = int(np.argmax(counts))
        if counts[crowded] < 2:
            break
        inside = np.flatnonzero(cells == crowded)
        cells[inside[np.argmin(tokens[inside])]] = empty
        counts[crowded] -= 1
        counts[empty] += 1
    return cells
