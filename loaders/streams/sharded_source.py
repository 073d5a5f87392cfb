"""ShardedSource: a rank's samples of a stream in shards, from any place that ranks had come to."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torch.utils.data._utils import worker as torch_worker

from balancer.errors import SampleError
from balancer.topology import check_count
from loaders.sample_errors import SampleReadError, shown
from loaders.streams.shard_place import place_in_shards, shards_left
from loaders.streams.shards import ShardedStream
from loaders.streams.turns import EndOfPart, Turns

__all__ = ["ShardedSource"]


class ShardedSource(Iterator[tuple[int, Any]]):
    """Iterator over ids and samples of one rank; same interface as `StreamSource`.

    A place says how many of its shards each worker has read, and where in the next one it is, as
    `shard_place` describes.

    Args:
        dataset: The stream.
        dp_rank: This rank.
        dp_size: Ranks.
        num_workers: Processes that read; 0 reads in this one. 0 and 1 read in the same order.
        persistent_workers: Whether processes outlive the epoch.
        options: Further arguments of torch's DataLoader.

    Example:
        >>> stream = ShardedStream(["ab", "c", "d"], list)
        >>> source = ShardedSource(stream, dp_rank=0, dp_size=2)
        >>> source.begin(epoch=0)
        >>> next(source), source.mark()["at"]
        ((0, 'a'), [[0, 1]])
        >>> list(source)
        [(3, 'b'), (2, 'd')]
    """

    def __init__(
        self,
        dataset: ShardedStream,
        *,
        dp_rank: int,
        dp_size: int,
        num_workers: int = 0,
        persistent_workers: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        check_count("num_workers", num_workers, least=0)
        self.dataset = dataset
        self.dp_rank = dp_rank
        self.dp_size = dp_size
        self.num_parts = max(num_workers, 1)
        self.persistent_workers = persistent_workers
        self.num_shards = dataset.num_shards
        self.fingerprint: str | None = dataset.fingerprint
        self._place = place_in_shards(num_parts=self.num_parts)
        self._pending: list[deque[list[int]]] = []
        self._num_shards_read: list[int] = []
        self._excluded: set[int] = set()
        self._reader: Turns | _InProcess | None = None
        self._part: _WorkerShards | None = None
        if num_workers:
            self._part = _WorkerShards(dataset, num_workers)
            self._loader = DataLoader(
                self._part, batch_size=None, num_workers=num_workers, collate_fn=_as_it_is,
                persistent_workers=persistent_workers, **dict(options or {}),
            )  # fmt: skip

    def begin(self, *, epoch: int, place: Mapping[str, Any] | None = None, number: int = 0) -> None:
        """Start an epoch, at `place` or at its beginning."""
        self.end()
        if place is None:
            place = place_in_shards(num_parts=self.num_parts)
        order = self.dataset.order(epoch)
        parts = shards_left(place, order, dp_rank=self.dp_rank, dp_size=self.dp_size)
        self._place = dict(place)
        self._num_shards_read = [num_read for num_read, _ in place["at"]]
        self._pending = [deque(list(entry) for entry in part) for part in parts]
        self._excluded = set(place["excluded"])
        if self._part is None:
            self._reader = _InProcess(_items(self.dataset, parts[0]))
        else:
            self._part.assign(parts)
            self._reader = Turns(iter(self._loader), self.num_parts, place["turn"])

    def __next__(self) -> tuple[int, Any]:
        while self._reader is not None:
            try:
                worker, (sample_id, sample) = next(self._reader)
            except StopIteration:
                raise
            except Exception as error:
                told = str(error) if isinstance(error, SampleError) else shown(error)
                raise SampleReadError(
                    f"rank {self.dp_rank} of {self.dp_size}: {told}",
                    sample_ids=getattr(error, "sample_ids", ()),
                ) from error
            index, shard = divmod(sample_id, self.num_shards)
            pending = self._pending[worker]
            while pending[0][0] != shard:
                pending.popleft()
                self._num_shards_read[worker] += 1
            pending[0][1] = index + 1
            if sample_id not in self._excluded:
                return sample_id, sample
            self._excluded.discard(sample_id)
        raise StopIteration

    def mark(self) -> dict[str, Any]:
        """Where the next sample is, JSON-able; O(workers), and what another run had begun."""
        if not self._pending:
            return self._place
        counts = zip(self._num_shards_read, self._pending, strict=True)
        return {
            **self._place,
            "at": [[num_read, left[0][1] if left else 0] for num_read, left in counts],
            "excluded": sorted(self._excluded),
            "turn": 0 if self._reader is None else self._reader.turn,
        }

    def order(self, epoch: int) -> list[int]:
        """Numbers of the shards of all ranks, in the order of an epoch."""
        return self.dataset.order(epoch)

    def where(self, sample_id: int) -> str:
        """Shard and place in it of a sample, for messages."""
        return f"{self.dataset.where(sample_id)}, rank {self.dp_rank} of {self.dp_size}"

    def any_samples(self) -> Iterator[tuple[int, Any]]:
        """Samples of all ranks, for a rank without one of its own."""
        for shard in range(self.num_shards):
            yield from self.dataset.samples(shard)

    def end(self) -> None:
        """Stop reading; processes end unless they are persistent."""
        if self._reader is not None:
            self._reader.end(stop_workers=not self.persistent_workers)
            self._reader = None


def _items(dataset: ShardedStream, pending: Iterable[Sequence[int]]) -> Iterator[tuple[int, Any]]:
    for shard, start in pending:
        yield from dataset.samples(shard, start)


class _InProcess(Iterator[tuple[int, Any]]):
    """Reads in this process; a single part that always has its turn."""

    turn = 0

    def __init__(self, items: Iterator[tuple[int, Any]]) -> None:
        self._items = items

    def __next__(self) -> tuple[int, Any]:
        return 0, next(self._items)

    def end(self, *, stop_workers: bool) -> None:
        self._items.close()  # type: ignore[attr-defined]


class _WorkerShards(IterableDataset[Any]):
    """What one worker reads of a rank's shards, without end."""

    def __init__(self, dataset: ShardedStream, num_workers: int) -> None:
        self.dataset = dataset
        self.worker: int | None = None
        # Shards of one worker after another, and where each worker's end; shared, as processes may
        # outlive the epoch.
        self.pending = torch.zeros((dataset.num_shards, 2), dtype=torch.int64)
        self.ends = torch.zeros(1 + num_workers, dtype=torch.int64)
        self.pending.share_memory_()  # type: ignore[no-untyped-call]
        self.ends.share_memory_()  # type: ignore[no-untyped-call]

    def assign(self, parts: Sequence[Sequence[Sequence[int]]]) -> None:
        """Shards that the workers read from their next iteration on."""
        rows = [list(entry) for part in parts for entry in part]
        self.pending[: len(rows)] = torch.tensor(rows, dtype=torch.int64).reshape(-1, 2)
        self.ends[1:] = torch.tensor([len(part) for part in parts]).cumsum(0)

    def __iter__(self) -> Iterator[Any]:
        if self.worker is None:
            info: Any = get_worker_info()
            self.worker = info.id
            # WebDataset and the like would read their worker's part of the shard only.
            torch_worker._worker_info = None
        begin, end = self.ends[self.worker : self.worker + 2].tolist()
        return self._samples(self.pending[begin:end].tolist())

    def _samples(self, pending: list[list[int]]) -> Iterator[Any]:
        yield from _items(self.dataset, pending)
        while True:
            yield EndOfPart()


def _as_it_is(item: Any) -> Any:
    return item
