"""Worker: what calls a stage's function, in this thread or in a process of its own."""

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["OneCall", "StartWorker", "ThreadWorker", "Worker"]


class Worker(Protocol):
    """Calls the function of a stage, one call after another, for the one thread that owns it.

    Attributes:
        most_begun: Calls that may be begun and not yet finished.
        restarts: Processes started in place of ones that died or hung.
    """

    most_begun: int
    restarts: int

    def begin(self, argument: Any) -> None:
        """Begin a call, behind the one that was begun before; raises nothing."""
        ...

    def finish(self) -> Any:
        """What the stage's function returns in the first call begun and not yet finished.

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


class OneCall:
    """Begins a call when it is to be finished, with `call` of the class that derives from it."""

    most_begun = 1

    def __init__(self) -> None:
        self.restarts = 0
        self._argument: Any = None

    def begin(self, argument: Any) -> None:
        """Keep the argument."""
        self._argument = argument

    def finish(self) -> Any:
        """What `call` returns."""
        argument, self._argument = self._argument, None
        return self.call(argument)

    def call(self, argument: Any) -> Any:
        """What the function returns."""
        raise NotImplementedError


class ThreadWorker(OneCall):
    """Calls the function in the thread that owns it.

    Example:
        >>> ThreadWorker(str.upper).call("a")
        'A'
    """

    def __init__(self, work: Callable[[Any], Any]) -> None:
        super().__init__()
        self._work = work

    def call(self, argument: Any) -> Any:
        """What the function returns."""
        return self._work(argument)

    def stop(self) -> None:
        """Nothing to let go of; a call in progress goes on to its end."""
