"""Loaders of the overlap experiment: ours and others, on the same samples and microbatches.

Each is a context manager that gives a function of a pass's microbatches; its iterator hands them
out. Workers live on between passes where the loader has a way to keep them.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from loaders.stages import Stage, StagePipeline

__all__ = ["LOADERS", "OURS", "Pass", "parallel_seconds_of"]

Microbatches = list[list[int]]
Pass = Callable[[Microbatches], Iterator[Any]]

WORKERS = 2
LOOK_AHEAD = 16


@contextmanager
def _stages(kind: Any, dataset: Any, seconds: Any) -> Iterator[Pass]:
    row = [
        Stage(name="read", work=dataset.__getitem__, workers=WORKERS, kind=kind),
        Stage(name="collate", work=torch.stack, grain="microbatch"),
    ]
    with StagePipeline(row, seconds=seconds, look_ahead=LOOK_AHEAD) as pipeline:

        def one_pass(microbatches: Microbatches) -> Iterator[Any]:
            for _, microbatch in pipeline(microbatches):
                yield microbatch

        yield one_pass


@contextmanager
def _torch(prefetch: int, dataset: Any, _: Any) -> Iterator[Pass]:
    """Torch's DataLoader: a microbatch to a worker, in turn, delivered in order."""
    plan: Microbatches = []
    loader = DataLoader(
        dataset,
        batch_sampler=plan,
        num_workers=WORKERS,
        prefetch_factor=prefetch,
        persistent_workers=True,
        collate_fn=torch.stack,
    )

    def one_pass(microbatches: Microbatches) -> Iterator[Any]:
        plan[:] = microbatches
        return iter(loader)

    try:
        yield one_pass
    finally:
        iterator = getattr(loader, "_iterator", None)
        if iterator is not None:
            iterator._shutdown_workers()


@contextmanager
def _as_completed(dataset: Any, _: Any) -> Iterator[Pass]:
    """Samples begun in order, microbatches filled with whichever are ready first.

    What reordering loaders do (MinatoLoader, Nouaji et al., 2025) at their best: a slow sample
    holds up nothing, and lands in a later microbatch than the plan has it in.
    """

    def one_pass(microbatches: Microbatches) -> Iterator[Any]:
        size = len(microbatches[0])
        done: queue.Queue[Any] = queue.Queue()
        room = threading.Semaphore(LOOK_AHEAD * size)
        ids = iter([i for microbatch in microbatches for i in microbatch])
        lock = threading.Lock()

        def work() -> None:
            while True:
                room.acquire()
                with lock:
                    sample_id = next(ids, None)
                if sample_id is None:
                    return
                done.put(dataset[sample_id])

        threads = [threading.Thread(target=work, daemon=True) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for _ in microbatches:
            samples = [done.get() for _ in range(size)]
            for _ in samples:
                room.release()
            yield torch.stack(samples)
        for _ in threads:
            room.release()

    yield one_pass


@contextmanager
def _spdl(dataset: Any, _: Any) -> Iterator[Pass]:
    """SPDL: samples in order of arrival, several at once, results in order."""
    from spdl.pipeline import PipelineBuilder

    def one_pass(microbatches: Microbatches) -> Iterator[Any]:
        ids = [i for microbatch in microbatches for i in microbatch]
        pipeline = (
            PipelineBuilder()
            .add_source(ids)
            .pipe(dataset.__getitem__, concurrency=WORKERS, output_order="input")
            .aggregate(len(microbatches[0]))
            .pipe(torch.stack)
            .add_sink(LOOK_AHEAD)
            .build(num_threads=WORKERS + 1)
        )
        with pipeline.auto_stop():
            yield from pipeline

    yield one_pass


@contextmanager
def _nodes(dataset: Any, _: Any) -> Iterator[Pass]:
    """torchdata.nodes: a parallel map over samples, in order, then batches."""
    from torchdata.nodes import Batcher, IterableWrapper, Loader, Mapper, ParallelMapper, Prefetcher

    def one_pass(microbatches: Microbatches) -> Iterator[Any]:
        samples = ParallelMapper(
            IterableWrapper([i for microbatch in microbatches for i in microbatch]),
            dataset.__getitem__,
            num_workers=WORKERS,
            in_order=True,
            method="thread",
        )
        batches = Mapper(Batcher(samples, batch_size=len(microbatches[0])), torch.stack)
        loader: Any = Loader(Prefetcher(batches, prefetch_factor=LOOK_AHEAD))
        return iter(loader)

    yield one_pass


LOADERS: dict[str, Any] = {
    "stages_thread": partial(_stages, "thread"),
    "stages_process": partial(_stages, "process"),
    "torch": partial(_torch, 2),
    "torch_prefetch8": partial(_torch, 8),
    "as_completed": _as_completed,
    "spdl": _spdl,
    "torchdata_nodes": _nodes,
}
"""By name: a context of the dataset and the predicted seconds of each sample."""

OURS = ("stages_thread", "stages_process")
"""Those of them that are ours; `workers="auto"` takes the first for code that releases the GIL."""


def parallel_seconds_of(dataset: Any, sample_ids: Sequence[int]) -> float:
    """Seconds that the samples take if all workers are always busy: no loader can be faster."""
    with ThreadPoolExecutor(WORKERS) as pool:
        began = time.perf_counter()
        for _ in pool.map(dataset.__getitem__, sample_ids):
            pass
        return time.perf_counter() - began
