"""Non-negative fit of times by amounts, with relative errors, that outliers cannot pull."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.errors import BalancerError

__all__ = ["LinearFit", "fit_times", "nnls_solver", "relative_spread"]

_FLOAT = NDArray[np.float64]
_MAX_ROUNDS = 50
_HUBER = 1.345  # 95 % efficient on normal errors (Huber 1981)
_CUT = 4.0  # robust deviations beyond which a measurement is an outlier: 6 in 10^5 normal ones
_LEAST_CUT = 0.01  # never an outlier within 1 %, however well the others fit


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFit:
    """Coefficients of `seconds ~ design @ coefficients`, and which rows they come from.

    Attributes:
        coefficients: Seconds a unit of each column, >= 0.
        kept: Whether each row was used; the others are outliers.
        spread: Robust standard deviation of the relative errors of the rows that were used.
        weighted: The rows that were used, each divided by its predicted seconds.
    """

    coefficients: _FLOAT
    kept: NDArray[np.bool_]
    spread: float
    weighted: _FLOAT

    def is_usual(self, predicted: _FLOAT, seconds: _FLOAT) -> NDArray[np.bool_]:
        """Whether rows that were not fitted are as near to their prediction as those that were."""
        distance: _FLOAT = np.abs(np.log(seconds / predicted))
        return distance <= max(_CUT * self.spread, _LEAST_CUT)


def fit_times(design: _FLOAT, seconds: _FLOAT, *, filter_outliers: bool = True) -> LinearFit:
    """Least squares of the relative errors `seconds / predicted - 1` with coefficients >= 0.

    Every row counts the same, a short microbatch as much as a long one. With the filter, a fit
    with Huber weights (iterated, so that the start does not matter) finds the rows whose
    `log(seconds / predicted)` is more than 4 robust deviations (1.4826 times the median absolute
    deviation) from the median; the fit is then made anew without them.

    Args:
        design: Amounts, float64 `(num_rows, num_columns)`; no column is all zero.
        seconds: Measured seconds, all finite and > 0.
        filter_outliers: Leave outliers out.

    Raises:
        BalancerError: scipy is not installed.
    """
    everything = np.ones(len(seconds), np.bool_)
    if not filter_outliers:
        return _final(design, seconds, everything)
    predicted = design @ _reweighted(design, seconds, robust=True)
    logs = np.log(seconds / predicted)
    distance = np.abs(logs - np.median(logs))
    return _final(design, seconds, distance <= max(_CUT * relative_spread(logs), _LEAST_CUT))


def relative_spread(errors: _FLOAT) -> float:
    """Standard deviation that a normal distribution of this median absolute deviation has.

    Example:
        >>> relative_spread(np.array([-0.1, 0.0, 0.1, 9.0]))
        0.14826
    """
    return float(1.4826 * np.median(np.abs(errors - np.median(errors))))


def nnls_solver() -> Callable[[_FLOAT, _FLOAT], _FLOAT]:
    """The function `(matrix, vector) -> x >= 0` that minimises `|matrix @ x - vector|`.

    Raises:
        BalancerError: scipy is not installed; names the extra that has it.
    """
    try:
        from scipy.optimize import nnls
    except ImportError as error:
        raise BalancerError(
            'scipy is not installed, calibration needs it; run: pip install "evenstep[calibrate]"'
        ) from error

    def solve(matrix: _FLOAT, vector: _FLOAT) -> _FLOAT:
        scale = np.linalg.norm(matrix, axis=0)
        scale[scale == 0] = 1.0
        solution: Any = nnls(matrix / scale, vector)[0]
        return np.asarray(solution / scale, np.float64)

    return solve


def _final(design: _FLOAT, seconds: _FLOAT, kept: NDArray[np.bool_]) -> LinearFit:
    coefficients = _reweighted(design[kept], seconds[kept], robust=False)
    predicted = design[kept] @ coefficients
    return LinearFit(
        coefficients=coefficients,
        kept=kept,
        spread=relative_spread(seconds[kept] / predicted - 1.0),
        weighted=design[kept] / predicted[:, None],
    )


def _reweighted(design: _FLOAT, seconds: _FLOAT, *, robust: bool) -> _FLOAT:
    """Coefficients whose rows weigh one over their own prediction (quasi-likelihood)."""
    solve = nnls_solver()
    floor = 1e-9 * float(np.median(seconds))
    scale, emphasis = seconds, np.ones(len(seconds))
    coefficients = np.zeros(design.shape[1])
    for _ in range(_MAX_ROUNDS):
        weight = emphasis / scale
        latest = solve(design * weight[:, None], seconds * weight)
        settled = np.allclose(latest, coefficients, rtol=1e-10, atol=0.0)
        coefficients = latest
        if settled:
            break
        scale = np.maximum(design @ coefficients, floor)
        if robust:
            errors = seconds / scale - 1.0
            width = _HUBER * max(relative_spread(errors), 1e-12)
            emphasis = np.sqrt(np.minimum(1.0, width / np.maximum(np.abs(errors), 1e-300)))
    return coefficients
