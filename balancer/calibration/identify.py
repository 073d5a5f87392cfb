"""Refuses coefficients that the measurements cannot tell apart, and says what to measure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.calibration.amounts import CONSTANT, MODULE_AMOUNTS
from balancer.errors import ArgumentError

__all__ = ["Identification", "check_amounts", "check_number", "identify", "least_measurements"]

_FLOAT = NDArray[np.float64]
_MAX_SHARE_ERROR = 0.25
_MANY = 30  # times as many measurements are still worth suggesting
_LEAST_SPREAD = 0.01  # no clock and device repeat better than this


@dataclass(frozen=True, slots=True, kw_only=True)
class Identification:
    """How well measurements determine the coefficients.

    Attributes:
        standard_errors: Standard error of each coefficient, in its own unit.
        share_errors: Standard error of the share of the time that each column explains.
        condition: Condition number of the weighted design with columns scaled to one length.
    """

    standard_errors: _FLOAT
    share_errors: _FLOAT
    condition: float


def least_measurements(num_columns: int) -> int:
    """Fewest measurements that a fit of so many coefficients, the constant included, may have.

    Example:
        >>> least_measurements(3)
        12
    """
    return max(4 * num_columns, num_columns + 8)


def check_number(target: str, num_rows: int, names: Sequence[str], why_not: str) -> None:
    """Refuse too few rows for the coefficients.

    Raises:
        ArgumentError: Says how many more to measure.
    """
    least = least_measurements(len(names))
    if num_rows < least:
        raise ArgumentError(
            f"measurements of {target} have {num_rows} usable rows{why_not}; "
            f"{', '.join(names)} need at least {least}: measure {least - num_rows} more "
            "microbatches of other sizes"
        )


def check_amounts(target: str, names: Sequence[str], design: _FLOAT) -> None:
    """Refuse amounts that never occur.

    Raises:
        ArgumentError: Names the amount.
    """
    for name, column in zip(names, design.T, strict=True):
        if not column.any():
            raise ArgumentError(
                f"measurements of {target} have {name} = 0 in every row: measure microbatches "
                "that have some, or leave the column out"
            )


def identify(
    target: str, names: Sequence[str], weighted: _FLOAT, design: _FLOAT, spread: float
) -> Identification:
    """Uncertainty of the coefficients; refuses what the measurements leave open.

    With relative errors of standard deviation `spread`, a coefficient's contribution to the time,
    as a share of the time, has the standard error `spread * sqrt(VIF / n)`, where VIF is the
    variance inflation factor of its column, not centred (Belsley, Kuh and Welsch 1980). Above 0.25
    a coefficient says nothing.

    Args:
        target: Module, or `"total"`, for the message.
        names: Name of each column.
        weighted: Design, each row divided by its predicted seconds, `(num_rows, num_columns)`.
        design: The same rows in the unit of the amounts.
        spread: Standard deviation of the relative errors.

    Raises:
        ArgumentError: Names the amounts that move together, and what to measure.
    """
    lengths = np.linalg.norm(weighted, axis=0)
    _, singular, axes = np.linalg.svd(weighted / lengths, full_matrices=False)
    tiny = np.finfo(np.float64).eps * max(weighted.shape) * singular[0]
    inverse = np.where(singular > tiny, singular, tiny)
    inflation = np.sum((axes / inverse[:, None]) ** 2, axis=0)
    sigma = max(spread, _LEAST_SPREAD)
    share_errors = sigma * np.sqrt(inflation / len(weighted))
    if share_errors.max() > _MAX_SHARE_ERROR:
        worst = int(np.argmax(share_errors))
        axis = np.abs(axes[np.argmax(np.abs(axes[:, worst]) / inverse)])
        together = [name for name, part in zip(names, axis, strict=True) if part > 0.1 * axis.max()]
        enough = len(weighted) * float(share_errors.max() / _MAX_SHARE_ERROR) ** 2
        raise ArgumentError(_refusal(target, names, together, design, enough))
    return Identification(
        standard_errors=sigma * np.sqrt(inflation) / lengths,
        share_errors=share_errors,
        condition=float(singular[0] / inverse[-1]),
    )


def _refusal(
    target: str, names: Sequence[str], together: Sequence[str], design: _FLOAT, enough: float
) -> str:
    """What moves together, and what to measure; `enough` rows like these would do."""
    fixed = [
        f"{name} is {column[0]:g} in every row"
        for name, column in zip(names, design.T, strict=True)
        if name != CONSTANT and np.ptp(column) <= 1e-9 * column[0]
    ]
    reason = f" ({'; '.join(fixed)})" if fixed else ""
    cures = _cures(set(together))
    if enough <= _MANY * len(design):
        cures.append(f"or about {math.ceil(enough)} microbatches like these")
    return (
        f"measurements of {target} cannot tell apart {', '.join(together)}{reason}: measure "
        f"{'; '.join(cures)}; or leave one of them out of amounts"
    )


def _cures(together: set[str]) -> list[str]:
    """What to measure so that these amounts no longer move together."""
    cures = []
    modules = [name for name, own in MODULE_AMOUNTS.items() if together & set(own)]
    if len(modules) > 1:
        cures.append("every module's own seconds, or also microbatches without media")
    if CONSTANT in together:
        cures.append("microbatches of one sample up to as many as fit")
    if together & {"patches", "patches_squared", "images"}:
        cures.append("images of at least three sizes, from small to large")
    if together & {"audio_patches", "audio_patches_squared", "audio_clips"}:
        cures.append("audio clips of at least three durations")
    if together & {"tokens", "tokens_squared"}:
        cures.append("samples of at least three lengths, from short to long")
    return cures
