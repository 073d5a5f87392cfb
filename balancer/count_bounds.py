"""Lower bound of a split into parts, from how many of the dearest items a part must hold."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["counted_bound"]

_MOST_PREFIXES = 64
"""Numbers of dearest items that are looked at closely: those that promise the most."""


def counted_bound(descending: NDArray[np.int64], num_parts: int, known: int = 0) -> int:
    """Least possible largest sum when these weights are split into `num_parts`, or `known`.

    Take the N dearest items, N = j * num_parts + d with 1 <= d <= num_parts. Whatever the split,
    some parts hold more than j of them; say r parts do. The others hold at most
    j * (num_parts - r) together, so those r hold all but as many, at least. Hence

    - their mean is no less than the sum of the N - j * (num_parts - r) cheapest of the N, over r;
    - one of the j * (num_parts - r) + 1 dearest is among theirs, beside at least j others: its part
      is no less than the cheapest of those dearest with the j cheapest of the N.

    The largest sum is no less than the larger of both. Nobody knows r, so the least over all r
    counts; r = 1 to d are enough: of more parts each still holds j + 1, and neither the mean of
    the cheapest (j + 1) * r over r nor the other bound falls as r grows. The bound is the largest
    over all N. For j = 1 the second argument is that of L2 (Martello and Toth, 1990).

    Where costs take few values, as short texts and long ones do, this is up to 4 % above the mean
    and the j + 1 cheapest of N = j * num_parts + 1 items (8 parts, 64 items).

    O(n) for n items, and O(num_parts) for each of at most 64 N that could raise `known`.

    Example:
        >>> counted_bound(np.array([9, 9, 7, 7, 7]), 3)
        16
    """
    if len(descending) <= num_parts:
        return known
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(descending)])
    dearest = np.arange(num_parts + 1, len(descending) + 1)
    fewer = (dearest - 1) // num_parts
    more = dearest - fewer * num_parts
    promised = _least_of(descending, sums, num_parts, dearest, fewer, more)
    close = np.flatnonzero(promised > known)
    if not close.size:
        return known
    if close.size > _MOST_PREFIXES:
        close = close[np.argsort(-promised[close], kind="stable")[:_MOST_PREFIXES]]
    dearest, fewer, more = dearest[close, None], fewer[close, None], more[close, None]
    parts = np.minimum(np.arange(1, int(more.max()) + 1), more)
    bounds = _least_of(descending, sums, num_parts, dearest, fewer, parts).min(axis=1)
    return max(known, int(bounds.max()))


def _least_of(
    descending: NDArray[np.int64],
    sums: NDArray[np.int64],
    num_parts: int,
    dearest: NDArray[np.int64],
    fewer: NDArray[np.int64],
    parts: NDArray[np.int64],
) -> NDArray[np.int64]:
    """What the dearest part holds at least if `parts` hold more than `fewer` of the `dearest`."""
    elsewhere = fewer * (num_parts - parts)
    mean = -((sums[elsewhere] - sums[dearest]) // parts)
    with_dear = descending[elsewhere] + sums[dearest] - sums[dearest - fewer]
    larger: NDArray[np.int64] = np.maximum(mean, with_dear)
    return larger
