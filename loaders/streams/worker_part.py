"""WorkerPart: what one worker process reads of a stream, so that each sample is read by one.

torch lets every worker process iterate over its own copy of the dataset. Where the dataset does not
take its worker's part by itself, each sample then comes once a worker. And a worker that has ended
is passed over from some moment on, so that the order depends on timing. Here a dataset that never
asks for the number of workers is split by turns, and workers that have ended still take their turn.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from loaders.streams.turns import EndOfPart

__all__ = ["WorkerPart", "part_loader"]


class WorkerPart(IterableDataset[Any]):
    """The part of the stream that one worker reads, without end."""

    def __init__(self, dataset: Any, num_workers: int) -> None:
        self.dataset = dataset
        self.num_workers = num_workers
        # Epoch, then what each worker leaves out; shared, as processes may outlive the epoch.
        self.begin = torch.zeros(1 + num_workers, dtype=torch.int64)
        self.begin.share_memory_()  # type: ignore[no-untyped-call]
        self.asked: list[str] = []
        self.worker = 0

    def __iter__(self) -> Iterator[Any]:
        epoch, skip = int(self.begin[0]), int(self.begin[1 + self.worker])
        if callable(getattr(self.dataset, "set_epoch", None)):
            self.dataset.set_epoch(epoch)
        return self._samples(skip)

    def _samples(self, skip: int) -> Iterator[Any]:
        items = iter(self.dataset)
        samples = chain(list(islice(items, 1)), items)  # by its first sample it will have asked
        if not self.asked:
            samples = islice(samples, self.worker, None, self.num_workers)  # type: ignore[assignment]
        yield from islice(samples, skip, None)
        while True:
            yield EndOfPart()


class _WatchedStart:
    """Notes whether the dataset, or the user's `worker_init_fn`, asks for the number of workers.

    Nothing can take its worker's part without that number; the worker's id alone serves to seed.
    """

    def __init__(self, worker_init_fn: Callable[[int], None] | None) -> None:
        self.worker_init_fn = worker_init_fn

    def __call__(self, worker: int) -> None:
        info: Any = get_worker_info()
        part, asked = info.dataset, info.dataset.asked
        part.worker = worker

        class Watched(type(info)):  # type: ignore[misc]
            __slots__ = ()

            def __getattribute__(self, name: str) -> Any:
                if name == "num_workers":
                    asked.append(name)
                return object.__getattribute__(self, name)

        object.__setattr__(info, "__class__", Watched)
        object.__setattr__(info, "dataset", part.dataset)  # as users of torch expect it
        if self.worker_init_fn is not None:
            self.worker_init_fn(worker)


def part_loader(
    part: WorkerPart, num_workers: int, persistent_workers: bool, options: dict[str, Any]
) -> "DataLoader[Any]":
    """Torch's loader of single items of the workers, one of each in turn."""
    start = _WatchedStart(options.pop("worker_init_fn", None))
    return DataLoader(
        part,
        batch_size=None,
        num_workers=num_workers,
        collate_fn=_as_it_is,
        worker_init_fn=start,
        persistent_workers=persistent_workers,
        **options,
    )


def _as_it_is(sample: Any) -> Any:
    return sample
