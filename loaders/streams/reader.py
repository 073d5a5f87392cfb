"""WindowReader: holds the samples of one rank that are read, priced and not yet planned."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.sizing.sample_size import SampleSize
from loaders.streams.failing import Omissions, stream_error
from loaders.streams.rows import RowPricing
from loaders.streams.sharded_source import ShardedSource
from loaders.streams.source import StreamSource

__all__ = ["Held", "WindowReader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A sample in memory.

    Attributes:
        number: Its number among the samples that this rank's source gave, from 0; -1 for one that
            only stands in.
        sample: The sample.
        row: As `RowPricing` wrote it.
    """

    number: int
    sample: Any
    row: NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class _Mark:
    """Place in the source before its sample `number`, and the ids of those read from there."""

    number: int
    place: dict[str, Any]
    ids: list[int] = field(default_factory=list)


class WindowReader:
    """Reads ahead as far as it is asked to.

    Attributes:
        held: Samples read and not yet taken, oldest first.
        ended: Whether the source has no more.
        num_read: Samples of the source so far, those left out included.
        left_out: Ids of the samples that are over a limit or illegal, and dropped.
        omissions: Has those that failed.

    Args:
        source: Where samples come from.
        pricing: Prices them.
        omissions: What to do with those that fail.
    """

    def __init__(
        self, source: StreamSource | ShardedSource, pricing: RowPricing, omissions: Omissions
    ) -> None:
        self.source = source
        self.pricing = pricing
        self.omissions = omissions
        self.held: deque[Held] = deque()
        self.ended = False
        self.num_read = 0
        self.left_out: list[int] = []
        self._marks: deque[_Mark] = deque()

    def begin(self, *, epoch: int, position: Mapping[str, Any] | None = None) -> None:
        """Start an epoch, at a `position` or at its beginning."""
        self.held.clear()
        self._marks.clear()
        self.left_out = []
        self.ended, self.num_read = False, 0
        if position is None:
            self.omissions.begin()
            self.source.begin(epoch=epoch)
            return
        self.omissions.begin(known_until=position["until"], failed=position["failed"])
        at = position["number"] - position["skip"]
        self.source.begin(epoch=epoch, place=position["place"], number=at)
        self.num_read = position["number"]
        for _ in range(position["skip"]):
            next(self.source, None)

    def fill(self, count: int) -> None:
        """Read until `count` samples are held or the source ends."""
        while len(self.held) < count and not self.ended:
            self.read(count - len(self.held))

    def read(self, count: int) -> None:
        """Read at most `count` samples more.

        Raises:
            SampleError: As `RowPricing.price`; or a sample cannot be read or sized.
        """
        if self.ended or count < 1:
            return
        mark = _Mark(number=self.num_read, place=self.source.mark())
        self._marks.append(mark)
        taken = list(islice(self.source, count))
        self.ended = len(taken) < count
        if not taken:
            return
        first = self.num_read
        self.num_read += len(taken)
        mark.ids = [sample_id for sample_id, _ in taken]
        sized = self._sized(taken, first)
        ids = [taken[number - first][0] for number in sized]
        rows, kept = self.pricing.price(list(sized.values()), ids=ids)
        for place, number in enumerate(sized):
            sample = taken[number - first][1]
            if kept[place]:
                self.held.append(Held(number=number, sample=sample, row=rows[place].copy()))
            else:
                self.left_out.append(ids[place])

    def _sized(self, taken: list[tuple[int, Any]], first: int) -> dict[int, SampleSize]:
        """Sizes by number, of those that have one; the others are left out or an error."""
        sizes = {}
        for number, (sample_id, sample) in enumerate(taken, first):
            if self.omissions.knows(number, sample_id):
                continue
            try:
                sizes[number] = self.pricing.size(sample)
            except Exception as error:
                where = self.source.where(sample_id)
                self.omissions.leave_out(number, sample_id, error, where)
            else:
                self.omissions.read()
        return sizes

    def position(self) -> dict[str, Any]:
        """Where to begin so that the oldest sample held is the first one read again.

        `skip` samples after `place`; of shards their ids too, for ranks that read in another order.
        Of the samples `until` a number exactly the `failed` ones are left out.
        """
        number = self.held[0].number if self.held else self.num_read
        read = {"until": self.num_read, "failed": self.omissions.since(number)}
        while len(self._marks) > 1 and self._marks[1].number <= number:
            self._marks.popleft()
        if not self._marks or (not self.held and not self.ended):
            place = self.source.mark()
            return {"number": number, "skip": 0, "skipped": [], "place": place, **read}
        mark = self._marks[0]
        skip = number - mark.number
        skipped = mark.ids[:skip] if self.source.num_shards else []
        return {"number": number, "skip": skip, "skipped": skipped, "place": mark.place, **read}

    def stand_in(self) -> Held | None:
        """A sample of another rank, for one that has none at all; `None` where none can be read."""
        for sample_id, sample in self.source.any_samples():
            try:
                size = self.pricing.size(sample)
            except Exception as error:
                if self.omissions.policy == "raise":
                    where = self.source.where(sample_id)
                    raise stream_error("size_fn failed on", sample_id, where, error) from error
                continue  # the rank that it belongs to lists it
            rows, kept = self.pricing.price([size], ids=[sample_id])
            if kept[0]:
                return Held(number=-1, sample=sample, row=rows[0])
        return None

    def end(self) -> None:
        """Let go of the samples and stop the source."""
        self.held.clear()
        self.source.end()
