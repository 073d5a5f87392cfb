"""A thread plans the next steps while the current one is read and trained on."""

import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
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
    make: Callable[[int], _T], steps: Sequence[int], *, ahead_s: float = 0.02
) -> Generator[_T, None, None]:
    """`make(step)` of each step in order, the next ones made in a thread while one is in use.

    The first is made by whoever asks for it, so that kernels are compiled there. When what is made
    has been handed out, a thread makes the next step, and more until it has worked for `ahead_s`
    seconds of processor time: starting a thread costs as much as planning a small step. It ends
    then, and none is left when the iterator is closed. What `make` raises is raised where its
    result is asked for.

    Example:
        >>> list(made_ahead(lambda step: step * step, range(2, 5)))
        [4, 9, 16]
    """
    thread: _Ahead[_T] | None = None
    try:
        for number in range(len(steps)):
            made = _made(make, steps[0]) if thread is None else thread.made.get()
            if made.is_last and number + 1 < len(steps):
                if thread is not None:
                    thread.stop()
                thread = _Ahead(make, steps[number + 1 :], ahead_s)
            yield made.result()
            del made
    finally:
        if thread is not None:
            thread.stop()


@dataclass(slots=True)
class _Made(Generic[_T]):
    """The one value that `make` returned, or what it raised; `is_last` of what a thread makes."""

    values: tuple[_T, ...]
    error: BaseException | None = None
    is_last: bool = True

    def result(self) -> _T:
        if self.error is not None:
            raise self.error
        return self.values[0]


def _made(make: Callable[[int], _T], step: int) -> _Made[_T]:
    try:
        return _Made((make(step),))
    except BaseException as error:
        return _Made((), error)


class _Ahead(Generic[_T]):
    """Steps that a thread of its own makes one after another."""

    def __init__(self, make: Callable[[int], _T], steps: Sequence[int], ahead_s: float) -> None:
        self.made: SimpleQueue[_Made[_T]] = SimpleQueue()
        self._make, self._steps, self._ahead_s = make, steps, ahead_s
        self._stopped = False
        name = f"evenstep plans from step {steps[0]}"
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def _run(self) -> None:
        with _making:
            started = time.thread_time()
            for number, step in enumerate(self._steps, start=1):
                made = _made(self._make, step)
                worked_s = time.thread_time() - started
                more = number < len(self._steps) and worked_s < self._ahead_s
                made.is_last = not more or made.error is not None or self._stopped
                self.made.put(made)
                if made.is_last:
                    return

    def stop(self) -> None:
        """Make no further step, and wait until the thread is gone."""
        self._stopped = True
        # The garbage collector may close an abandoned iterator in the very thread it waits for.
        if self._thread is not threading.current_thread():
            self._thread.join()
