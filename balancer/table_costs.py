"""TableCosts: costs of a table too large to hold, priced a step at a time."""

import os
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from balancer.cost import CostFunction, Costs, evaluate_costs
from balancer.cost_columns import check_legal_ids
from balancer.cost_survey import AMOUNTS, CostSurvey, block_of, survey_costs
from balancer.samples import SampleTable
from balancer.sizing.key import identity

__all__ = ["TableCosts"]

_FORMAT = 1
_ARRAYS = dict[str, NDArray[Any]]


class TableCosts:
    """Costs of the samples of a table, priced when a step needs them.

    Plans, certificates and fingerprints are those of the `Costs` of the whole table, bit for bit;
    memory beyond the table is that of a step and of the ids left out. Meant for tables that
    `balancer.load_table` maps from disk: 100 million samples need no more memory than a thousand.

    Every sample is priced once beforehand, block by block, to find what the model cannot take,
    and once more where samples are over a limit; with `cache` that is done once for all
    processes to come. Processes that start at the same time each do it: let one go first.

    Attributes:
        table: Sizes of the samples.
        cost_model: Prices them.

    Args:
        table: Sizes of the samples.
        cost_model: What a sample costs; it must price each sample by itself.
        cache: Folder that keeps what the passes found, for the same table and cost model.
        data_fingerprint: Text that changes whenever the sizes do, for the cache, for example
            `balancer.sizing.key.files_fingerprint([path])` of a table's file; without it the sizes
            are hashed, a few seconds for 100 million samples.
        progress: Show a progress bar with the time left, on standard error.

    Raises:
        ArgumentError: The cost of a sample depends on the samples it is priced with; or, with
            `cache`, the cost model has no state that can be read.
        SampleError: A cost is NaN, infinite or negative.

    Example:
        >>> table = SampleTable.from_lengths([5, 9, 2])
        >>> costs = TableCosts(table, lambda t: t.text_tokens**2, progress=False)
        >>> costs.select([1]).values
        array([[81.]])
        >>> costs.fingerprint == evaluate_costs(costs.cost_model, table).fingerprint
        True
    """

    def __init__(
        self,
        table: SampleTable,
        cost_model: CostFunction,
        *,
        cache: str | os.PathLike[str] | None = None,
        data_fingerprint: str | None = None,
        progress: bool = True,
    ) -> None:
        self.table = table
        self.cost_model = cost_model
        self._progress = progress
        self._stored_as: Path | None = None
        if cache is not None:
            key = identity((_FORMAT, data_fingerprint or table.fingerprint, cost_model))
            self._stored_as = Path(cache) / f"costs-{key[:32]}"
            self._stored_as.parent.mkdir(parents=True, exist_ok=True)
        self._survey = CostSurvey.from_arrays(
            self._stored(
                "survey",
                lambda: survey_costs(table, cost_model, progress=progress).to_arrays(),
            )
        )
        self._found: dict[str, _ARRAYS] = {}

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the modules, in the order they run."""
        return self._survey.modules

    @property
    def unit(self) -> str:
        """Unit of the costs."""
        return self._survey.unit

    @property
    def illegal(self) -> NDArray[np.int64]:
        """Ids, ascending, of samples that the model cannot take."""
        return self._survey.illegal

    @property
    def fingerprint(self) -> str:
        """Hash of all costs and amounts: that of the `Costs` of the whole table."""
        return self._survey.fingerprint

    def __len__(self) -> int:
        return len(self.table)

    def select(self, rows: ArrayLike, /) -> Costs:
        """Costs of the given rows, in the given order: only these are priced."""
        return evaluate_costs(self.cost_model, self.table.select(rows))

    def check_legal(self, sample_ids: NDArray[np.int64] | None = None) -> None:
        """Refuse samples (all, or those given) that the model cannot take.

        Raises:
            SampleError: Naming the first ids, the reason and the cure.
        """
        check_legal_ids(self.illegal, self._survey.illegal_because, sample_ids)

    def largest(self, amount: str) -> int:
        """Largest of an amount (`"tokens"`, `"patches"`, `"images"`) over all samples."""
        return int(self._survey.largest[:, AMOUNTS.index(amount)].max())

    def over(self, amount: str, limit: int) -> NDArray[np.int64]:
        """Ids, ascending, of the samples with more of an amount than `limit`.

        Prices the blocks of the table that hold such a sample, once for each limit.
        """
        k = AMOUNTS.index(amount)
        blocks = np.flatnonzero(self._survey.largest[:, k] > limit)

        def compute() -> _ARRAYS:
            found = [np.zeros(0, np.int64)]
            for first, costs in self._priced(blocks, f"samples over {limit} {amount}"):
                found.append(costs.over(amount, limit) + first)
            return {"ids": np.concatenate(found)}

        return self._once(f"over-{amount}-{limit}", compute)["ids"]

    def clipped_sum(self, amount: str, limit: int, multiple: int = 1) -> int:
        """Sum over all samples of an amount, rounded up to a multiple, at most `limit` of each.

        Prices the blocks where either changes the sum, once for each limit and multiple.
        """
        k = AMOUNTS.index(amount)
        whole = (self._survey.largest[:, k] <= limit) & (multiple == 1)

        def compute() -> _ARRAYS:
            total = int(self._survey.totals[whole, k].sum())
            for _, costs in self._priced(np.flatnonzero(~whole), f"summing {amount}"):
                total += costs.clipped_sum(amount, limit, multiple)
            return {"total": np.array(total)}

        return int(self._once(f"sum-{amount}-{limit}-{multiple}", compute)["total"])

    def _priced(self, blocks: NDArray[np.int64], task: str) -> Iterator[tuple[int, Costs]]:
        """First row and costs of some blocks."""
        shown = self._progress and blocks.size > 0
        for index in tqdm(blocks.tolist(), desc=task, unit="block", disable=not shown):
            yield block_of(self.table, self.cost_model, index)

    def _once(self, part: str, compute: Callable[[], _ARRAYS]) -> _ARRAYS:
        """What `compute` returns, remembered by this object and by the cache."""
        if part not in self._found:
            self._found[part] = self._stored(part, compute)
        return self._found[part]

    def _stored(self, part: str, compute: Callable[[], _ARRAYS]) -> _ARRAYS:
        """What `compute` returns, from the cache where it is there whole."""
        if self._stored_as is None:
            return compute()
        path = self._stored_as.with_name(f"{self._stored_as.name}-{part}.npz")
        if path.is_file():
            try:
                with open(path, "rb") as file, np.load(file) as arrays:
                    return dict(arrays)
            except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
                warnings.warn(f"{path} is damaged ({error}); it is computed again", stacklevel=4)
        found = compute()
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
        with os.fdopen(handle, "wb") as sink:
            np.savez(sink, **found)  # type: ignore[arg-type]
        os.replace(temporary, path)
        return found
