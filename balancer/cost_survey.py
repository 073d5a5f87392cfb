"""CostSurvey: one pass over a table too large to price at once, keeping what planners ask of it."""

import hashlib
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from balancer.cost import CostFunction, Costs, evaluate_costs
from balancer.cost_columns import costs_fingerprint
from balancer.errors import ArgumentError, SampleError
from balancer.samples import SampleTable

__all__ = ["AMOUNTS", "CostSurvey", "block_of", "survey_costs"]

AMOUNTS = ("tokens", "patches", "images")
_BLOCK = 2**16  # rows: their costs fit the cache of a core


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSurvey:
    """What is known of all samples without holding their costs.

    Attributes:
        modules: Names of the modules.
        unit: Unit of the costs.
        illegal: Ids, ascending, of samples that the model cannot take.
        illegal_because: What the model does not take, for the first of them.
        fingerprint: Fingerprint of the `Costs` of the whole table.
        totals: Sum of each of `AMOUNTS` over each block of rows, int64 `(num_blocks, 3)`.
        largest: Largest of each of `AMOUNTS` in each block, int64 `(num_blocks, 3)`.
    """

    modules: tuple[str, ...]
    unit: str
    illegal: NDArray[np.int64]
    illegal_because: str
    fingerprint: str
    totals: NDArray[np.int64]
    largest: NDArray[np.int64]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The survey as arrays that `from_arrays` turns back."""
        return {field.name: np.array(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> "CostSurvey":
        """The survey that gave `arrays`."""
        return cls(
            modules=tuple(arrays["modules"].tolist()),
            unit=str(arrays["unit"]),
            illegal=arrays["illegal"],
            illegal_because=str(arrays["illegal_because"]),
            fingerprint=str(arrays["fingerprint"]),
            totals=arrays["totals"],
            largest=arrays["largest"],
        )


def block_of(table: SampleTable, cost_model: CostFunction, index: int) -> tuple[int, Costs]:
    """First row of a block of a table, and the costs of its rows, numbered from there.

    Raises:
        SampleError: A cost or size is impossible; ids are those of the table.
    """
    first = index * _BLOCK
    rows = np.arange(first, min(first + _BLOCK, len(table)))
    try:
        return first, evaluate_costs(cost_model, table.select(rows))
    except SampleError as error:
        ids = [first + sample_id for sample_id in error.sample_ids]
        raise SampleError(f"{error}{_counted_from(first)}", sample_ids=ids) from error


def _counted_from(first: int) -> str:
    """Said after a message about the samples of a block."""
    return f" (samples counted from sample {first})" if first else ""


def survey_costs(table: SampleTable, cost_model: CostFunction, *, progress: bool) -> CostSurvey:
    """Price every block of the table once, O(num_samples) time, memory of one block.

    Raises:
        ArgumentError: The costs of a sample depend on which samples it is priced with.
        SampleError: A cost is NaN, infinite or negative.
    """
    num_blocks = max(1, -(-len(table) // _BLOCK))
    hashes: dict[str, Any] = {}
    illegal, probes, because = [], [], ""
    totals = np.zeros((num_blocks, len(AMOUNTS)), np.int64)
    largest = np.zeros_like(totals)
    bar = tqdm(total=len(table), desc="pricing", unit="sample", disable=not progress)
    with bar:
        for index in range(num_blocks):
            first, costs = block_of(table, cost_model, index)
            for name, column in costs.hashed_columns():
                known = hashes.setdefault(name, hashlib.sha256())
                known.update((column + first if name == "illegal" else column).data)
            illegal.append(costs.illegal + first)
            if costs.illegal.size and not because:
                because = costs.illegal_because + _counted_from(first)
            for k, name in enumerate(AMOUNTS):
                totals[index, k] = getattr(costs, name).sum()
                largest[index, k] = costs.largest(name)
            probes.append(costs.values[-1:])
            bar.update(len(costs))
    _check_rows_apart(table, cost_model, np.concatenate(probes))
    return CostSurvey(
        modules=costs.modules,
        unit=costs.unit,
        illegal=np.concatenate(illegal),
        illegal_because=because,
        fingerprint=costs_fingerprint(costs.modules, costs.unit, hashes),
        totals=totals,
        largest=largest,
    )


def _check_rows_apart(
    table: SampleTable, cost_model: CostFunction, priced: NDArray[np.float64]
) -> None:
    """Refuse a model that prices the last sample of each block otherwise outside of its block."""
    last = np.minimum(np.arange(1, len(priced) + 1) * _BLOCK, len(table)) - 1
    alone = evaluate_costs(cost_model, table.select(last)).values
    if not np.array_equal(alone, priced):
        sample = last[(alone != priced).any(axis=1)][0]
        raise ArgumentError(
            f"cost_model prices sample {sample} otherwise among other samples than among its "
            "neighbours; allowed: models that price each sample by itself; fix what it scales by, "
            "or price the whole table at once: Costs in memory"
        )
