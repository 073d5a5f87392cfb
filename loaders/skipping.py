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
    for frame in _callers():
        caller = frame.f_locals.get("self")
        if type(caller).__module__.startswith("accelerate."):
            skips = vars(caller).get("skip_batches", 0)
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
    for frame in _callers():
        if type(frame.f_locals.get("self")).__module__.startswith("torchdata."):
            state = frame.f_locals.get("next_iter_state")
            if isinstance(state, dict) and state.get("_iterator_finished"):
                return True
    return False


def _callers() -> Iterator[FrameType]:
    frame = sys._getframe(1).f_back
    while frame is not None:
        yield frame
        frame = frame.f_back
