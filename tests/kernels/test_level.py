"""The levelling against its plain-Python oracle, and what it may never do."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.kernels.level import level
from tests import naive, naive_level
from tests.kernels.problems import small_problems
from tests.kernels.test_refine import greedy_start

BUDGETS = st.sampled_from([1, 60, 10**5])


def run(problem, placed, goal, budget, width):
    _, costs, modules, amounts, caps, padded = problem.arrays()
    return level(
        placed, costs, modules, amounts, caps, padded, problem.dp_size, problem.num_slots,
        goal, budget, width, problem.kernel_ranks(), None,
    )  # fmt: skip


@given(small_problems(max_items=12, max_dp=4), BUDGETS, st.sampled_from([1, 3]))
def test_levelling_equals_the_oracle(problem, budget, width):
    """Compiled and plain-Python levelling end at the same assignment and the same step time."""
    placed = greedy_start(problem)
    if placed is None:
        return
    expected, value = naive_level.level(
        placed.tolist(), problem.costs, problem.amounts, problem.caps, problem.padded,
        problem.dp_size, problem.num_slots, 0, budget, width, problem.ranks,
    )  # fmt: skip
    assert run(problem, placed, 0, budget, width) == value
    assert placed.tolist() == expected


@given(small_problems(max_items=30, max_dp=5, max_slots=4))
def test_levelling_never_lengthens_a_step_or_breaks_a_limit(problem):
    """The step is no longer, samples stay in their slots, no cap is broken, no cell emptied."""
    placed = greedy_start(problem)
    if placed is None:
        return
    groups = max(problem.num_slots, 2)  # with one slot, its microbatches and no sums over slots
    size = (problem.dp_size, groups, problem.ranks)
    before, start = naive.step_time(placed.tolist(), problem.costs, *size), placed.copy()
    value = run(problem, placed, 0, 10**6, 4)
    assert value == naive.step_time(placed.tolist(), problem.costs, *size)
    assert value <= before
    assert (placed // problem.dp_size == start // problem.dp_size).all()
    assert set(placed.tolist()) >= set(start.tolist())
    cells = problem.cells()
    for item, cell in enumerate(placed.tolist()):
        assert cells.fits(item, cell)
        cells.held[cell].append(item)


def test_levelling_evens_out_two_modules_at_once():
    """Of two modules on two ranks, both end even where one exchange after another does it."""
    costs = np.array([6, 0, 4, 2, 2, 4, 0, 6, 3, 3, 3, 3], np.int64)
    placed, none = np.array([0, 1, 0, 1, 0, 1], np.int64), np.zeros(0, np.int64)
    assert level(placed, costs, 2, none, none, False, 2, 1, 0, 10**4, 4) == 18
