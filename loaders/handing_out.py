"""HandsOut: a loader's microbatches one after another, or step by step."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

from loaders.microbatch import MicrobatchFacts
from loaders.step import Step

__all__ = ["HandsOut"]


class HandsOut(ABC):
    """Both ways to iterate a loader, from the one generator that a loader provides."""

    @abstractmethod
    def _handed_out(self) -> Generator[tuple[MicrobatchFacts, Any], None, None]:
        """Microbatches of the next epoch with their facts; closing it leaves nothing running."""

    def __iter__(self) -> Iterator[Any]:
        """Microbatches of the next epoch, each as `collate_fn` returned it."""
        with closing(self._handed_out()) as stream:
            for _, microbatch in stream:
                yield microbatch
                del microbatch  # the user's is the only reference while the next one is fetched

    def steps(self) -> Iterator[Step]:
        """Optimizer steps of the next epoch, each an iterator over its microbatches.

        What a loop body leaves of a step is read and thrown away before the next one.
        """
        with closing(self._handed_out()) as stream:
            for facts, microbatch in stream:
                step = Step(facts, microbatch, stream)
                yield step
                step.skip_rest()
