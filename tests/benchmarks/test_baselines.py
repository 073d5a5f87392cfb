"""Baselines place every sample, leave no microbatch empty, and do what they are named after."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Limits, Topology
from benchmarks.baselines import arrival, best_fit, length_grouped, token_greedy
from benchmarks.planners import Baseline

_Assign = Callable[[Costs, Topology], NDArray[np.int64]]
_ALL = (arrival, length_grouped, token_greedy, best_fit)


def _costs(tokens: list[int]) -> Costs:
    return Costs.from_values(np.asarray(tokens, float), tokens=tokens, unit="tokens")


@st.composite
def _step(draw: st.DrawFn) -> tuple[Costs, Topology]:
    topology = Topology(
        dp_size=draw(st.integers(1, 4)), num_microbatches=draw(st.integers(1, 4)), barrier="step"
    )
    cells = topology.dp_size * topology.num_microbatches
    sizes = st.integers(0, 5) | st.integers(0, 10_000)
    size = cells * draw(st.integers(1, 4))
    return _costs(draw(st.lists(sizes, min_size=size, max_size=size))), topology


@pytest.mark.parametrize("assign", _ALL)
@given(step=_step())
def test_a_baseline_gives_every_microbatch_a_sample(
    assign: _Assign, step: tuple[Costs, Topology]
) -> None:
    """Every sample has a cell of the step, and every cell a sample."""
    costs, topology = step
    cells = assign(costs, topology)
    assert len(cells) == len(costs)
    num_cells = topology.dp_size * topology.num_microbatches
    assert (np.bincount(cells, minlength=num_cells) > 0).all()
    assert len(np.bincount(cells)) == num_cells


def test_length_grouped_puts_alike_samples_into_one_slot() -> None:
    cells = length_grouped(
        _costs([1, 8, 2, 7, 3, 6, 4, 5]), Topology(dp_size=2, num_microbatches=2)
    )
    assert (cells // 2).tolist() == [1, 0, 1, 0, 1, 0, 1, 0]


def test_token_greedy_fills_the_emptiest_microbatch_first() -> None:
    cells = token_greedy(_costs([5, 4, 3, 3, 3]), Topology(dp_size=2))
    assert cells.tolist() == [0, 1, 1, 0, 1]


def test_best_fit_takes_the_fullest_bin_that_still_fits() -> None:
    # Budget 10: 7 and 6 open bins; 3 completes the first, then 4 the second.
    topology = Topology(dp_size=2, limits=Limits(max_tokens=10))
    assert best_fit(_costs([6, 7, 4, 3]), topology).tolist() == [1, 0, 1, 0]


def test_best_fit_raises_its_budget_until_the_bins_suffice() -> None:
    cells = best_fit(_costs([6, 6, 6, 6]), Topology(dp_size=3))
    assert np.bincount(cells, [6, 6, 6, 6]).tolist() in ([12, 6, 6], [6, 12, 6], [6, 6, 12])


@pytest.mark.parametrize("assign", _ALL)
def test_a_baseline_becomes_a_plan_of_the_same_samples(assign: _Assign) -> None:
    rng = np.random.default_rng(0)
    costs = _costs(rng.integers(1, 500, 64).tolist())
    ids = rng.permutation(64)[:32]
    planner = Baseline(name="x", assign=assign)
    plan = planner(costs, Topology(dp_size=4, num_microbatches=2), ids)
    plan.check(costs, expected_ids=ids)
    assert plan.certificates[0].step_time >= plan.certificates[0].lower_bound
