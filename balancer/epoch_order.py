"""EpochOrder: which sample stands at each position of an epoch, with random access."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.order import permuted

__all__ = ["EpochOrder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOrder:
    """Order of the samples in every epoch, without an array of all their ids.

    A permutation keyed by `(seed, epoch)` over the samples that are not left out. Memory is
    O(left_out); a position costs O(log(left_out)).

    Attributes:
        num_ids: Samples of the dataset; their ids are 0 to `num_ids - 1`.
        left_out: Ids that no epoch delivers, ascending, int64.
        seed: Seed of the order.
        shuffle: Whether epochs are shuffled; else the order is that of the ids.

    Example:
        >>> order = EpochOrder(num_ids=5, left_out=np.array([1]), seed=0, shuffle=False)
        >>> order.num_samples, order.ids_at(np.arange(4), epoch=0)
        (4, array([0, 2, 3, 4]))
    """

    num_ids: int
    left_out: NDArray[np.int64]
    seed: int
    shuffle: bool
    _kept_before: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_kept_before", self.left_out - np.arange(len(self.left_out)))

    @property
    def num_samples(self) -> int:
        """Samples that every epoch has in its order."""
        return self.num_ids - len(self.left_out)

    def ids_at(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Sample ids at positions from 0 to `num_samples - 1` of an epoch's order."""
        if self.shuffle:
            positions = permuted(positions, self.num_samples, self.seed, epoch)
        if not self.left_out.size:
            return positions
        return positions + np.searchsorted(self._kept_before, positions, side="right")
