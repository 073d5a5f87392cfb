"""Samples that may stand in for one that cannot be read: alike in modules, near in cost."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.groups import GroupedCosts
from balancer.planner import EpochPlanner
from balancer.priced import PricedSamples
from loaders.microbatch import Substitute

__all__ = ["Substitutes"]

POOL = 65536
BELOW, ABOVE = 16, 8
"""Samples looked at on either side of a cost, beside the cheapest few."""


class Substitutes:
    """For any sample, those that can stand in for it without breaking what the plan promised.

    A substitute has work in the same modules, so that ranks that wait inside modules still meet,
    and no more tokens, patches or images, so that limits hold. Of those, the nearest in cost come
    first. They are sought among at most 65,536 samples spread over the dataset, and depend on the
    sizes only, so that all ranks and resumed runs name the same.

    Args:
        costs: Costs of all samples.
        left_out: Ids that are never read, such as those the model cannot take.
        count: Most substitutes of a sample; it may have fewer, and the smallest of its kind none.

    Example:
        >>> costs = Costs.from_values([5.0, 9.0, 4.0, 1.0], tokens=[5, 9, 4, 1])
        >>> rows = Substitutes(costs).of([0, 3])
        >>> [[substitute.sample_id for substitute in row] for row in rows]
        [[2, 3], []]
    """

    def __init__(
        self, costs: PricedSamples, *, left_out: Sequence[int] | NDArray[np.int64] = (),
        count: int = 3,
    ) -> None:  # fmt: skip
        spread = max(1, -(-len(costs) // POOL))
        ids = np.setdiff1d(np.arange(0, len(costs), spread), np.asarray(left_out, np.int64))
        pool = costs.select(ids)
        order = np.lexsort((ids, pool.total, _kinds(pool)))
        self.count = count
        self._costs = costs
        self._ids = ids[order]
        self._pool = pool.select(order)
        self._totals = self._pool.total
        self._kinds = _kinds(self._pool)

    @classmethod
    def of_planner(cls, planner: EpochPlanner) -> "Substitutes":
        """Substitutes of the samples that a planner places.

        Raises:
            ArgumentError: It places groups, which a sample of another group would break.
        """
        if isinstance(planner.costs, GroupedCosts):
            raise ArgumentError(
                "on_sample_error lets another sample stand in for one that cannot be read, and "
                'group_ids keep samples with their own; allowed with groups: "raise"'
            )
        return cls(planner.costs, left_out=planner.order.left_out)

    def of(
        self, sample_ids: Sequence[int] | NDArray[np.int64]
    ) -> tuple[tuple[Substitute, ...], ...]:
        """Substitutes of each of the samples, the nearest in cost first."""
        if not len(self._ids):
            return ((),) * len(sample_ids)
        wanted = self._costs.select(sample_ids)
        totals = wanted.total
        places, legal = self._near(_kinds(wanted), totals)
        legal &= self._ids[places] != np.asarray(sample_ids)[:, None]
        for amount in ("tokens", "patches", "images"):
            legal &= getattr(self._pool, amount)[places] <= getattr(wanted, amount)[:, None]
        distances = np.where(legal, np.abs(self._totals[places] - totals[:, None]), np.inf)
        nearest = np.lexsort((self._ids[places], distances))[:, : self.count]
        chosen = np.take_along_axis(places, nearest, axis=1)
        ids, targets = self._ids[chosen].tolist(), self._pool.target_tokens[chosen].tolist()
        counts = np.minimum(legal.sum(axis=1), self.count).tolist()
        return tuple(
            tuple(map(Substitute, ids[row][:count], targets[row][:count]))
            for row, count in enumerate(counts)
        )

    def _near(
        self, kinds: NDArray[np.int64], totals: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Places in the pool to look at, `(samples, places)`, and which of them are any."""
        first = np.searchsorted(self._kinds, kinds)[:, None]
        last = np.searchsorted(self._kinds, kinds + 1)[:, None]
        place = np.empty_like(first)
        for kind in np.unique(kinds):
            rows = np.flatnonzero(kinds == kind)
            a, b = first[rows[0], 0], last[rows[0], 0]
            place[rows, 0] = a + np.searchsorted(self._totals[a:b], totals[rows], side="right")
        near = place + np.arange(-BELOW, ABOVE)
        cheapest = first + np.arange(self.count)
        legal_near = (near >= first) & (near < last)
        legal_cheapest = (cheapest < last) & (cheapest < place - BELOW)  # no place twice
        places = np.concatenate([near, cheapest], axis=1).clip(0, len(self._ids) - 1)
        return places, np.concatenate([legal_near, legal_cheapest], axis=1)


def _kinds(costs: Costs) -> NDArray[np.int64]:
    """A number a sample, the same for samples with work in the same modules."""
    kinds = np.zeros(len(costs), np.int64)
    for column in range(len(costs.modules)):
        kinds = 2 * kinds + (costs.values[:, column] > 0)
    return kinds
