"""RayWorker: a stage's function in an actor of a Ray cluster."""

import pickle
import threading
from typing import Any

from balancer.errors import ArgumentError
from loaders.stages.errors import WorkerDied
from loaders.stages.stage import Stage
from loaders.stages.transfer import packed
from loaders.stages.workers import OneCall
from loaders.worker_start import limit_threads

__all__ = ["RayWorker"]


class RayWorker(OneCall):
    """Calls the function in an actor, one call at a time, wherever the cluster has a free CPU.

    The engine stays in the training process, so plan, order, bounds and statistics are those of
    threads. Arguments and results travel through Ray's object store. An actor that dies in a call
    is replaced and the call made again, up to `stage.retries` times; one that takes longer than
    `stage.timeout` is killed. Needs the extra `evenstep[ray]`; starts a local Ray where none runs.

    Args:
        stage: The stage; each worker reserves `max(stage.threads, 1)` CPUs of the cluster.

    Attributes:
        restarts: Actors started in place of ones that died or hung.

    Raises:
        ArgumentError: Ray is not installed.
    """

    def __init__(self, stage: Stage) -> None:
        try:
            import ray
        except ImportError:
            raise ArgumentError(
                f"kind of stage {stage.name!r} is 'ray', which is not installed; "
                "pip install 'evenstep[ray]', or use kind='process'"
            ) from None
        super().__init__()
        self._ray: Any = ray
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=False)
        self._stage = stage
        self._lock = threading.Lock()
        self._stopped = False
        self._start()

    def call(self, argument: Any) -> Any:
        """What the function returns.

        Raises:
            WorkerDied: The actor ended in the middle of the call, more often than is allowed.
            TimeoutError: The call took longer than the stage's timeout; its actor was killed.
            BaseException: What the function raises.
        """
        for attempt in range(self._stage.retries + 1):
            died = self._attempt(argument)
            if not isinstance(died, _Died):
                return died
            if self._is_stopped() or attempt == self._stage.retries:
                raise WorkerDied(
                    f"its Ray actor ended in the middle of the call, {attempt + 1} times in a row "
                    f"({died.why})"
                )
            self._restart()
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, argument: Any) -> Any:
        """What the function returns, or a `_Died`."""
        errors = self._ray.exceptions
        try:
            result = self._actor.call.remote(argument)
            return pickle.loads(self._ray.get(result, timeout=self._stage.timeout))
        except errors.GetTimeoutError:
            self._restart()
            raise TimeoutError(
                f"the call took longer than {self._stage.timeout:g} s and was ended"
            ) from None
        except errors.RayActorError as error:
            return _Died(str(error))
        except errors.RayTaskError as error:
            raise (error.cause if error.cause is not None else error) from error

    def stop(self) -> None:
        """Kill the actor; a call in progress ends with `WorkerDied`."""
        with self._lock:
            first, self._stopped = not self._stopped, True
            if first and self._ray.is_initialized():
                self._ray.kill(self._actor)

    def _is_stopped(self) -> bool:
        with self._lock:
            return self._stopped

    def _restart(self) -> None:
        with self._lock:
            if self._stopped:
                raise WorkerDied("the worker was stopped")
            self._ray.kill(self._actor)
            self._start()
        self.restarts += 1

    def _start(self) -> None:
        threads = max(self._stage.threads, 1)
        actor = self._ray.remote(num_cpus=threads)(_Caller)
        self._actor = actor.remote(self._stage.work, threads)


class _Died:
    """An actor has ended in a call."""

    def __init__(self, why: str) -> None:
        self.why = why


class _Caller:
    """The actor."""

    def __init__(self, work: Any, threads: int) -> None:
        limit_threads(threads)
        self._work = work

    def call(self, argument: Any) -> bytes:
        return packed(self._work(argument))  # in Ray's store arrays would be read-only
