"""The torch DataLoader inside: microbatches collated where they are read, and their facts."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from loaders.microbatch import Microbatch
from loaders.reading import CollatedMicrobatches, CollateWithFacts, MicrobatchDataset
from loaders.sample_errors import OnSampleError
from loaders.sampler import BalancedBatchSampler
from loaders.worker_start import WorkerStart

__all__ = ["stop_workers", "torch_loader"]


def torch_loader(
    dataset: Any,
    batch_sampler: BalancedBatchSampler,
    collate_fn: Callable[[list[Any]], Any],
    *,
    seed: int | None,
    on_sample_error: OnSampleError,
    worker_init_fn: Callable[[int], None] | None,
    generator: torch.Generator | None,
    **options: Any,
) -> "DataLoader[Any]":
    """A DataLoader of `(facts, microbatch)` pairs; `options` are torch's own."""
    if seed is not None and generator is None:
        # torch draws a seed for its workers from it, and else from the global one of the model.
        generator = torch.Generator().manual_seed(seed)
    plain = dataset.dataset if isinstance(dataset, MicrobatchDataset) else dataset
    samples = MicrobatchDataset(plain, seed=seed, on_sample_error=on_sample_error)
    return DataLoader(
        CollatedMicrobatches(samples, CollateWithFacts(collate_fn, seed=seed)),
        batch_sampler=_Uncounted(batch_sampler),
        collate_fn=_unchanged,
        worker_init_fn=WorkerStart(worker_init_fn),
        generator=generator,
        **options,
    )


def stop_workers(iterator: Any) -> None:
    """Stop worker processes now; a traceback would keep the iterator, and so them, alive."""
    stop = getattr(iterator, "_shutdown_workers", None)
    if stop is not None:
        stop()


def _unchanged(microbatch: Any) -> Any:
    """What the dataset has collated already."""
    return microbatch


class _Uncounted(Sampler[list[int]]):
    """A batch sampler whose microbatches count when they are handed out, not when asked for."""

    def __init__(self, batch_sampler: BalancedBatchSampler) -> None:
        self.batch_sampler = batch_sampler

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Microbatch]:
        return self.batch_sampler.microbatches(counted=False)
