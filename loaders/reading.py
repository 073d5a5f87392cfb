"""Reads the samples of a microbatch, in the process that asks for them."""

from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset

from loaders.microbatch import SampleList

__all__ = ["MicrobatchDataset"]


class MicrobatchDataset(Dataset[Any]):
    """Map-style dataset whose batches keep the facts of the microbatch that asked for them.

    `BalancedDataLoader` wraps its dataset by itself. Use this where a framework builds the
    DataLoader: `DataLoader(MicrobatchDataset(dataset), batch_sampler=BalancedBatchSampler(...),
    collate_fn=PackedCollator())` hands the collator a `SampleList`.

    Attributes:
        dataset: The dataset wrapped.

    Example:
        >>> from loaders.microbatch import Microbatch, MicrobatchFacts
        >>> facts = MicrobatchFacts(
        ...     epoch=0, step=0, index=0, num_microbatches=1, dp_rank=0, dp_size=1,
        ...     sample_ids=(2, 0), flags=(0, 0), target_tokens=(1, 1), step_target_tokens=2,
        ...     step_samples=2, step_target_samples=2)
        >>> samples = MicrobatchDataset(["a", "b", "c"]).__getitems__(Microbatch([2, 0], facts))
        >>> samples, samples.facts.step_samples
        (['c', 'a'], 2)
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset: Any = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: Sequence[int]) -> SampleList:
        """Samples in the order asked for; the dataset's own `__getitems__` reads them, if any."""
        ids = list(indices)
        read_many = getattr(self.dataset, "__getitems__", None)
        samples = read_many(ids) if callable(read_many) else [self.dataset[i] for i in ids]
        return SampleList(samples, getattr(indices, "facts", None))
