"""gather_window: what all ranks hold for the next window, in one collective."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from loaders.streams.exchange import RankLink
from loaders.streams.reader import Held, WindowReader

__all__ = ["GatheredWindow", "gather_window"]

_HEADER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredWindow:
    """Samples of all ranks for a window, the same on every rank.

    Attributes:
        costs: Costs of each row.
        ids: Id of each row in the stream.
        owner: Rank that holds each row; -1 for the rows that only stand in.
        ended: Whether each rank's source has no more.
        num_read: Samples that each rank has read so far.
        stand_in: For each rank a row that it can repeat: its first, or one kept of earlier windows.
    """

    costs: Costs
    ids: NDArray[np.int64]
    owner: NDArray[np.int64]
    ended: NDArray[np.bool_]
    num_read: NDArray[np.int64]
    stand_in: list[int | None]


def gather_window(
    link: RankLink, reader: WindowReader, spare: Held | None, quota: int, *, interleaved: bool
) -> GatheredWindow:
    """Agree on the next window: rows of every rank's held samples, at most `quota` of each.

    One `all_gather` of int64 `(quota + 2, width)`: how many there are and whether the source has
    ended, the row that can stand in, and a row a sample.

    Args:
        link: Connection to the other ranks.
        reader: Has this rank's samples.
        spare: The sample that stands in for this rank when it holds none.
        quota: Most samples that a rank holds, the same on every rank.
        interleaved: Order rows by age, ranks in turn; otherwise rank by rank.
    """
    pricing = reader.pricing
    sent = np.zeros((quota + 2, max(pricing.width, _HEADER)), np.int64)
    sent[0, :_HEADER] = len(reader.held), reader.ended, reader.num_read, spare is not None
    if spare is not None:
        sent[1, : pricing.width] = spare.row
    for line, held in enumerate(reader.held, 2):
        sent[line, : pricing.width] = held.row
    got = link.gather(sent)
    counts, has_spare = got[:, 0, 0], got[:, 0, 3]
    owner = np.repeat(np.arange(link.dp_size), counts)
    place = np.concatenate([np.arange(count) for count in counts])
    if interleaved:
        order = np.lexsort((owner, place))
        owner, place = owner[order], place[order]
    rows = got[owner, place + 2, : pricing.width]
    stand_in: list[int | None] = [None] * link.dp_size
    spares = np.flatnonzero((counts == 0) & (has_spare > 0)) if not interleaved else owner[:0]
    for rank in np.flatnonzero(counts).tolist():
        stand_in[rank] = int(np.argmax(owner == rank))
    for row, rank in enumerate(spares.tolist(), len(rows)):
        stand_in[rank] = row
    rows = np.concatenate([rows, got[spares, 1, : pricing.width]])
    return GatheredWindow(
        costs=pricing.costs(rows),
        ids=rows[:, 0],
        owner=np.concatenate([owner, np.full(len(spares), -1)]),
        ended=got[:, 0, 1].astype(np.bool_),
        num_read=got[:, 0, 2],
        stand_in=stand_in,
    )
