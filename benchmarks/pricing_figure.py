"""Figure of predicted against measured times."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pricing_records import Predicted

__all__ = ["draw_predicted"]

_COLOURS = ("#2f6f8f", "#e0a03b", "#8f6bb3")
_BAND, _EQUAL = "#dddddd", "#222222"


def draw_predicted(panels: Sequence[Predicted], path: Path) -> None:
    """One panel a model or task, both axes logarithmic; the band is 10 % either way."""
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(4.2 * len(panels) + 0.4, 4.4), dpi=150, layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for place, panel in zip(axes, panels, strict=True):
        _draw(place, panel)
    axes[0].set_ylabel("predicted (s)")
    figure.savefig(path)


def _draw(axes: Any, panel: Predicted) -> None:
    edges = np.array([0.7, 1.4]) * [panel.seconds.min(), panel.seconds.max()]
    axes.fill_between(edges, 0.9 * edges, 1.1 * edges, color=_BAND, linewidth=0)
    axes.plot(edges, edges, color=_EQUAL, lw=0.8)
    for (predictor, predicted), colour in zip(panel.predicted.items(), _COLOURS, strict=False):
        error = float(np.abs(predicted / panel.seconds - 1).mean())
        label = f"{predictor.replace('_', ' ')}: {100 * error:.1f} %"
        axes.scatter(panel.seconds, predicted, s=14, color=colour, lw=0, alpha=0.8, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(f"{panel.data}, {len(panel.seconds)} held out", fontsize=10)
    axes.set_xlabel("measured CPU time (s)")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
