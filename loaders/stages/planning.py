"""Planning: the thread that reads the plan, microbatch by microbatch, as there is room."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loaders.stages.engine import Engine
    from loaders.stages.run import Run

__all__ = ["Planning"]


class Planning(threading.Thread):
    """Pulls microbatches from their source and gives them to the engine.

    A source that plans does so in this thread, with kernels that release the GIL. It has a thread
    of its own, so a slow source never takes the place of a worker. The source is closed in here.
    """

    def __init__(
        self,
        engine: "Engine",
        run: "Run",
        microbatches: Iterable[Sequence[int]],
        seconds: Callable[[Sequence[int]], list[float]],
    ) -> None:
        super().__init__(name="planning", daemon=True)
        self._engine = engine
        self._of_run = run
        self._microbatches = microbatches
        self._seconds = seconds

    def run(self) -> None:
        """Life of the thread."""
        error: BaseException | None = None
        try:
            self._read()
        except BaseException as raised:  # it belongs to the consumer
            error = raised
        self._engine.planned(self._of_run, error)

    def _read(self) -> None:
        source = iter(self._microbatches)
        try:
            while self._engine.wait_for_room(self._of_run):
                began = time.monotonic()
                microbatch = next(source, None)
                if microbatch is None:
                    return
                seconds = self._seconds(microbatch)
                took = time.monotonic() - began
                self._engine.admit(self._of_run, microbatch, seconds, took)
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()
