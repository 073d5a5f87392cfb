"""Microbatches on their way: the ids asked for, the samples read, and the facts with both."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from balancer.plan import Flag

__all__ = ["Microbatch", "MicrobatchFacts", "SampleFailure", "SampleList", "Substitute"]


class Substitute(NamedTuple):
    """A sample that may be read in place of one that cannot.

    Attributes:
        sample_id: Its id.
        target_tokens: Its supervised tokens by the size table.
    """

    sample_id: int
    target_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFailure:
    """A sample that could not be read, and what stands in its place.

    Attributes:
        sample_id: Id of the sample that failed.
        substitute_id: Id of the sample read instead; `None` in a stream, which goes on without it.
        epoch: Epoch.
        step: Step within the epoch.
        error: Type and message of the exception.
    """

    sample_id: int
    substitute_id: int | None
    epoch: int
    step: int
    error: str


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
        step_target_samples: Those of them with at least one supervised token.
        rank_target_tokens: Supervised tokens of this rank's microbatches of the step; `None` where
            not counted.
        rank_samples: Samples of this rank's microbatches of the step, fillers not counted.
        step_shape: Rows and tokens a row that hold any microbatch of the step in the plan's layout,
            with its multiples: `(1, tokens)` packed, `(samples, tokens)` padded; `None` where not
            known.
        imbalance: Max over mean of all ranks' cost in their microbatches of this index, each over
            the speed of its rank; `None` where not known or where none has a cost.
        tokens: Tokens of its samples by the size table, fillers counted; `None` where not known.
        allocated_tokens: Tokens of its tensors in the plan's layout, padding counted.
        fill: For each limit that is set, by the name of the amount, what it holds over the limit.
        moved_steps: Steps that each sample moved within its window, negative towards the begin of
            the epoch; empty under strict membership.
        substitutes: For each sample those that may be read in its place; empty where none are.
        failures: Samples that could not be read; `sample_ids`, `flags` and `target_tokens` are then
            those of their substitutes.
        missing_modules: Modules that this microbatch has no work in though another rank's has at
            the same time; where ranks wait inside modules (FSDP, ZeRO-3), run them on a dummy input
            with its output times zero.
        needs_dummy: With `Topology.modality_sync`, the same modules with the size of the dummy that
            the plan has left room for: `{"vision": {"tokens": 4, "patches": 16}}`, empty sizes
            where `Limits.dummies` states none.
        passed_on_ids: Those of `sample_ids` whose language work runs in the next microbatch of this
            rank (`balancer.deferral`); their encoder outputs are to be held for it.
        arriving_ids: Samples of the previous microbatch whose language work runs in this one,
            before that of its own; their gradients go back to where their encoder work ran.

    Example:
        >>> facts = MicrobatchFacts(
        ...     epoch=0, step=7, index=1, num_microbatches=2, dp_rank=0, dp_size=4, sample_ids=(5,),
        ...     flags=(2,), target_tokens=(0,), step_target_tokens=1000, step_samples=32,
        ...     step_target_samples=32)
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
    step_target_samples: int
    rank_target_tokens: int | None = None
    rank_samples: int | None = None
    step_shape: tuple[int, int] | None = None
    missing_modules: tuple[str, ...] = ()
    needs_dummy: Mapping[str, Mapping[str, int]] = field(default_factory=dict, hash=False)
    passed_on_ids: tuple[int, ...] = ()
    arriving_ids: tuple[int, ...] = ()
    imbalance: float | None = None
    tokens: int | None = None
    allocated_tokens: int | None = None
    fill: Mapping[str, float] = field(default_factory=dict, hash=False)
    moved_steps: tuple[int, ...] = ()
    substitutes: tuple[tuple[Substitute, ...], ...] = ()
    failures: tuple[SampleFailure, ...] = ()

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
