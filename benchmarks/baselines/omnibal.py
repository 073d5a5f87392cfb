"""OmniBal's iterative sampling and filtering of mini-batches."""

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Topology
from benchmarks.baselines.cells import cells_of, num_cells, with_least_budget, without_empty

__all__ = ["omnibal_groups"]

_FULL = 0.99  # 4050 of 4096 tokens in the published settings
_INT = NDArray[np.int64]


def omnibal_groups(costs: Costs, topology: Topology, *, seed: int = 0, rounds: int = 10) -> _INT:
    """Random groups closed at a budget of patches or tokens; those not full are drawn again.

    Yao et al. 2024 (OmniBal, arXiv:2407.20761, ICML 2025), and github.com/ModelTC/OmniBal,
    balanced_dynamic_batch.py. The budgets are the mean patches and tokens of a microbatch, raised
    together in steps of 1/64 until there are no more groups than microbatches. They count images
    of one size, and drop samples over a budget; patches stand for those, and such samples are
    alone. Groups go to ranks in the order they became full.
    """
    sizes = np.stack([costs.patches, costs.tokens], axis=1)
    means = sizes.sum(axis=0) / num_cells(topology)
    unit = 1 << 20

    def pack(scale: int) -> list[list[int]] | None:
        groups = _filtered(sizes, means * scale / unit, seed, rounds)
        return groups if len(groups) <= num_cells(topology) else None

    groups = with_least_budget(unit, unit, pack)
    return without_empty(cells_of(groups, len(costs)), costs.tokens, topology)


def _filtered(sizes: _INT, budgets: NDArray[np.float64], seed: int, rounds: int) -> list[list[int]]:
    """Groups that are full, then those of the last drawing."""
    left = np.arange(len(sizes))
    full: list[list[int]] = []
    groups: list[list[int]] = []
    for turn in range(rounds):
        drawn = np.random.default_rng([seed, turn]).permutation(left).tolist()
        groups = _random_groups(drawn, sizes, budgets)
        if turn == rounds - 1:
            break
        enough = [bool((sizes[group].sum(axis=0) >= _FULL * budgets)[budgets > 0].any())
                  for group in groups]  # fmt: skip
        full += [group for group, is_full in zip(groups, enough, strict=True) if is_full]
        rest = [group for group, is_full in zip(groups, enough, strict=True) if not is_full]
        left = np.array([sample for group in rest for sample in group], np.int64)
    return full + groups


def _random_groups(drawn: list[int], sizes: _INT, budgets: NDArray[np.float64]) -> list[list[int]]:
    """Samples in the order drawn, a new group wherever one more would exceed a budget."""
    groups: list[list[int]] = []
    most_patches, most_tokens = budgets.tolist()
    patches = tokens = 0
    for sample in drawn:
        more_patches, more_tokens = sizes[sample].tolist()
        patches, tokens = patches + more_patches, tokens + more_tokens
        if not groups or patches > most_patches or tokens > most_tokens:
            groups.append([])
            patches, tokens = more_patches, more_tokens
        groups[-1].append(sample)
    return groups
