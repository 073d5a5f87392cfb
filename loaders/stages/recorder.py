"""Recorder: what an engine counts while it works."""

import time
from collections import deque
from collections.abc import Sequence

from loaders.stages.jobs import Job, MicrobatchJob
from loaders.stages.run import Run
from loaders.stages.stage import Stage
from loaders.stages.statistics import Call, Meter, StageStatistics, Waits

__all__ = ["Recorder"]


class Recorder:
    """Counters of planning, of each stage and of the consumer; used under the engine's lock.

    Attributes:
        meters: One a stage.
        planning: That of the planning thread.
        waits: What the consumer waited for.
        calls: The last calls, for a timeline.
        replaced: Pairs of a failed sample's id and that of the sample taken in its place.
        most_bytes: Most host bytes in flight so far.
    """

    def __init__(self, stages: Sequence[Stage], *, trace: int) -> None:
        self._stages = tuple(stages)
        self.meters = [Meter() for _ in stages]
        self.planning = Meter()
        self.waits = Waits()
        self.calls: deque[Call] = deque(maxlen=trace)
        self.replaced: list[tuple[int, int]] = []
        self.most_bytes = 0
        self._awaiting: tuple[float, str] | None = None
        self._pending_waits: dict[str, float] = {}

    def begin(self) -> None:
        """Another run begins."""
        self._awaiting, self._pending_waits = None, {}

    def await_begins(self, run: Run) -> None:
        """The consumer begins to wait."""
        self._awaiting = (time.monotonic(), run.awaited())

    def await_ends(self, run: Run) -> None:
        """The consumer no longer waits."""
        self.awaited_changes(run)
        self._awaiting = None

    def awaited_changes(self, run: Run) -> None:
        """Something moved: the consumer has waited until now for what it was said to wait for."""
        if self._awaiting is not None:
            since, awaited = self._awaiting
            now = time.monotonic()
            waited = self._pending_waits.get(awaited, 0.0) + now - since
            self._pending_waits[awaited] = waited
            self._awaiting = (now, run.awaited())

    def delivered(self, job: MicrobatchJob, began: float) -> None:
        """Book the wait for a microbatch under its step."""
        step = job.number if job.step is None else job.step
        for awaited, seconds in self._pending_waits.items():
            self.waits.add(step, awaited, seconds)
        self._pending_waits = {}
        self._trace("consumer", 0, began, job)

    def planned(self, seconds: float) -> None:
        """A microbatch of the plan has been read."""
        self.planning.begun += 1
        self.planning.durations.add(seconds)

    def returned(self, stage: int, number: int, began: float, job: Job, restarts: int) -> None:
        """A call has ended."""
        meter = self.meters[stage]
        meter.durations.add(time.monotonic() - began)
        meter.restarts += restarts
        self._trace(self._stages[stage].name, number, began, job)

    def depths(self, run: Run) -> None:
        """Note how much waits in front of each stage, and is held in all."""
        self.most_bytes = max(self.most_bytes, run.room.highest)
        for stage, meter in enumerate(self.meters):
            meter.most_waiting = max(meter.most_waiting, run.waiting(stage))

    def statistics(self, run: Run | None, workers: Sequence[int]) -> list[StageStatistics]:
        """Of planning and of each stage, as they stand."""
        planning = self.planning.read(
            "planning", workers=1, waiting=len(run.window) if run else 0, waiting_bytes=0
        )
        return [planning] + [
            meter.read(
                stage.name,
                workers=workers[index],
                waiting=run.waiting(index) if run else 0,
                waiting_bytes=run.waiting_bytes(index) if run else 0,
            )
            for index, (stage, meter) in enumerate(zip(self._stages, self.meters, strict=True))
        ]

    def _trace(self, stage: str, number: int, began: float, job: Job) -> None:
        if self.calls.maxlen:
            call = Call(
                stage=stage,
                worker=number,
                begin=began,
                end=time.monotonic(),
                sample_ids=job.sample_ids,
                step=job.step,
            )
            self.calls.append(call)
