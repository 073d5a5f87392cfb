"""How `pack` arranges its kernels: one capacity, several, or padded rows."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.packing_balanced import balanced_fill
from balancer.kernels.packing_bound import least_bins
from balancer.kernels.packing_decreasing import best_fit_decreasing, first_fit_decreasing
from balancer.kernels.packing_fill import contents_as_groups
from balancer.kernels.packing_groups import write_ids
from balancer.kernels.packing_order import longest_first, next_fit, runs
from balancer.kernels.packing_repack import repack
from balancer.kernels.packing_search import fill_and_search
from balancer.kernels.packing_vector import first_fit_vectors
from balancer.sorting import stable_order

__all__ = ["Bins", "Method", "PackingProblem", "pack_one_capacity", "pack_rows", "pack_several"]

Method = Literal["best_fit_decreasing", "first_fit_decreasing", "next_fit"]

_INT = NDArray[np.int64]
_MOST_INDEXED = 2**22  # lengths with a place of their own in an index
_ROUNDS = 100  # of search for each unit of effort with one capacity
_REPACKS = 1000  # and with several
_THIRDS = 8
_COLUMNS = 64
_SEED = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingProblem:
    """Samples that all fit a bin by themselves, in the units that the kernels count.

    Attributes:
        lengths: Rounded lengths, int64.
        longest: Largest length.
        capacity: Most of a bin.
        amounts: Other amounts, int64 `(num_samples, num_amounts)`.
        caps: Most of each, int64.
    """

    lengths: _INT
    longest: int
    capacity: int
    amounts: _INT
    caps: _INT


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Positions bin by bin, where each bin begins, and fewest bins possible."""

    ids: _INT
    offsets: _INT
    least: int

    def within(self, amounts: _INT, caps: _INT) -> bool:
        """Whether every bin is within the caps."""
        sums = np.add.reduceat(amounts[self.ids], self.offsets[:-1], axis=0)
        return bool((sums <= caps).all())


def pack_one_capacity(problem: PackingProblem, method: Method, effort: int) -> Bins:
    """By length alone, other amounts left aside."""
    order, values, counts = _sorted(problem.lengths, problem.longest)
    capacity = problem.capacity
    least = int(least_bins(values, counts, capacity))
    if method == "first_fit_decreasing":
        groups = first_fit_decreasing(values, counts, capacity)
    else:
        groups = best_fit_decreasing(values, counts, capacity, _index_shift(problem, len(values)))
        indexed = values[-1] > 0 and problem.longest <= _MOST_INDEXED
        if effort > 0 and groups[2] > least and indexed:
            rounds = (effort - 1) * _ROUNDS
            contents, end, num_bins = fill_and_search(
                values, counts, capacity, _THIRDS, rounds, least, np.array([_SEED])
            )
            if num_bins < groups[2]:
                groups = contents_as_groups(contents, end, values, counts)
    ids, offsets = write_ids(*groups, order)
    return Bins(ids=ids, offsets=offsets, least=least)


def _index_shift(problem: PackingProblem, num_lengths: int) -> int:
    """Last bits of a room that its index leaves out: few bins have few rooms at a time.

    An index no larger than needed stays in the innermost caches.
    """
    num_bins = 2 * int(problem.lengths.sum()) // max(1, problem.capacity) + 1
    places = max(64, min(_MOST_INDEXED, 8 * min(num_bins, num_lengths)))
    return max(0, problem.capacity.bit_length() - places.bit_length())


def pack_several(problem: PackingProblem, method: Method, effort: int) -> Bins:
    """By length and the other amounts."""
    amounts = np.column_stack([problem.lengths, problem.amounts])
    caps = np.concatenate([[problem.capacity], problem.caps]).astype(np.int64)
    least = max(map(_least, amounts.T, caps.tolist()))
    shares = amounts / caps
    by_share = np.lexsort((-amounts[:, 0], -shares.max(axis=1)))
    flat = np.ascontiguousarray(amounts).ravel()
    bins, num_bins = first_fit_vectors(by_share, flat, caps, np.empty(0, np.int64), len(amounts))
    if method == "best_fit_decreasing" and effort > 0 and num_bins > least:
        single = pack_one_capacity(problem, method, effort)
        if len(single.offsets) <= num_bins and single.within(problem.amounts, problem.caps):
            return Bins(ids=single.ids, offsets=single.offsets, least=least)
        bins, num_bins = _balanced(bins, int(num_bins), by_share, shares, flat, caps, least, effort)
    return _as_bins(bins, int(num_bins), least)


