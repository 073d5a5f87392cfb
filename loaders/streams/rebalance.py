"""rebalance: samples of per-rank streams change ranks, so that all finish their steps together."""

import atexit
import logging
import queue
import threading
from collections.abc import Callable, Generator
from typing import Any

from balancer.cost import CostFunction
from loaders.streams.engine import PlannedWindow, StreamEngine
from loaders.streams.exchange import RankLink
from loaders.streams.loader import StreamLoader

__all__ = ["RebalancedLoader", "rebalance"]

_log = logging.getLogger("loaders.streams")
_CLOSE_TIMEOUT_S = 10.0


def rebalance(
    loader: Any,
    *,
    group: Any = None,
    cost_model: CostFunction,
    size_fn: Callable[[Any], Any],
    window_size: int,
    **options: Any,
) -> "RebalancedLoader":
    """Balanced microbatches from any loader of single samples that each rank has of its own.

    For WebDataset, Energon, mosaicml-streaming, Hugging Face streaming and the like: each rank
    reads its own shards, and the samples change ranks where that evens out the steps. Every rank
    gathers the sizes of a window, makes the same plan over the samples of all, and hands on what
    belongs elsewhere. All ranks run equally many microbatches, and nearly equal ones, whatever
    their shards hold. Among equal plans one is taken in which much stays in place.

    Reading, planning and exchange run in a thread of their own, on connections of their own, one
    window ahead of the training; so up to two windows of samples are in memory.

    When a rank's stream ends, the others' samples are shared out until all have ended, and all stop
    at the same step, with the tail policy. What fails on one rank is raised on all of them.

    Args:
        loader: Iterable of samples, before any batching; begun anew for every epoch, after its
            `set_epoch` where it has one. Samples must be picklable; their tensors and arrays are
            sent without being pickled. Sent tensors arrive detached.
        group: Process group of the data-parallel ranks; all processes when not given.
        cost_model: Prices the sizes.
        size_fn: Size of a sample.
        window_size: Samples that each rank reads for a window.
        options: Any argument of `loaders.StreamLoader` (`global_batch_size`,
            `num_microbatches`, limits, `tail`, `collate_fn`, ...) but those about workers: the
            loader has its own.

    Raises:
        ArgumentError: As `StreamLoader`.

    Example:
        >>> loader = rebalance(
        ...     [[1, 2, 3], [4], [5, 6]], size_fn=lambda ids: {"text_tokens": len(ids)},
        ...     cost_model=lambda table: table.text_tokens, window_size=3, global_batch_size=3,
        ...     num_microbatches=2, collate_fn=list)
        >>> list(loader)
        [[[1, 2, 3]], [[4], [5, 6]]]
        >>> loader.stats().bytes_sent
        0
    """
    return RebalancedLoader(
        loader,
        group=group,
        cost_model=cost_model,
        size_fn=size_fn,
        window_size=window_size,
        **options,
    )


class RebalancedLoader(StreamLoader):
    """What `rebalance` returns: a StreamLoader whose samples move between ranks."""

    _moves = True

    def _windows(self, engine: StreamEngine) -> Generator[PlannedWindow, None, None]:
        return _one_ahead(super()._windows(engine), engine.link)

    def _after_step(self, engine: StreamEngine, window: PlannedWindow) -> None:
        """Nothing: the thread reads whole windows."""


def _one_ahead(
    windows: Generator[PlannedWindow, None, None], link: RankLink
) -> Generator[PlannedWindow, None, None]:
    """The same windows, the next one being made while the last one is in use."""
    ready: queue.SimpleQueue[PlannedWindow | BaseException | None] = queue.SimpleQueue()
    room = threading.Semaphore(0)

    def make() -> None:
        try:
            for window in windows:
                ready.put(window)
                del window
                while not room.acquire(timeout=0.05):
                    if link.stop.is_set():
                        return
            ready.put(None)
        except BaseException as error:
            ready.put(error)
        finally:
            windows.close()

    thread = threading.Thread(target=make, name="evenstep-rebalance", daemon=True)

    def stop() -> None:
        link.stop.set()
        thread.join(_CLOSE_TIMEOUT_S)

    atexit.register(stop)  # where the iterator is never closed: no thread may outlive the program
    thread.start()
    try:
        while (window := ready.get()) is not None:
            if isinstance(window, BaseException):
                raise window
            room.release()
            yield window
    finally:
        stop()
        atexit.unregister(stop)
        if thread.is_alive():
            _log.warning(
                "the thread that reads rank %d's stream did not stop within %g s: its source is "
                "still busy with a sample", link.dp_rank, _CLOSE_TIMEOUT_S,
            )  # fmt: skip
