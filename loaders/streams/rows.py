"""Prices the samples of a stream, and writes what a plan needs of them as rows of int64.

Each sample is priced once, on the rank that read it; the row is what the other ranks get. So all
plan with the same bits, whatever the floating-point arithmetic of their hosts.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.cost import CostFunction, Costs, evaluate_costs
from balancer.errors import BalancerError, SampleError
from balancer.planner import Illegal
from balancer.samples import SampleTable
from balancer.sizing.columns import GrowingColumns
from balancer.sizing.sample_size import SampleSize, size_of
from balancer.step_planner import Oversize, oversize_ids
from balancer.topology import Topology

__all__ = ["RowPricing"]

_AMOUNTS = ("tokens", "patches", "images", "target_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPricing:
    """From samples to rows `(id, tokens, patches, images, target tokens, cost of each module)`.

    Costs are float64, stored as their 64 bits.

    Attributes:
        size_fn: Size of a sample, as for `balancer.sizing.dataset.table_from_dataset`.
        cost_model: Prices them.
        topology: Has the limits that `oversize` is about.
        oversize: Policy for samples over a limit.
        illegal: Policy for samples that the model cannot take.
        modules: Modules of the cost model, in order.
        unit: Unit of its costs.

    Example:
        >>> pricing = RowPricing.of(lambda text: {"text_tokens": len(text)},
        ...                         lambda table: table.text_tokens, Topology(dp_size=1))
        >>> sizes = [pricing.size(text) for text in ("ab", "c")]
        >>> rows, kept = pricing.price(sizes, ids=[10, 12])
        >>> rows[:, :2].tolist(), pricing.costs(rows).total.tolist()
        ([[10, 2], [12, 1]], [2.0, 1.0])
    """

    size_fn: Callable[[Any], Any]
    cost_model: CostFunction
    topology: Topology
    oversize: Oversize
    illegal: Illegal
    modules: tuple[str, ...]
    unit: str

    @classmethod
    def of(
        cls,
        size_fn: Callable[[Any], Any],
        cost_model: CostFunction,
        topology: Topology,
        *,
        oversize: Oversize = "error",
        illegal: Illegal = "error",
    ) -> "RowPricing":
        """Pricing by a cost model, which is asked for its modules with a sample of one token."""
        costs = evaluate_costs(cost_model, SampleTable.from_lengths([1]))
        return cls(
            size_fn=size_fn, cost_model=cost_model, topology=topology, oversize=oversize,
            illegal=illegal, modules=costs.modules, unit=costs.unit,
        )  # fmt: skip

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return 1 + len(_AMOUNTS) + len(self.modules)

    def size(self, sample: Any) -> SampleSize:
        """Size of a sample; raises what `size_fn` raises."""
        return size_of(self.size_fn(sample))

    def price(
        self, sizes: Sequence[SampleSize], *, ids: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Rows of the samples of these sizes, and which of them are to be delivered.

        Raises:
            SampleError: A size or a cost is impossible; names the id.
            CapacityError: A sample is over a limit and `oversize` is `"error"`.
        """
        columns = GrowingColumns()
        kept = np.ones(len(sizes), np.bool_)
        try:
            for size in sizes:
                columns.append(size)
            costs = evaluate_costs(self.cost_model, columns.table())
            if self.illegal == "error":
                costs.check_legal()
            kept[costs.illegal] = False
            over = oversize_ids(
                costs, self.topology, self.oversize, sample_ids=np.flatnonzero(kept)
            )
        except SampleError as error:
            raise _renamed(error, ids) from error
        if self.oversize == "drop":
            kept[over] = False
        rows = np.empty((len(sizes), self.width), np.int64)
        rows[:, 0] = ids
        for place, name in enumerate(_AMOUNTS, 1):
            rows[:, place] = getattr(costs, name)
        rows[:, 1 + len(_AMOUNTS) :] = np.ascontiguousarray(costs.values).view(np.int64)
        return rows, kept

    def costs(self, rows: NDArray[np.int64]) -> Costs:
        """Costs from rows, bit for bit those that were written."""
        amounts: dict[str, Any] = {
            name: np.ascontiguousarray(rows[:, i]) for i, name in enumerate(_AMOUNTS, 1)
        }
        values = np.ascontiguousarray(rows[:, 1 + len(_AMOUNTS) :]).view(np.float64)
        return Costs(modules=self.modules, values=values, unit=self.unit, **amounts)


def _renamed(error: SampleError, ids: Sequence[int]) -> BalancerError:
    """The same error with ids of the stream in place of rows."""
    at_fault = [int(ids[row]) for row in error.sample_ids if row < len(ids)]
    message = re.sub(
        r"\bsample (\d+)",
        lambda match: f"sample {ids[int(match[1])] if int(match[1]) < len(ids) else match[1]}",
        str(error),
    )
    return type(error)(message, sample_ids=at_fault)
