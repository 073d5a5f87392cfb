"""StagePipeline: a plan's microbatches, prepared by stages that overlap with training."""

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from balancer.checks import check_choice, check_count
from balancer.errors import ArgumentError
from loaders.microbatch import MicrobatchFacts
from loaders.stages.engine import Engine
from loaders.stages.failures import OnError
from loaders.stages.jobs import MicrobatchJob
from loaders.stages.run import Order, Run
from loaders.stages.sizes import size_of as default_size_of
from loaders.stages.stage import Stage, StartMethod, check_stages
from loaders.stages.statistics import Call, StageStatistics, StepWait
from loaders.stages.workers import ThreadWorker, Worker

__all__ = ["StagePipeline"]

Settle = Callable[[MicrobatchJob], MicrobatchFacts | None]


class StagePipeline:
    """Runs microbatches through declared stages: read, decode, transform, collate, to a device.

    Samples of the next `look_ahead` microbatches are worked on least slack first (see
    `loaders.stages.schedule.LeastSlack`), by whichever worker is free, so one dear sample of a
    later microbatch begins early enough and holds up nobody. A microbatch is handed out once its
    samples are ready, in the plan's order. Queues are bounded in items and bytes; a consumer that
    stops taking stops the workers.

    Neither of the engines at hand does this. Executors of the standard library take work first
    come, first served, so what is urgent cannot overtake, and a pool of processes is lost as a
    whole when one of them is killed; SPDL's pipelines bound queues in items and keep to the order
    of arrival within a stage. The threads here are the standard library's, and so are the processes
    (`loaders.stages.process_worker`).

    Args:
        stages: The stages, those for samples before those for microbatches.
        seconds: Predicted seconds of each sample's work, by id (`balancer.cost.Costs.prep`), or a
            function of a microbatch's ids; all alike when not given.
        look_ahead: Most microbatches planned and not yet handed out.
        max_bytes: Bound on the bytes of all results in the stages; one more sample may go on.
        order: `"plan"`, or `"ready"`: microbatches of the same step as they become ready. Each rank
            then takes them in an order of its own, which undoes a plan that gives all ranks
            microbatches of like cost at the same time: ranks that wait for each other in every
            microbatch (FSDP, expert or tensor parallelism, pipeline ranks) wait longer than in the
            plan's order. It is fine where ranks wait for each other once a step, as DDP with
            `no_sync` does, and on one rank.
        on_error: Names a sample to take in the place of one that failed, or `None` for none.
        settle: Facts of a microbatch whose samples were replaced; those of the plan otherwise.
        size_of: Host bytes of a result, `loaders.stages.sizes.size_of` when not given.
        start_method: How worker processes begin.
        trace: Most calls kept for a timeline; 0 keeps none.

    Attributes:
        stages: The stages.

    Raises:
        ArgumentError: An argument is not allowed, or the stages do not go together.
        StageError: While iterated: a stage raised, returned what it must not, took too long, or its
            process died; names the stage and the samples.

    Example:
        >>> stages = [Stage(name="read", work="abcdef".__getitem__, workers=2),
        ...           Stage(name="collate", work="".join, grain="microbatch")]
        >>> with StagePipeline(stages) as pipeline:
        ...     [text for _, text in pipeline([[5, 0], [3], [1, 2]])]
        ['fa', 'd', 'bc']
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        seconds: ArrayLike | Callable[[Sequence[int]], list[float]] | None = None,
        look_ahead: int = 16,
        max_bytes: int = 1 << 30,
        order: Order = "plan",
        on_error: OnError | None = None,
        settle: Settle | None = None,
        size_of: Callable[[Any], int] = default_size_of,
        start_method: StartMethod = "forkserver",
        trace: int = 0,
    ) -> None:
        check_count("look_ahead", look_ahead)
        check_count("max_bytes", max_bytes)
        check_count("trace", trace, least=0)
        check_choice("order", order, get_args(Order))
        check_choice("start_method", start_method, get_args(StartMethod))
        self.stages = check_stages(stages, start_method)
        self._seconds = _prep_seconds(seconds)
        self._look_ahead = look_ahead
        self._max_bytes = max_bytes
        self._order = order
        self._settle: Settle = _of_the_plan if settle is None else settle
        self._engine = Engine(
            self.stages,
            start_worker=partial(_start_worker, self.stages, start_method),
            size_of=size_of,
            on_error=on_error,
            trace=trace,
        )
        # Threads of workers hold the engine, so it would never end by itself.
        weakref.finalize(self, _close_soon, self._engine).atexit = False

    def __call__(
        self, microbatches: Iterable[Sequence[int]]
    ) -> Iterator[tuple[MicrobatchFacts | None, Any]]:
        """Facts and what the last stage made of each microbatch; the iterator has `close()`.

        Args:
            microbatches: Lists of sample ids, `loaders.microbatch.Microbatch` where they have
                facts. They are read in a thread of their own, as there is room for them.
        """
        run = Run(
            self.stages,
            workers=self._engine.workers,
            look_ahead=self._look_ahead,
            max_bytes=self._max_bytes,
            order=self._order,
            settle=self._settle,
        )
        self._engine.begin(run, microbatches, self._seconds)
        return self._handed_out(run)

    def _handed_out(self, run: Run) -> Iterator[tuple[MicrobatchFacts | None, Any]]:
        try:
            while (job := self._engine.next_ready(run)) is not None:
                facts, value = job.facts, job.value
                job.release()
                del job
                yield facts, value
                del value  # the consumer's is the only reference while the next one is awaited
        finally:
            self._engine.end(run)
            run.release()

    @property
    def closed(self) -> bool:
        """Whether its workers have ended for good."""
        return self._engine.closed

    @property
    def replaced(self) -> list[tuple[int, int]]:
        """Ids of samples that failed, each with that of the sample taken in its place."""
        return list(self._engine.recorder.replaced)

    @property
    def calls(self) -> list[Call]:
        """The last `trace` calls of the stages and waits of the consumer, for a timeline."""
        return list(self._engine.recorder.calls)

    @property
    def step_waits(self) -> list[StepWait]:
        """What the consumer waited for in each of the last steps."""
        return list(self._engine.recorder.waits.steps)

    @property
    def waits(self) -> dict[str, float]:
        """Seconds that the consumer waited so far, by what was awaited."""
        return dict(self._engine.recorder.waits.total)

    @property
    def most_bytes(self) -> int:
        """Most host bytes that were in flight at a time, in all passes so far."""
        return self._engine.recorder.most_bytes

    def stats(self) -> list[StageStatistics]:
        """Of planning and of each stage, as they stand."""
        return self._engine.statistics()

    def resize(self, stage: str, workers: int) -> None:
        """Give a stage another number of workers; those too many end after their call.

        Raises:
            ArgumentError: There is no such stage, or the number is not positive.
        """
        check_count("workers", workers)
        names = [each.name for each in self.stages]
        if stage not in names:
            raise ArgumentError(f"stage is {stage!r}; allowed: {', '.join(map(repr, names))}")
        self._engine.resize(names.index(stage), workers)

    def close(self) -> None:
        """End all workers; the pipeline cannot be used again."""
        self._engine.close()

    def __enter__(self) -> "StagePipeline":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _start_worker(
    stages: Sequence[Stage], start_method: StartMethod, stage: int, number: int
) -> Worker:
    declared = stages[stage]
    if declared.kind == "process":
        from loaders.stages.process_worker import ProcessWorker

        return ProcessWorker(declared, start_method=start_method)
    if declared.kind == "ray":
        from loaders.stages.ray_worker import RayWorker

        return RayWorker(declared)
    return ThreadWorker(declared.work)


def _close_soon(engine: Engine) -> None:
    """End the workers of a pipeline that nobody refers to any more.

    In a thread of its own: garbage may be collected anywhere, also under the engine's lock.
    """
    if not engine.closed:
        threading.Thread(target=engine.close, name="closing", daemon=True).start()


def _prep_seconds(
    seconds: ArrayLike | Callable[[Sequence[int]], list[float]] | None,
) -> Callable[[Sequence[int]], list[float]]:
    """Predicted seconds of a microbatch's samples, as a function of their ids.

    Raises:
        ArgumentError: They are not finite numbers >= 0.
    """
    if callable(seconds):
        return seconds
    if seconds is None:
        return lambda ids: [1.0] * len(ids)
    values = np.asarray(seconds, np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any():
        raise ArgumentError(
            f"seconds has shape {values.shape}; allowed: one finite number >= 0 a sample"
        )
    return lambda ids: [float(values[sample_id]) for sample_id in ids]


def _of_the_plan(job: MicrobatchJob) -> MicrobatchFacts | None:
    return job.facts
