"""Worker: what calls a stage's function, in this thread or in a process of its own."""

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["StartWorker", "ThreadWorker", "Worker"]


class Worker(Protocol):
    """Calls the function of a stage, one call at a time, from the one thread that owns it.

    Attributes:
        restarts: Processes started in place of ones that died or hung.
    """

    restarts: int

    def call(self, argument: Any) -> Any:
        """What the stage's function returns.

        Raises:
            WorkerDied: Its process ended in the middle of the call, more often than is allowed.
            TimeoutError: The call took longer than the stage's timeout and was ended.
            BaseException: Whatever the function raises.
        """
        ...

    def stop(self) -> None:
        """Let go of everything; from any thread, at any time, also twice.

        A call in progress is ended where that is possible: processes can be, threads cannot.
        """
        ...


StartWorker = Callable[[int, int], Worker]  # (index of the stage, number of the worker)


class ThreadWorker:
    """Calls the function in the thread that owns it.

    Example:
        >>> ThreadWorker(str.upper).call("a")
        'A'
    """

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work
        self.restarts = 0

    def call(self, argument: Any) -> Any:
        """What the function returns."""
        return self._work(argument)

    def stop(self) -> None:
        """Nothing to let go of; a call in progress goes on to its end."""
