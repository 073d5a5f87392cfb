"""Planners and loaders over made-up sizes, for the tests of the sampler and the loader."""

from typing import Any

import numpy as np

from balancer.cost import Costs
from balancer.planner import EpochPlanner
from balancer.samples import SampleTable
from balancer.topology import Topology


def skewed_lengths(num_samples: int, seed: int = 0) -> list[int]:
    """Token counts with a long tail, 1 to some hundred."""
    generator = np.random.default_rng(seed)
    lengths: list[int] = np.ceil(generator.lognormal(3.0, 1.0, num_samples)).astype(int).tolist()
    return lengths


def make_planner(
    num_samples: int = 50,
    *,
    dp_size: int = 2,
    num_microbatches: int = 2,
    global_batch_size: int = 16,
    **options: Any,
) -> EpochPlanner:
    lengths = skewed_lengths(num_samples)
    costs = Costs.from_values(lengths, tokens=lengths)
    topology = Topology(dp_size=dp_size, num_microbatches=num_microbatches)
    return EpochPlanner(costs, topology, global_batch_size=global_batch_size, **options)


class TextDataset:
    """Sample `i` is the id `i` and as many tokens as the size table says."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.sizes = SampleTable.from_arrays(
            text_tokens=lengths, target_tokens=[length - 1 for length in lengths]
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "input_ids": [index] * self.lengths[index]}


class BatchedTextDataset(TextDataset):
    """The same samples, read a microbatch at a time."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        raise AssertionError("__getitems__ is there and was to be used")

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        assert type(indices) is list
        return [TextDataset.__getitem__(self, index) for index in indices]


def text_tokens(table: SampleTable) -> Any:
    """A cost model: tokens."""
    return table.text_tokens


def ids_of(samples: list[dict[str, Any]]) -> list[int]:
    """A user's collate function; refuses anything but a plain list."""
    assert type(samples) is list
    return [sample["id"] for sample in samples]
