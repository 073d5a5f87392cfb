"""EpochOrder: which sample stands at each position of an epoch, with random access."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.order import permuted, positions_of

__all__ = ["EpochOrder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOrder:
    """Order of the samples in every epoch, without an array of all their ids.

    A permutation of all ids keyed by `(seed, epoch)`, in which those left out are passed over. So
    the order of any two samples depends on nothing else, whatever limits leave out. A *position*
    counts the samples that are delivered, a *place* all of them. Memory is O(left_out); a position
    costs O(log(left_out)), after O(left_out * log(left_out)) once an epoch.

    Attributes:
        num_ids: Samples of the dataset; their ids are 0 to `num_ids - 1`.
        left_out: Ids that no epoch delivers, ascending, int64.
        seed: Seed of the order.
        shuffle: Whether epochs are shuffled; else the order is that of the ids.

    Example:
        >>> order = EpochOrder(num_ids=5, left_out=np.array([1]), seed=0, shuffle=False)
        >>> order.num_samples, order.ids_at(np.arange(4), epoch=0)
        (4, array([0, 2, 3, 4]))
        >>> order.place_of(1, epoch=0), order.position_of(2, epoch=0)
        (2, 1)
    """

    num_ids: int
    left_out: NDArray[np.int64]
    seed: int
    shuffle: bool
    _gaps: dict[int, NDArray[np.int64]] = field(init=False, repr=False, default_factory=dict)

    @property
    def num_samples(self) -> int:
        """Samples that every epoch has in its order."""
        return self.num_ids - len(self.left_out)

    def ids_at(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Sample ids at positions from 0 to `num_samples - 1` of an epoch's order."""
        places = self._places(positions, epoch)
        return permuted(places, self.num_ids, self.seed, epoch) if self.shuffle else places

    def place_of(self, position: int, epoch: int) -> int:
        """Place of a position: with those left out before it counted; `num_ids` at the end."""
        if position >= self.num_samples:
            return self.num_ids
        return int(self._places(np.array([position]), epoch)[0])

    def position_of(self, place: int, epoch: int) -> int:
        """Samples delivered before a place."""
        return place - int(np.searchsorted(self._gaps_of(epoch), place, side="left"))

    def _places(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        if not self.left_out.size:
            return positions
        gaps = self._gaps_of(epoch)
        return positions + np.searchsorted(gaps - np.arange(len(gaps)), positions, side="right")

    def _gaps_of(self, epoch: int) -> NDArray[np.int64]:
        """Places of the ids left out, ascending; those of the epoch asked for last are kept."""
        if not self.shuffle:
            return self.left_out
        gaps = self._gaps.get(epoch)
        if gaps is None:
            gaps = np.sort(positions_of(self.left_out, self.num_ids, self.seed, epoch))
            self._gaps.clear()
            self._gaps[epoch] = gaps
        return gaps
