"""Coefficients of a model's time, fitted to measured microbatches, with their error shown."""

import math
import platform
import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.calibration.amounts import AMOUNTS, CONSTANT, MODULE_AMOUNTS
from balancer.calibration.fit import LinearFit, fit_times
from balancer.calibration.identify import check_amounts, check_number, identify
from balancer.calibration.measurements import TOTAL, Measurements
from balancer.calibration.quality import Quality, held_out_rows, prediction_quality
from balancer.calibration.result import Calibration, ModuleFit
from balancer.calibration.signal import signal_faults
from balancer.checks import check_count
from balancer.errors import ArgumentError

__all__ = ["Calibration", "Measurements", "calibrate"]

_FLOAT = NDArray[np.float64]
_POOR = 0.15  # a held-out error above this is worth a note
_MANY = 0.15  # so is a larger share of outliers


def calibrate(
    measurements: Measurements | Sequence[Mapping[str, Any]],
    *,
    amounts: Mapping[str, Sequence[str]] | None = None,
    held_out: float = 0.25,
    seed: int = 0,
    filter_outliers: bool = True,
    max_wait: float = 0.05,
    peak_flops_per_s: float | None = None,
    hardware: str = "not stated",
    versions: Mapping[str, str] | None = None,
    default: Calibration | None = None,
) -> Calibration:
    """Fit seconds by amounts, with coefficients >= 0, for each module that was timed.

    Two filters come first. The signal filter drops rows that do not time the work: no time, waits,
    faster than the device can be. The model filter drops rows far from a robust fit. Errors are
    relative, so short microbatches count as much as long ones. The error on rows held out is from
    a fit of the other rows; the coefficients are then fitted to all rows.

    Args:
        measurements: Measurements, or records for `Measurements.from_records`.
        amounts: By module (or `"total"`), the amounts its time depends on; by default the module's
            own that were measured, and for `"total"` all. A constant is always added.
        held_out: Share of the rows that are held out, above 0 and below 1.
        seed: Seed of the choice of rows held out.
        filter_outliers: Drop rows far from the fit.
        max_wait: Largest share of its seconds that a row may have waited.
        peak_flops_per_s: Peak of the device, where the measurements have `flops`.
        hardware: What was measured on, to be saved.
        versions: Versions of what was measured with, to be saved beside those of the fit.
        default: Returned, with a warning, where the measurements cannot identify the
            coefficients; without it that is an error.

    Raises:
        ArgumentError: An argument is not allowed, or the measurements cannot identify a
            coefficient: says which, and what to measure.
        BalancerError: scipy is not installed.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> tokens = rng.uniform(100, 8000, 40)
        >>> records = [{"tokens": t, "tokens_squared": t * t / 4,
        ...             "language_seconds": 0.01 + 2e-5 * t + 1e-9 * t * t / 4} for t in tokens]
        >>> calibration = calibrate(records, hardware="example")
        >>> {k: float(f"{v:.3g}") for k, v in calibration.fits[0].coefficients.items()}
        {'tokens': 2e-05, 'tokens_squared': 1e-09, 'constant': 0.01}
    """
    if not isinstance(measurements, Measurements):
        measurements = Measurements.from_records(measurements)
    if not 0 < held_out < 1:
        raise ArgumentError(f"held_out is {held_out!r}; allowed: shares above 0 and below 1")
    check_count("seed", seed, least=0)
    if not 0 <= max_wait <= 1:
        raise ArgumentError(f"max_wait is {max_wait!r}; allowed: shares from 0 to 1")
    if peak_flops_per_s is not None and not 0 < peak_flops_per_s < math.inf:
        raise ArgumentError(
            f"peak_flops_per_s is {peak_flops_per_s!r}; allowed: finite numbers above 0"
        )
    columns = _columns(measurements, amounts)
    try:
        fits = tuple(
            _fit_module(
                measurements,
                target,
                names,
                held_out=held_out,
                seed=seed,
                filter_outliers=filter_outliers,
                max_wait=max_wait,
                peak_flops_per_s=peak_flops_per_s,
            )
            for target, names in columns.items()
        )
    except ArgumentError as error:
        if default is None:
            raise
        warnings.warn(f"{error}; the default calibration is kept", stacklevel=2)
        return default
    return Calibration(
        fits=fits,
        hardware=hardware,
        versions={**_fit_versions(), **(versions or {})},
        rule=measurements.rule,
    )


