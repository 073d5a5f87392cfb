"""ProcessWorker: a stage's function in a process of its own."""

import gc
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from loaders.sample_errors import ForeignError, shown
from loaders.stages.errors import WorkerDied
from loaders.stages.stage import Stage, StartMethod
from loaders.stages.transfer import receive, send
from loaders.worker_start import limit_threads

__all__ = ["ProcessWorker"]

_READY = "ready"
# A process that is forked while another worker's pipe is being made would hold its far end open,
# and the death of that worker would not be noticed.
_STARTING = threading.Lock()


class ProcessWorker:
    """Calls the function in a worker process, one call at a time.

    An executor of the standard library is lost as a whole when one of its processes is killed, and
    cannot end a call that hangs. Here a process that dies in a call is replaced and the call made
    again, up to `stage.retries` times; one that takes longer than `stage.timeout` is killed.

    Args:
        stage: The stage.
        start_method: How processes begin.

    Attributes:
        restarts: Processes started in place of ones that died or hung.

    Example:
        >>> stage = Stage(name="read", work=abs, kind="process")
        >>> worker = ProcessWorker(stage, start_method="fork")
        >>> worker.call(-3)
        3
        >>> worker.stop()
    """

    def __init__(self, stage: Stage, *, start_method: StartMethod) -> None:
        self._stage = stage
        self._context: Any = multiprocessing.get_context(start_method)
        self._lock = threading.Lock()
        self._calling = False
        self._stopped = False
        self._is_ready = False
        self.restarts = 0
        self._start()

    def call(self, argument: Any) -> Any:
        """What the function returns.

        Raises:
            WorkerDied: The process ended in the middle of the call, more often than is allowed.
            TimeoutError: The call took longer than the stage's timeout; its process was killed.
            BaseException: What the function raises, with its traceback as the cause.
        """
        with self._lock:
            if self._stopped:
                raise WorkerDied("the worker was stopped")
            self._calling = True
        try:
            return self._call(argument)
        finally:
            self._end_call()

    def stop(self) -> None:
        """Kill the process; a call in progress ends with `WorkerDied`."""
        with self._lock:
            first, self._stopped = not self._stopped, True
            if first:
                self._process.kill()
            if not self._calling:
                self._release()

    def _end_call(self) -> None:
        with self._lock:
            self._calling = False
            if self._stopped:
                self._release()

    def _call(self, argument: Any) -> Any:
        for attempt in range(self._stage.retries + 1):
            try:
                self._await_ready()
                send(self._connection, argument)
                self._await_result()
                kind, value, trace = receive(self._connection)
            except (EOFError, ConnectionError):
                code = self._exit_code()
                if self._stopped or attempt == self._stage.retries:
                    raise WorkerDied(
                        f"its worker process {self._process.pid} ended with exit code {code} in "
                        f"the middle of the call, {attempt + 1} times in a row"
                    ) from None
                self._restart()
                continue
            if kind == "raised":
                value.__cause__ = _RemoteTraceback(trace)
                raise value
            return value
        raise AssertionError("the last attempt returns or raises")

    def _await_ready(self) -> None:
        """Wait until the process has started, which no timeout counts."""
        if not self._is_ready:
            receive(self._connection)
            self._is_ready = True

    def _await_result(self) -> None:
        if wait([self._connection], self._stage.timeout):
            return
        self._restart()
        raise TimeoutError(f"the call took longer than {self._stage.timeout:g} s and was ended")

    def _restart(self) -> None:
        with self._lock:
            self._process.kill()
            self._release()
            if self._stopped:
                raise WorkerDied("the worker was stopped")
            self._start()
        self.restarts += 1

    def _start(self) -> None:
        self._is_ready = False
        with _STARTING:
            self._connection, theirs = self._context.Pipe()
            self._process = self._context.Process(
                target=_serve,
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


class _RemoteTraceback(Exception):
    """Carries the traceback of an exception in a worker process as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def _serve(connection: "Connection[Any, Any]", work: Callable[[Any], Any], threads: int) -> None:
    """Life of the worker process: calls until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the training process's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()  # collections of garbage would copy the memory that a forked process shares
    limit_threads(threads)
    try:
        send(connection, _READY)
        while True:
            _answer(connection, work)
    except (EOFError, ConnectionError):
        return


def _end_with_parent() -> None:
    """End this process once its parent has, also in the middle of a call.

    The parent's sentinel is a pipe that processes forked later hold open too, a descriptor of the
    process is not. Linux can send a signal instead (`PR_SET_PDEATHSIG`), but already when the
    thread that started this process ends.
    """
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        return
    try:
        parent_ends = os.pidfd_open(parent.pid)
    except OSError:  # it has ended already, or the kernel has no such descriptors
        parent_ends = parent.sentinel
    wait([parent_ends])
    os._exit(1)


def _answer(connection: "Connection[Any, Any]", work: Callable[[Any], Any]) -> None:
    answer = _outcome(work, receive(connection))
    try:
        send(connection, answer)
    except ConnectionError:
        raise
    except BaseException as error:  # it cannot be pickled
        send(connection, ("raised", _travelling(error), traceback.format_exc()))


def _outcome(work: Callable[[Any], Any], argument: Any) -> tuple[str, Any, str]:
    """What the function returns or raises; its EOFError is not one of the pipe's."""
    try:
        return "returned", work(argument), ""
    except BaseException as error:
        return "raised", _travelling(error), traceback.format_exc()


def _travelling(error: BaseException) -> BaseException:
    """The exception, or one with its type and message where it cannot be rebuilt elsewhere."""
    try:
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    except Exception:
        pass
    return ForeignError(shown(error))
