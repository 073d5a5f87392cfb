"""The batch balancing of verl: Karmarkar-Karp over ranks, then over each rank's microbatches."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Topology
from benchmarks.baselines.cells import cells_of_ranks, without_empty
from benchmarks.karmarkar_karp import karmarkar_karp

__all__ = ["small_at_both_ends", "verl_balance", "verl_workload"]

_LINEAR = 24576


def verl_workload(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Verl's cost of a sequence of s tokens, 24576 s + s^2, for a dense model of 7B."""
    return _LINEAR * tokens + tokens**2


def verl_balance(costs: Costs, topology: Topology) -> NDArray[np.int64]:
    """Equally many samples a rank with like workload, then microbatches of like workload.

    verl, trainer/ppo/ray_trainer.py, `_balance_batch` and utils/seqlen_balancing.py,
    `rearrange_micro_batches`: Karmarkar-Karp of equal sizes over ranks, free sizes within a rank,
    small microbatches at both ends. Where dp_size does not divide the samples, which verl refuses,
    ranks differ by one. The number of microbatches is the topology's; verl derives it from tokens.
    """
    workload = verl_workload(costs.tokens).tolist()
    padding = -len(workload) % topology.dp_size
    ranks = []
    for part in karmarkar_karp(workload + [0] * padding, topology.dp_size, equal_size=True):
        samples = sorted(sample for sample in part if sample < len(workload))
        own = [workload[sample] for sample in samples]
        batches = karmarkar_karp(own, topology.num_microbatches, equal_size=False) if own else []
        loads = [sum(own[item] for item in batch) for batch in batches]
        ordered = [batches[index] for index in small_at_both_ends(loads)]
        empty: list[list[int]] = [[] for _ in range(topology.num_microbatches - len(ordered))]
        ranks.append([[samples[item] for item in batch] for batch in ordered] + empty)
    return without_empty(cells_of_ranks(ranks, len(workload)), costs.tokens, topology)


def small_at_both_ends(loads: Sequence[int]) -> list[int]:
    """Microbatches with the largest in the middle, falling off to either side in turn."""
    falling = sorted(range(len(loads)), key=lambda index: -loads[index])
    return falling[::2][::-1] + falling[1::2]
