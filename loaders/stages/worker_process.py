"""Life of a worker process: it answers calls until the other side is gone."""

import gc
import os
import pickle
import signal
import socket
import threading
import traceback
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import wait
from queue import SimpleQueue
from typing import Any

from loaders.sample_errors import ForeignError, shown
from loaders.stages.transfer import Part, parts_of, receive, send, write
from loaders.worker_start import limit_threads

__all__ = ["READY", "serve_calls"]

READY = "ready"
"""What the process sends first."""

Outcome = tuple[str, Any, str]  # ("returned", value, "") or ("raised", error, its traceback)


def serve_calls(connection: socket.socket, work: Callable[[Any], Any], threads: int) -> None:
    """Answer calls in their order; the next begins while the last answer is still being sent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the training process's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()  # collections of garbage would copy the memory that a forked process shares
    limit_threads(threads)
    connection.setblocking(True)  # whatever `socket.setdefaulttimeout` was told
    answers: SimpleQueue[list[Part]] = SimpleQueue()
    threading.Thread(target=_send_answers, args=(connection, answers), daemon=True).start()
    try:
        send(connection, READY)
        while True:
            answers.put(_answer(work, receive(connection)))
    except (EOFError, ConnectionError):
        return


def _send_answers(connection: socket.socket, answers: "SimpleQueue[list[Part]]") -> None:
    """Life of the thread that sends: a large answer waits here until it is read.

    The other side sends a call only once it has read the answer to the last but one, so no more
    than two answers are in the process.
    """
    try:
        while True:
            write(connection, answers.get())
    except ConnectionError:
        return


def _answer(work: Callable[[Any], Any], argument: Any) -> list[Part]:
    outcome = _outcome(work, argument)
    try:
        return parts_of(outcome)
    except BaseException as error:  # it cannot be pickled
        return parts_of(("raised", _travelling(error), traceback.format_exc()))


def _outcome(work: Callable[[Any], Any], argument: Any) -> Outcome:
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


def _end_with_parent() -> None:
    """End this process once its parent has, also in the middle of a call.

    The parent's sentinel is a pipe that processes forked later hold open too, a descriptor of the
    process is not. Linux can send a signal instead (`PR_SET_PDEATHSIG`), but already when the
    thread that started this process ends.
    """
    parent = parent_process()
    if parent is None or parent.pid is None:
        return
    try:
        parent_ends = os.pidfd_open(parent.pid)
    except OSError:  # it has ended already, or the kernel has no such descriptors
        parent_ends = parent.sentinel
    wait([parent_ends])
    os._exit(1)
