"""GrowingColumns: sizes of samples that arrive one by one, in flat memory."""

import re
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.errors import SampleError
from balancer.samples import SampleTable
from balancer.sizing.sample_size import SampleSize

__all__ = ["GrowingColumns", "joined_tables"]

_SCALARS = ("text_tokens", "target_tokens", "encoded_bytes")
_RAGGED = (
    "image_heights",
    "image_widths",
    "video_frames",
    "video_fps",
    "video_heights",
    "video_widths",
    "audio_seconds",
)


class GrowingColumns:
    """Columns of numbers that samples are appended to; 8 bytes a number, no object a sample.

    Args:
        first: Sample id of the first sample, for messages.

    Example:
        >>> columns = GrowingColumns()
        >>> columns.append(SampleSize(text_tokens=3, audio_seconds=[1.5]))
        >>> columns.table().audio_seconds
        array([1.5])
    """

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._scalars = {name: array("d") for name in _SCALARS}
        self._values = {name: array("d") for name in _RAGGED}
        self._offsets = {name: array("q", [0]) for name in _RAGGED}

    def __len__(self) -> int:
        return len(self._scalars["text_tokens"])

    def append(self, size: SampleSize) -> None:
        """Add a sample.

        Raises:
            SampleError: A size is no number.
        """
        target = size.text_tokens if size.target_tokens is None else size.target_tokens
        rates = size.video_fps or [float("nan")] * len(size.video_frames)
        try:
            self._scalars["text_tokens"].append(size.text_tokens)
            self._scalars["target_tokens"].append(target)
            self._scalars["encoded_bytes"].append(size.encoded_bytes)
            for name in _RAGGED:
                values = rates if name == "video_fps" else getattr(size, name)
                self._values[name].extend(values)
                self._offsets[name].append(len(self._values[name]))
        except TypeError as error:
            sample_id = self._first + len(self._offsets["audio_seconds"]) - 1
            raise SampleError(
                f"size of sample {sample_id} has something that is no number ({error})",
                sample_ids=[sample_id],
            ) from error

    def table(self) -> SampleTable:
        """Table of the samples so far.

        Raises:
            SampleError: A size is impossible; names the samples, counted from `first`.
        """
        ragged = {
            name: (np.array(self._values[name]), np.array(self._offsets[name], np.int64))
            for name in _RAGGED
        }
        try:
            return SampleTable.from_arrays(
                **{name: np.array(column) for name, column in self._scalars.items()}, **ragged
            )
        except SampleError as error:
            first = self._first
            message = re.sub(
                r"\bsample (\d+)", lambda match: f"sample {int(match[1]) + first}", str(error)
            )
            raise SampleError(message, sample_ids=[i + first for i in error.sample_ids]) from error


def joined_tables(tables: Sequence[SampleTable]) -> SampleTable:
    """One table of the rows of all tables, in order.

    Example:
        >>> tables = [SampleTable.from_lengths([1]), SampleTable.from_lengths([2])]
        >>> joined_tables(tables).text_tokens
        array([1, 2])
    """
    if not tables:
        return SampleTable.from_lengths([])
    columns: dict[str, NDArray[Any]] = {}
    for name in SampleTable.__dataclass_fields__:
        parts = [getattr(table, name) for table in tables]
        if name.endswith("_offsets"):
            starts = np.cumsum([0, *(part[-1] for part in parts)])
            moved = [part[1:] + start for part, start in zip(parts, starts[:-1], strict=True)]
            columns[name] = np.concatenate([np.zeros(1, np.int64), *moved])
        else:
            columns[name] = np.concatenate(parts)
    return SampleTable(**columns)
