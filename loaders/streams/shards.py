"""ShardedStream: a stream kept in shards that any rank can read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from balancer.errors import ArgumentError
from balancer.topology import check_count
from loaders.streams.failing import DEAD_ITERATOR, stream_error

__all__ = ["ShardedStream"]


class ShardedStream(IterableDataset[Any]):
    """Samples of many shards: files, archives, parts of a remote dataset.

    With a `StreamLoader` or `rebalance`, shards are shared out to ranks and their workers, each
    reads its own one after another, and an epoch can be resumed by other numbers of both: every
    rank can read any shard, so that the ranks that resume share out what is left.

    A sample's id is `index * num_shards + shard`, `index` its place in the shard: it depends
    neither on ranks nor on workers.

    Args:
        shards: Names of the shards, such as paths, URLs or numbers; the same on every rank.
        read: Gives all samples of a shard, on whatever rank, in an order that is always the same;
            to resume within a shard, the samples before are read and thrown away. In a worker
            process `get_worker_info()` is `None` there: whole shards go to workers. Workers that
            are spawned need it picklable.
        shuffle: Whether every epoch has an order of shards of its own, by `seed` and the epoch.
        seed: Seed of that order.

    Raises:
        ArgumentError: There are no shards, or `read` is no function.

    Example:
        >>> texts = {"a": ["one", "two"], "b": ["three"]}
        >>> stream = ShardedStream(["a", "b"], texts.__getitem__)
        >>> list(stream), list(stream.samples(0))
        (['one', 'two', 'three'], [(0, 'one'), (2, 'two')])
    """

    def __init__(
        self,
        shards: Sequence[Any],
        read: Callable[[Any], Iterable[Any]],
        *,
        shuffle: bool = False,
        seed: int = 0,
    ) -> None:
        self.shards = list(shards)
        if not self.shards:
            raise ArgumentError("shards is empty; give the name of at least one shard")
        if not callable(read):
            raise ArgumentError(
                f"read is {type(read).__name__}; give a function that opens a shard by its name "
                "and returns an iterable of its samples"
            )
        check_count("seed", seed, least=0)
        self.read = read
        self.shuffle = shuffle
        self.seed = seed
        self._epoch = 0

    @property
    def num_shards(self) -> int:
        """Shards."""
        return len(self.shards)

    @property
    def fingerprint(self) -> str:
        """Number of the shards, a digest of their names where these are text, and the order."""
        names = [str(shard) for shard in self.shards if isinstance(shard, str | int | Path)]
        digest = sha256(repr(names).encode()).hexdigest()[:16]
        how = f"shuffled by seed {self.seed}" if self.shuffle else "in the order given"
        return f"{self.num_shards} shards, {digest}, {how}"

    def set_epoch(self, epoch: int) -> None:
        """Let a plain iteration follow the order of `epoch`."""
        self._epoch = epoch

    def order(self, epoch: int) -> list[int]:
        """Numbers of the shards in the order of an epoch."""
        if not self.shuffle:
            return list(range(self.num_shards))
        generator = np.random.Generator(np.random.Philox([self.seed, epoch]))
        return [int(shard) for shard in generator.permutation(self.num_shards)]

    def samples(self, shard: int, start: int = 0) -> Iterator[tuple[int, Any]]:
        """Ids and samples of a shard by its number, from its sample `start` on.

        Raises:
            SampleReadError: The shard cannot be read on; names it and the sample.
        """
        items: Iterator[Any] | None = None
        for index in count():
            sample_id = index * self.num_shards + shard
            try:
                items = iter(self.read(self.shards[shard])) if items is None else items
                sample = next(items)
            except StopIteration:
                return
            except Exception as error:
                raise stream_error(
                    "reading failed at", sample_id, self.where(sample_id), error, cure=DEAD_ITERATOR
                ) from error
            if index >= start:
                yield sample_id, sample

    def where(self, sample_id: int) -> str:
        """Shard and place in it of a sample, for messages."""
        index, shard = divmod(sample_id, self.num_shards)
        return f"number {index} of shard {self.shards[shard]!r}"

    def __iter__(self) -> Iterator[Any]:
        """All samples, shard after shard; in a worker of torch those of every n-th shard."""
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for shard in self.order(self._epoch)[first::step]:
            for _, sample in self.samples(shard):
                yield sample
