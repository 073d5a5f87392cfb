"""Step: one optimizer step as the training loop sees it."""

from collections.abc import Iterator
from typing import Any

from loaders.microbatch import MicrobatchFacts

__all__ = ["Step"]


class Step(Iterator[Any]):
    """Iterator over this rank's microbatches of one optimizer step, in order, once.

    Attributes:
        epoch: Epoch.
        number: Step within the epoch, from 0.
        num_microbatches: Microbatches of every rank in this step; also `len(step)`.
        num_target_tokens: Supervised tokens of the step over all ranks and microbatches.
        num_samples: Samples of the step over all ranks, fillers not counted.

    Raises:
        RuntimeError: While iterated, if the loader's iterator of steps is gone before its end.

    Example:
        >>> facts = MicrobatchFacts(
        ...     epoch=0, step=7, index=0, num_microbatches=2, dp_rank=0, dp_size=1, sample_ids=(5,),
        ...     flags=(0,), target_tokens=(3,), step_target_tokens=9, step_samples=2,
        ...     step_target_samples=2)
        >>> step = Step(facts, "first", iter([(facts, "second"), (facts, "of the next step")]))
        >>> step.number, len(step), list(step), list(step)
        (7, 2, ['first', 'second'], [])
    """

    def __init__(
        self, facts: MicrobatchFacts, first: Any, rest: Iterator[tuple[MicrobatchFacts, Any]]
    ) -> None:
        self.epoch = facts.epoch
        self.number = facts.step
        self.num_microbatches = facts.num_microbatches
        self.num_target_tokens = facts.step_target_tokens
        self.num_samples = facts.step_samples
        self._first = [first]
        self._rest = rest
        self._remaining = facts.num_microbatches - facts.index

    def __len__(self) -> int:
        return self.num_microbatches

    def __next__(self) -> Any:
        if not self._remaining:
            raise StopIteration
        self._remaining -= 1
        if self._first:
            return self._first.pop()
        for _, microbatch in self._rest:
            return microbatch
        raise RuntimeError(
            f"step {self.number} ended {self._remaining + 1} microbatches early: the iterator that "
            "loader.steps() returned is gone; keep it for as long as its steps are in use"
        )

    def skip_rest(self) -> None:
        """Read and throw away the microbatches that are left."""
        for _ in self:
            pass
