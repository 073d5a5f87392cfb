"""WindowReader: holds the samples of one rank that are read, priced and not yet planned."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.streams.rows import RowPricing
from loaders.streams.source import StreamSource

__all__ = ["Held", "WindowReader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A sample in memory.

    Attributes:
        number: Its number among the samples that this rank's source gave, from 0.
        sample: The sample.
        row: As `RowPricing` wrote it.
    """

    number: int
    sample: Any
    row: NDArray[np.int64]


class WindowReader:
    """Reads ahead as far as it is asked to.

    A sample's id is `number * dp_size + dp_rank`: unique over the ranks, rising in each.

    Attributes:
        held: Samples read and not yet taken, oldest first.
        ended: Whether the source has no more.
        num_read: Samples of the source so far, those left out included.
        left_out: Ids of the samples that are over a limit or illegal, and dropped.

    Args:
        source: Where samples come from.
        pricing: Prices them.
        dp_rank: This rank.
        dp_size: Ranks.
    """

    def __init__(
        self, source: StreamSource, pricing: RowPricing, *, dp_rank: int, dp_size: int
    ) -> None:
        self.source = source
        self.pricing = pricing
        self.dp_rank = dp_rank
        self.dp_size = dp_size
        self.held: deque[Held] = deque()
        self.ended = False
        self.num_read = 0
        self.left_out: list[int] = []
        self._marks: deque[tuple[int, dict[str, Any]]] = deque()

    def begin(self, *, epoch: int, position: Mapping[str, Any] | None = None) -> None:
        """Start an epoch, at a `position` or at its beginning."""
        self.held.clear()
        self._marks.clear()
        self.left_out = []
        self.ended, self.num_read = False, 0
        if position is None:
            self.source.begin(epoch=epoch)
            return
        self.source.begin(epoch=epoch, place=position["place"])
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
            SampleError: As `RowPricing.price`; and whatever the source raises.
        """
        if self.ended or count < 1:
            return
        self._marks.append((self.num_read, self.source.mark()))
        samples = list(islice(self.source, count))
        self.ended = len(samples) < count
        first = self.num_read
        self.num_read += len(samples)
        if not samples:
            return
        ids = [(first + i) * self.dp_size + self.dp_rank for i in range(len(samples))]
        rows, kept = self.pricing.price(samples, ids=ids)
        for place, sample in enumerate(samples):
            if kept[place]:
                self.held.append(Held(number=first + place, sample=sample, row=rows[place].copy()))
            else:
                self.left_out.append(ids[place])

    def position(self) -> dict[str, Any]:
        """Where to begin so that the oldest sample held is the first one read again."""
        number = self.held[0].number if self.held else self.num_read
        while len(self._marks) > 1 and self._marks[1][0] <= number:
            self._marks.popleft()
        if not self._marks or (not self.held and not self.ended):
            return {"number": number, "skip": 0, "place": self.source.mark()}
        at, place = self._marks[0]
        return {"number": number, "skip": number - at, "place": place}

    def end(self) -> None:
        """Let go of the samples and stop the source."""
        self.held.clear()
        self.source.end()
