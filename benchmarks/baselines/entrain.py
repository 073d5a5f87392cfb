"""Entrain's hierarchical assignment, as far as it goes without deferral."""

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Topology
from benchmarks.baselines.cells import cells_of_ranks, largest_first, whole, without_empty
from benchmarks.baselines.entrain_pairs import pair_order

__all__ = ["entrain_strata"]

_UNITS = 256
_INT = NDArray[np.int64]


def entrain_strata(costs: Costs, topology: Topology) -> _INT:
    """Ranks by language work, microbatches by encoder work in two strata, pairs one after another.

    Jang and Chowdhury 2026 (Entrain, arXiv:2605.27918), Algorithm 3. The modules before the last
    are the encoder. No language work is deferred: a sample runs in one microbatch here, so what
    is left of the pairing is the order it gives. The threshold of the strata, which the paper does
    not state, is the median; microbatches with equal encoder work are told apart by language work.
    Samples without encoder work change no encoder load, so they pile up in one microbatch a rank.
    Microbatches the paper would leave out (lighter than the dearest sample) get one sample each.
    """
    encoder = whole(costs.values[:, :-1].sum(axis=1))
    language = whole(costs.values[:, -1])
    ranks = []
    for samples in _replicas(encoder, language, topology.dp_size):
        batches = _strata(samples, encoder, language, topology.num_microbatches)
        units = whole(language[samples].astype(float), total=_UNITS * topology.num_microbatches)
        works = dict(zip(samples, units.tolist(), strict=True))
        order = pair_order([[works[sample] for sample in batch] for batch in batches])
        empty: list[list[int]] = [[] for _ in range(topology.num_microbatches - len(batches))]
        ranks.append([batches[index] for index in order] + empty)
    return without_empty(cells_of_ranks(ranks, len(costs)), costs.tokens, topology)


def _replicas(encoder: _INT, language: _INT, dp_size: int) -> list[list[int]]:
    """Samples of each rank: dearest encoder work first, to the rank of least language work."""
    loads = np.zeros(dp_size, np.int64)
    ranks: list[list[int]] = [[] for _ in range(dp_size)]
    for sample in largest_first(encoder).tolist():
        rank = int(np.argmin(loads))
        ranks[rank].append(sample)
        loads[rank] += language[sample]
    return ranks


def _strata(
    samples: list[int], encoder: _INT, language: _INT, num_microbatches: int
) -> list[list[int]]:
    """Samples of each microbatch: those with much language work first, least encoder work wins."""
    works = encoder[samples]
    count = num_microbatches
    if works.any():
        count = min(count, int(works.sum() // works.max()))
    threshold = float(np.median(language[samples])) if samples else 0.0
    coarse = [sample for sample in samples if language[sample] > threshold]
    fine = [sample for sample in samples if language[sample] <= threshold]
    loads = [(0, 0, index) for index in range(count)]
    batches: list[list[int]] = [[] for _ in range(count)]
    for sample in coarse + fine:  # each in order of encoder work, as `samples` is
        vision, text, index = min(loads)
        batches[index].append(sample)
        loads[index] = (vision + int(encoder[sample]), text + int(language[sample]), index)
    return batches
