"""Placement and local search on pipelines against their oracles, and what they may never do."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.effort import annealing_chances
from balancer.kernels.pipeline_place import place_at_targets
from balancer.kernels.pipeline_search import search_pipelines
from balancer.kernels.placement import fill_empty
from balancer.pipeline_value import rank_members
from tests import naive_pipeline
from tests.kernels.pipelines import shapes
from tests.kernels.problems import small_problems


@st.composite
def cases(draw):
    """A placement problem whose cost columns are the forwards and backwards of a small pipeline."""
    problem = draw(small_problems(min_items=2, max_items=9, max_dp=3, alike=True))
    shape = draw(shapes(max_microbatches=4, max_pp=3))
    columns = 2 * shape.num_stages
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    costs = rng.integers(0, draw(st.sampled_from([2, 100, 10**9])), (len(problem.costs), columns))
    constants = rng.integers(0, draw(st.sampled_from([1, 20])), columns)
    size = {"num_slots": shape.num_microbatches, "costs": costs.tolist()}
    return replace(problem, **size), shape, constants


def placed_at(problem, targets):
    """Cells by the compiled greedy towards targets, shares being the costs themselves."""
    order, costs, columns, *limits = problem.arrays()
    return place_at_targets(
        order, costs, columns, costs, columns, 1.0 / targets.ravel(), *limits, problem.dp_size,
        problem.num_slots,
    )  # fmt: skip


@given(cases(), st.integers(0, 2**32 - 1))
def test_placement_equals_the_oracle(case, seed):
    """Compiled and plain-Python greedy put every item into the same microbatch."""
    problem, shape, _ = case
    size = (problem.num_slots, 2 * shape.num_stages)
    targets = np.random.default_rng(seed).lognormal(size=size) * 100
    expected = naive_pipeline.place_at_targets(
        problem.order, problem.costs, problem.costs, (1.0 / targets).tolist(), problem.amounts,
        problem.caps, problem.padded, problem.dp_size, problem.num_slots,
    )  # fmt: skip
    assert placed_at(problem, targets).tolist() == expected


@given(
    cases(), st.sampled_from([1, 20, 60]), st.booleans(), st.integers(0, 9),
    st.sampled_from([0, 0, 2**12, 2**30]),
)  # fmt: skip
def test_search_equals_the_oracle_and_never_gets_worse(case, budget, limited, seed, warmth):
    """Same cells and value as plain Python; never slower; every cap kept, no cell emptied."""
    problem, shape, constants = case
    cells = placed_at(problem, np.full((problem.num_slots, len(constants)), 100.0))
    if cells.min() < 0:
        return
    fill_empty(np.array(problem.order), problem.dp_size * problem.num_slots, cells)
    _, costs, _, amounts, caps, padded = problem.arrays()
    most = int(1.5 * caps[0]) * shape.virtual if limited and caps.size else 0
    naive_limits = (problem.amounts, problem.caps, padded)
    search = naive_pipeline.Search(
        cells.tolist(), problem.costs, constants.tolist(), naive_limits, problem.dp_size,
        problem.num_slots, shape.naive, most,
    )  # fmt: skip
    search.state = seed
    before, occupied = search.slowest()[1], set(cells.tolist())
    expected, value = search.run(0, budget, warmth, annealing_chances().tolist())
    found = search_pipelines(
        cells, rank_members(cells, problem.dp_size, problem.num_slots), costs, constants,
        (amounts, caps, padded), problem.dp_size, problem.num_slots,
        shape.kernel(), most, 0, budget, seed, warmth, annealing_chances(),
    )  # fmt: skip
    assert cells.tolist() == expected
    assert found == value
    assert value <= before
    assert len(set(expected)) >= len(occupied)
    assert all(search.legal(cell) for cell in set(expected))
