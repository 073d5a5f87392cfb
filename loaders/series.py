"""Series: a sum, the largest and quantiles of numbers without end, in bounded memory."""

from array import array

import numpy as np

__all__ = ["Series"]


class Series:
    """Numbers that come one by one; quantiles are those of the last `keep`.

    Attributes:
        count: How many came.
        total: Their sum.
        largest: The largest of them, at least 0.

    Example:
        >>> series = Series(keep=3)
        >>> for number in (9.0, 1.0, 2.0, 4.0):
        ...     series.add(number)
        >>> series.count, series.total, series.largest, series.quantile(0.5)
        (4, 16.0, 9.0, 2.0)
    """

    def __init__(self, keep: int = 65536) -> None:
        self.count = 0
        self.total = self.largest = 0.0
        self._keep = keep
        self._last = array("d")

    def add(self, number: float) -> None:
        """One more number, not negative."""
        if self.count < self._keep:
            self._last.append(number)
        else:
            self._last[self.count % self._keep] = number
        self.count += 1
        self.total += number
        self.largest = max(self.largest, number)

    def quantile(self, share: float) -> float:
        """Quantile of the last numbers, between two of them interpolated; 0 where there is none."""
        return float(np.quantile(self._last, share)) if self.count else 0.0
