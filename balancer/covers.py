"""Cover: which modules each microbatch of a step must have work in, and which it must not."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.cover import cover_cells, cover_state
from balancer.problem import StepProblem

__all__ = ["Cover", "kind_bits"]


def kind_bits(working: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Bit k for every module k that an item has work in; items are rows of `working`.

    Example:
        >>> kind_bits(np.array([[True, False], [True, True]]))
        array([1, 3])
    """
    return working @ (np.int64(1) << np.arange(working.shape[1], dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """Kinds of items that microbatches need and that they are barred from.

    A kind is a module that some items of the step have work in and others have not.

    Attributes:
        kinds: Bits of the kinds of each item, int64.
        num_kinds: Kinds.
        needed: Bits of the kinds that each microbatch `slot * dp_size + rank` needs, int64.
        barred: Bits of the kinds that it may not have, int64.
    """

    kinds: NDArray[np.int64]
    num_kinds: int
    needed: NDArray[np.int64]
    barred: NDArray[np.int64]

    def mend(self, problem: StepProblem, dp_size: int, cells: NDArray[np.int64]) -> None:
        """Exchange items of a placement, in place, until nothing is amiss or nothing helps."""
        cover_cells(
            cells, self.kinds, self.num_kinds, self.needed, self.barred, problem.totals,
            problem.amounts, problem.caps, problem.padded, dp_size, problem.kernel_ranks(1),
        )  # fmt: skip

    def faults(self, cells: NDArray[np.int64]) -> int:
        """Needed kinds that microbatches lack, and barred ones that they have."""
        has = np.zeros(len(self.needed), np.int64)
        np.bitwise_or.at(has, cells, self.kinds)
        amiss = (self.needed & ~has) | (self.barred & has)
        return sum(int((amiss >> np.int64(k) & 1).sum()) for k in range(self.num_kinds))

    def kernel(self, cells: NDArray[np.int64]) -> tuple[Any, ...]:
        """`cover` of `balancer.kernels.cover` for a placement."""
        state = cover_state(cells, self.kinds, self.num_kinds, self.needed)
        return (self.kinds, self.needed, self.barred, *state)
