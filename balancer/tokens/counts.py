"""What a token rule returns for each media item, and what a token rule is."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["MediaCounts", "TokenRule", "illegal_media", "media_counts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaCounts:
    """Encoder grids and language-model tokens of each media item, in the order given.

    An item is encoded as `segments` sequences (tiles, or frames) of `grid_heights x grid_widths`
    patches; attention never crosses a segment. All arrays have shape `(num_items,)`.

    Attributes:
        segments: Encoder sequences of the item, int64 (tiles of an image, frame groups of a video,
            windows of an audio clip).
        grid_heights: Patch rows of one segment, int64; 1 for audio.
        grid_widths: Patch columns of one segment, int64; encoder positions for audio.
        tokens: Placeholder tokens the item becomes in the language model, int64: exactly what the
            family's own processor inserts for it, separators and break tokens included.
        legal: Whether the family accepts the size; where false the other columns are zero.

    Example:
        >>> one = np.ones(1, np.int64)
        >>> counts = MediaCounts(segments=5 * one, grid_heights=32 * one, grid_widths=32 * one,
        ...                      tokens=1280 * one, legal=one.astype(bool))
        >>> counts.patches
        array([5120])
    """

    segments: NDArray[np.int64]
    grid_heights: NDArray[np.int64]
    grid_widths: NDArray[np.int64]
    tokens: NDArray[np.int64]
    legal: NDArray[np.bool_]

    @property
    def patches(self) -> NDArray[np.int64]:
        """Patches the encoder processes for each item, before any merging."""
        return self.segments * self.grid_heights * self.grid_widths


class TokenRule(Protocol):
    """Turns media sizes into encoder patches and language-model tokens, without decoding."""

    @property
    def name(self) -> str:
        """Family name with the settings that change its counts."""
        ...

    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """Counts of each image; `heights` and `widths` in pixels, shape `(num_images,)`."""
        ...

    def videos(
        self,
        frames: NDArray[np.int64],
        fps: NDArray[np.float64],
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
    ) -> MediaCounts:
        """Counts of each video; `frames` and `fps` are those of the file, before sampling.

        A frame rate that is not known is `nan`; the rule then assumes its own `default_fps`.
        """
        ...

    def audio(self, seconds: NDArray[np.float64]) -> MediaCounts:
        """Counts of each audio clip; `seconds` is its duration, shape `(num_clips,)`."""
        ...


def media_counts(
    *,
    segments: NDArray[np.int64] | int,
    grid_heights: NDArray[np.int64] | int,
    grid_widths: NDArray[np.int64] | int,
    tokens: NDArray[np.int64] | int,
    legal: NDArray[np.bool_],
) -> MediaCounts:
    """Counts with scalars spread over the items and zeros where a size is not legal.

    Example:
        >>> media_counts(segments=1, grid_heights=24, grid_widths=24, tokens=576,
        ...              legal=np.array([True, False])).tokens
        array([576,   0])
    """
    all_legal = bool(legal.all())

    def column(values: NDArray[np.int64] | int) -> NDArray[np.int64]:
        if not all_legal:
            return np.where(legal, values, 0).astype(np.int64, copy=False)
        if isinstance(values, np.ndarray) and values.shape == legal.shape:
            return values.astype(np.int64, copy=False)
        return np.broadcast_to(np.asarray(values, np.int64), legal.shape)

    return MediaCounts(
        segments=column(segments),
        grid_heights=column(grid_heights),
        grid_widths=column(grid_widths),
        tokens=column(tokens),
        legal=legal,
    )


def illegal_media(num_items: int) -> MediaCounts:
    """Counts of items the family cannot take at all.

    Example:
        >>> illegal_media(2).legal
        array([False, False])
    """
    legal = np.zeros(num_items, np.bool_)
    return media_counts(segments=0, grid_heights=0, grid_widths=0, tokens=0, legal=legal)
