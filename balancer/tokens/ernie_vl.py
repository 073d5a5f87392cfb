"""ERNIE-4.5-VL: native resolution; frames are merged in pairs after the encoder."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_positive
from balancer.tokens.sizes import checked_videos
from balancer.tokens.smart_resize import merged_grids, within_aspect_ratio

__all__ = ["ErnieVL"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErnieVL(FamilyRule):
    """Sides rounded to multiples of patch times merge size, within a pixel budget.

    An aspect ratio above 200 is illegal. Every frame is a segment of its own in the encoder.
    Source: ERNIE 4.5 Technical Report (2025); transformers `image_processing_ernie4_5_vl_moe.py`,
    `video_processing_ernie4_5_vl_moe.py`.

    Attributes:
        patch_size: Side of a patch, pixels.
        merge_size: Patches a side that become one token.
        temporal_merge_size: Frames that become one temporal step of tokens.
        min_pixels: Fewest pixels of an image.
        max_pixels: Most pixels of an image.
        video_fps: Frames sampled a second.
        min_frames: Fewest frames sampled.
        max_frames: Most frames sampled.
        video_min_pixels: Fewest pixels of a frame.
        video_max_pixels: Most pixels of a frame.
        default_fps: Frame rate assumed where it is not known.

    Example:
        >>> ErnieVL().images(np.array([1080]), np.array([1920])).tokens
        array([2691])
    """

    FAMILY: ClassVar[str] = "ernie-4.5-vl"

    patch_size: int = 14
    merge_size: int = 2
    temporal_merge_size: int = 2
    min_pixels: int = 56 * 56
    max_pixels: int = 6177 * 28 * 28
    video_fps: float = 2.0
    min_frames: int = 16
    max_frames: int = 180
    video_min_pixels: int = 299 * 28 * 28
    video_max_pixels: int = 1196 * 28 * 28
    default_fps: float = 24.0

    def __post_init__(self) -> None:
        require_positive(self, "patch_size", "merge_size", "temporal_merge_size", "min_pixels")
        require_positive(self, "max_pixels", "video_fps", "min_frames", "max_frames")
        require_positive(self, "video_min_pixels", "video_max_pixels", "default_fps")

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """One grid an image."""
        rows, columns = self._grids(heights, widths, self.min_pixels, self.max_pixels)
        return media_counts(
            segments=1,
            grid_heights=rows * self.merge_size,
            grid_widths=columns * self.merge_size,
            tokens=rows * columns,
            legal=within_aspect_ratio(heights, widths),
        )

    def videos(
        self,
        frames: NDArray[np.int64],
        fps: NDArray[np.float64],
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
    ) -> MediaCounts:
        """One segment a sampled frame, the last one repeated to fill a pair."""
        frames, fps, heights, widths = checked_videos(frames, fps, heights, widths)
        fps = np.where(np.isnan(fps), self.default_fps, fps)
        wanted = np.maximum(frames / fps * self.video_fps, self.min_frames)
        wanted = np.minimum(wanted, np.minimum(self.max_frames, frames))
        # The published code steps through the video by a rounded fraction, which may add a frame.
        sampled = np.ceil(frames / (frames / wanted)).astype(np.int64)
        steps = -(-sampled // self.temporal_merge_size)
        rows, columns = self._grids(heights, widths, self.video_min_pixels, self.video_max_pixels)
        return media_counts(
            segments=steps * self.temporal_merge_size,
            grid_heights=rows * self.merge_size,
            grid_widths=columns * self.merge_size,
            tokens=steps * rows * columns,
            legal=within_aspect_ratio(heights, widths),
        )

    def _grids(
        self,
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
        min_pixels: int,
        max_pixels: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and columns of merged patches."""
        return merged_grids(
            heights,
            widths,
            factor=self.patch_size * self.merge_size,
            min_pixels=min_pixels,
            max_pixels=max_pixels,
        )
