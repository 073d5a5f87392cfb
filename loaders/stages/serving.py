"""Serving: life of the thread that owns a worker."""

from collections import deque
from typing import TYPE_CHECKING

from loaders.stages.failures import check_result
from loaders.stages.jobs import Job, argument_of
from loaders.stages.run import Run
from loaders.stages.stage import Stage
from loaders.stages.workers import Worker

if TYPE_CHECKING:
    from loaders.stages.engine import Engine

__all__ = ["Serving"]


class Serving:
    """Takes items from the engine, has the worker call the stage's function, and hands on results.

    Attributes:
        place: Index of the stage, and number of the worker in it.
        worker: The worker.
        begun: Calls begun and not yet finished; the first one is running.
    """

    def __init__(
        self, engine: "Engine", stage: Stage, place: tuple[int, int], worker: Worker
    ) -> None:
        self._engine = engine
        self._stage = stage
        self.place = place
        self.worker = worker
        self.begun: deque[tuple[Run, Job]] = deque()

    def run(self) -> None:
        """Life of the thread."""
        try:
            while self._begin():
                self._finish()
        finally:
            self.worker.stop()

    def _begin(self) -> bool:
        """Begin the next call, and one ahead; false when the worker is no longer wanted."""
        if not self.begun:
            taken = self._engine.take(*self.place)
            if taken is None:
                return False
            self._send(taken)
        if self.place[0] == 0 and len(self.begun) < self.worker.most_begun:
            ahead = self._engine.take_ahead(self)
            if ahead is not None:
                self._send(ahead)
        return True

    def _send(self, taken: tuple[Run, Job]) -> None:
        self.begun.append(taken)
        self.worker.begin(argument_of(self._stage, taken[1]))

    def _finish(self) -> None:
        """Wait for a call's result and hand it on, or why there is none."""
        try:
            value = self.worker.finish()
            check_result(self._stage, value)
            nbytes = int(self._engine.size_of(value))
        except BaseException as error:
            self._engine.failed(self, error)
        else:
            self._engine.returned(self, value, nbytes)
