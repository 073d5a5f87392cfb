"""Hydraulis' two stages: dispatch to ranks over random orders, then each rank's microbatches."""

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Topology
from benchmarks.baselines.cells import cells_of_ranks, whole, without_empty
from benchmarks.karmarkar_karp import karmarkar_karp

__all__ = ["hydraulis_dispatch"]

_ORDERS = 100
_INT = NDArray[np.int64]


def hydraulis_dispatch(costs: Costs, topology: Topology, *, seed: int = 0) -> _INT:
    """The best of 100 greedy dispatches in random order, then microbatches of least maximum.

    Li et al. 2024 (Hydraulis, arXiv:2412.07894), and github.com/PKU-DAIR/Hetu,
    examples/hydraulis. The cost of a rank is the sum over its samples plus pp_size - 1 times its
    dearest. The number of microbatches, which they choose per step, is the topology's. Their
    integer program for the microbatches (half a second a rank) is Karmarkar-Karp here, which comes
    near its objective. Microbatches run from most tokens to fewest.
    """
    prices = whole(costs.total)
    chosen = _dispatch(prices, topology.dp_size, topology.pp_size, seed)
    ranks = []
    for rank in range(topology.dp_size):
        samples = np.flatnonzero(chosen == rank)
        batches: list[list[int]] = [[] for _ in range(topology.num_microbatches)]
        if len(samples):
            parts = karmarkar_karp(
                prices[samples].tolist(), topology.num_microbatches, equal_size=False
            )
            batches = [samples[part].tolist() for part in parts]
        ranks.append(sorted(batches, key=lambda batch: -int(costs.tokens[batch].sum())))
    return without_empty(cells_of_ranks(ranks, len(costs)), costs.tokens, topology)


def _dispatch(prices: _INT, dp_size: int, pp_size: int, seed: int) -> _INT:
    """Rank of each sample, from the order whose dearest rank is the cheapest; no rank is empty."""
    rng = np.random.default_rng(seed)
    orders = rng.permuted(np.tile(np.arange(len(prices)), (_ORDERS, 1)), axis=1)
    rows = np.arange(_ORDERS)
    loads, dearest = np.zeros((2, _ORDERS, dp_size), np.int64)
    chosen = np.empty((_ORDERS, len(prices)), np.int64)
    for samples in orders.T:
        price = prices[samples]
        after = loads + price[:, None] + (pp_size - 1) * np.maximum(dearest, price[:, None])
        ranks = after.argmin(axis=1)
        chosen[rows, samples] = ranks
        loads[rows, ranks] += price
        dearest[rows, ranks] = np.maximum(dearest[rows, ranks], price)
    longest = (loads + (pp_size - 1) * dearest).max(axis=1).astype(float)
    longest[(loads == 0).any(axis=1)] = np.inf
    best: _INT = chosen[int(np.argmin(longest))]
    return best
