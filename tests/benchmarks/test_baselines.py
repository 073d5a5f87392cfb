"""Baselines place every sample once, leave no microbatch empty, and repeat themselves."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Limits, Topology
from benchmarks import baselines
from benchmarks.planners import Baseline

_Assign = Callable[[Costs, Topology], NDArray[np.int64]]
_ALL: list[_Assign] = [getattr(baselines, name) for name in baselines.__all__]
_TEXT_ONLY = st.just(0)


@st.composite
def _step(draw: st.DrawFn) -> tuple[Costs, Topology]:
    """Samples with and without vision, possibly fewer than microbatches."""
    topology = Topology(
        dp_size=draw(st.integers(1, 4)),
        num_microbatches=draw(st.integers(1, 4)),
        barrier=draw(st.sampled_from(["step", "microbatch"])),
        limits=Limits(max_tokens=draw(st.none() | st.just(20_000))),
    )
    cells = topology.dp_size * topology.num_microbatches
    size = draw(st.integers(1, 4 * cells))
    amounts = st.integers(0, 5) | st.integers(0, 10_000)
    tokens = np.array(draw(st.lists(amounts, min_size=size, max_size=size)))
    patches = np.array(draw(st.lists(_TEXT_ONLY | amounts, min_size=size, max_size=size)))
    values = np.stack([patches * 0.75, tokens + tokens**2 / 4096], axis=1)
    modules = ("vision", "language")
    if draw(st.booleans()):
        values, modules = values[:, 1:], modules[1:]
    return Costs.from_values(values, modules=modules, tokens=tokens, patches=patches), topology


@pytest.mark.parametrize("assign", _ALL)
@given(step=_step())
def test_a_baseline_places_every_sample_once_and_leaves_no_microbatch_empty(
    assign: _Assign, step: tuple[Costs, Topology]
) -> None:
    """Each sample has a cell of the step; as many cells have samples as can; again the same."""
    costs, topology = step
    cells = assign(costs, topology)
    num_cells = topology.dp_size * topology.num_microbatches
    assert (cells.shape, cells.dtype) == ((len(costs),), np.int64)
    assert ((cells >= 0) & (cells < num_cells)).all()
    assert len(np.unique(cells)) == min(num_cells, len(costs))
    assert (assign(costs, topology) == cells).all()


@pytest.mark.parametrize("assign", _ALL)
def test_a_baseline_becomes_a_plan_of_the_same_samples(assign: _Assign) -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 500, 64)
    costs = Costs.from_values(tokens.astype(float), tokens=tokens, unit="tokens")
    ids = rng.permutation(64)[:32]
    planner = Baseline(name="x", assign=assign)
    plan = planner(costs, Topology(dp_size=4, num_microbatches=2), ids)
    plan.check(costs, expected_ids=ids)
    assert plan.certificates[0].step_time >= plan.certificates[0].lower_bound


@pytest.mark.parametrize(
    "assign", [baselines.trl_packs, baselines.hydraulis_dispatch, baselines.omnibal_groups]
)
def test_a_random_baseline_follows_its_seed(assign: Callable[..., NDArray[np.int64]]) -> None:
    tokens = np.random.default_rng(1).integers(1, 500, 64)
    costs = Costs.from_values(tokens.astype(float), tokens=tokens)
    topology = Topology(dp_size=4, num_microbatches=4)
    assert (assign(costs, topology, seed=3) == assign(costs, topology, seed=3)).all()
    assert (assign(costs, topology, seed=3) != assign(costs, topology, seed=4)).any()
