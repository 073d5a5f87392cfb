"""autoscaled: a pipeline whose workers follow what its consumer takes."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any

from balancer.checks import check_count
from loaders.microbatch import MicrobatchFacts
from loaders.stages.autoscale import Autoscaler, Snapshot, StageLoad
from loaders.stages.pipeline import StagePipeline

__all__ = ["autoscaled"]


def autoscaled(
    pipeline: StagePipeline,
    microbatches: Iterable[Sequence[int]],
    scaler: Autoscaler,
    *,
    every: int = 8,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[MicrobatchFacts | None, Any]]:
    """What the pipeline makes of the microbatches, its workers set anew after every few of them.

    Runs in the consumer's thread, between two microbatches; starts no thread of its own. Starting
    worker processes takes as long as the engine takes to start them.

    Args:
        pipeline: The pipeline; not closed afterwards.
        microbatches: Lists of sample ids, as the pipeline takes them.
        scaler: Decides; its stages are those of the pipeline.
        every: Microbatches between two observations.
        clock: Seconds.

    Raises:
        ArgumentError: `every` is not positive, or the stages are not those of the pipeline.

    Example:
        >>> from loaders.stages.allotment import StageLimits
        >>> from loaders.stages.stage import Stage
        >>> with StagePipeline([Stage(name="read", work="abcdef".__getitem__)]) as pipeline:
        ...     scaler = Autoscaler([StageLimits.of(stage) for stage in pipeline.stages])
        ...     [letters for _, letters in autoscaled(pipeline, [[5, 0], [3], [1, 2]], scaler)]
        [['f', 'a'], ['d'], ['b', 'c']]
    """
    check_count("every", every)
    counted = _Counted(microbatches)
    made = pipeline(counted)
    delivered, waited = 0, 0.0
    try:
        while True:
            began = clock()
            item = next(made, None)
            waited += clock() - began
            if item is None:
                return
            delivered += 1
            if delivered % every == 0:
                _scale(pipeline, scaler, counted, clock(), delivered, waited)
            yield item
            del item  # the consumer's is the only reference while the next one is awaited
    finally:
        made.close()  # type: ignore[attr-defined]


def _scale(
    pipeline: StagePipeline,
    scaler: Autoscaler,
    counted: "_Counted",
    now: float,
    delivered: int,
    waited: float,
) -> None:
    """Observe, and set the workers of the stages that should have others."""
    statistics = pipeline.stats()[1:]  # the first is planning
    snapshot = Snapshot(
        now=now,
        delivered=delivered,
        waited=waited,
        samples_per_delivery=counted.samples / max(counted.microbatches, 1),
        bytes_in_flight=sum(stage.waiting_bytes for stage in statistics),
        remaining=None if counted.length is None else counted.length - delivered,
        stages=tuple(
            StageLoad(
                name=stage.name,
                workers=stage.workers,
                count=stage.count,
                busy_seconds=stage.busy_seconds,
            )
            for stage in statistics
        ),
    )
    wanted = scaler.observe(snapshot)
    # Surplus workers go first, so that there are never more threads than cores for long.
    for stage in sorted(statistics, key=lambda stage: wanted[stage.name] > stage.workers):
        if wanted[stage.name] != stage.workers:
            pipeline.resize(stage.name, wanted[stage.name])


class _Counted:
    """Counts microbatches and samples as the pipeline takes them."""

    def __init__(self, microbatches: Iterable[Sequence[int]]) -> None:
        self._of = microbatches
        self.length = len(microbatches) if isinstance(microbatches, Sized) else None
        self.microbatches = 0
        self.samples = 0

    def __iter__(self) -> Iterator[Sequence[int]]:
        for microbatch in self._of:
            self.microbatches += 1
            self.samples += len(microbatch)
            yield microbatch
