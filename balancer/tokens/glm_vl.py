"""GLM-4.1V and GLM-4.6V: native resolution, the pixel budget taken over a pair of frames."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError
from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.glm_frames import capped_frames, dynamic_frames
from balancer.tokens.settings import require_positive
from balancer.tokens.sizes import checked_videos
from balancer.tokens.smart_resize import merged_grids, within_aspect_ratio

__all__ = ["GlmSampling", "GlmVL"]

GlmSampling = Literal["capped", "dynamic"]
"""How frames are chosen: a fixed rate up to a duration, or a rate that falls with duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlmVL(FamilyRule):
    """Sides rounded to multiples of patch times merge size, all frames within one budget.

    An image counts as two frames. Images thinner than a merged patch are enlarged first; an aspect
    ratio above 200 after that is illegal. A frame's begin and end markers are counted, its time
    stamp is text and is not. The defaults are GLM-4.1V's. Source: transformers
    `image_processing_glm4v.py`, `video_processing_glm4v.py`, `video_processing_glm46v.py`.

    Attributes:
        family: Name of the family, part of `name`.
        patch_size: Side of a patch, pixels.
        merge_size: Patches a side that become one token.
        temporal_patch_size: Frames that become one temporal step.
        min_pixels: Fewest pixels of an image, over both its frames.
        max_pixels: Most pixels of an image, over both its frames.
        sampling: How frames are chosen.
        video_fps: Frames sampled a second (`capped`).
        max_seconds: Duration beyond which the number of frames stays (`capped`).
        video_min_pixels: Fewest pixels of a video, over all its frames.
        video_max_pixels: Most pixels of a video, over all its frames.
        frame_wrapper_tokens: Tokens around a temporal step: its begin and end markers.
        default_fps: Frame rate assumed where it is not known.

    Example:
        >>> GlmVL().images(np.array([1080]), np.array([1920])).tokens
        array([2691])
    """

    family: str = "glm-4.1v"
    patch_size: int = 14
    merge_size: int = 2
    temporal_patch_size: int = 2
    min_pixels: int = 112 * 112
    max_pixels: int = 2 * 6144 * 28 * 28
    sampling: GlmSampling = "capped"
    video_fps: float = 2.0
    max_seconds: float = 300.0
    video_min_pixels: int = 112 * 112
    video_max_pixels: int = 2 * 30000 * 28 * 28
    frame_wrapper_tokens: int = 2
    default_fps: float = 24.0

    def __post_init__(self) -> None:
        require_positive(self, "patch_size", "merge_size", "temporal_patch_size", "min_pixels")
        require_positive(self, "max_pixels", "video_fps", "max_seconds", "video_min_pixels")
        require_positive(self, "video_max_pixels", "default_fps")
        if self.sampling not in get_args(GlmSampling):
            raise ArgumentError(
                f"sampling is {self.sampling!r}; it must be one of {get_args(GlmSampling)}"
            )

    @classmethod
    def glm_4_6v(cls, **settings: Any) -> "GlmVL":
        """The rule of GLM-4.6V: its frame rate falls with the duration of the video."""
        return cls(**{"family": "glm-4.6v", "sampling": "dynamic", **settings})

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """One grid an image."""
        frames = np.array([self.temporal_patch_size])
        return self._counts(frames, heights, widths, self.min_pixels, self.max_pixels, 0)

    def videos(
        self,
        frames: NDArray[np.int64],
        fps: NDArray[np.float64],
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
    ) -> MediaCounts:
        """One segment a temporal step of the sampled frames."""
        frames, fps, heights, widths = checked_videos(frames, fps, heights, widths)
        fps = np.where(np.isnan(fps), self.default_fps, fps)
        if self.sampling == "capped":
            sampled = capped_frames(
                frames, fps, target_fps=self.video_fps, max_seconds=self.max_seconds
            )
        else:
            sampled = dynamic_frames(frames, fps, temporal_patch_size=self.temporal_patch_size)
        return self._counts(
            sampled,
            heights,
            widths,
            self.video_min_pixels,
            self.video_max_pixels,
            self.frame_wrapper_tokens,
        )

    def _counts(
        self,
        frames: NDArray[np.int64],
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
        min_pixels: int,
        max_pixels: int,
        wrapper_tokens: int,
    ) -> MediaCounts:
        factor = self.patch_size * self.merge_size
        step = self.temporal_patch_size
        enough = frames >= step
        frames = np.maximum(frames, step)
        if min(heights.min(initial=factor), widths.min(initial=factor)) < factor:
            enlarge = np.maximum(np.maximum(factor / heights, factor / widths), 1.0)
            heights = (heights * enlarge).astype(np.int64)
            widths = (widths * enlarge).astype(np.int64)
        rows, columns = merged_grids(
            heights,
            widths,
            factor=factor,
            min_pixels=min_pixels,
            max_pixels=max_pixels,
            frames=frames,
            rounded_frames=(np.rint(frames / step) * step).astype(np.int64),
        )
        segments = -(-frames // step)
        return media_counts(
            segments=segments,
            grid_heights=rows * self.merge_size,
            grid_widths=columns * self.merge_size,
            tokens=segments * (rows * columns + wrapper_tokens),
            legal=enough & within_aspect_ratio(heights, widths),
        )
