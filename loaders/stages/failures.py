"""What to say when a stage fails: which stage, on what, and what to do next."""

import os
from collections.abc import Callable
from typing import Any

from loaders.sample_errors import shown
from loaders.stages.errors import StageError, WorkerDied
from loaders.stages.jobs import Job, SampleJob
from loaders.stages.stage import Stage

__all__ = ["OnError", "check_result", "failure", "hung_thread", "replacement_of"]

OnError = Callable[[SampleJob, BaseException], int | None]

_MOST_REPLACEMENTS = 10  # of one place in a microbatch, one after another


def check_result(stage: Stage, value: Any) -> None:
    """Refuse what a stage must not return.

    Raises:
        TypeError: It is `None`, or of another type than the stage declares.
    """
    if value is None:
        raise TypeError("it returned None; is a return statement missing?")
    if not isinstance(value, stage.returns):
        allowed = stage.returns if isinstance(stage.returns, tuple) else (stage.returns,)
        names = " or ".join(kind.__name__ for kind in allowed)
        raise TypeError(f"it returned a {type(value).__name__}; allowed by returns: {names}")


def failure(stage: Stage, job: Job, error: BaseException) -> StageError:
    """The error that the consumer gets for what a stage raised."""
    return StageError(
        f"stage {stage.name!r} failed on {_of_what(job)}: {shown(error)}. {_advice(stage, error)}",
        stage=stage.name,
        sample_ids=job.sample_ids,
    )


def replacement_of(
    on_error: OnError | None, job: Job, error: BaseException
) -> tuple[int | None, BaseException]:
    """Sample to take in the place of one that failed, if any, and the exception to report else."""
    if on_error is None or not isinstance(job, SampleJob):
        return None, error
    if not isinstance(error, Exception) or job.replacements >= _MOST_REPLACEMENTS:
        return None, error
    try:
        return on_error(job, error), error
    except Exception as raised:  # the hook's own failure, or its way to say no
        return None, raised


def hung_thread(stage: Stage, job: Job, seconds: float) -> StageError:
    """The error for a call in a thread that has taken too long."""
    return StageError(
        f"stage {stage.name!r} has worked on {_of_what(job)} for {seconds:.1f} s, its timeout is "
        f"{stage.timeout:g} s. A thread cannot be stopped: this one stays until the process ends; "
        "look at the sample, raise timeout, or use kind='process', where a call can be ended",
        stage=stage.name,
        sample_ids=job.sample_ids,
    )


def _of_what(job: Job) -> str:
    ids = job.sample_ids
    what = f"sample {ids[0]}" if len(ids) == 1 else f"samples {_shortened(ids)}"
    facts = getattr(job, "facts", None) or getattr(getattr(job, "microbatch", None), "facts", None)
    if facts is None:
        return what
    return f"{what} (epoch {facts.epoch}, step {facts.step}, rank {facts.dp_rank})"


def _shortened(ids: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ids[:8]))
    return shown if len(ids) <= 8 else f"{shown}, ... ({len(ids)} in all)"


def _advice(stage: Stage, error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "Look at the sample, or raise timeout"
    if isinstance(error, WorkerDied):
        return (
            "SIGKILL mostly comes from the kernel when memory runs out: use fewer workers or a "
            "smaller max_bytes; other signals from native code: look at the sample"
        )
    if isinstance(error, MemoryError):
        return "Use fewer workers or a smaller max_bytes, or leave the sample out"
    if stage.grain == "sample":
        return (
            f"Look at the sample (worker of process {os.getpid()}), leave it out of the plan, or "
            "give on_error, which names a sample to take in its place"
        )
    return "Look at the function of the stage and the samples it got"
