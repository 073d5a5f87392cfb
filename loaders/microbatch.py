"""Microbatches on their way: the ids asked for, the samples read, and the facts with both."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset

from balancer.plan import Flag

__all__ = ["Microbatch", "MicrobatchDataset", "MicrobatchFacts", "SampleList"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MicrobatchFacts:
    """What the plan knows of one microbatch before any of its samples is read.

    Attributes:
        epoch: Epoch.
        step: Step within the epoch.
        index: Place among this rank's microbatches of the step, from 0.
        num_microbatches: Microbatches of every rank in the step.
        dp_rank: Rank that runs it.
        dp_size: Data-parallel ranks.
        sample_ids: Ids, in order.
        flags: `balancer.plan.Flag` of each sample, in the same order.
        target_tokens: Supervised tokens of each sample by the size table; 0 for a filler.
        step_target_tokens: Supervised tokens of the whole step, over all ranks and microbatches,
            repeats counted and fillers not: what its losses are divided by.
        step_samples: Samples of the whole step, counted likewise.
        missing_modules: Modules that this microbatch has no work in though another rank's has at
            the same time; where ranks wait inside modules (FSDP, ZeRO-3), run them on a dummy input
            with its output times zero.

    Example:
        >>> facts = MicrobatchFacts(
        ...     epoch=0, step=7, index=1, num_microbatches=2, dp_rank=0, dp_size=4, sample_ids=(5,),
        ...     flags=(2,), target_tokens=(0,), step_target_tokens=1000, step_samples=32)
        >>> facts.is_last, facts.is_filler, facts.loss_scale
        (True, True, 0.004)
    """

    epoch: int
    step: int
    index: int
    num_microbatches: int
    dp_rank: int
    dp_size: int
    sample_ids: tuple[int, ...]
    flags: tuple[int, ...]
    target_tokens: tuple[int, ...]
    step_target_tokens: int
    step_samples: int
    missing_modules: tuple[str, ...] = ()

    @property
    def is_last(self) -> bool:
        """Whether it is the step's last: gradients are exchanged in its backward."""
        return self.index == self.num_microbatches - 1

    @property
    def is_filler(self) -> bool:
        """Whether all its samples only keep the rank in step with the others."""
        return all(flag == Flag.FILLER for flag in self.flags)

    @property
    def loss_scale(self) -> float:
        """What to multiply the sum of a microbatch's token losses by, before its backward.

        `dp_size / step_target_tokens`: the gradients of the step's microbatches, added up on each
        rank and averaged over the ranks as DDP and FSDP do, are then those of the mean loss over
        all supervised tokens of the step. Leave `dp_size` out where gradients are added up.
        """
        return self.dp_size / max(self.step_target_tokens, 1)


class Microbatch(list[int]):
    """Dataset indices of one microbatch, a plain list to any DataLoader, with their facts."""

    __slots__ = ("facts",)

    def __init__(self, indices: Iterable[int], facts: MicrobatchFacts) -> None:
        super().__init__(indices)
        self.facts = facts

    def __reduce__(self) -> tuple[type["Microbatch"], tuple[list[int], MicrobatchFacts]]:
        return Microbatch, (list(self), self.facts)


class SampleList(list[Any]):
    """Samples of one microbatch, a plain list to any collate function, with their facts."""

    __slots__ = ("facts",)

    def __init__(self, samples: Iterable[Any], facts: MicrobatchFacts | None) -> None:
        super().__init__(samples)
        self.facts = facts


class MicrobatchDataset(Dataset[Any]):
    """Map-style dataset whose batches keep the facts of the microbatch that asked for them.

    `BalancedDataLoader` wraps its dataset by itself. Use this where a framework builds the
    DataLoader: `DataLoader(MicrobatchDataset(dataset), batch_sampler=BalancedBatchSampler(...),
    collate_fn=PackedCollator())` hands the collator a `SampleList`.

    Attributes:
        dataset: The dataset wrapped.

    Example:
        >>> facts = MicrobatchFacts(
        ...     epoch=0, step=0, index=0, num_microbatches=1, dp_rank=0, dp_size=1,
        ...     sample_ids=(2, 0), flags=(0, 0), target_tokens=(1, 1), step_target_tokens=2,
        ...     step_samples=2)
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
