"""Error of predictions as an exponentially weighted average."""

import math
from typing import Any

__all__ = ["ErrorAverage"]


class ErrorAverage:
    """Averages of observed over predicted times in which late ones count more.

    Args:
        half_life: Observations after which one counts half.

    Example:
        >>> errors = ErrorAverage(half_life=100)
        >>> for ratio in (2.0, 2.0, 2.0):
        ...     errors.update(ratio)
        >>> round(errors.scale, 3), round(errors.mape, 3), round(errors.mape_rescaled, 3)
        (2.0, 0.5, 0.0)
    """

    def __init__(self, *, half_life: float) -> None:
        self._keep = float(0.5 ** (1.0 / half_life))
        self.reset()

    def reset(self) -> None:
        """Forget all observations."""
        self.num = 0
        self._weight = 0.0
        self._log_ratio = 0.0
        self._error = 0.0
        self._rescaled = 0.0

    def update(self, ratio: float) -> None:
        """Take one ratio of observed over predicted time."""
        self.num += 1
        self._weight = self._keep * self._weight + 1.0
        self._log_ratio = self._keep * self._log_ratio + math.log(ratio)
        self._error = self._keep * self._error + abs(1.0 / ratio - 1.0)
        self._rescaled = self._keep * self._rescaled + abs(self.scale / ratio - 1.0)

    @property
    def scale(self) -> float:
        """Geometric mean of the ratios; NaN before the first."""
        return math.exp(self._log_ratio / self._weight) if self.num else math.nan

    @property
    def mape(self) -> float:
        """Mean absolute error of predictions, relative to the observed time."""
        return self._error / self._weight if self.num else math.nan

    @property
    def mape_rescaled(self) -> float:
        """The same of predictions times `scale`, each as it was at that observation."""
        return self._rescaled / self._weight if self.num else math.nan

    def state_dict(self) -> dict[str, Any]:
        """State as plain numbers."""
        return {
            "num": self.num,
            "weight": self._weight,
            "log_ratio": self._log_ratio,
            "error": self._error,
            "rescaled": self._rescaled,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.num = state["num"]
        self._weight, self._log_ratio = state["weight"], state["log_ratio"]
        self._error, self._rescaled = state["error"], state["rescaled"]
