"""Drift: whether observed times have moved away from what predictions usually say."""

import math
from typing import Any

import numpy as np

__all__ = ["DriftDetector"]

_WARM_UP = 64
_LEAST_SPREAD = 0.02  # drifts of less than this share of the time are of no interest
_SLACK = 1.0  # standard deviations that cost nothing
_CLIP = 4.0  # standard deviations at which one observation stops counting for more
_MEMORY = 2000  # observations the usual ratio is an average over
_ABS_TO_STD = math.sqrt(math.pi / 2)  # of a normal distribution


class DriftDetector:
    """Two-sided cumulative sum (Page 1954) on the logarithm of observed over predicted.

    The usual ratio and its spread are learnt from the first 64 observations and averaged on; an
    observation counts for at most 4 standard deviations, so a single hiccup is no drift. A sum
    above `log(2 / false_alarm_rate) / 1.4` is one: by Lundberg's inequality normal errors with a
    slack of one standard deviation, 0.3 of it lost to errors of the usual ratio, cross it in less
    than `false_alarm_rate` of the observations. O(1) memory.

    Args:
        false_alarm_rate: Bound on false alarms an observation.

    Example:
        >>> detector = DriftDetector()
        >>> rng = np.random.default_rng(0)
        >>> ratios = [detector.update(error) for error in rng.normal(0.0, 0.05, 500)]
        >>> set(ratios)
        {None}
        >>> slower = [detector.update(0.34 + error) for error in rng.normal(0.0, 0.05, 8)]
        >>> next(round(ratio, 1) for ratio in slower if ratio is not None)
        1.4
    """

    def __init__(self, *, false_alarm_rate: float = 1e-6) -> None:
        self.threshold = math.log(2.0 / false_alarm_rate) / (2.0 * (_SLACK - 0.3))
        self.reset()

    def reset(self) -> None:
        """Forget everything and learn the usual ratio anew."""
        self._first: list[float] = []
        self._num = 0
        self._usual = 0.0
        self._spread = 0.0
        self._sums = [0.0, 0.0]
        self._since: list[list[float]] = [[0.0, 0.0], [0.0, 0.0]]

    @property
    def usual_log_ratio(self) -> float:
        """Usual logarithm of observed over predicted."""
        return float(np.median(self._first)) if self._first else self._usual

    @property
    def spread(self) -> float:
        """Standard deviation of that logarithm, at least 2 %."""
        if self._first:
            return _robust_spread(self._first)
        return max(self._spread, _LEAST_SPREAD)

    def update(self, log_ratio: float) -> float | None:
        """Take one observation; returns the new ratio over the usual one where there is drift."""
        if self._num < _WARM_UP:
            self._warm_up(log_ratio)
            return None
        spread = self.spread
        score = max(-_CLIP, min(_CLIP, (log_ratio - self._usual) / spread))
        drifted = self._accumulate(score, log_ratio)
        if drifted is not None:
            return drifted
        weight = 1.0 / min(self._num + 1, _MEMORY)
        self._spread += weight * (_ABS_TO_STD * abs(score) * spread - self._spread)
        self._usual += weight * score * spread
        self._num += 1
        return None

    def _warm_up(self, log_ratio: float) -> None:
        self._first.append(log_ratio)
        self._num += 1
        if self._num == _WARM_UP:
            self._usual, self._spread = self.usual_log_ratio, self.spread
            self._first = []

    def _accumulate(self, score: float, log_ratio: float) -> float | None:
        """Add to the sums up and down; each keeps the mean since it last stood at zero."""
        for side, sign in enumerate((1.0, -1.0)):
            self._sums[side] = max(0.0, self._sums[side] + sign * score - _SLACK)
            if self._sums[side] == 0.0:
                self._since[side] = [0.0, 0.0]
                continue
            self._since[side][0] += 1.0
            self._since[side][1] += log_ratio - self._usual
            if self._sums[side] > self.threshold:
                return math.exp(self._since[side][1] / self._since[side][0])
        return None

    def state_dict(self) -> dict[str, Any]:
        """State as plain numbers."""
        return {
            "first": list(self._first),
            "num": self._num,
            "usual": self._usual,
            "spread": self._spread,
            "sums": list(self._sums),
            "since": [list(pair) for pair in self._since],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self._first = list(state["first"])
        self._num = state["num"]
        self._usual, self._spread = state["usual"], state["spread"]
        self._sums = list(state["sums"])
        self._since = [list(pair) for pair in state["since"]]


def _robust_spread(values: list[float]) -> float:
    median = float(np.median(values))
    return max(1.4826 * float(np.median(np.abs(np.array(values) - median))), _LEAST_SPREAD)
