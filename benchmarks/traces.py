"""Traces: real sample sizes by name, and their costs for a model."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from balancer.cost import CostFunction, Costs, evaluate_costs
from balancer.errors import ArgumentError
from balancer.samples import SampleTable
from balancer.sizing.tables import embedded_table, table_from_parquet

__all__ = ["TileTrace", "Trace", "trace_costs"]

_TILE_PIXELS = 448


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Sizes in a Parquet file, or those that come with the package where `path` is `None`."""

    name: str
    path: str | None = None

    @property
    def present(self) -> bool:
        """Whether the file is there."""
        return self.path is None or Path(self.path).is_file()

    def table(self) -> SampleTable:
        """The sizes.

        Raises:
            ArgumentError: The file is not there.
        """
        if self.path is None:
            return embedded_table()
        if not self.present:
            raise ArgumentError(
                f"data={self.name}: there is no {self.path}; set trace_dir to the folder of the "
                "traces, or use data=embedded"
            )
        return table_from_parquet(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class TileTrace(Trace):
    """Samples recorded as text tokens and a number of tiles of 448 x 448 pixels."""

    def table(self) -> SampleTable:
        """The sizes; every tile is an image."""
        from pyarrow import parquet

        if self.path is None or not self.present:
            return Trace.table(self)
        columns = parquet.read_table(self.path, columns=["text_tokens", "n_tiles"])
        offsets = np.concatenate([[0], np.cumsum(columns["n_tiles"].to_numpy())]).astype(np.int64)
        pixels = (np.full(offsets[-1], _TILE_PIXELS), offsets)
        return SampleTable.from_arrays(
            text_tokens=columns["text_tokens"].to_numpy(),
            image_heights=pixels,
            image_widths=pixels,
        )


def trace_costs(trace: Trace, cost: CostFunction) -> tuple[Costs, int]:
    """Costs of a trace's samples without those the model cannot take, and how many those are.

    A vision-language model takes no audio, some take no video, and each has its largest image.
    """
    costs = evaluate_costs(cost, trace.table())
    legal = np.setdiff1d(np.arange(len(costs)), costs.illegal)
    return costs.select(legal), len(costs.illegal)
