"""Figures of a plan: the load of every rank in every step, before and after."""

import csv
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.errors import ArgumentError, BalancerError
from balancer.pipeline import cell_costs, step_times
from balancer.plan import Plan
from balancer.topology import WAITS

__all__ = ["plot_loads", "rank_loads", "require_matplotlib"]

_FLOAT = NDArray[np.float64]
_COLOURS = {"given order": "#c1573b", "planned": "#2f6f8f"}
_STEP_TIME = "#222222"
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"))


def rank_loads(plan: Plan, costs: Costs) -> _FLOAT:
    """Cost of each rank in each step, `(num_steps, dp_size)`, in the unit of the costs.

    Under the pipeline barrier a rank is a pipeline, and its cost is shared by its `pp_size` parts.

    Example:
        >>> costs = Costs.from_values([3.0, 1.0, 2.0, 2.0])
        >>> rank_loads(Plan.from_cells([[[[0], [1]], [[2], [3]]]]), costs)
        array([[5., 3.]])
    """
    slots = cell_costs(plan, costs).sum(axis=1).reshape(-1, plan.topology.dp_size)
    return np.asarray(np.add.reduceat(slots, plan.step_slots[:-1], axis=0)) / plan.topology.pp_size


def plot_loads(
    plan: Plan, costs: Costs, path: str | PathLike[str], *, given: Plan | None = None
) -> Path:
    """Draw rank loads per step as a PNG, and write the same numbers as CSV beside it.

    One panel for the given order (where there is one) and one for the plan, on one scale: the
    band spans the ranks from least to most loaded, the light line is their mean, the dark line
    the simulated step time. What lies between mean and step time is time spent waiting.

    Args:
        plan: The plan.
        costs: Costs of the whole dataset, rows by sample id.
        path: Where to write the PNG; the CSV takes its name, ending in `.csv`.
        given: Plan that leaves the samples where they came.

    Returns:
        Path of the CSV.

    Raises:
        ArgumentError: `path` does not end in `.png`.
        BalancerError: matplotlib is not installed.
    """
    target = Path(path)
    if target.suffix.lower() != ".png":
        raise ArgumentError(f"path is {str(path)!r}; allowed: a file name ending in .png")
    require_matplotlib()
    from matplotlib.figure import Figure

    shown = {"given order": given, "planned": plan}
    orders = {name: order for name, order in shown.items() if order is not None}
    loads = {name: rank_loads(order, costs) for name, order in orders.items()}
    times = {name: step_times(order, costs) for name, order in orders.items()}
    scale, unit = _scaled(max(float(series.max()) for series in times.values()), costs.unit)
    figure = Figure(figsize=(4.8 * len(orders) + 0.6, 4.2), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(orders), sharey=True, squeeze=False)[0]
    steps = plan.first_step + np.arange(plan.num_steps)
    for panel, name in zip(panels, orders, strict=True):
        _draw(panel, name, steps, loads[name] / scale, times[name] / scale)
    panels[0].set_ylabel(f"cost of a step ({unit})")
    panels[0].set_ylim(bottom=0)
    _add_legend(figure)
    figure.suptitle(
        f"{plan.topology.dp_size} ranks x {plan.topology.num_microbatches} microbatches, "
        f"{WAITS[plan.topology.barrier]}",
        fontsize=11,
    )
    figure.savefig(target)
    return _write_csv(target.with_suffix(".csv"), plan.first_step, loads, times, costs.unit)


def require_matplotlib() -> None:
    """Raise unless figures can be drawn.

    Raises:
        BalancerError: matplotlib is not installed; names the extra that has it.
    """
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise BalancerError(
            'matplotlib is not installed, figures need it; run: pip install "evenstep[plots]"'
        )


def _draw(panel: Any, name: str, steps: NDArray[np.int64], loads: _FLOAT, times: _FLOAT) -> None:
    """One panel: band of the ranks, their mean, and the step time."""
    # A value holds over its whole step, so every curve is drawn as a staircase.
    edges = np.append(steps, steps[-1] + 1) - 0.5

    def stairs(values: _FLOAT) -> _FLOAT:
        return np.append(values, values[-1])

    colour, low, high = _COLOURS[name], loads.min(axis=1), loads.max(axis=1)
    panel.fill_between(
        edges,
        stairs(low),
        stairs(high),
        step="post",
        color=colour,
        alpha=0.35,
        linewidth=0,
    )
    mean = loads.mean(axis=1)
    panel.step(edges, stairs(mean), where="post", color=colour, lw=1.2)
    panel.step(edges, stairs(times), where="post", color=_STEP_TIME, lw=1.2)
    idle = 1.0 - float(mean.sum()) / float(times.sum()) if times.sum() else 0.0
    panel.set_title(f"{name}: ranks wait {idle:.1%} of the time", fontsize=10)
    panel.set_xlabel("step")
    panel.set_xlim(edges[0], edges[-1])
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color="#dddddd", lw=0.6)
    panel.set_axisbelow(True)


def _add_legend(figure: Any) -> None:
    """One legend for all panels, in grey, below them."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure.legend(
        handles=[
            Line2D([], [], color=_STEP_TIME, lw=1.2, label="step time"),
            Patch(color="#bbbbbb", label="cost of the ranks, least to most"),
            Line2D([], [], color="#777777", lw=1.2, label="mean of the ranks"),
        ],
        loc="outside lower center",
        ncols=3,
        fontsize=9,
        frameon=False,
    )


def _scaled(largest: float, unit: str) -> tuple[float, str]:
    """Divisor and unit that keep the numbers of an axis short."""
    if unit != "flops":
        return 1.0, unit
    for factor, prefix in _PREFIXES:
        if largest >= factor:
            return factor, f"{prefix}FLOP"
    return 1.0, "FLOP"


def _write_csv(
    path: Path, first_step: int, loads: dict[str, _FLOAT], times: dict[str, _FLOAT], unit: str
) -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["order", "step", "dp_rank", f"load_{unit}", f"step_time_{unit}"])
        for order, values in loads.items():
            for (step, dp_rank), load in np.ndenumerate(values):
                time = float(times[order][step])
                writer.writerow([order, first_step + step, dp_rank, float(load), time])
    return path
