"""Run: one pass over a plan as a state machine, without threads and without a clock."""

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Literal

from loaders.microbatch import MicrobatchFacts, SampleList
from loaders.sample_errors import shown
from loaders.stages.jobs import Job, MicrobatchJob, SampleJob
from loaders.stages.room import Room
from loaders.stages.schedule import LeastSlack
from loaders.stages.stage import Stage

__all__ = ["Idle", "Order", "Run"]

Idle = Literal["starved", "blocked"]
Order = Literal["plan", "ready"]


class Run:
    """What waits where, what may begin next, and what is ready for the consumer.

    Samples of the next `look_ahead` microbatches wait in front of the first stage; a worker that
    is free takes the one with the least slack (`LeastSlack`), if there is room for its bytes and a
    place in front of the next stage. Whatever the bounds say, one sample at a time of the first
    microbatch not yet delivered may go on, so a run always ends. The engine calls every method
    under its lock; a simulator calls them with a clock of its own.

    Args:
        stages: All stages, sample-grained first.
        workers: Workers of each stage; the engine's own list, which may change.
        look_ahead: Most microbatches planned and not yet delivered.
        max_bytes: Bound on the bytes in flight.
        order: `"plan"`, or `"ready"` within a step.
        settle: Facts of a microbatch once its samples are known, where some were replaced.

    Attributes:
        room: The bytes in flight.
        window: Microbatches planned and not yet delivered, in the plan's order.
        planned: Whether the plan has no more microbatches.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        workers: Sequence[int],
        look_ahead: int,
        max_bytes: int,
        order: Order = "plan",
        settle: Callable[[MicrobatchJob], MicrobatchFacts | None] = lambda job: job.facts,
    ) -> None:
        self._stages = tuple(stages)
        self._num_sample_stages = sum(stage.grain == "sample" for stage in stages)
        self._look_ahead = look_ahead
        self._order = order
        self._settle = settle
        self._workers = workers
        self._schedule = LeastSlack()
        self._waiting: list[list[tuple[tuple[float, int, int], Job]]] = [[] for _ in stages]
        self._running = [0] * len(self._stages)
        self._set_aside: dict[Job, int] = {}
        self._admitted = 0
        self.room = Room(
            max_bytes=max_bytes, workers=workers, num_sample_stages=self._num_sample_stages
        )
        self.window: deque[MicrobatchJob] = deque()
        self.planned = False

    @property
    def wants_microbatch(self) -> bool:
        """Whether the planner may hand over another microbatch."""
        return not self.planned and len(self.window) < self._look_ahead

    @property
    def finished(self) -> bool:
        """Whether all of the plan was delivered."""
        return self.planned and not self.window

    def admit(
        self,
        sample_ids: Sequence[int],
        seconds: Sequence[float],
        facts: MicrobatchFacts | None = None,
    ) -> None:
        """Take the next microbatch of the plan, with the predicted seconds of its samples."""
        workers = max(self._workers[: self._num_sample_stages])
        begins = self._schedule.latest_begins(seconds, workers=workers)
        dear = self._schedule.dear(seconds)
        first_stage = self._num_sample_stages
        job = MicrobatchJob(self._admitted, facts, sample_ids, begins, dear, first_stage)
        self._admitted += 1
        self.window.append(job)
        for sample in job.samples:
            self._put(sample)
        if not job.samples:
            self._assemble(job)

    def waiting(self, stage: int) -> int:
        """Items in front of a stage."""
        return len(self._waiting[stage])

    def waiting_bytes(self, stage: int) -> int:
        """Bytes in front of a stage."""
        return sum(job.held for _, job in self._waiting[stage])

    def begin(self, stage: int) -> Job | Idle:
        """The item that a free worker of a stage should work on now, or why there is none."""
        job = self._next_sample(stage) if stage < self._num_sample_stages else self._next(stage)
        if isinstance(job, (SampleJob, MicrobatchJob)):
            self._running[stage] += 1
            self._set_aside[job] = self.room.begin(stage)
        return job

    def begin_ahead(self, running: Job) -> Job | None:
        """A sample for a worker of the first stage that will begin it once `running` has ended.

        None where another worker would do it sooner: behind a dear sample, and where a worker is
        idle or would soon find nothing; and none until the size of a result is known. Later stages
        get none ahead: what they are given is large, and sending it would have to wait for the
        worker too.
        """
        num_workers = self._workers[0]
        few = self._running[0] < num_workers or len(self._waiting[0]) < num_workers
        is_dear = isinstance(running, SampleJob) and running.is_dear
        if few or is_dear or not self.room.highest:
            return None
        job = self.begin(0)
        return None if isinstance(job, str) else job

    def end(self, job: Job, value: Any, nbytes: int) -> None:
        """A worker returned `value` of so many bytes: hand it to the next stage."""
        self._leave(job, nbytes)
        job.value, job.held = value, nbytes
        job.stage += 1
        if isinstance(job, SampleJob):
            job.microbatch.held += nbytes
            if job.stage < self._num_sample_stages:
                self._put(job)
            else:
                self._finish(job)
        elif job.stage < len(self._stages):
            self._put(job)
        else:
            job.ready = True

    def replace(self, job: SampleJob, sample_id: int, error: BaseException) -> None:
        """The sample failed: begin with another one in its place."""
        self._leave(job, 0)
        job.error = job.error or shown(error)
        job.value, job.held, job.stage = None, 0, 0
        job.sample_id = sample_id
        job.replacements += 1
        self._put(job)

    def deliver(self) -> MicrobatchJob | None:
        """Take the next microbatch for the consumer out, if one is ready."""
        head = self.window[0] if self.window else None
        for job in self.window:
            if job is not head and not self._may_overtake(job, head):
                break
            if job.ready:
                self.window.remove(job)
                self.room.release(job.held)
                return job
        return None

    def release(self) -> None:
        """Let go of all results; the run is over."""
        for job in list(self.window):
            job.release()

    def awaited(self) -> str:
        """What the consumer waits for: `"planning"` or the name of a stage."""
        if not self.window:
            return "planning"
        head = self.window[0]
        stage = min((s.stage for s in head.samples), default=0) if head.unfinished else head.stage
        return self._stages[min(stage, len(self._stages) - 1)].name

    def _may_overtake(self, job: MicrobatchJob, head: MicrobatchJob | None) -> bool:
        """Whether a microbatch may be delivered before the first one."""
        same_step = head is not None and job.step is not None and job.step == head.step
        return self._order == "ready" and same_step

    def _put(self, job: Job) -> None:
        heappush(self._waiting[job.stage], (job.urgency, job))

    def _leave(self, job: Job, result: int) -> None:
        """A call of a job has ended."""
        self._running[job.stage] -= 1
        self.room.end(job.stage, set_aside=self._set_aside.pop(job), given=job.held, result=result)
        if isinstance(job, SampleJob):
            job.microbatch.held -= job.held

    def _next(self, stage: int) -> Job | Idle:
        """First microbatch in front of a microbatch-grained stage."""
        if not self._waiting[stage]:
            return "starved"
        return heappop(self._waiting[stage])[1]

    def _next_sample(self, stage: int) -> Job | Idle:
        """Most urgent sample that there is room for, or one that has to go on in any case."""
        waiting = self._waiting[stage]
        if not waiting:
            full = stage == 0 and len(self.window) >= self._look_ahead
            return "blocked" if full else "starved"
        last = self.room.last_within(self.window) if stage == 0 else self._admitted
        if self._has_place_after(stage):
            for place in self._by_urgency(waiting, last):
                if self.room.fits(stage, waiting[place][1].held):
                    return self._take(stage, place)
                break
        if sum(self._running[: self._num_sample_stages]) == 0 and self.window[0].unfinished:
            for place, (_, job) in enumerate(waiting):
                if isinstance(job, SampleJob) and job.microbatch is self.window[0]:
                    return self._take(stage, place)
        return "blocked"

    def _has_place_after(self, stage: int) -> bool:
        """Whether a result of a sample-grained stage will find a place in front of the next."""
        after = stage + 1
        if after == self._num_sample_stages:
            return True
        coming = len(self._waiting[after]) + self._running[stage]
        return coming < self._stages[after].max_waiting

    def _by_urgency(
        self, waiting: list[tuple[tuple[float, int, int], Job]], last: int
    ) -> list[int]:
        """Place of the most urgent item among those of microbatches up to number `last`."""
        if waiting[0][0][1] <= last:
            return [0]
        within = [(key, place) for place, (key, _) in enumerate(waiting) if key[1] <= last]
        return [min(within)[1]] if within else []

    def _take(self, stage: int, place: int) -> Job:
        """Remove an item from a heap, wherever it stands."""
        waiting = self._waiting[stage]
        if place == 0:
            return heappop(waiting)[1]
        job = waiting[place][1]
        waiting[place] = waiting[-1]
        waiting.pop()
        heapify(waiting)
        return job

    def _finish(self, sample: SampleJob) -> None:
        """A sample has passed all its stages; perhaps its microbatch is complete."""
        self.room.sample_finished(sample.held)
        microbatch = sample.microbatch
        microbatch.unfinished -= 1
        if not microbatch.unfinished:
            self._assemble(microbatch)

    def _assemble(self, microbatch: MicrobatchJob) -> None:
        """Join the samples of a microbatch in the plan's order."""
        microbatch.facts = self._settle(microbatch)
        microbatch.value = SampleList(
            [sample.value for sample in microbatch.samples], microbatch.facts
        )
        for sample in microbatch.samples:
            sample.value = None
        if microbatch.stage < len(self._stages):
            self._put(microbatch)
        else:
            microbatch.ready = True
