"""The local search against its plain-Python oracle, and what it may never do."""

from hypothesis import given
from hypothesis import strategies as st

from balancer.kernels.placement import fill_empty
from balancer.kernels.refine import refine
from tests import naive, naive_refine
from tests.kernels.problems import small_problems

BUDGETS = st.sampled_from([1, 30, 10**6])


def greedy_start(problem):
    """A legal start, or None where greedy placement finds none."""
    placed = problem.greedy(scalar=False)
    if placed.min() < 0:
        return None
    order, _, _, amounts, caps, _ = problem.arrays()
    num_cells, ranks = problem.dp_size * problem.num_slots, problem.kernel_ranks()
    fill_empty(order, num_cells, placed, amounts, caps, problem.dp_size, 1, ranks)
    return placed


def run(problem, placed, num_groups, goal, budget):
    _, costs, modules, amounts, caps, padded = problem.arrays()
    return refine(
        placed, costs, modules, amounts, caps, padded, problem.dp_size, problem.num_slots,
        num_groups, goal, budget, problem.kernel_ranks(),
    )  # fmt: skip


@given(small_problems(max_items=10), st.booleans(), BUDGETS)
def test_search_equals_the_oracle(problem, per_step, budget):
    """Compiled and plain-Python searches end at the same assignment and the same step time."""
    placed = greedy_start(problem)
    if placed is None:
        return
    num_groups = 1 if per_step else problem.num_slots
    expected, value = naive_refine.refine(
        placed.tolist(), problem.costs, problem.amounts, problem.caps, problem.padded,
        problem.dp_size, problem.num_slots, num_groups, 0, budget, problem.ranks,
    )  # fmt: skip
    assert run(problem, placed, num_groups, 0, budget) == value
    assert placed.tolist() == expected


@given(small_problems(max_items=30, max_dp=5, max_slots=4), st.booleans())
def test_search_never_lengthens_a_step_or_breaks_a_limit(problem, per_step):
    """After any search the step is no longer, no cap is broken and no cell was emptied."""
    placed = greedy_start(problem)
    if placed is None:
        return
    num_groups = 1 if per_step else problem.num_slots
    size = (problem.dp_size, num_groups, problem.ranks)
    before = naive.step_time(placed.tolist(), problem.costs, *size)
    occupied = set(placed.tolist())
    value = run(problem, placed, num_groups, 0, 10**6)
    assert value == naive.step_time(placed.tolist(), problem.costs, *size)
    assert value <= before
    assert set(placed.tolist()) >= occupied
    cells = problem.cells()
    for item, cell in enumerate(placed.tolist()):
        assert cells.fits(item, cell)
        cells.held[cell].append(item)
