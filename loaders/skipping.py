"""Notices what frameworks do around a state: skip what it has skipped, or begin for nothing."""

import sys
from collections.abc import Iterator
from types import FrameType

from balancer.errors import StateError

__all__ = ["begun_for_nothing", "refuse_second_skip"]


def refuse_second_skip(epoch: int, step: int) -> None:
    """Refuse to begin at a loaded place for a caller that drops the first batches it gets.

    accelerate's `skip_first_batches`, which the Hugging Face Trainer uses too, wraps a batch
    sampler or a loader and drops what it yields; only its frames on the stack tell.

    Raises:
        StateError: Such a wrapper is iterating.
    """
    for frame in _callers("accelerate."):
        caller = frame.f_locals.get("self")
        skips = getattr(caller, "skip_batches", 0)
        if skips:
            raise StateError(
                f"a state was loaded that begins at epoch {epoch}, step {step}, and "
                f"{type(caller).__name__} is about to skip {skips} batches more; do one of the "
                "two: load_state_dict, or skip_first_batches (in the Hugging Face Trainer "
                "ignore_data_skip=True leaves it out)"
            )


def begun_for_nothing() -> bool:
    """Whether torchdata is rebuilding an iterator at its end, only to replace it by another.

    With workers that iterator reads ahead, and the epoch after the one that was loaded would count
    as begun.
    """
    for frame in _callers("torchdata."):
        state = frame.f_locals.get("next_iter_state")
        if isinstance(state, dict) and state.get("_iterator_finished"):
            return True
    return False


def _callers(package: str) -> Iterator[FrameType]:
    """Frames of a package's code; asking any other for its locals would keep them alive in it."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(package):
            yield frame
        frame = frame.f_back
