"""Places in a stream of shards: short however many shards are left, as these follow from counts.

A rank's shards are those that others had begun (`first`), then some that none had, in the order of
the epoch (`rest`): from the beginning of an epoch every `dp_size`-th of all, after another run the
bits of a mask. They are dealt to the rank's workers; a place says how many of its own each has read
(`at`).
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["place_in_shards", "shards_left"]


def place_in_shards(
    *,
    num_parts: int,
    first: Iterable[Sequence[int]] = (),
    rest: NDArray[np.bool_] | None = None,
    excluded: Iterable[int] = (),
) -> dict[str, Any]:
    """Place before all shards of a rank, JSON-able.

    Args:
        num_parts: Workers of the rank.
        first: Shards that were begun, each with the index of the sample to go on with.
        rest: Which places of the epoch's order hold the rank's other shards; `None`: every
            `dp_size`-th from the rank's own on.
        excluded: Ids of samples of these shards that are not to be given.

    Example:
        >>> place = place_in_shards(num_parts=2, first=[[3, 7]], rest=np.array([0, 0, 1, 1, 1]))
        >>> shards_left(place, [4, 3, 2, 1, 0], dp_rank=0, dp_size=1)
        [[[3, 7], [1, 0]], [[2, 0], [0, 0]]]
    """
    entries = [list(entry) for entry in first]
    begun = [entry[1] for entry in entries[:num_parts]]
    return {
        "first": entries,
        "rest": None if rest is None else _packed(rest),
        "at": [[0, index] for index in begun + [0] * (num_parts - len(begun))],
        "excluded": sorted(excluded),
        "turn": 0,
    }


def shards_left(
    place: Mapping[str, Any], order: Sequence[int], *, dp_rank: int, dp_size: int
) -> list[list[list[int]]]:
    """For each worker the shards before it, each with the index of the sample to go on with.

    O(shards). The ranks are those of the run that the place is of.

    Example:
        >>> place = place_in_shards(num_parts=1) | {"at": [[1, 5]]}
        >>> shards_left(place, [4, 3, 2, 1, 0], dp_rank=0, dp_size=2)
        [[[2, 5], [0, 0]]]
    """
    if place["rest"] is None:
        rest = order[dp_rank::dp_size]
    else:
        rest = [order[at] for at in np.flatnonzero(_unpacked(place["rest"], len(order))).tolist()]
    mine = [*place["first"], *([shard, 0] for shard in rest)]
    parts = []
    for part, (num_read, index) in enumerate(place["at"]):
        left = [list(entry) for entry in mine[part :: len(place["at"])][num_read:]]
        if left:
            left[0][1] = index
        parts.append(left)
    return parts


def _packed(mask: NDArray[np.bool_]) -> str:
    """A bit a shard at most; far less where shards were dealt evenly."""
    return b64encode(zlib.compress(np.packbits(mask).tobytes(), 9)).decode()


def _unpacked(text: str, count: int) -> NDArray[np.uint8]:
    return np.unpackbits(np.frombuffer(zlib.decompress(b64decode(text)), np.uint8), count=count)
