"""One thread plans the next step while the current one is read and trained on."""

import os
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["made_ahead"]

_T = TypeVar("_T")

_making = threading.Lock()
if hasattr(os, "register_at_fork"):
    # A process forked while a thread plans would keep the locks that the thread held, of numba's
    # compiler for example, for ever. So forking waits until nothing is being planned.
    os.register_at_fork(
        before=_making.acquire,
        after_in_parent=_making.release,
        after_in_child=_making.release,
    )


def made_ahead(
    make: Callable[[int], _T], steps: range, *, stall_s: float = 0.001
) -> Generator[_T, None, None]:
    """`make(step)` of each step in order, the next one made in a thread while one is in use.

    The first is made by whoever asks for it, so that kernels are compiled there; and so are the
    others where one takes less than `stall_s` of processor time, for taking turns with a thread
    in Python would hold training up for longer. A thread lives no longer than one call of `make`,
    and none is left when the iterator is closed. What `make` raises is raised where its result is
    asked for.

    Example:
        >>> list(made_ahead(lambda step: step * step, range(2, 5)))
        [4, 9, 16]
    """
    took_s = 0.0

    def timed(step: int) -> _T:
        nonlocal took_s
        started = time.thread_time()
        made = make(step)
        took_s = time.thread_time() - started
        return made

    upcoming: _Upcoming[_T] | None = None
    for step in steps:
        made = timed(step) if upcoming is None else upcoming.outcome.result()
        ahead = took_s >= stall_s and step != steps[-1]
        upcoming = _Upcoming(timed, step + steps.step) if ahead else None
        try:
            yield made
        finally:
            if upcoming is not None:
                upcoming.wait()


class _Upcoming(Generic[_T]):
    """A call under way in a thread of its own."""

    def __init__(self, make: Callable[[int], _T], step: int) -> None:
        self.outcome: Future[_T] = Future()
        self._make, self._step = make, step
        self._thread = threading.Thread(target=self._run, name=f"evenstep plans step {step}")
        self._thread.start()

    def _run(self) -> None:
        with _making:
            try:
                self.outcome.set_result(self._make(self._step))
            except BaseException as error:
                self.outcome.set_exception(error)

    def wait(self) -> None:
        """Until the thread is gone."""
        # The garbage collector may close an abandoned iterator in the very thread it waits for.
        if self._thread is not threading.current_thread():
            self._thread.join()
