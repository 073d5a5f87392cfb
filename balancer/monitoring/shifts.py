"""Regime shifts: whether the samples that arrive are still of the kind that did."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.errors import ArgumentError

__all__ = ["ShiftDetector"]

_COLUMNS = ("tokens", "patches", "images")
_WARM_UP = 500
_SLACK = 0.2
_RATE = 1.26  # just below the root of log(sinh(x) / x) = 0.2 x, see the class
_PER_OCTAVE = 4
_NUM_BINS = 2 + _PER_OCTAVE * 40  # zero, and amounts up to 2**40


class ShiftDetector:
    """Two-sided cumulative sums on the ranks of samples among those seen so far.

    For each of tokens, patches and images a sample scores `2 u - 1`, where u is its mid-rank among
    the samples of this regime (histograms, four bins an octave, after the first 500). While
    nothing changes, u is uniform or, with ties, less extreme, whatever the distribution: so no
    stream has tails too heavy. A sum of `score - 0.2` above `log(6 / false_alarm_rate) / 1.26`
    is a shift, and likewise downwards: by Lundberg's inequality a uniform score crosses it in less
    than `false_alarm_rate` of the samples (6 sums; `E exp(1.26 (2 u - 1 - 0.2)) <= 1`).

    The order of the samples within one update does not count, so a step's samples may be given in
    the order of the plan. O(1) memory.

    Args:
        false_alarm_rate: Bound on false alarms a sample.

    Example:
        >>> detector = ShiftDetector()
        >>> lengths = np.random.default_rng(0).integers(50, 200, 1000)
        >>> detector.update(tokens=lengths, patches=0 * lengths, images=0 * lengths)
        >>> detector.update(tokens=[900] * 32, patches=[2048] * 32, images=[2] * 32)
        'tokens'
    """

    def __init__(self, *, false_alarm_rate: float = 1e-6) -> None:
        self.threshold = math.log(2 * len(_COLUMNS) / false_alarm_rate) / _RATE
        self.reset()

    def reset(self) -> None:
        """Forget the regime and learn the next 500 samples as a new one."""
        self._num = 0
        self._counts = np.zeros((len(_COLUMNS), _NUM_BINS), np.int64)
        self._sums = np.zeros((len(_COLUMNS), 2))

    @property
    def num_samples(self) -> int:
        """Samples of this regime."""
        return self._num

    def update(self, *, tokens: ArrayLike, patches: ArrayLike, images: ArrayLike) -> str | None:
        """Take samples; returns the amount that shifted most, or `None`.

        Raises:
            ArgumentError: Lengths differ, or an amount is negative or not finite.
        """
        bins = _bins(tokens, patches, images)
        if self._num >= _WARM_UP:
            self._accumulate(bins)
        self._num += bins.shape[1]
        for row in range(len(_COLUMNS)):
            self._counts[row] += np.bincount(bins[row], minlength=_NUM_BINS)
        if self._sums.max() <= self.threshold:
            return None
        return _COLUMNS[int(np.argmax(self._sums.max(axis=1)))]

    def _accumulate(self, bins: NDArray[np.int64]) -> None:
        below = np.cumsum(self._counts, axis=1) - self._counts
        ranks = (below + 0.5 * self._counts) / self._num
        scores = (2.0 * np.take_along_axis(ranks, bins, axis=1) - 1.0).sum(axis=1)
        steps = np.stack([scores, -scores], axis=1) - _SLACK * bins.shape[1]
        self._sums = np.maximum(0.0, self._sums + steps)

    def state_dict(self) -> dict[str, Any]:
        """State as plain numbers: bins that are not empty, and the sums."""
        filled = [np.flatnonzero(row) for row in self._counts]
        return {
            "num": self._num,
            "bins": [bins.tolist() for bins in filled],
            "counts": [row[bins].tolist() for row, bins in zip(self._counts, filled, strict=True)],
            "sums": self._sums.tolist(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.reset()
        self._num = state["num"]
        self._sums = np.array(state["sums"])
        for row, (bins, counts) in enumerate(zip(state["bins"], state["counts"], strict=True)):
            self._counts[row, bins] = counts


def _bins(*columns: ArrayLike) -> NDArray[np.int64]:
    """Histogram bins of the three amounts, `(3, num_samples)`; bin 0 is zero."""
    arrays = [np.atleast_1d(np.asarray(column, np.float64)) for column in columns]
    for name, array in zip(_COLUMNS, arrays, strict=True):
        if array.shape != arrays[0].shape or array.ndim != 1:
            raise ArgumentError(
                f"{name} has shape {array.shape}, tokens has {arrays[0].shape}; allowed: one "
                "number a sample"
            )
        if not (np.isfinite(array) & (array >= 0)).all():
            raise ArgumentError(
                f"{name} has a negative or non-finite amount; allowed: numbers >= 0"
            )
    amounts = np.stack(arrays)
    octaves = np.log2(np.maximum(amounts, 1.0))
    bins = np.where(amounts > 0, 1 + np.floor(_PER_OCTAVE * octaves), 0).astype(np.int64)
    return np.minimum(bins, _NUM_BINS - 1)
