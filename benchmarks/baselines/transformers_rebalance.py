"""The batch sampler of transformers that evens out the padded cost of microbatches."""

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Topology
from benchmarks.baselines.cells import cells_of_ranks, num_cells

__all__ = ["batch_rebalance"]


def batch_rebalance(costs: Costs, topology: Topology) -> NDArray[np.int64]:
    """The microbatches of `BatchRebalanceSampler`, as installed with transformers (5.24).

    transformers, trainer_pt_utils.py: samples sorted by length, cut into runs whose padded cost
    `rows * longest + 0.001 * rows * longest^2` is alike; the dearest runs to the first slot. It
    knows one length a sample: here its tokens. Fewer samples than microbatches are repeated from
    the start, as the sampler does, and keep one of their places.

    Time grows with microbatches times samples: about a second for 2,048 samples in 256, a dozen
    for 8,192 in 1,024.
    """
    from transformers.trainer_pt_utils import BatchRebalanceSampler

    lengths = costs.tokens.tolist()
    samples = [sample % len(lengths) for sample in range(max(len(lengths), num_cells(topology)))]
    sampler = BatchRebalanceSampler(
        lengths,
        effective_batch_size=len(samples),
        dp_size=topology.dp_size,
        grad_accum=topology.num_microbatches,
        shuffle=False,
    )
    # Iterating gives one rank and repeats the search for each; this gives all ranks at once.
    ranks = sampler._assign(samples, [lengths[sample] for sample in samples])
    return cells_of_ranks(ranks, len(lengths))
