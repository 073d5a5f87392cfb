"""Stage: one declared stage of the loader, and the checks of a whole row of them."""

import os
import pickle
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from balancer.errors import ArgumentError

__all__ = ["Grain", "Kind", "Stage", "StartMethod", "check_stages", "usable_cores"]

Grain = Literal["sample", "microbatch"]
Kind = Literal["thread", "process", "ray"]
StartMethod = Literal["fork", "spawn", "forkserver"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one stage of the loader does, and with how many workers.

    The first sample-grained stage is called with a sample id, each later one with what the one
    before it returned. The first microbatch-grained stage is called with the list of a microbatch's
    samples in the plan's order, as a collate function is (with a true attribute `wants_facts` it
    gets a `loaders.microbatch.SampleList`), each later one with what the one before it returned.

    Attributes:
        name: Its name in errors, statistics and timelines; unique.
        work: The function. In worker processes it must be picklable unless they are forked. What it
            returns must not be written to again, as a buffer used for every call would be: it may
            still be on its way when the next call begins.
        grain: Whether it works on a `"sample"` or on a `"microbatch"`.
        workers: Workers at the start; `StagePipeline.resize` changes it.
        kind: Workers are threads, for code that releases the GIL (Pillow, numpy, torch, files),
            processes, for any Python code, or actors of a Ray cluster.
        threads: CPU threads that one worker keeps busy; 0 where it only waits (disk, network). In
            worker processes torch, numba and OpenMP are limited to as many, at least one.
        max_waiting: Most items that wait in front of it; a worker of the stage before it does not
            begin another one then.
        timeout: Seconds that one call may take; `None` for any.
        returns: Type or types that it must return. `None` is never allowed.
        retries: How often a sample is done again on a new worker after its worker process died.

    Raises:
        ArgumentError: An attribute is outside what is allowed.

    Example:
        >>> Stage(name="decode", work=str.upper, workers=2).kind
        'thread'
    """

    name: str
    work: Callable[[Any], Any]
    grain: Grain = "sample"
    workers: int = 1
    kind: Kind = "thread"
    threads: int = 1
    max_waiting: int = 256
    timeout: float | None = None
    returns: type | tuple[type, ...] = object
    retries: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ArgumentError(f"name is {self.name!r}; allowed: a non-empty string")
        if not callable(self.work):
            raise ArgumentError(
                f"work of stage {self.name!r} is a {type(self.work).__name__}; allowed: a function "
                "of one argument"
            )
        for name, value, allowed in (
            ("grain", self.grain, get_args(Grain)),
            ("kind", self.kind, get_args(Kind)),
        ):
            if value not in allowed:
                raise ArgumentError(
                    f"{name} of stage {self.name!r} is {value!r}; allowed: {', '.join(allowed)}"
                )
        for name, least in (("workers", 1), ("threads", 0), ("max_waiting", 1), ("retries", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ArgumentError(
                    f"{name} of stage {self.name!r} is {value!r}; allowed: whole numbers >= {least}"
                )
        if self.timeout is not None and not self.timeout > 0:
            raise ArgumentError(
                f"timeout of stage {self.name!r} is {self.timeout!r}; allowed: seconds > 0, or None"
            )


def usable_cores() -> int:
    """CPU cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_stages(stages: Sequence[Stage], start_method: StartMethod) -> tuple[Stage, ...]:
    """The stages, if they make a loader together; all of it before anything runs.

    Warns where their sample-grained workers keep more threads busy than there are cores.

    Raises:
        ArgumentError: There is none for samples, a name comes twice, a stage for samples follows
            one for microbatches, or a function cannot go to a worker process.
    """
    row = tuple(stages)
    for stage in row:
        if not isinstance(stage, Stage):
            raise ArgumentError(f"stages has a {type(stage).__name__}; allowed: Stage")
    names = [stage.name for stage in row]
    for name in names:
        if names.count(name) > 1:
            raise ArgumentError(
                f"stages has the name {name!r} {names.count(name)} times; name each once"
            )
    grains = [stage.grain for stage in row]
    if not grains or grains[0] != "sample" or grains != sorted(grains, reverse=True):
        raise ArgumentError(
            f"stages have the grains {', '.join(grains) or 'of none'}; allowed: one or more of "
            "grain 'sample', then any number of grain 'microbatch'"
        )
    if start_method != "fork":
        for stage in row:
            _check_picklable(stage, start_method)
    _warn_of_too_many_threads(row)
    return row


def _check_picklable(stage: Stage, start_method: str) -> None:
    if stage.kind != "process":
        return
    try:
        pickle.dumps(stage.work, protocol=5)
    except Exception as error:
        raise ArgumentError(
            f"work of stage {stage.name!r} cannot be pickled, which start_method="
            f"{start_method!r} needs ({type(error).__name__}: {error}); use a function at the top "
            "of a module or functools.partial of one instead of a lambda or closure, "
            "start_method='fork', or kind='thread'"
        ) from error


def _warn_of_too_many_threads(stages: Sequence[Stage]) -> None:
    cores = usable_cores()
    busy = [s for s in stages if s.grain == "sample" and s.threads]
    wanted = sum(stage.workers * stage.threads for stage in busy)
    if wanted > cores:
        terms = " + ".join(f"{stage.workers} x {stage.threads} ({stage.name})" for stage in busy)
        warnings.warn(
            f"stages keep workers x threads = {terms} = {wanted} threads busy on {cores} cores; "
            "use fewer workers, or threads=0 for a stage that waits rather than computes",
            stacklevel=4,
        )
