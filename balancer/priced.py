"""PricedSamples: what planners, plans and reports ask of costs, in memory or priced when needed."""

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.cost import Costs

__all__ = ["PricedSamples"]


class PricedSamples(Protocol):
    """Costs of a dataset, rows by sample id: `Costs` in memory, or a `TableCosts`.

    A step needs the rows of its own samples; the whole dataset is only asked which samples are
    over a limit, and how much there is on average.
    """

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the modules, in the order they run."""
        ...

    @property
    def unit(self) -> str:
        """Unit of the costs."""
        ...

    @property
    def illegal(self) -> NDArray[np.int64]:
        """Ids, ascending, of samples that the model cannot take."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash of all costs and amounts; that of the same `Costs` in memory."""
        ...

    def __len__(self) -> int: ...

    def select(self, rows: ArrayLike, /) -> Costs:
        """Costs of the given rows, in the given order."""
        ...

    def check_legal(self, sample_ids: NDArray[np.int64] | None = None) -> None:
        """Refuse samples (all, or those given) that the model cannot take."""
        ...

    def largest(self, amount: str) -> int:
        """Largest of an amount (`"tokens"`, `"patches"`, `"images"`) over all samples."""
        ...

    def over(self, amount: str, limit: int) -> NDArray[np.int64]:
        """Ids, ascending, of the samples with more of an amount than `limit`."""
        ...

    def clipped_sum(self, amount: str, limit: int, multiple: int = 1) -> int:
        """Sum over all samples of an amount, rounded up to a multiple, at most `limit` of each."""
        ...
