"""StageError: which stage failed, on which sample, and what to do next."""

from collections.abc import Sequence

from balancer.errors import BalancerError

__all__ = ["StageError", "WorkerDied"]


class StageError(BalancerError):
    """A stage of the loader failed on a sample or a microbatch.

    The exception that the stage raised, if it can travel, is the cause (`__cause__`).

    Attributes:
        stage: Name of the stage.
        sample_ids: Ids of the samples it was working on.

    Example:
        >>> error = StageError("stage 'decode' failed", stage="decode", sample_ids=[13])
        >>> error.stage, error.sample_ids
        ('decode', (13,))
    """

    def __init__(self, message: str, *, stage: str, sample_ids: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.stage = stage
        self.sample_ids = tuple(int(sample_id) for sample_id in sample_ids)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (str(self), self.stage, self.sample_ids)


class WorkerDied(RuntimeError):
    """A worker process ended in the middle of a call; the message says how."""


def _rebuild(message: str, stage: str, sample_ids: tuple[int, ...]) -> StageError:
    """Unpickle an error whose constructor has keyword-only arguments."""
    return StageError(message, stage=stage, sample_ids=sample_ids)
