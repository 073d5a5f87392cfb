"""The annealing against its plain-Python oracle, and what it may never do."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.effort import annealing_chances
from balancer.kernels.refine import refine
from balancer.kernels.search import anneal
from tests import naive, naive_search
from tests.kernels.problems import small_problems
from tests.kernels.test_refine import greedy_start

BUDGETS = st.sampled_from([1, 40, 300])


def run(problem, placed, num_groups, budget, warmth, seed):
    _, costs, modules, amounts, caps, padded = problem.arrays()
    return anneal(
        placed, costs, modules, amounts, caps, padded, problem.dp_size, problem.num_slots,
        num_groups, 0, budget, warmth, seed, annealing_chances(), problem.kernel_ranks(), None,
    )  # fmt: skip


@given(small_problems(max_items=10), st.booleans(), BUDGETS, st.integers(0, 2**40))
def test_annealing_equals_the_oracle(problem, per_step, budget, warmth):
    """Compiled and plain-Python annealing end at the same assignment and the same step time."""
    placed = greedy_start(problem)
    if placed is None:
        return
    num_groups = 1 if per_step else problem.num_slots
    expected, value = naive_search.anneal(
        placed.tolist(), problem.costs, problem.amounts, problem.caps, problem.padded,
        problem.dp_size, problem.num_slots, num_groups, 0, budget, warmth, 7,
        annealing_chances().tolist(), problem.ranks,
    )  # fmt: skip
    assert run(problem, placed, num_groups, budget, warmth, 7) == value
    assert placed.tolist() == expected


@given(small_problems(max_items=30, max_dp=5, max_slots=4), st.booleans(), st.integers(0, 2**40))
def test_annealing_returns_the_best_it_saw(problem, per_step, warmth):
    """The step is never longer than before, the value is its time, no cap is broken or emptied."""
    placed = greedy_start(problem)
    if placed is None:
        return
    num_groups = 1 if per_step else problem.num_slots
    size = (problem.dp_size, num_groups, problem.ranks)
    before, occupied = naive.step_time(placed.tolist(), problem.costs, *size), set(placed.tolist())
    value = run(problem, placed, num_groups, 3000, warmth, 1)
    assert value == naive.step_time(placed.tolist(), problem.costs, *size)
    assert value <= before
    assert set(placed.tolist()) >= occupied
    cells = problem.cells()
    for item, cell in enumerate(placed.tolist()):
        assert cells.fits(item, cell)
        cells.held[cell].append(item)


def test_annealing_finds_what_moves_and_swaps_do_not():
    """Out of a start that no single exchange improves, to the best possible."""
    costs, none = np.array([29, 25, 24, 21, 20, 11, 8], np.int64), np.zeros(0, np.int64)
    start = np.array([0, 0, 1, 1, 1, 0, 1], np.int64)
    problem = (costs, 1, none, none, False, 2, 1, 1, 0)
    assert refine(start.copy(), *problem, 10**6) == 73
    assert anneal(start, *problem, 400, 4000, 1, annealing_chances(), None, None) == 69


def test_chances_are_exponential_and_do_not_hang_on_rounding():
    """Mean 1 and quartiles of the exponential distribution; no value is near a half."""
    chances = annealing_chances() / 1024
    assert abs(chances.mean() - 1.0) < 1e-3
    assert np.allclose(
        np.quantile(chances, [0.25, 0.5, 0.75]), -np.log([0.75, 0.5, 0.25]), atol=3e-3
    )
    exact = -np.log((np.arange(1024) + 0.5) / 1024) * 1024
    assert np.abs(exact % 1 - 0.5).min() > 1e-5
