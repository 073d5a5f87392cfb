"""Figures of records."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Record

__all__ = ["draw"]

_COLOURS = {
    "balanced": "#2f6f8f",
    "token_greedy": "#e0a03b",
    "best_fit": "#8f6bb3",
    "length_grouped": "#7f9f6b",
    "arrival": "#c1573b",
    "batch_rebalance": "#4aa3a2",
    "verl": "#b5547f",
    "multipack": "#6b5b4b",
    "trl": "#c9b037",
    "disttrain": "#5577c4",
    "wlb": "#9ccf5a",
    "entrain": "#d98c8c",
    "hydraulis": "#3d7a4a",
    "omnibal": "#a58fd6",
    "dynapipe": "#7a2f3a",
}
_OTHER = "#888888"


def draw(records: Sequence[Record], path: Path) -> None:
    """Step time over its bound as bars: a panel a topology and barrier, a group a trace.

    Draws nothing where no record has that metric.
    """
    from matplotlib.figure import Figure

    shown = [
        record
        for record in records
        if record.metric == "step_time_over_bound" and record.topology != "all"
    ]
    if not shown:
        return
    barriers = list(dict.fromkeys(record.barrier for record in shown))
    topologies = list(dict.fromkeys(record.topology for record in shown))
    planners = list(dict.fromkeys(record.planner for record in shown))
    figure = Figure(
        figsize=(1.5 + 4.7 * len(barriers), 0.9 + 2.5 * len(topologies)),
        dpi=150,
        layout="constrained",
    )
    panels = figure.subplots(
        len(topologies), len(barriers), sharex=True, sharey=True, squeeze=False
    )
    for row, topology in enumerate(topologies):
        for column, barrier in enumerate(barriers):
            here = [r for r in shown if (r.topology, r.barrier) == (topology, barrier)]
            _bars(panels[row][column], here, planners)
            panels[row][column].set_title(f"{topology}, barrier {barrier}", fontsize=10)
        panels[row][0].set_ylabel("step time / lower bound", fontsize=9)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(planners), frameon=False, fontsize=9
    )
    figure.savefig(path)


def _bars(panel: Any, records: Sequence[Record], planners: Sequence[str]) -> None:
    """Bars from 1 upwards on a logarithmic scale, the value written on each."""
    traces = list(dict.fromkeys(record.data for record in records))
    values = {(record.data, record.planner): record.value for record in records}
    width = 0.84 / len(planners)
    for index, planner in enumerate(planners):
        heights = np.array([values.get((trace, planner), np.nan) for trace in traces])
        places = np.arange(len(traces)) + (index - (len(planners) - 1) / 2) * width
        panel.bar(
            places,
            heights - 1,
            width * 0.94,
            bottom=1,
            color=_COLOURS.get(planner, _OTHER),
            label=planner.replace("_", " "),
        )
        for place, height in zip(places, heights, strict=True):
            if np.isfinite(height):
                panel.text(
                    place, height * 1.02, f"{height:.2f}", rotation=90, fontsize=6, ha="center"
                )
    panel.set_yscale("log")
    panel.set_yticks([1, 1.5, 2, 3, 4, 6], ["1", "1.5", "2", "3", "4", "6"])
    panel.set_yticks([], minor=True)
    panel.set_ylim(1, max(1.5, 1.35 * max(values.values(), default=1.0)))
    panel.set_xticks(
        np.arange(len(traces)),
        ["geom. mean" if trace == "all" else trace for trace in traces],
        fontsize=8,
        rotation=20,
    )
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color="#dddddd", lw=0.6)
    panel.set_axisbelow(True)
