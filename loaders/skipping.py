"""Notices a framework that skips batches which a loaded state has skipped already."""

import sys

from balancer.errors import StateError

__all__ = ["refuse_second_skip"]


def refuse_second_skip(epoch: int, step: int) -> None:
    """Refuse to begin at a loaded place for a caller that drops the first batches it gets.

    accelerate's `skip_first_batches`, which the Hugging Face Trainer uses too, wraps a batch
    sampler or a loader and drops what it yields; only its frames on the stack tell.

    Raises:
        StateError: Such a wrapper is iterating.
    """
    frame = sys._getframe(1)
    while frame is not None:
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
        frame = frame.f_back  # type: ignore[assignment]
