"""Starts whose first slot holds several dear samples of every rank."""

import numpy as np
import pytest

from balancer.bounds import step_bound
from balancer.candidates import best_placement
from balancer.cost import Costs
from balancer.plan import Plan
from balancer.pooled_slots import pooled, pooled_slots
from balancer.problem import build_problem
from balancer.step_planner import plan_step
from balancer.topology import Limits, Topology

_SIZE = {"dp_size": 8, "num_microbatches": 4, "barrier": "microbatch"}
_TOPOLOGY = Topology(**_SIZE, limits=Limits(max_tokens=20_000))


def _lengths(num_long: int) -> np.ndarray:
    """64 lengths in random order, so many of them long."""
    rng = np.random.default_rng(num_long)
    short, long = rng.integers(20, 60, 64 - num_long), rng.integers(3500, 4500, num_long)
    return rng.permutation(np.concatenate([short, long]))


def _problem(num_long: int, topology: Topology):
    lengths = _lengths(num_long)
    costs = Costs.from_values(lengths, tokens=lengths)
    return build_problem(costs, np.arange(64), np.zeros(64, np.bool_), topology)


def _tokens(plan: Plan, lengths: np.ndarray) -> np.ndarray:
    return np.add.reduceat(lengths[plan.sample_ids], plan.offsets[:-1])


@pytest.mark.parametrize("max_tokens", [None, 9_000])
def test_the_first_slot_holds_more_and_limits_are_kept(max_tokens):
    """No microbatch is empty, and the first slot of later starts is never smaller."""
    topology = Topology(**_SIZE, limits=Limits(max_tokens=max_tokens))
    starts = list(pooled_slots(_problem(20, topology), topology, 4))
    assert len(starts) == 3
    tokens = _problem(20, topology).costs
    firsts = []
    for cells in starts:
        assert (np.bincount(cells, minlength=32) > 0).all()
        firsts.append(tokens[cells < 8].sum())
        if max_tokens is not None:
            amounts = _problem(20, topology).amounts
            assert np.bincount(cells, amounts, 32).max() <= max_tokens
    assert firsts == sorted(firsts)
    assert firsts[-1] > firsts[0] or max_tokens is not None


def test_there_are_none_of_one_slot_and_for_the_step_barrier():
    """Nothing to pool in a single slot; ranks that wait once a step need none."""
    assert not list(pooled_slots(_problem(20, _TOPOLOGY), _TOPOLOGY, 1))
    step = Topology(**{**_SIZE, "barrier": "step"}, limits=_TOPOLOGY.limits)
    assert pooled(_problem(20, step), step, 4, 1, 2**60) is None


def test_without_a_limit_microbatches_do_not_grow():
    """What a microbatch may hold is for the user to say."""
    topology = Topology(**_SIZE)
    assert pooled(_problem(20, topology), topology, 4, 1, 2**60) is None
    assert pooled(_problem(20, _TOPOLOGY), _TOPOLOGY, 4, 1, 2**60) is not None


def test_a_step_near_its_bound_keeps_small_microbatches():
    """Within 2 % of the bound nothing is tried; a gain of less than 1 % is not taken."""
    problem = _problem(18, _TOPOLOGY)
    bound, _ = step_bound(problem, _TOPOLOGY)
    assert pooled(problem, _TOPOLOGY, 4, bound, int(1.02 * bound)) is None
    cells, value = pooled(problem, _TOPOLOGY, 4, bound, 2 * bound)
    assert (np.bincount(cells, minlength=32) > 0).all()
    assert pooled(problem, _TOPOLOGY, 4, bound // 2, value) is None


def test_what_pooling_gains_is_in_the_best_placement():
    """Eighteen long samples on eight ranks: 12 % above the bound with one of them a microbatch."""
    problem = _problem(18, _TOPOLOGY)
    bound, _ = step_bound(problem, _TOPOLOGY)
    best = best_placement(problem, _TOPOLOGY, 4, bound)
    assert best.name == "pooled slots"
    assert best.value <= 1.03 * bound


@pytest.mark.parametrize("max_tokens", [4_500, 9_000])
def test_limits_bound_what_is_pooled(max_tokens):
    """With room for one or two long samples a microbatch holds no more, and the plan is legal."""
    lengths = _lengths(18)
    topology = Topology(**_SIZE, limits=Limits(max_tokens=max_tokens))
    plan = plan_step(Costs.from_values(lengths, tokens=lengths), topology, effort="fast")
    assert _tokens(plan, lengths).max() <= max_tokens
