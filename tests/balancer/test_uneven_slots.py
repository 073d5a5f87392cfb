"""Starts whose first slot has less of one module."""

import numpy as np

from balancer.bounds import step_bound
from balancer.candidates import best_placement
from balancer.problem import build_problem
from balancer.topology import Limits, Topology
from balancer.uneven_slots import uneven_slots, worst_module
from benchmarks.global_plan import bimodal_costs

_TOPOLOGY = Topology(dp_size=8, num_microbatches=3, limits=Limits(max_tokens=16384))


def _problem(topology=_TOPOLOGY, seed=2):
    costs = bimodal_costs(512, 16384, seed)
    return build_problem(costs, np.arange(512), np.zeros(512, np.bool_), topology, "default")


def test_the_first_slot_has_less_of_its_uneven_module_and_limits_are_kept():
    """Vision of the first slot is below that of the others; every sample is placed once."""
    problem = _problem()
    cells = best_placement(problem, _TOPOLOGY, 3, step_bound(problem, _TOPOLOGY)[0]).cells
    starts = list(uneven_slots(problem, _TOPOLOGY, np.sort(cells), 3))
    assert starts
    costs, tokens = problem.costs.reshape(-1, 2), problem.amounts.reshape(512, -1)[:, 0]
    for start in starts:
        by_slot = np.array([costs[start // 8 == slot].sum(axis=0) for slot in range(3)])
        shares = by_slot / by_slot.sum(axis=0)
        assert (shares[0] < 0.3).sum() == 1
        assert np.bincount(start, tokens, 24).max() <= 16384
        assert (np.bincount(start, minlength=24) > 0).all()


def test_there_are_none_for_one_module_or_one_slot():
    """Summed modules, or a single slot, have nothing to share out otherwise."""
    summed = Topology(dp_size=8, num_microbatches=3, modules="summed")
    problem = _problem(summed)
    assert not list(uneven_slots(problem, summed, np.arange(512) % 24, 3))
    problem = _problem()
    assert not list(uneven_slots(problem, _TOPOLOGY, np.arange(512) % 8, 1))


def test_the_worst_module_is_the_one_least_even():
    """By hand: samples dealt in turn; each module's slowest ranks over its mean rank."""
    problem = _problem()
    cells = np.arange(512) % 24
    loads = np.zeros((24, 2))
    np.add.at(loads, cells, problem.costs.reshape(-1, 2))
    slots = loads.reshape(3, 8, 2)
    by_hand = (slots.max(axis=1).sum(axis=0) / (loads.sum(axis=0) / 8)).max()
    assert np.isclose(worst_module(problem, _TOPOLOGY, cells, 3), by_hand)
