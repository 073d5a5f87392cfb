"""Packing: samples into as few bins as possible that each hold at most a capacity."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.errors import ArgumentError, CapacityError, SampleError
from balancer.kernels.packing_bound import survey
from balancer.kernels.packing_order import next_fit
from balancer.packing_methods import (
    Bins,
    Method,
    PackingProblem,
    pack_one_capacity,
    pack_rows,
    pack_several,
)
from balancer.topology import Layout, check_choice, check_count

__all__ = ["Oversize", "Packing", "pack"]

Oversize = Literal["error", "drop", "alone"]

_INT = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Samples bin by bin, with a proof of how few bins there could be.

    Attributes:
        sample_ids: Ids (positions in `lengths`), int64; bin b holds
            `sample_ids[offsets[b]:offsets[b + 1]]`.
        offsets: Where each bin begins, int64 `(num_bins + 1,)`.
        dropped: Ids left out because they fit no bin (`oversize="drop"`), ascending.
        alone: Ids that fit no bin and have one of their own (`oversize="alone"`), ascending;
            their bins come last.
        lower_bound: No packing of these samples has fewer bins.
        padding_fraction: Share of the capacity of all bins that no sample fills, before rounding;
            bins of samples in `alone` do not count.

    Example:
        >>> packing = pack([5, 3, 2, 4], 7)
        >>> [ids.tolist() for ids in packing]
        [[0, 2], [3, 1]]
        >>> packing.num_bins, packing.lower_bound, packing.gap
        (2, 2, 0.0)
    """

    sample_ids: _INT
    offsets: _INT
    dropped: _INT
    alone: _INT
    lower_bound: int
    padding_fraction: float

    def __post_init__(self) -> None:
        for name in ("sample_ids", "offsets", "dropped", "alone"):
            array = getattr(self, name).view()
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def num_bins(self) -> int:
        """Bins, those of samples in `alone` included."""
        return len(self.offsets) - 1

    @property
    def gap(self) -> float:
        """Bins beyond the lower bound, as a share of the lower bound; 0 means proven fewest."""
        return self.num_bins / self.lower_bound - 1 if self.lower_bound else 0.0

    def __len__(self) -> int:
        return self.num_bins

    def __getitem__(self, index: int) -> _INT:
        """Ids of one bin.

        Raises:
            IndexError: No such bin.
        """
        place = index + self.num_bins if index < 0 else index
        if not 0 <= place < self.num_bins:
            raise IndexError(f"bin {index} of {self.num_bins}")
        return self.sample_ids[self.offsets[place] : self.offsets[place + 1]]

    def __iter__(self) -> Iterator[_INT]:
        return (self[index] for index in range(self.num_bins))


