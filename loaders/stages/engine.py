"""Engine: the threads that carry a run's items from stage to stage."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from loaders.stages.crew import Crew
from loaders.stages.failures import OnError, failure, hung_thread, replacement_of
from loaders.stages.jobs import Job, MicrobatchJob, SampleJob
from loaders.stages.lifetime import close_at_exit
from loaders.stages.planning import Planning
from loaders.stages.recorder import Recorder
from loaders.stages.run import Run
from loaders.stages.serving import Serving
from loaders.stages.stage import Stage
from loaders.stages.statistics import StageStatistics
from loaders.stages.workers import StartWorker, Worker

__all__ = ["Engine"]

_STOP_SECONDS = 4.0  # how long closing waits for calls in progress


class Engine:
    """Workers of all stages, and the lock under which they share a `Run`.

    Each worker is a thread that takes the next item only when it is free, so the order is decided
    as late as possible; one that stands for a worker process passes the item on and waits. The plan
    is read in a thread of its own and the consumer is the caller's, so neither needs a worker.

    Args:
        stages: The stages, checked.
        start_worker: Makes a worker of a stage.
        size_of: Bytes of a result.
        on_error: Names a sample to take in the place of one that failed, or `None` for none.
        trace: Most calls kept for a timeline; 0 keeps none.

    Attributes:
        closed: Whether it was closed.
        workers: Workers wanted in each stage.
        recorder: What is counted.
        size_of: Bytes of a result.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        start_worker: StartWorker,
        size_of: Callable[[Any], int],
        on_error: OnError | None,
        trace: int,
    ) -> None:
        self._stages = tuple(stages)
        self.size_of = size_of
        self._on_error = on_error
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._resizing = threading.Lock()
        self._wake = [threading.Condition(self._lock) for _ in stages]
        self._ready = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._crew = Crew(stages, start_worker=start_worker, serve=self._serve)
        self._calls: dict[tuple[int, int], tuple[float, Job]] = {}
        self._run: Run | None = None
        self._planning: Planning | None = None
        self._error: BaseException | None = None
        self.closed = False
        self.workers = [stage.workers for stage in stages]
        self.recorder = Recorder(stages, trace=trace)
        close_at_exit(self)
        try:
            self._crew.start_missing(self.workers)
        except BaseException:
            self.close()
            raise

    # -- a run, from its begin to its end -------------------------------------------------------

    def begin(
        self,
        run: Run,
        microbatches: Iterable[Sequence[int]],
        seconds: Callable[[Sequence[int]], list[float]],
    ) -> None:
        """Work on a run, whose microbatches are read as there is room for them.

        Raises:
            RuntimeError: The engine was closed.
        """
        with self._lock:
            if self.closed:
                raise RuntimeError("the stages were closed; make them anew")
            self._run, self._error = run, None
            self.recorder.begin()
            self._planning = Planning(self, run, microbatches, seconds)
        self._planning.start()

    def end(self, run: Run) -> None:
        """Forget a run; what its calls in progress return is thrown away."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            planning = self._planning if self._run is run else None
            if planning is not None:
                self._run = self._planning = None
            self._notify_all()
        if planning is not None:
            planning.join(_STOP_SECONDS)

    def next_ready(self, run: Run) -> MicrobatchJob | None:
        """Wait for the next microbatch; `None` at the end of the run.

        Raises:
            StageError: A stage failed.
            RuntimeError: The engine was closed, or made in another process.
        """
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"this iterator was made in process {self._pid}, its threads are not in this one "
                f"({os.getpid()}): iterate a loader in the process that it was made in"
            )
        with self._lock:
            began = time.monotonic()
            while True:
                if self._run is not run:
                    raise RuntimeError(
                        "the loader was closed, or iterated anew, while it was iterated"
                    )
                if self._error is not None:
                    raise self._error
                job = run.deliver()
                if job is not None or run.finished:
                    break
                self._await(run)
            if job is not None:
                self.recorder.delivered(job, began)
            self._room.notify_all()
            self._notify_stages(run)
            return job

    def _await(self, run: Run) -> None:
        """Wait until something is ready, and look for calls in threads that take too long."""
        self.recorder.await_begins(run)
        timeouts = [s.timeout for s in self._stages if s.timeout and s.kind == "thread"]
        try:
            self._ready.wait(min([*timeouts, 10.0]) / 2)
        finally:
            self.recorder.await_ends(run)
        now = time.monotonic()
        for (stage, _), (began, job) in self._calls.items():
            limit = self._stages[stage].timeout if self._stages[stage].kind == "thread" else None
            if limit is not None and now - began > limit:
                self._error = hung_thread(self._stages[stage], job, now - began)

    # -- what the planning thread calls ---------------------------------------------------------

    def wait_for_room(self, run: Run) -> bool:
        """Wait until the run wants a microbatch; false once it is over."""
        began = time.monotonic()
        with self._lock:
            while self._run is run and self._error is None and not run.wants_microbatch:
                self._room.wait()
            self.recorder.planning.idle("blocked", time.monotonic() - began)
            return self._run is run and self._error is None

    def admit(self, run: Run, microbatch: Sequence[int], seconds: list[float], took: float) -> None:
        """A microbatch of the plan has been read."""
        with self._lock:
            self.recorder.planned(took)
            run.admit(list(microbatch), seconds, getattr(microbatch, "facts", None))
            self.recorder.depths(run)
            self.recorder.awaited_changes(run)
            self._notify_stages(run)

    def planned(self, run: Run, error: BaseException | None) -> None:
        """There are no more microbatches, or reading the plan failed."""
        with self._lock:
            run.planned = True
            if error is not None and self._run is run:
                self._error = error
            self._ready.notify_all()

    # -- what the workers' threads call ---------------------------------------------------------

    def _serve(self, stage: int, number: int, worker: Worker) -> None:
        Serving(self, self._stages[stage], (stage, number), worker).run()

    def take(self, stage: int, number: int) -> tuple[Run, Job] | None:
        """Wait for the next item; `None` when the worker is no longer wanted."""
        meter = self.recorder.meters[stage]
        with self._lock:
            while not self.closed and number < self.workers[stage]:
                run = self._run if self._error is None else None
                job = "starved" if run is None else run.begin(stage)
                if run is not None and not isinstance(job, str):
                    meter.begun += 1
                    self._calls[stage, number] = (time.monotonic(), job)
                    if run.waiting(stage):  # there may be work for another one
                        self._wake[stage].notify()
                    return run, job
                began = time.monotonic()
                self._wake[stage].wait()
                if run is not None:
                    meter.idle(str(job), time.monotonic() - began)
            self._crew.leave(stage, number)  # under the lock: `resize` either keeps or misses it
            return None

    def take_ahead(self, serving: Serving) -> tuple[Run, Job] | None:
        """An item to begin behind the one that is running, if there is one."""
        with self._lock:
            run, running = serving.begun[0]
            if self._run is not run or self._error or serving.place[1] >= self.workers[0]:
                return None
            if (job := run.begin_ahead(running)) is not None:
                self.recorder.meters[0].begun += 1
            return None if job is None else (run, job)

    def returned(self, serving: Serving, value: Any, nbytes: int) -> None:
        """A call has returned."""
        with self._lock:
            run, job = self._ended(serving)
            if self._run is run:
                run.end(job, value, nbytes)
                self._moved(run, job)

    def failed(self, serving: Serving, error: BaseException) -> None:
        """Take another sample in the place of one that failed, or end the run."""
        stage, job = self._stages[serving.place[0]], serving.begun[0][1]
        replacement, reason = replacement_of(self._on_error, job, error)
        with self._lock:
            run = self._ended(serving)[0]
            if self._run is not run or self._error is not None:
                return
            if replacement is not None and isinstance(job, SampleJob):
                self.recorder.replaced.append((job.sample_id, replacement))
                run.replace(job, replacement, reason)
                self._moved(run, job)
                return
            self._error = failure(stage, job, reason)
            self._error.__cause__ = reason
            self._ready.notify_all()
            self._room.notify_all()

    def _ended(self, serving: Serving) -> tuple[Run, Job]:
        """Book a call that has ended; one that was begun ahead is running now."""
        began, job = self._calls.pop(serving.place)
        self.recorder.returned(*serving.place, began, job, serving.worker.restarts)
        serving.worker.restarts = 0
        ended = serving.begun.popleft()
        if serving.begun:
            self._calls[serving.place] = (time.monotonic(), serving.begun[0][1])
        return ended

    def _moved(self, run: Run, job: Job) -> None:
        """An item has left a stage: wake whoever may now go on."""
        self.recorder.awaited_changes(run)
        self.recorder.depths(run)
        self._notify_stages(run)
        microbatch = job.microbatch if isinstance(job, SampleJob) else job
        if microbatch.ready:
            self._ready.notify_all()

    def _notify_stages(self, run: Run) -> None:
        for stage, condition in enumerate(self._wake):
            if run.waiting(stage):  # waking a worker that has nothing to do takes a core's time
                condition.notify()

    def _notify_all(self) -> None:
        for condition in (*self._wake, self._ready, self._room):
            condition.notify_all()

    def resize(self, stage: int, workers: int) -> None:
        """Have so many workers in a stage, from now on; surplus ones end after their call."""
        with self._resizing:
            with self._lock:
                self.workers[stage] = workers
                self._wake[stage].notify_all()
            self._crew.start_missing(self.workers)

    def statistics(self) -> list[StageStatistics]:
        """Of planning and of each stage, as they stand."""
        with self._lock:
            return self.recorder.statistics(self._run, self.workers)

    def close(self) -> None:
        """End all workers: processes at once, threads after the call they are in."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self.closed = True
            self._run = None
            planning, self._planning = self._planning, None
            self._notify_all()
        self._crew.stop(_STOP_SECONDS)
        if planning is not None:
            planning.join(_STOP_SECONDS)
