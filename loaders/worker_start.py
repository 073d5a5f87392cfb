"""What each worker process does before it reads a sample."""

import gc
import threading
from collections.abc import Callable

import numba
import torch
from numba.np.ufunc import parallel as numba_threads

__all__ = ["WorkerStart", "limit_threads"]


class WorkerStart:
    """Gives a worker one thread in torch and numba, then calls the user's `worker_init_fn`.

    torch limits itself only; numba would start as many threads in each worker as there are cores.
    What a forked worker has from its parent is frozen: each collection of garbage would else write
    to every object of the parent, and so copy its memory.

    Example:
        >>> WorkerStart(None).worker_init_fn is None
        True
    """

    def __init__(self, worker_init_fn: Callable[[int], None] | None) -> None:
        self.worker_init_fn = worker_init_fn

    def __call__(self, worker_id: int) -> None:
        """Runs in worker `worker_id`."""
        gc.freeze()
        limit_threads(1)
        if self.worker_init_fn is not None:
            self.worker_init_fn(worker_id)


def limit_threads(threads: int) -> None:
    """Let torch and numba keep so many threads busy in this worker process."""
    if not numba_threads._backend_init_process_lock:
        # Numba's own is a named semaphore, which a worker that is killed leaves behind.
        numba_threads._backend_init_process_lock = threading.RLock()
    # Numba first: it starts OpenMP, which gives torch all cores again.
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    torch.set_num_threads(threads)
