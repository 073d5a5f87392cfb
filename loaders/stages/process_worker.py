"""ProcessWorker: a stage's function in a process of its own."""

import multiprocessing
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import Any

from loaders.stages.errors import WorkerDied
from loaders.stages.stage import Stage, StartMethod
from loaders.stages.transfer import Part, parts_of, receive, write
from loaders.stages.worker_process import serve_calls

__all__ = ["ProcessWorker"]

# A process that is forked while another worker's socket is being made would hold its far end open,
# and the death of that worker would not be noticed.
_STARTING = threading.Lock()


class ProcessWorker:
    """Calls the function in a worker process, one call after another.

    An executor of the standard library is lost as a whole when one of its processes is killed, and
    cannot end a call that hangs. Here a process that dies in a call is replaced and the call made
    again, up to `stage.retries` times; one that takes longer than `stage.timeout` is killed.

    A second call may be sent while the first one runs, so the process does not wait between them.
    Which of the two it died in cannot be told: its first answer may have been lost on the way. So
    both are made again, the second one not before the first has been answered, and without
    `stage.retries` none is sent ahead.

    Args:
        stage: The stage.
        start_method: How processes begin.

    Attributes:
        most_begun: Calls that may be begun and not yet finished.
        restarts: Processes started in place of ones that died or hung.

    Example:
        >>> stage = Stage(name="read", work=abs, kind="process")
        >>> worker = ProcessWorker(stage, start_method="fork")
        >>> worker.begin(-3); worker.begin(-4)
        >>> worker.finish(), worker.finish()
        (3, 4)
        >>> worker.stop()
    """

    def __init__(self, stage: Stage, *, start_method: StartMethod) -> None:
        self._stage = stage
        self._context: Any = multiprocessing.get_context(start_method)
        self._lock = threading.Lock()
        self._begun: deque[_Begun] = deque()
        self._in_use = False
        self._stopped = False
        self._is_ready = False
        self._is_lost = False
        self.most_begun = 2 if stage.retries else 1
        self.restarts = 0
        self._start()

    def call(self, argument: Any) -> Any:
        """Begin a call and finish it."""
        self.begin(argument)
        return self.finish()

    def begin(self, argument: Any) -> None:
        """Send a call; what goes wrong is raised when it is finished."""
        call = _Begun(argument)
        is_next = all(before.is_sent or before.error for before in self._begun)
        self._begun.append(call)
        if is_next:  # else its turn comes when it is finished
            with suppress(WorkerDied, ConnectionError), self._using():
                self._send(call)

    def finish(self) -> Any:
        """What the function returns in the first call begun and not yet finished.

        Raises:
            WorkerDied: The process ended in the middle of the call, more often than is allowed.
            TimeoutError: The call took longer than the stage's timeout; its process was killed.
            BaseException: What the function raises, with its traceback as the cause.
        """
        call = self._begun.popleft()
        if call.error is not None:
            raise call.error
        with self._using():
            return self._result(call)

    def stop(self) -> None:
        """Kill the process; a call in progress ends with `WorkerDied`."""
        with self._lock:
            first, self._stopped = not self._stopped, True
            if first:
                self._process.kill()
            if not self._in_use:
                self._release()

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Keep the socket open, also if the worker is stopped meanwhile."""
        with self._lock:
            if self._stopped:
                raise WorkerDied("the worker was stopped")
            self._in_use = True
        try:
            yield
        finally:
            self._end_use()

    def _end_use(self) -> None:
        with self._lock:
            self._in_use = False
            if self._stopped:
                self._release()

    def _result(self, call: "_Begun") -> Any:
        for attempt in range(self._stage.retries + 1):
            try:
                self._send(call)
                kind, value, trace = self._answer()
            except (EOFError, ConnectionError):
                code = self._exit_code()
                if self._stopped or attempt == self._stage.retries:
                    self._is_lost = True
                    raise WorkerDied(
                        f"its worker process {self._process.pid} ended with exit code {code} in "
                        f"the middle of the call, {attempt + 1} times in a row"
                    ) from None
                self._restart()
                call.is_sent = False
                continue
            if kind == "raised":
                value.__cause__ = _RemoteTraceback(trace)
                raise value
            return value
        raise AssertionError("the last attempt returns or raises")

    def _send(self, call: "_Begun") -> None:
        """Send a call once to each process that is to make it."""
        if self._is_lost:
            self._restart()
            call.is_sent = False
        if not call.is_sent and call.error is None:
            call.is_sent = True
            write(self._connection, call.parts)

    def _answer(self) -> tuple[str, Any, str]:
        """The next answer; no timeout counts the start of the process."""
        if not self._is_ready:
            receive(self._connection)
            self._is_ready = True
        if not wait([self._connection], self._stage.timeout):
            self._restart()
            raise TimeoutError(f"the call took longer than {self._stage.timeout:g} s and was ended")
        answer: tuple[str, Any, str] = receive(self._connection)
        return answer

    def _restart(self) -> None:
        with self._lock:
            self._process.kill()
            self._release()
            if self._stopped:
                raise WorkerDied("the worker was stopped")
            self._start()
        self.restarts += 1

    def _start(self) -> None:
        self._is_ready = self._is_lost = False
        for call in self._begun:
            call.is_sent = False
        with _STARTING:
            self._connection, theirs = socket.socketpair()
            self._connection.setblocking(True)  # whatever `socket.setdefaulttimeout` was told
            self._process = self._context.Process(
                target=serve_calls,
                args=(theirs, self._stage.work, max(self._stage.threads, 1)),
                name=f"stage-{self._stage.name}",
                daemon=True,
            )
            self._process.start()
            theirs.close()

    def _exit_code(self) -> int | None:
        self._process.join(5)
        code: int | None = self._process.exitcode
        return code

    def _release(self) -> None:
        """Let go of a process that was killed; also twice."""
        self._process.join(5)
        self._connection.close()


class _Begun:
    """A call that was begun: what is sent for it, or why nothing can be."""

    __slots__ = ("error", "is_sent", "parts")

    def __init__(self, argument: Any) -> None:
        self.is_sent = False
        self.error: Exception | None = None
        self.parts: list[Part] = []
        try:
            self.parts = parts_of(argument)
        except Exception as error:
            self.error = error


class _RemoteTraceback(Exception):
    """Carries the traceback of an exception in a worker process as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'
