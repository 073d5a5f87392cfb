"""FailureList: the first failures of a loader, and how many there were."""

import logging
from collections.abc import Sequence

from loaders.microbatch import SampleFailure

__all__ = ["FailureList"]

_LOG = logging.getLogger("loaders")


class FailureList(list[SampleFailure]):
    """The first failures in the order they came; `total` counts all of them.

    A training run may go on for months over samples that fail in every epoch, so the list is
    bounded: the logger `loaders` says once that it is full. Each microbatch has its own failures
    in its facts, whatever was listed before.

    Attributes:
        total: Failures so far, listed or not.
        most: Failures that are listed at most.

    Example:
        >>> failures = FailureList(most=1)
        >>> failures.add([SampleFailure(
        ...     sample_id=sample, substitute_id=8, epoch=0, step=0, error="OSError: no such file")
        ...     for sample in (3, 5)])
        >>> [failure.sample_id for failure in failures], failures.total
        ([3], 2)
    """

    def __init__(self, *, most: int = 10_000) -> None:
        super().__init__()
        self.most = most
        self.total = 0

    def add(self, failures: Sequence[SampleFailure]) -> None:
        """Count these, and list those that have room."""
        full = self.total > self.most
        self.total += len(failures)
        self.extend(failures[: self.most - len(self)])
        if self.total > self.most and not full:
            _LOG.warning(
                "evenstep: %d samples could not be read; loader.failures lists the first %d, "
                "loader.failures.total counts on, and loader.facts.failures has those of each "
                "microbatch",
                self.total,
                self.most,
            )
