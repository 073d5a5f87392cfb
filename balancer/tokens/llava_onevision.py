"""LLaVA-OneVision: any resolution up to a number of views, then pooled down."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from balancer.tokens.best_resolution import best_resolutions, checked_pinpoints, unpadded_grids
from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_positive
from balancer.tokens.sizes import checked_videos
from balancer.tokens.video_frames import stepped_frames

__all__ = ["LlavaOnevision"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LlavaOnevision(FamilyRule):
    """A base view plus the tiles of the best canvas, unpadded, shrunk to at most `max_views` views.

    A sample with several images shows each as one view: set `single_view` for those. Source: Li et
    al., LLaVA-OneVision (2024); transformers `processing_llava_onevision.py`.

    Attributes:
        tile_size: Side of a tile and of the base view, pixels.
        patch_size: Side of a patch, pixels; a rest at the border is cut off.
        grid_pinpoints: Canvases (height, width) an image may be fitted to, pixels.
        max_views: Views of tokens an image may fill before its features are interpolated down.
        single_view: Whether images are shown as the base view alone.
        video_frames: Frames sampled from a video, pooled two by two; a shorter video is illegal.

    Example:
        >>> LlavaOnevision().images(np.array([768]), np.array([768])).tokens
        array([3699])
    """

    FAMILY: ClassVar[str] = "llava-onevision"

    tile_size: int = 384
    patch_size: int = 14
    grid_pinpoints: tuple[tuple[int, int], ...] = tuple(
        (384 * rows, 384 * columns) for rows in range(1, 7) for columns in range(1, 7)
    )
    max_views: int = 9
    single_view: bool = False
    video_frames: int = 32

    def __post_init__(self) -> None:
        require_positive(self, "tile_size", "patch_size", "max_views", "video_frames")
        pairs = checked_pinpoints(self.grid_pinpoints, self.tile_size)
        object.__setattr__(self, "grid_pinpoints", pairs)

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """Base view and tiles of each image."""
        side = self.tile_size // self.patch_size
        tiles = np.zeros_like(heights)
        tile_tokens = np.ones_like(heights)
        if not self.single_view:
            canvas_heights, canvas_widths = best_resolutions(heights, widths, self.grid_pinpoints)
            tile_rows = canvas_heights // self.tile_size
            tile_columns = canvas_widths // self.tile_size
            rows, columns = unpadded_grids(heights, widths, side * tile_rows, side * tile_columns)
            tiles = tile_rows * tile_columns
            tile_tokens = self._shrunk_tokens(rows, columns)
        return media_counts(
            segments=1 + tiles,
            grid_heights=side,
            grid_widths=side,
            tokens=side * side + tile_tokens,
            legal=np.ones(heights.size, np.bool_),
        )

    def _shrunk_tokens(
        self, rows: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Tokens of the tiles with a newline a row, after interpolation where there are many."""
        side = self.tile_size // self.patch_size
        shrink = np.sqrt(rows * columns / (self.max_views * side**2))
        divisors = np.where(shrink > 1.1, shrink, 1.0)
        rows = (rows // divisors).astype(np.int64)
        tokens: NDArray[np.int64] = rows * ((columns // divisors).astype(np.int64) + 1)
        return tokens

    def videos(
        self,
        frames: NDArray[np.int64],
        fps: NDArray[np.float64],
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
    ) -> MediaCounts:
        """A pooled view a sampled frame, and one newline token a video."""
        frames, _, _, _ = checked_videos(frames, fps, heights, widths)
        side = self.tile_size // self.patch_size
        pooled_side = -(-side // 2)
        sampled = stepped_frames(frames, np.full(frames.size, self.video_frames))
        return media_counts(
            segments=sampled,
            grid_heights=side,
            grid_widths=side,
            tokens=sampled * pooled_side**2 + 1,
            legal=frames >= self.video_frames,
        )
