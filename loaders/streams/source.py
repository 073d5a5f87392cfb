"""StreamSource: the samples of an iterable in a fixed order, whatever the number of workers."""

import copy
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

from balancer.errors import StateError
from balancer.topology import check_count
from loaders.streams.failing import DEAD_ITERATOR, stream_error
from loaders.streams.turns import EndOfPart, Turns
from loaders.streams.worker_part import WorkerPart, part_loader

__all__ = ["StreamSource"]


class StreamSource(Iterator[tuple[int, Any]]):
    """Iterator over ids and samples of one rank, that can begin where another one stopped.

    An id is `number * dp_size + dp_rank`: unique over the ranks, rising in each.

    Attributes:
        is_stateful: Whether the dataset is asked for its own state: it has `state_dict` and
            `load_state_dict`, and no worker processes stand between.

    Args:
        dataset: An iterable that can be iterated anew for every epoch; its `set_epoch` is called
            where it has one.
        dp_rank: This rank.
        dp_size: Ranks.
        num_workers: Processes that read; 0 reads in this one. 0 and 1 read in the same order.
        persistent_workers: Whether processes outlive the epoch.
        options: Further arguments of torch's DataLoader.

    Example:
        >>> source = StreamSource(["a", "b", "c"])
        >>> source.begin(epoch=0)
        >>> next(source)
        (0, 'a')
        >>> place = source.mark()
        >>> resumed = StreamSource(["a", "b", "c"])
        >>> resumed.begin(epoch=0, place=place, number=1)
        >>> list(resumed)
        [(1, 'b'), (2, 'c')]
    """

    num_shards = 0
    fingerprint: str | None = None

    def __init__(
        self,
        dataset: Any,
        *,
        dp_rank: int = 0,
        dp_size: int = 1,
        num_workers: int = 0,
        persistent_workers: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        check_count("num_workers", num_workers, least=0)
        self.dataset = dataset
        self.dp_rank = dp_rank
        self.dp_size = dp_size
        self.num_workers = num_workers
        self.persistent_workers = persistent_workers
        self.is_stateful = not num_workers and all(
            callable(getattr(dataset, name, None)) for name in ("state_dict", "load_state_dict")
        )
        self._initial: Any = None
        self._number = 0
        self._reader: _InProcess | _InWorkers | None = None
        self._part: WorkerPart | None = None
        if num_workers:
            self._part = WorkerPart(dataset, num_workers)
            self._loader = part_loader(
                self._part, num_workers, persistent_workers, dict(options or {})
            )

    def begin(self, *, epoch: int, place: Mapping[str, Any] | None = None, number: int = 0) -> None:
        """Start an epoch, at `place` (see `mark`), its `number`-th sample, or at its beginning.

        Raises:
            StateError: The place is of another number of workers.
        """
        self.end()
        self._number = number
        if self._part is not None:
            self._reader = _InWorkers(self._loader, self._part, epoch, place)
            return
        if callable(getattr(self.dataset, "set_epoch", None)):
            self.dataset.set_epoch(epoch)
        skip = 0
        if place is not None and "dataset" in place:
            if not self.is_stateful:
                raise StateError(
                    f"the state has a state of the dataset, but {type(self.dataset).__name__} has "
                    "no load_state_dict here, or is read by workers; give the dataset it was "
                    "saved with, and num_workers=0"
                )
            if self._initial is None:
                self._initial = copy.deepcopy(self.dataset.state_dict())
            self.dataset.load_state_dict(copy.deepcopy(place["dataset"]))
        elif place is not None:
            if len(place["counts"]) != 1:
                raise StateError(
                    f"num_workers is {self.num_workers}, the state was saved with "
                    f"{len(place['counts'])}; the order of a stream depends on it: resume with "
                    "the same number (0 and 1 are alike)"
                )
            skip = place["counts"][0]
        elif (
            self._initial is not None
        ):  # a state once loaded must not shorten the epochs that follow
            self.dataset.load_state_dict(copy.deepcopy(self._initial))
        self._reader = _InProcess(self.dataset, skip)

    def __next__(self) -> tuple[int, Any]:
        if self._reader is None:
            raise StopIteration
        sample_id = self._number * self.dp_size + self.dp_rank
        try:
            sample = next(self._reader)
        except StopIteration:
            raise
        except Exception as error:
            raise stream_error(
                "reading failed at", sample_id, self.where(sample_id), error, cure=DEAD_ITERATOR
            ) from error
        self._number += 1
        return sample_id, sample

    def order(self, epoch: int) -> list[int]:
        """None: it has no shards."""
        return []

    def where(self, sample_id: int) -> str:
        """Which of this rank's samples it is, for messages."""
        number = sample_id // self.dp_size
        return f"number {number} of the stream of rank {self.dp_rank} of {self.dp_size}"

    def mark(self) -> dict[str, Any]:
        """Where the next sample is, JSON-able where the dataset's own state is."""
        if self.is_stateful:
            return {"dataset": copy.deepcopy(self.dataset.state_dict())}
        counts, turn = (
            ([0], 0) if self._reader is None else (self._reader.counts, self._reader.turn)
        )
        return {"counts": list(counts), "turn": turn}

    def any_samples(self) -> Iterator[tuple[int, Any]]:
        """None: what other ranks read cannot be read here."""
        return iter(())

    def end(self) -> None:
        """Stop reading; processes end unless they are persistent."""
        if self._reader is not None:
            self._reader.end(stop_workers=not self.persistent_workers)
            self._reader = None


class _InProcess(Iterator[Any]):
    """Reads in this process."""

    turn = 0

    def __init__(self, dataset: Any, skip: int) -> None:
        self._items = iter(dataset)
        self.counts = [0]
        for _ in range(skip):
            if next(self._items, EndOfPart) is EndOfPart:
                break
            self.counts[0] += 1

    def __next__(self) -> Any:
        sample = next(self._items)
        self.counts[0] += 1
        return sample

    def end(self, *, stop_workers: bool) -> None:
        if isinstance(self._items, Generator):
            self._items.close()
        elif not getattr(self._items, "_persistent_workers", True):  # torch's own, of a DataLoader
            self._items._shutdown_workers()


class _InWorkers(Iterator[Any]):
    """Takes one sample of each worker in turn, and counts those of each."""

    def __init__(
        self,
        loader: "DataLoader[Any]",
        part: "WorkerPart",
        epoch: int,
        place: Mapping[str, Any] | None,
    ) -> None:
        workers = part.num_workers
        start: Mapping[str, Any] = {"counts": [0] * workers, "turn": 0} if place is None else place
        self.counts = list(start.get("counts", ()))
        if len(self.counts) != workers:
            raise StateError(
                f"num_workers is {workers}, the state was saved with {len(self.counts)} (0: "
                "with the dataset's own state); the order of a stream depends on it: resume with "
                "the same"
            )
        part.begin[0] = epoch
        part.begin[1:] = torch.tensor(self.counts)
        self._turns = Turns(iter(loader), workers, int(start["turn"]))

    @property
    def turn(self) -> int:
        return self._turns.turn

    def __next__(self) -> Any:
        worker, sample = next(self._turns)
        self.counts[worker] += 1
        return sample

    def end(self, *, stop_workers: bool) -> None:
        self._turns.end(stop_workers=stop_workers)
