"""Placement kernels against plain-Python oracles."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.kernels.placement import fill_empty, place_by_amount
from balancer.kernels.slots import place_in_slots
from balancer.kernels.steptime import line_loads, step_value
from tests import naive
from tests.kernels.problems import small_problems


@given(small_problems(), st.booleans())
def test_greedy_on_ranks_equals_the_oracle(problem, scalar):
    """The compiled greedy, vector or scalar on ranks, and its plain form choose the same cells."""
    placed = problem.greedy(scalar=scalar)
    rows = [[sum(row)] for row in problem.costs] if scalar else problem.costs
    expected = naive.place_on_ranks(
        problem.order, problem.costs, rows, problem.amounts, problem.caps, problem.padded,
        problem.dp_size, problem.num_slots, problem.scalar_ranks() if scalar else problem.ranks,
    )  # fmt: skip
    assert placed.tolist() == expected


SIZES = st.lists(st.sampled_from([0.5, 1.0, 1.06]), min_size=3, max_size=3)


@given(small_problems(), st.sampled_from([1.0, 1.02, 1.5]), SIZES)
def test_slot_sized_placement_equals_the_oracle(problem, slack, sizes):
    """The compiled slot placement and its plain-Python form choose the same cells."""
    scales = [1.0 / max(1, max(row[k] for row in problem.costs)) for k in range(problem.modules)]
    scales = [scale * 100 for scale in scales]
    problem = problem.dearest_first(scales)
    peaks = np.array([problem.peak(row, scales) for row in problem.costs])
    _, costs, modules, *limits = problem.arrays()
    columns = costs.reshape(-1, modules).T
    by_module = np.concatenate([np.argsort(-column, kind="stable") for column in columns])
    size = (problem.dp_size, problem.num_slots)
    scale = np.array(scales)
    first_size = sizes[:modules]
    placed = place_in_slots(
        peaks, scale, by_module, costs, modules, *limits, *size, slack, np.array(first_size),
        problem.kernel_ranks(),
    )  # fmt: skip
    expected = naive.place_in_slots(
        list(range(len(peaks))), problem.costs, problem.amounts, problem.caps, problem.padded,
        problem.dp_size, problem.num_slots, slack, first_size, problem.ranks,
    )  # fmt: skip
    assert placed.tolist() == expected


@given(small_problems())
def test_best_fit_equals_the_oracle(problem):
    """The compiled best-fit and its plain-Python form choose the same cells."""
    order, _, _, amounts, caps, padded = problem.arrays()
    num_cells = problem.dp_size * problem.num_slots
    if not caps.size:
        return
    ranks = problem.kernel_ranks()
    placed = place_by_amount(order, amounts, caps, padded, num_cells, problem.dp_size, 1, ranks)
    expected = naive.place_by_amount(
        problem.order, problem.amounts, problem.caps, problem.padded, num_cells, problem.ranks
    )
    assert placed.tolist() == expected


@given(small_problems(), st.data())
def test_fill_empty_equals_the_oracle_and_leaves_none_empty(problem, data):
    """With at least as many items as cells no cell stays empty, unless ranks have other limits."""
    num_cells = problem.dp_size * problem.num_slots
    cell = st.integers(0, num_cells - 1)
    size = len(problem.costs)
    placed = np.array(data.draw(st.lists(cell, min_size=size, max_size=size)), np.int64)
    expected = naive.fill_empty(problem.order, num_cells, placed.tolist(), problem.cells())
    _, _, _, amounts, caps, _ = problem.arrays()
    ranks = problem.kernel_ranks()
    order = np.array(problem.order, np.int64)
    fill_empty(order, num_cells, placed, amounts, caps, problem.dp_size, 1, ranks)
    assert placed.tolist() == expected
    if size >= num_cells and ranks is None:
        assert len(set(expected)) == num_cells


@given(small_problems(), st.booleans(), st.data())
def test_step_value_equals_the_oracle(problem, per_step, data):
    """The compiled step time is the sum over groups and modules of the dearest rank's load."""
    num_cells = problem.dp_size * problem.num_slots
    size = len(problem.costs)
    cell = st.integers(0, num_cells - 1)
    placed = data.draw(st.lists(cell, min_size=size, max_size=size))
    num_groups = 1 if per_step else problem.num_slots
    _, costs, modules, *_ = problem.arrays()
    cells, ranks = np.array(placed, np.int64), problem.kernel_ranks()
    load = line_loads(cells, costs, modules, problem.dp_size, num_groups, ranks)
    expected = naive.step_time(placed, problem.costs, problem.dp_size, num_groups, problem.ranks)
    assert step_value(load, modules, problem.dp_size) == expected
