"""SampleTable: the size of every sample, in columns, known without decoding anything."""

import hashlib
from dataclasses import dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.errors import ArgumentError
from balancer.sample_columns import checked_column, checked_media

if TYPE_CHECKING:
    from balancer.sizing.passes import SizeFunction

__all__ = ["SampleTable"]

_RAGGED = {
    "image_offsets": ("image_heights", "image_widths"),
    "video_offsets": ("video_frames", "video_fps", "video_heights", "video_widths"),
    "audio_offsets": ("audio_seconds",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTable:
    """Sizes of all samples, immutable; row `i` is sample `i`.

    Media are ragged: sample `i` owns images `image_offsets[i]:image_offsets[i + 1]`, and likewise
    for videos and audio clips. Build one with `from_arrays`, `from_lengths`, or the functions of
    `balancer.sizing`, rather than with the constructor, which checks nothing.

    Attributes:
        text_tokens: Text tokens, int64 `(num_samples,)`.
        target_tokens: Supervised tokens (those with a loss), int64 `(num_samples,)`.
        image_offsets: Where each sample's images begin, int64 `(num_samples + 1,)`.
        image_heights: Pixels, int64 `(num_images,)`.
        image_widths: Pixels, int64 `(num_images,)`.
        video_offsets: Where each sample's videos begin, int64 `(num_samples + 1,)`.
        video_frames: Frames in the file, int64 `(num_videos,)`.
        video_fps: Frames a second in the file, float64 `(num_videos,)`; `nan` where not known.
        video_heights: Pixels, int64 `(num_videos,)`.
        video_widths: Pixels, int64 `(num_videos,)`.
        audio_offsets: Where each sample's audio clips begin, int64 `(num_samples + 1,)`.
        audio_seconds: Seconds, float64 `(num_clips,)`.
        encoded_bytes: Bytes to read for the sample, int64 `(num_samples,)`; 0 where not known.

    Example:
        >>> table = SampleTable.from_arrays(
        ...     text_tokens=[12, 700], image_heights=[[480], []], image_widths=[[640], []])
        >>> len(table), table.num_images
        (2, array([1, 0]))
        >>> table.select([1]).text_tokens
        array([700])
    """

    text_tokens: NDArray[np.int64]
    target_tokens: NDArray[np.int64]
    image_offsets: NDArray[np.int64]
    image_heights: NDArray[np.int64]
    image_widths: NDArray[np.int64]
    video_offsets: NDArray[np.int64]
    video_frames: NDArray[np.int64]
    video_fps: NDArray[np.float64]
    video_heights: NDArray[np.int64]
    video_widths: NDArray[np.int64]
    audio_offsets: NDArray[np.int64]
    audio_seconds: NDArray[np.float64]
    encoded_bytes: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in column_names():
            column = getattr(self, name)
            if column.flags.writeable:
                view = column.view()
                view.flags.writeable = False
                object.__setattr__(self, name, view)

    def __len__(self) -> int:
        return len(self.text_tokens)

    @property
    def num_images(self) -> NDArray[np.int64]:
        """Images of each sample, int64 `(num_samples,)`."""
        return np.diff(self.image_offsets)

    @property
    def num_videos(self) -> NDArray[np.int64]:
        """Videos of each sample, int64 `(num_samples,)`."""
        return np.diff(self.video_offsets)

    @classmethod
    def from_lengths(cls, lengths: ArrayLike) -> "SampleTable":
        """Table of text-only samples from their token counts.

        Raises:
            SampleError: A length is negative, fractional, or not finite.

        Example:
            >>> SampleTable.from_lengths([5, 9]).target_tokens
            array([5, 9])
        """
        return cls.from_arrays(text_tokens=lengths)

    @classmethod
    def from_arrays(
        cls,
        *,
        text_tokens: ArrayLike,
        target_tokens: ArrayLike | None = None,
        image_heights: Any = None,
        image_widths: Any = None,
        video_frames: Any = None,
        video_fps: Any = None,
        video_heights: Any = None,
        video_widths: Any = None,
        audio_seconds: Any = None,
        encoded_bytes: ArrayLike | None = None,
    ) -> "SampleTable":
        """Table from one array a column; media columns are ragged.

        Args:
            text_tokens: Text tokens of each sample.
            target_tokens: Supervised tokens of each sample; all text tokens when not given.
            image_heights: Per sample a sequence of pixels, or `(values, offsets)` arrays.
            image_widths: Same shape as `image_heights`.
            video_frames: Per sample a sequence (one entry a video), or `(values, offsets)`.
            video_fps: Same shape as `video_frames`; unknown (`nan`) when not given.
            video_heights: Same shape as `video_frames`.
            video_widths: Same shape as `video_frames`.
            audio_seconds: Per sample a sequence (one entry a clip), or `(values, offsets)`.
            encoded_bytes: Bytes to read for each sample; 0 when not given.

        Raises:
            ArgumentError: Columns disagree in length, or only one of a pair is given.
            SampleError: A size is negative, zero where it must not be, fractional or not finite;
                the message names the first sample ids.

        Example:
            >>> SampleTable.from_arrays(text_tokens=[3, -1])
            Traceback (most recent call last):
            balancer.errors.SampleError: text_tokens of sample 1 is -1; allowed: whole numbers >= 0
        """
        text = checked_column("text_tokens", text_tokens)
        num_samples = text.shape[0]
        target = text if target_tokens is None else checked_column("target_tokens", target_tokens)
        encoded = (
            np.zeros(num_samples, np.int64)
            if encoded_bytes is None
            else checked_column("encoded_bytes", encoded_bytes)
        )
        for name, column in (("target_tokens", target), ("encoded_bytes", encoded)):
            if column.shape[0] != num_samples:
                raise ArgumentError(
                    f"{name} has {column.shape[0]} rows, text_tokens has {num_samples}; "
                    "every column needs one row a sample"
                )
        images = checked_media(
            num_samples, {"image_heights": image_heights, "image_widths": image_widths}
        )
        videos = checked_media(
            num_samples,
            {
                "video_frames": video_frames,
                "video_fps": video_fps,
                "video_heights": video_heights,
                "video_widths": video_widths,
            },
        )
        audio = checked_media(num_samples, {"audio_seconds": audio_seconds})
        return cls(
            text_tokens=text,
            target_tokens=target,
            encoded_bytes=encoded,
            image_offsets=images.pop("offsets"),
            video_offsets=videos.pop("offsets"),
            audio_offsets=audio.pop("offsets"),
            **images,
            **videos,
            **audio,
        )

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        size_fn: "SizeFunction",
        *,
        num_workers: int = 0,
        cache: str | PathLike[str] | None = None,
        **options: Any,
    ) -> "SampleTable":
        """Table from one pass over a dataset: `balancer.sizing.dataset.table_from_dataset`.

        Example:
            >>> sentences = ["a b", "c"]
            >>> SampleTable.from_dataset(
            ...     sentences, lambda text: {"text_tokens": len(text.split())}, progress=False
            ... ).text_tokens
            array([2, 1])
        """
        from balancer.sizing.dataset import table_from_dataset

        return table_from_dataset(dataset, size_fn, num_workers=num_workers, cache=cache, **options)

    def select(self, rows: ArrayLike) -> "SampleTable":
        """Table of the given rows, in the given order; only those rows are copied.

        Rows may repeat. O(len(rows) + their media).

        Raises:
            ArgumentError: A row is outside the table.
        """
        ids = np.ascontiguousarray(rows, np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= len(self)):
            raise ArgumentError(
                f"rows reach from {ids.min()} to {ids.max()}, the table has rows 0 to "
                f"{len(self) - 1}"
            )
        columns: dict[str, NDArray[Any]] = {
            name: getattr(self, name)[ids]
            for name in ("text_tokens", "target_tokens", "encoded_bytes")
        }
        for offsets_name, names in _RAGGED.items():
            offsets = getattr(self, offsets_name)
            items, columns[offsets_name] = _gather(offsets, ids)
            for name in names:
                columns[name] = getattr(self, name)[items]
        return SampleTable(**columns)

    @property
    def fingerprint(self) -> str:
        """Hash of all sizes: equal tables have equal fingerprints on any host."""
        digest = hashlib.sha256()
        for name in column_names():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(getattr(self, name)).data)
        return digest.hexdigest()


def column_names() -> tuple[str, ...]:
    """Names of all columns, in order."""
    return tuple(field.name for field in fields(SampleTable))


def _gather(
    offsets: NDArray[np.int64], ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Item indices of the rows `ids`, and the offsets of those rows once gathered."""
    counts = offsets[ids + 1] - offsets[ids]
    new_offsets = np.zeros(ids.shape[0] + 1, np.int64)
    np.cumsum(counts, out=new_offsets[1:])
    items = np.arange(new_offsets[-1]) + np.repeat(offsets[ids] - new_offsets[:-1], counts)
    return items, new_offsets
