"""The torch DataLoader inside: microbatches collated where they are read, and their facts."""

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, Sampler

from loaders.microbatch import Microbatch, MicrobatchFacts
from loaders.reading import MicrobatchDataset
from loaders.sampler import BalancedBatchSampler

__all__ = ["stop_workers", "torch_loader"]


def torch_loader(
    dataset: Any,
    batch_sampler: BalancedBatchSampler,
    collate_fn: Callable[[list[Any]], Any],
    **options: Any,
) -> "DataLoader[Any]":
    """A DataLoader of `(facts, microbatch)` pairs; `options` are torch's own."""
    wrapped = isinstance(dataset, MicrobatchDataset)
    return DataLoader(
        dataset if wrapped else MicrobatchDataset(dataset),
        batch_sampler=_Uncounted(batch_sampler),
        collate_fn=_CollateWithFacts(collate_fn),
        **options,
    )


def stop_workers(iterator: Any) -> None:
    """Stop worker processes now; a traceback would keep the iterator, and so them, alive."""
    stop = getattr(iterator, "_shutdown_workers", None)
    if stop is not None:
        stop()


class _Uncounted(Sampler[list[int]]):
    """A batch sampler whose microbatches count when they are handed out, not when asked for."""

    def __init__(self, batch_sampler: BalancedBatchSampler) -> None:
        self.batch_sampler = batch_sampler

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Microbatch]:
        return self.batch_sampler.microbatches(counted=False)


class _CollateWithFacts:
    """Collates in the worker and sends the facts along, so that order is never guessed."""

    def __init__(self, collate_fn: Callable[[list[Any]], Any]) -> None:
        self.collate_fn = collate_fn

    def __call__(self, samples: list[Any]) -> tuple[MicrobatchFacts | None, Any]:
        wants_facts = getattr(self.collate_fn, "wants_facts", False)
        facts = getattr(samples, "facts", None)
        return facts, self.collate_fn(samples if wants_facts else list(samples))
