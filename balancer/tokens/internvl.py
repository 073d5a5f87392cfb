"""InternVL: dynamic tiling by aspect ratio, with a thumbnail."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError
from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_multiple, require_positive
from balancer.tokens.sizes import checked_videos
from balancer.tokens.tiling import closest_tile_grids

__all__ = ["InternVL"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InternVL(FamilyRule):
    """Tiles of one size, each the same number of tokens, and a thumbnail of the whole.

    A video is `video_frames` frames of one tile each; the text "Frame 1: " before a frame is not
    counted. Source: Chen et al., InternVL 1.5 (2024), `dynamic_preprocess`; transformers
    `processing_internvl.py`.

    Attributes:
        tile_size: Side of a tile, pixels.
        patch_size: Side of a patch, pixels.
        min_tiles: Fewest tiles, without the thumbnail.
        max_tiles: Most tiles, without the thumbnail.
        thumbnail: Whether an image of more than one tile also gets a thumbnail.
        tokens_per_tile: Tokens after pixel unshuffling.
        wrapper_tokens: Tokens around an image or frame: its start and end markers.
        video_frames: Frames sampled from a video; a shorter video is illegal.

    Example:
        >>> InternVL().images(np.array([900]), np.array([1800])).tokens
        array([2306])
    """

    FAMILY: ClassVar[str] = "internvl"

    tile_size: int = 448
    patch_size: int = 14
    min_tiles: int = 1
    max_tiles: int = 12
    thumbnail: bool = True
    tokens_per_tile: int = 256
    wrapper_tokens: int = 2
    video_frames: int = 8

    def __post_init__(self) -> None:
        require_positive(self, "tile_size", "patch_size", "min_tiles", "tokens_per_tile")
        require_positive(self, "video_frames")
        require_multiple(self, "tile_size", "patch_size")
        if self.max_tiles < self.min_tiles:
            raise ArgumentError(
                f"max_tiles is {self.max_tiles}; it must be at least min_tiles, {self.min_tiles}"
            )

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """Tiles and thumbnail of each image."""
        columns, rows = closest_tile_grids(
            heights,
            widths,
            tile_size=self.tile_size,
            min_tiles=self.min_tiles,
            max_tiles=self.max_tiles,
        )
        tiles = columns * rows
        if self.thumbnail:
            tiles += tiles > 1
        return self._counts(tiles, self.wrapper_tokens, np.ones(heights.size, np.bool_))

    def videos(
        self,
        frames: NDArray[np.int64],
        fps: NDArray[np.float64],
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
    ) -> MediaCounts:
        """One tile a sampled frame; the frame rate and size do not matter."""
        frames, _, _, _ = checked_videos(frames, fps, heights, widths)
        segments = np.full(frames.size, self.video_frames, np.int64)
        wrapper_tokens = self.wrapper_tokens * self.video_frames
        return self._counts(segments, wrapper_tokens, frames >= self.video_frames)

    def _counts(
        self, tiles: NDArray[np.int64], wrapper_tokens: int, legal: NDArray[np.bool_]
    ) -> MediaCounts:
        side = self.tile_size // self.patch_size
        return media_counts(
            segments=tiles,
            grid_heights=side,
            grid_widths=side,
            tokens=tiles * self.tokens_per_tile + wrapper_tokens,
            legal=legal,
        )
