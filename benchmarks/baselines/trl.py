"""The packing of TRL, and what a shuffled loader then does with the packs."""

from bisect import bisect_left, insort

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Topology
from benchmarks.baselines.cells import (
    cells_of,
    largest_first,
    num_cells,
    with_least_budget,
    without_empty,
)

__all__ = ["trl_packs"]

_MAP_ROWS = 1000
_INT = NDArray[np.int64]


def trl_packs(costs: Costs, topology: Topology, *, seed: int = 0) -> _INT:
    """Best-fit decreasing within 1,000 rows, then packs in a random order dealt to the ranks.

    trl, data_utils.py, `pack_dataset` with strategy "bfd": rows in batches of 1,000, of bins with
    equal space the one that has had it longest. A pack is a sample of the dataset that the loader
    shuffles. The packing length is the least, in steps of 1/64 of the mean, that makes no more
    packs than there are microbatches.
    """
    mean = -(-int(costs.tokens.sum()) // num_cells(topology))
    packs = with_least_budget(
        max(mean, int(costs.tokens.max())),
        mean,
        lambda length: _packs(costs.tokens, length, num_cells(topology)),
    )
    order = np.random.default_rng(seed).permutation(len(packs))
    dealt = cells_of([packs[pack] for pack in order], len(costs))
    return without_empty(dealt, costs.tokens, topology)


def _packs(tokens: _INT, length: int, most: int) -> list[list[int]] | None:
    """Samples of each pack, or None where there are more than `most`."""
    packs: list[list[int]] = []
    for begin in range(0, len(tokens), _MAP_ROWS):
        rows = tokens[begin : begin + _MAP_ROWS]
        packs += [[begin + row for row in pack] for pack in _best_fit_decreasing(rows, length)]
        if len(packs) > most:
            return None
    return packs


def _best_fit_decreasing(tokens: _INT, length: int) -> list[list[int]]:
    packs: list[list[int]] = []
    free: list[tuple[int, int, int]] = []  # room, since which placement, pack
    for placed, row in enumerate(largest_first(tokens).tolist()):
        size = int(tokens[row])
        place = bisect_left(free, (size, -1, -1))
        if place < len(free):
            room, _, pack = free.pop(place)
        else:
            room, pack = length, len(packs)
            packs.append([])
        packs[pack].append(row)
        insort(free, (room - size, placed, pack))
    return packs
