"""Figure of a calibration: predicted beside measured seconds."""

import csv
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.calibration.measurements import Measurements
from balancer.calibration.result import Calibration
from balancer.errors import ArgumentError
from balancer.plots import require_matplotlib

__all__ = ["plot_calibration", "predicted_and_measured"]

_FLOAT = NDArray[np.float64]
_POINTS, _BAND, _EQUAL = "#2f6f8f", "#dddddd", "#222222"


def predicted_and_measured(
    calibration: Calibration, measurements: Measurements
) -> dict[str, tuple[_FLOAT, _FLOAT]]:
    """Predicted and measured seconds of every row that has a time, by module.

    Raises:
        ArgumentError: The measurements lack an amount, or have none of the modules' times.
    """
    pairs = {}
    for fit in calibration.fits:
        if fit.target in measurements.seconds:
            seconds = measurements.seconds[fit.target]
            timed = np.isfinite(seconds) & (seconds > 0)
            pairs[fit.target] = (fit.predict(measurements.amounts)[timed], seconds[timed])
    if not pairs:
        raise ArgumentError(
            f"measurements time {', '.join(measurements.seconds)}; the calibration has "
            f"{', '.join(fit.target for fit in calibration.fits)}"
        )
    return pairs


def plot_calibration(
    calibration: Calibration, measurements: Measurements, path: str | PathLike[str]
) -> Path:
    """Draw predicted against measured seconds as a PNG, one panel a module, with a CSV beside it.

    Both axes are logarithmic and equal; the band is 10 % either way. Every row that has a time is
    shown, outliers too.

    Returns:
        Path of the CSV.

    Raises:
        ArgumentError: `path` does not end in `.png`, or the measurements are of other modules.
        BalancerError: matplotlib is not installed.
    """
    target = Path(path)
    if target.suffix.lower() != ".png":
        raise ArgumentError(f"path is {str(path)!r}; allowed: a file name ending in .png")
    require_matplotlib()
    from matplotlib.figure import Figure

    pairs = predicted_and_measured(calibration, measurements)
    figure = Figure(figsize=(4.4 * len(pairs) + 0.4, 4.4), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(pairs), squeeze=False)[0]
    errors = {fit.target: fit.held_out.mape for fit in calibration.fits}
    for panel, (module, (predicted, seconds)) in zip(panels, pairs.items(), strict=True):
        _draw(panel, predicted, seconds)
        panel.set_title(f"{module}: held-out error {errors[module]:.1%}", fontsize=10)
    panels[0].set_ylabel("predicted (s)")
    figure.savefig(target)
    return _write_csv(target.with_suffix(".csv"), pairs)


def _draw(panel: Any, predicted: _FLOAT, seconds: _FLOAT) -> None:
    edges = np.array([0.8, 1.25]) * [
        min(predicted.min(), seconds.min()),
        max(predicted.max(), seconds.max()),
    ]
    panel.fill_between(edges, 0.9 * edges, 1.1 * edges, color=_BAND, linewidth=0)
    panel.plot(edges, edges, color=_EQUAL, lw=0.8)
    panel.scatter(seconds, predicted, s=12, color=_POINTS, alpha=0.7, linewidths=0)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlim(edges)
    panel.set_ylim(edges)
    panel.set_aspect("equal")
    panel.set_xlabel("measured (s)")
    panel.spines[["top", "right"]].set_visible(False)


def _write_csv(path: Path, pairs: dict[str, tuple[_FLOAT, _FLOAT]]) -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["module", "measured_s", "predicted_s"])
        for module, (predicted, seconds) in pairs.items():
            rows = zip(seconds.tolist(), predicted.tolist(), strict=True)
            writer.writerows([module, *row] for row in rows)
    return path