def pack(
    lengths: ArrayLike,
    capacity: int,
    *,
    method: Method = "best_fit_decreasing",
    effort: int = 1,
    layout: Layout = "packed",
    pad_sample_to: int = 1,
    pad_bin_to: int = 1,
    max_samples: int | None = None,
    amounts: Mapping[str, tuple[ArrayLike, int]] | None = None,
    oversize: Oversize = "error",
) -> Packing:
    """Pack samples into few bins, each within the capacity and within every other limit.

    With one capacity the time hardly depends on the number of samples beyond sorting and writing
    them, since samples of equal length are packed together. The same input gives the same packing
    on any host.

    Args:
        lengths: Length of each sample in tokens, whole numbers >= 0.
        capacity: Most that a bin may hold, as laid out in memory.
        method: `"best_fit_decreasing"` longest first, each to the bin with the least room (then
            the one that has had it longest; with several limits or rows, the best of several
            rules); `"first_fit_decreasing"` to the first bin with room, longest first (with
            several limits, by largest share of one); `"next_fit"` in the given order, a bin being
            closed for the first sample that does not fit.
        effort: For `"best_fit_decreasing"`: 0 is that rule alone. 1 also fills bins with lengths
            that add up, and takes what needs fewer bins. Each unit more repacks parts of it 100
            times (1,000 times a few bins, with several limits), a few hundredths of a second for
            100,000 samples. Ends early once the lower bound is reached.
        layout: What a bin takes in memory: `"packed"` the sum of its lengths, `"padded"` its
            samples times its longest.
        pad_sample_to: Each length is rounded up to a multiple of this.
        pad_bin_to: What a bin takes is rounded up to a multiple of this.
        max_samples: Most samples of a bin.
        amounts: Other amounts of each sample with the most of a bin, by name:
            `{"images": (counts, 16)}`.
        oversize: What happens to samples that fit no bin: `"error"`, `"drop"` them, or put each
            in a bin `"alone"`.

    Raises:
        ArgumentError: An argument is outside what is allowed.
        SampleError: A length or amount is negative.
        CapacityError: A sample fits no bin and `oversize="error"`; names what would hold it.

    Example:
        >>> pack([5] * 10, 40, pad_sample_to=8).num_bins
        2
        >>> pack([9, 3, 3], 8, oversize="alone").alone
        array([0])
    """
    check_choice("method", method, get_args(Method))
    check_choice("layout", layout, get_args(Layout))
    check_choice("oversize", oversize, get_args(Oversize))
    for name, value in (
        ("capacity", capacity), ("pad_sample_to", pad_sample_to), ("pad_bin_to", pad_bin_to),
    ):  # fmt: skip
        check_count(name, value)
    check_count("effort", effort, least=0)
    given = _whole("lengths", lengths)
    least, longest, total = survey(given)
    if least < 0:
        _refuse_negative("length", given)
    units = given if pad_sample_to == 1 else -(-given // pad_sample_to)
    longest = -(-int(longest) // pad_sample_to)
    others, caps = _others(amounts, max_samples, len(given))
    room = capacity // pad_bin_to * pad_bin_to // pad_sample_to
    over = _oversize(units, longest, room, others, caps)
    if over.size and oversize == "error":
        _refuse_oversize(int(over[0]), over, given, capacity, pad_sample_to, pad_bin_to, amounts)
    kept = np.delete(np.arange(len(given)), over) if over.size else None
    problem = PackingProblem(
        lengths=units if kept is None else units[kept],
        longest=longest if kept is None else int(max(units[kept], default=0)),
        capacity=room,
        amounts=others if kept is None else others[kept],
        caps=caps,
    )
    bins = _solve(problem, method, layout, effort)
    alone = over if oversize == "alone" else over[:0]
    return _packing(bins, kept, over, alone, int(total - given[over].sum()), capacity)


def _solve(problem: PackingProblem, method: Method, layout: Layout, effort: int) -> Bins:
    if not len(problem.lengths):
        return Bins(ids=np.empty(0, np.int64), offsets=np.zeros(1, np.int64), least=0)
    if method == "next_fit":
        amounts = np.ascontiguousarray(problem.amounts).ravel()
        offsets = next_fit(
            problem.lengths, problem.capacity, layout == "padded", amounts, problem.caps
        )
        least = _solve(problem, "first_fit_decreasing", layout, 0).least
        return Bins(ids=np.arange(len(problem.lengths)), offsets=offsets, least=least)
    if layout == "padded":
        return pack_rows(problem)
    if problem.caps.size:
        return pack_several(problem, method, effort)
    return pack_one_capacity(problem, method, effort)


def _packing(
    bins: Bins, kept: _INT | None, over: _INT, alone: _INT, total: int, capacity: int
) -> Packing:
    ids = bins.ids if kept is None else kept[bins.ids]
    filled = (len(bins.offsets) - 1) * capacity
    ends = bins.offsets[-1] + 1 + np.arange(len(alone))
    return Packing(
        sample_ids=np.concatenate([ids, alone]) if alone.size else ids,
        offsets=np.concatenate([bins.offsets, ends]) if alone.size else bins.offsets,
        dropped=over[:0] if alone.size else over,
        alone=alone,
        lower_bound=bins.least + len(alone),
        padding_fraction=1 - total / filled if filled else 0.0,
    )


def _whole(name: str, values: ArrayLike) -> _INT:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ArgumentError(
            f"{name} has shape {array.shape} and dtype {array.dtype}; allowed: one whole number "
            "for each sample"
        )
    return np.ascontiguousarray(array, np.int64)


def _others(
    amounts: Mapping[str, tuple[ArrayLike, int]] | None, max_samples: int | None, size: int
) -> tuple[_INT, _INT]:
    """Columns of the other amounts and their caps."""
    columns, caps = [], []
    for name, (values, cap) in (amounts or {}).items():
        column = _whole(f"amounts[{name!r}]", values)
        check_count(f"amounts[{name!r}][1]", cap)
        if len(column) != size:
            raise ArgumentError(
                f"amounts[{name!r}] has {len(column)} values; allowed: {size}, as many as lengths"
            )
        if size and column.min() < 0:
            _refuse_negative(name, column)
        columns.append(column)
        caps.append(cap)
    if max_samples is not None:
        check_count("max_samples", max_samples)
        columns.append(np.ones(size, np.int64))
        caps.append(max_samples)
    if not columns:
        return np.empty((size, 0), np.int64), np.empty(0, np.int64)
    return np.stack(columns, axis=1), np.array(caps, np.int64)


def _oversize(units: _INT, longest: int, room: int, others: _INT, caps: _INT) -> _INT:
    over = units > room if longest > room else np.zeros(len(units), np.bool_)
    if caps.size:
        over = over | (others > caps).any(axis=1)
    return np.flatnonzero(over)


def _refuse_negative(name: str, values: _INT) -> None:
    ids = np.flatnonzero(values < 0)
    raise SampleError(
        f"sample {ids[0]}: {name} is {values[ids[0]]}; allowed: whole numbers >= 0; "
        f"{len(ids)} such samples",
        sample_ids=ids.tolist(),
    )


def _refuse_oversize(
    sample: int,
    over: _INT,
    lengths: _INT,
    capacity: int,
    pad_sample_to: int,
    pad_bin_to: int,
    amounts: Mapping[str, tuple[ArrayLike, int]] | None,
) -> None:
    """Name the first limit that a sample breaks, and the least one that holds every sample."""
    rounded = -(-lengths // pad_sample_to) * pad_sample_to
    limits = [("length", lengths, rounded, "capacity", capacity // pad_bin_to * pad_bin_to)]
    for name, (values, cap) in (amounts or {}).items():
        column = np.asarray(values)
        limits.append((name, column, column, f"amounts[{name!r}][1]", cap))
    for name, values, taken, limit, most in limits:
        if taken[sample] > most:
            needed = int(taken.max())
            if limit == "capacity":
                needed = -(-needed // pad_bin_to) * pad_bin_to
            size = f"{values[sample]}"
            if taken[sample] != values[sample]:
                size += f" (rounded up to {taken[sample]})"
            raise CapacityError(
                f"sample {sample}: {name} is {size}, a bin holds {most}; {len(over)} such "
                f"samples; raise {limit} to {needed}, or set oversize to 'drop' or 'alone'",
                sample_ids=over.tolist(),
            )