def _columns(
    measurements: Measurements, amounts: Mapping[str, Sequence[str]] | None
) -> dict[str, tuple[str, ...]]:
    """Columns of the fit of each target, the constant last; modules in the order they run.

    Where modules are timed apart, the time of all together has nothing to add.
    """
    order = [name for name in MODULE_AMOUNTS if name in measurements.seconds] or [TOTAL]
    for target, given in (amounts or {}).items():
        known = (*MODULE_AMOUNTS, TOTAL)
        if target not in order:
            raise ArgumentError(
                f"amounts names {target!r}; allowed: modules that were timed, "
                f"{', '.join(order)}, of {', '.join(known)}"
            )
        for name in given:
            if name not in measurements.amounts:
                raise ArgumentError(
                    f"amounts[{target!r}] has {name!r}; measured were "
                    f"{', '.join(measurements.amounts)}"
                )
    return {target: (*_own(measurements, target, amounts or {}), CONSTANT) for target in order}


def _own(
    measurements: Measurements, target: str, amounts: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    if target in amounts:
        return tuple(amounts[target])
    candidates = AMOUNTS if target == TOTAL else MODULE_AMOUNTS[target]
    names = tuple(name for name in candidates if name in measurements.amounts)
    if not names:
        raise ArgumentError(
            f"measurements time {target} but have none of {', '.join(candidates)}; add the columns"
        )
    return names


def _fit_module(
    measurements: Measurements,
    target: str,
    names: tuple[str, ...],
    *,
    held_out: float,
    seed: int,
    filter_outliers: bool,
    max_wait: float,
    peak_flops_per_s: float | None,
) -> ModuleFit:
    faults = signal_faults(
        measurements, target, max_wait=max_wait, peak_flops_per_s=peak_flops_per_s
    )
    usable = ~np.any(list(faults.values()), axis=0)
    design = _design(measurements, names)[usable]
    seconds = measurements.seconds[target][usable]
    dropped = {reason: int(rows.sum()) for reason, rows in faults.items() if rows.any()}
    why_not = f" (dropped: {', '.join(f'{n} {r}' for r, n in dropped.items())})" if dropped else ""
    check_number(target, len(seconds), names, why_not)
    check_amounts(target, names, design)
    fit = fit_times(design, seconds, filter_outliers=filter_outliers)
    found = identify(target, names, fit.weighted, design[fit.kept], fit.spread)
    aside = held_out_rows(len(seconds), held_out, seed)
    _check_held_out(held_out, aside, len(names))
    quality = _held_out_quality(design, seconds, aside, filter_outliers)
    return ModuleFit(
        target=target,
        coefficients=dict(zip(names, fit.coefficients.tolist(), strict=True)),
        standard_errors=dict(zip(names, found.standard_errors.tolist(), strict=True)),
        held_out=quality,
        num_rows=int(fit.kept.sum()),
        dropped=dropped,
        num_outliers=int((~fit.kept).sum()),
        notes=_notes(names, fit, quality),
    )


def _check_held_out(held_out: float, aside: NDArray[np.bool_], num_columns: int) -> None:
    """Refuse a share that leaves nothing to judge by, or too little to fit."""
    num = int(aside.sum())
    least = 2 * num_columns
    if num < 1 or len(aside) - num < least:
        raise ArgumentError(
            f"held_out is {held_out!r}, which holds out {num} of {len(aside)} rows; allowed: at "
            f"least one, and {least} left to fit {num_columns} coefficients"
        )


def _design(measurements: Measurements, names: Sequence[str]) -> _FLOAT:
    ones = np.ones(len(measurements))
    columns = [ones if name == CONSTANT else measurements.amounts[name] for name in names]
    return np.stack(columns, axis=1)


def _held_out_quality(
    design: _FLOAT, seconds: _FLOAT, aside: NDArray[np.bool_], filter_outliers: bool
) -> Quality:
    """Errors on the rows set aside, of a fit that saw only the others."""
    fit = fit_times(design[~aside], seconds[~aside], filter_outliers=filter_outliers)
    predicted = np.maximum(design[aside] @ fit.coefficients, np.finfo(np.float64).tiny)
    usual = fit.is_usual(predicted, seconds[aside]) if filter_outliers else None
    return prediction_quality(predicted, seconds[aside], usual)


def _notes(names: Sequence[str], fit: LinearFit, quality: Quality) -> tuple[str, ...]:
    notes = []
    if quality.mape > _POOR:
        notes.append(
            f"held-out error is {quality.mape:.0%}: the amounts do not explain these times well"
        )
    num = len(fit.kept)
    outliers = int((~fit.kept).sum())
    if outliers > _MANY * num:
        notes.append(f"{outliers} of {num} rows are outliers: look at how they were timed")
    zero = [name for name, value in zip(names, fit.coefficients, strict=True) if value == 0]
    if zero:
        notes.append(f"no time is owed to {', '.join(zero)}: the best fit has them at zero")
    return tuple(notes)


def _fit_versions() -> dict[str, str]:
    """Versions of what fits; a checkout that is not installed has none of its own."""
    installed = {package: _installed(package) for package in ("evenstep", "numpy", "scipy")}
    found = {package: number for package, number in installed.items() if number is not None}
    return {"python": platform.python_version(), **found}


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