def pack_rows(problem: PackingProblem) -> Bins:
    """Padded rows: a bin takes as many samples as rows of its longest fit.

    Longest first, each bin filled before the next is opened, no packing needs fewer bins of one
    capacity: a bin that begins with the longest sample left can hold no more, and gains nothing
    from shorter ones. Other amounts are packed first-fit, and the better of the two is kept.
    """
    by_length = stable_order(problem.lengths, descending=True)
    lengths, capacity = problem.lengths[by_length], problem.capacity
    none = np.empty(0, np.int64)
    least = len(next_fit(lengths, capacity, True, none, none)) - 1
    least = max([least, *map(_least, problem.amounts.T, problem.caps.tolist())])
    amounts = np.ascontiguousarray(problem.amounts[by_length]).ravel()
    offsets = next_fit(lengths, capacity, True, amounts, problem.caps)
    if len(offsets) - 1 > least:
        rows = capacity // np.maximum(problem.lengths, 1)
        counted = np.column_stack([np.ones(len(rows), np.int64), problem.amounts]).ravel()
        caps = np.concatenate([[len(rows)], problem.caps]).astype(np.int64)
        bins, num_bins = first_fit_vectors(by_length, counted, caps, rows, len(rows))
        if num_bins < len(offsets) - 1:
            return _as_bins(bins, int(num_bins), least)
    return Bins(ids=by_length, offsets=offsets, least=least)


def _sorted(lengths: _INT, longest: int) -> tuple[NDArray[np.signedinteger], _INT, _INT]:
    """(positions longest first, distinct lengths descending, how often each occurs)."""
    # Half the memory to go through, where that is enough.
    dtype: type[np.signedinteger] = np.int32 if len(lengths) < 2**31 else np.int64
    if longest <= max(2**14, 2 * len(lengths)):
        order = np.empty(len(lengths), dtype)
        values, counts = longest_first(lengths, longest, order)
        return order, values, counts
    order = stable_order(lengths, descending=True)
    values, counts = runs(lengths, order)
    return order.astype(dtype), values, counts


def _least(amounts: _INT, cap: int) -> int:
    values, counts = np.unique(amounts, return_counts=True)
    return int(least_bins(values[::-1].copy(), counts[::-1].astype(np.int64), cap))


def _balanced(
    bins: _INT,
    num_bins: int,
    by_share: _INT,
    shares: NDArray[np.float64],
    amounts: _INT,
    caps: _INT,
    least: int,
    effort: int,
) -> tuple[_INT, int]:
    """The better of the bins given and balanced ones, repacked where effort is left."""
    other = shares[:, 1:].max(axis=1)
    column = (other * ((_COLUMNS - 1) / max(other.max(), 1e-300))).astype(np.int64)
    by_column = np.lexsort((-shares[:, 0], column))
    balanced, places = np.empty_like(bins), np.empty_like(bins)
    state = np.array([_SEED])
    made = int(
        balanced_fill(by_share, by_column, column, amounts, caps, 0.0, state, places, balanced)
    )
    if made < num_bins:
        bins, num_bins = balanced, made
    if effort > 1 and num_bins > least:
        total = shares.sum(axis=0)
        num_bins = int(
            repack(
                bins, num_bins, _ranks(by_share), _ranks(by_column), column, amounts, caps,
                (total / total.max()) ** 8, (effort - 1) * _REPACKS, least, state,
            )
        )  # fmt: skip
    return bins, num_bins


def _ranks(order: _INT) -> _INT:
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return ranks


def _as_bins(bins: _INT, num_bins: int, least: int) -> Bins:
    offsets = np.zeros(num_bins + 1, np.int64)
    np.cumsum(np.bincount(bins, minlength=num_bins), out=offsets[1:])
    return Bins(ids=stable_order(bins), offsets=offsets, least=least)
