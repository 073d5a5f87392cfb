"""Crew: the workers of all stages and the threads that own them."""

import threading
import time
from collections.abc import Callable, Sequence

from loaders.stages.stage import Stage
from loaders.stages.workers import StartWorker, Worker

__all__ = ["Crew"]


class Crew:
    """Starts workers as they are wanted and stops them all.

    Args:
        stages: The stages.
        start_worker: Makes a worker of a stage.
        serve: Life of a worker's thread: stage, number and worker.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        start_worker: StartWorker,
        serve: Callable[[int, int, Worker], None],
    ) -> None:
        self._stages = tuple(stages)
        self._start_worker = start_worker
        self._serve = serve
        self._lock = threading.Lock()
        self._threads: dict[tuple[int, int], threading.Thread] = {}
        self._workers: dict[tuple[int, int], Worker] = {}
        self._stopped = False

    def start_missing(self, wanted: Sequence[int]) -> None:
        """Start the workers that there are not yet: first all processes, then all threads."""
        keys = [(stage, n) for stage, workers in enumerate(wanted) for n in range(workers)]
        with self._lock:
            missing = [key for key in keys if key not in self._threads and not self._stopped]
        for key in missing:
            self._workers[key] = self._start_worker(*key)
        for stage, number in missing:
            thread = threading.Thread(
                target=self._serve,
                args=(stage, number, self._workers[stage, number]),
                name=f"{self._stages[stage].name}-{number}",
                daemon=True,
            )
            with self._lock:
                self._threads[stage, number] = thread
            thread.start()

    def leave(self, stage: int, number: int) -> None:
        """A worker's thread ends."""
        with self._lock:
            if self._threads.get((stage, number)) is threading.current_thread():
                del self._threads[stage, number], self._workers[stage, number]

    def stop(self, seconds: float) -> None:
        """Stop all workers, and wait so long for the calls that cannot be ended."""
        with self._lock:
            self._stopped = True
            threads, workers = list(self._threads.values()), list(self._workers.values())
        for worker in workers:
            worker.stop()
        deadline = time.monotonic() + seconds
        for thread in threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
