"""How far predicted times are from measured ones."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Quality", "held_out_rows", "prediction_quality", "spearman"]

_FLOAT = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Errors of predictions on measurements that were not fitted.

    Attributes:
        mape: Mean absolute error relative to the measured seconds, without outliers.
        mape_with_outliers: The same over all rows.
        r2: Share of the variance of the seconds that is explained, without outliers.
        spearman: Rank correlation with the measured seconds, over all rows.
        num: Rows, outliers included.
        num_outliers: Of these, outliers.
    """

    mape: float
    mape_with_outliers: float
    r2: float
    spearman: float
    num: int
    num_outliers: int


def held_out_rows(num: int, share: float, seed: int) -> NDArray[np.bool_]:
    """A seeded choice of `round(num * share)` rows, as a mask.

    Example:
        >>> int(held_out_rows(10, 0.3, seed=0).sum())
        3
    """
    mask = np.zeros(num, np.bool_)
    mask[np.random.default_rng(seed).permutation(num)[: round(num * share)]] = True
    return mask


def prediction_quality(
    predicted: _FLOAT, seconds: _FLOAT, usual: NDArray[np.bool_] | None = None
) -> Quality:
    """Errors of predictions; `usual` marks the rows that are not outliers.

    Example:
        >>> quality = prediction_quality(np.array([1.0, 2.2, 3.0]), np.array([1.0, 2.0, 4.0]))
        >>> round(quality.mape, 4), quality.spearman
        (0.1167, 1.0)
    """
    rows = np.ones(len(seconds), np.bool_) if usual is None else usual
    errors = np.abs(predicted / seconds - 1.0)
    variance = float(np.sum((seconds[rows] - seconds[rows].mean()) ** 2)) if rows.any() else 0.0
    residual = float(np.sum((seconds[rows] - predicted[rows]) ** 2))
    return Quality(
        mape=float(errors[rows].mean()) if rows.any() else float("nan"),
        mape_with_outliers=float(errors.mean()),
        r2=1.0 - residual / variance if variance else float("nan"),
        spearman=spearman(predicted, seconds),
        num=len(seconds),
        num_outliers=int((~rows).sum()),
    )


def spearman(first: _FLOAT, second: _FLOAT) -> float:
    """Rank correlation of Spearman, ties at their mean rank; NaN where one side is constant.

    Example:
        >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]))
        0.5
    """
    ranks = [_mean_ranks(values) for values in (first, second)]
    centred = [rank - rank.mean() for rank in ranks]
    norm = float(np.sqrt(np.sum(centred[0] ** 2) * np.sum(centred[1] ** 2)))
    return float(np.sum(centred[0] * centred[1])) / norm if norm else float("nan")


def _mean_ranks(values: _FLOAT) -> _FLOAT:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], np.float64)
