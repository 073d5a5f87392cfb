"""What no loader can beat: least time of a pass, and least longest wait in the plan's order."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["least_longest_gap"]


def least_longest_gap(
    seconds: Sequence[ArrayLike], *, workers: int, consumer_seconds: float
) -> float:
    """No order of work has a shorter longest wait, if microbatches are delivered in this order.

    If the consumer never waits longer than g, it takes microbatch j by (j + 1) g + j times
    `consumer_seconds`. By then its samples are done, and of a sample that a later microbatch needs
    at least what does not fit between the two times, for one sample is one worker's at a time. All
    of it must fit into the workers' time, however much is known ahead, however much memory there
    is, and even if samples could be interrupted. The least such g is found by bisection; real
    loaders, which interrupt nothing, may have to wait longer.

    Args:
        seconds: Seconds of each sample, microbatch by microbatch, in the plan's order.
        workers: Workers.
        consumer_seconds: Time that the consumer works on a microbatch.

    Example:
        >>> least_longest_gap([[1, 1], [1, 1]], workers=2, consumer_seconds=1)
        1.0
        >>> least_longest_gap([[1], [1], [1], [9]], workers=2, consumer_seconds=1)
        1.5
    """
    samples = [np.asarray(each, np.float64) for each in seconds]
    work = np.cumsum([each.sum() for each in samples])
    own = np.concatenate(samples)
    owner = np.repeat(np.arange(len(samples)), [len(each) for each in samples])
    low, high = 0.0, float(work[-1])
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        due = (np.arange(len(samples)) + 1) * middle + np.arange(len(samples)) * consumer_seconds
        if _fits(due, work + _begun(due, own, owner), own, owner, workers):
            high = middle
        else:
            low = middle
    return round(high, 5)


def _begun(
    due: NDArray[np.float64], own: NDArray[np.float64], owner: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Seconds of later microbatches' samples that must be done by each due time."""
    needed = np.zeros(len(due))
    for index in np.flatnonzero(own > np.diff(due, prepend=0.0)[owner]):
        before = due[: owner[index]]
        needed[: owner[index]] += np.maximum(0.0, own[index] - (due[owner[index]] - before))
    return needed


def _fits(
    due: NDArray[np.float64],
    work: NDArray[np.float64],
    own: NDArray[np.float64],
    owner: NDArray[np.int64],
    workers: int,
) -> bool:
    return bool((own <= due[owner]).all() and (work <= workers * due).all())
