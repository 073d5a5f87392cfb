"""The figure of rank loads and the numbers beside it."""

import csv
from pathlib import Path

import numpy as np
import pytest

from balancer.cost import Costs
from balancer.errors import ArgumentError, BalancerError
from balancer.pipeline import step_times
from balancer.plan import Plan
from balancer.plots import plot_loads, rank_loads


def _plans() -> tuple[Plan, Plan, Costs]:
    costs = Costs.from_values([3.0, 1.0, 2.0, 2.0, 5.0, 4.0], unit="flops")
    plan = Plan.from_cells([[[[0], [1]], [[3], [2]]], [[[4], [5]]]])
    given = Plan.from_cells([[[[0], [1]], [[2], [3]]], [[[5], [4]]]])
    return plan, given, costs


def test_rank_loads_sum_a_ranks_microbatches_in_each_step() -> None:
    plan, _, costs = _plans()
    assert rank_loads(plan, costs).tolist() == [[5, 3], [5, 4]]


def test_the_csv_has_every_load_and_step_time_that_is_drawn(tmp_path: Path) -> None:
    plan, given, costs = _plans()
    path = plot_loads(plan, costs, tmp_path / "loads.png", given=given)
    assert path == tmp_path / "loads.csv"
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["order"] for row in rows] == ["given order"] * 4 + ["planned"] * 4
    for order, name in ((given, "given order"), (plan, "planned")):
        shown = [row for row in rows if row["order"] == name]
        loads = np.array([float(row["load_flops"]) for row in shown]).reshape(2, 2)
        np.testing.assert_array_equal(loads, rank_loads(order, costs))
        times = [float(row["step_time_flops"]) for row in shown[::2]]
        np.testing.assert_array_equal(times, step_times(order, costs))


def test_the_figure_has_a_panel_for_each_order(tmp_path: Path) -> None:
    from PIL import Image

    plan, given, costs = _plans()
    plot_loads(plan, costs, tmp_path / "two.png", given=given)
    plot_loads(plan, costs, tmp_path / "one.png")
    with Image.open(tmp_path / "two.png") as two, Image.open(tmp_path / "one.png") as one:
        assert two.width > 1.5 * one.width
        for image in (one, two):
            low, high = image.convert("L").getextrema()
            assert high == 255
            assert low < 64


def test_costs_of_nothing_can_be_drawn(tmp_path: Path) -> None:
    plan, given, _ = _plans()
    assert plot_loads(plan, Costs.from_values(np.zeros(6)), tmp_path / "x.png", given=given)


def test_other_endings_than_png_are_refused(tmp_path: Path) -> None:
    plan, _, costs = _plans()
    with pytest.raises(ArgumentError, match=r"ending in \.png"):
        plot_loads(plan, costs, tmp_path / "loads.pdf")


def test_a_missing_matplotlib_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _, costs = _plans()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BalancerError, match=r"evenstep\[plots\]"):
        plot_loads(plan, costs, tmp_path / "loads.png")
