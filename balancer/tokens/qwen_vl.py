"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: native resolution on a merged patch grid."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError
from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_positive
from balancer.tokens.sizes import checked_videos
from balancer.tokens.smart_resize import merged_grids, within_aspect_ratio
from balancer.tokens.video_frames import (
    evenly_spaced_frames,
    paired_frames,
    stepped_frames,
)

__all__ = ["QwenImagePipeline", "QwenVL", "QwenVideoPipeline"]

QwenImagePipeline = Literal["transformers", "qwen_vl_utils"]
"""Who resizes images; the two differ for images thinner than half a merged patch."""

QwenVideoPipeline = Literal["qwen_vl_utils", "qwen2_processor", "qwen3_processor"]
"""Who samples and resizes videos: `qwen-vl-utils`, or the processor in transformers."""

_Grids = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QwenVL(FamilyRule):
    """Sides rounded to multiples of patch times merge size, within a pixel budget.

    Images and frames with an aspect ratio above 200 are illegal, as are videos of one frame. The
    vision start and end markers come from the chat template, and Qwen3-VL's timestamps are text:
    neither is counted. The defaults are Qwen2-VL's. Sources: Wang et al., Qwen2-VL (2024);
    `qwen-vl-utils` 0.0.8 (Qwen2, Qwen2.5) and 0.0.14 (Qwen3); transformers 5.24.

    Attributes:
        family: Name of the family, part of `name`.
        patch_size: Side of a patch, pixels.
        merge_size: Patches a side that become one token.
        temporal_patch_size: Frames that become one temporal step.
        min_pixels: Fewest pixels of an image; smaller ones are scaled up.
        max_pixels: Most pixels of an image.
        image_pipeline: Who resizes images.
        video_pipeline: Who samples and resizes videos.
        video_fps: Frames sampled a second.
        min_frames: Fewest frames sampled.
        max_frames: Most frames sampled.
        video_min_pixels: Fewest pixels of a frame; of the whole video for `qwen3_processor`.
        video_max_pixels: Most pixels of a frame; `None` for no cap (`qwen3_processor` only).
        video_total_pixels: Budget shared by all frames of a video, where two frames of a temporal
            patch count once (both for `qwen3_processor`); `None` for none (`qwen2_processor` only).
        default_fps: Frame rate assumed where it is not known.

    Example:
        >>> QwenVL.qwen2().images(np.array([1080]), np.array([1920])).tokens
        array([2691])
        >>> QwenVL.qwen3().images(np.array([1080]), np.array([1920])).tokens
        array([2040])
    """

    family: str = "qwen2-vl"
    patch_size: int = 14
    merge_size: int = 2
    temporal_patch_size: int = 2
    min_pixels: int = 56 * 56
    max_pixels: int = 16384 * 28 * 28
    image_pipeline: QwenImagePipeline = "transformers"
    video_pipeline: QwenVideoPipeline = "qwen_vl_utils"
    video_fps: float = 2.0
    min_frames: int = 4
    max_frames: int = 768
    video_min_pixels: int = 128 * 28 * 28
    video_max_pixels: int | None = 768 * 28 * 28
    video_total_pixels: float | None = 24576 * 28 * 28
    default_fps: float = 30.0

    def __post_init__(self) -> None:
        require_positive(self, "patch_size", "merge_size", "temporal_patch_size", "min_pixels")
        require_positive(self, "max_pixels", "video_fps", "min_frames", "max_frames")
        require_positive(self, "video_min_pixels", "default_fps")
        if self.max_pixels < self.min_pixels:
            raise ArgumentError(
                f"max_pixels is {self.max_pixels}; it must be at least min_pixels, "
                f"{self.min_pixels}"
            )
        for setting, allowed in (
            ("image_pipeline", get_args(QwenImagePipeline)),
            ("video_pipeline", get_args(QwenVideoPipeline)),
        ):
            if getattr(self, setting) not in allowed:
                raise ArgumentError(
                    f"{setting} is {getattr(self, setting)!r}; it must be one of {allowed}"
                )
        if self.video_max_pixels is None and self.video_pipeline != "qwen3_processor":
            raise ArgumentError("video_max_pixels is None; only qwen3_processor allows that")
        if self.video_total_pixels is None and self.video_pipeline != "qwen2_processor":
            raise ArgumentError("video_total_pixels is None; only qwen2_processor allows that")

    @classmethod
    def qwen2(cls, **settings: Any) -> "QwenVL":
        """The rule of Qwen2-VL, with `settings` in place of the published ones."""
        return cls(**settings)

    @classmethod
    def qwen2_5(cls, **settings: Any) -> "QwenVL":
        """The rule of Qwen2.5-VL: that of Qwen2-VL under its own name."""
        return cls(**{"family": "qwen2.5-vl", **settings})

    @classmethod
    def qwen3(cls, **settings: Any) -> "QwenVL":
        """The rule of Qwen3-VL: patches of 16, and its checkpoints' pixel budgets.

        The video budgets follow `settings["video_pipeline"]`.
        """
        published: dict[str, Any] = {
            "family": "qwen3-vl",
            "patch_size": 16,
            "min_pixels": 64 * 32 * 32,
            "max_pixels": 16384 * 32 * 32,
            "video_min_pixels": 128 * 32 * 32,
            "video_max_pixels": 768 * 32 * 32,
            "video_total_pixels": 128000 * 32 * 32 * 0.9,
        }
        if settings.get("video_pipeline") == "qwen3_processor":
            published |= {
                "video_min_pixels": 4 * 32 * 32,
                "video_max_pixels": None,
                "video_total_pixels": 24576 * 32 * 32,
                "default_fps": 24.0,
            }
        return cls(**{**published, **settings})

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """One grid an image."""
        factor = self.patch_size * self.merge_size
        rows, columns = merged_grids(
            heights,
            widths,
            factor=factor,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
            keep_thin=self.image_pipeline == "qwen_vl_utils",
        )
        legal = within_aspect_ratio(heights, widths)
        return self._counts(np.ones(1, np.int64), rows, columns, legal)

    def videos(
        self,
        frames: NDArray[np.int64],
        fps: NDArray[np.float64],
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
    ) -> MediaCounts:
        """One segment a temporal patch of the sampled frames."""
        frames, fps, heights, widths = checked_videos(frames, fps, heights, widths)
        fps = np.where(np.isnan(fps), self.default_fps, fps)
        if self.video_pipeline == "qwen3_processor":
            return self._counts(*self._whole_video_grids(frames, fps, heights, widths))
        return self._counts(*self._frame_grids(frames, fps, heights, widths))

    def _frame_grids(
        self,
        frames: NDArray[np.int64],
        fps: NDArray[np.float64],
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
    ) -> _Grids:
        """Grids where every frame has a pixel budget of its own."""
        step = self.temporal_patch_size
        factor = self.patch_size * self.merge_size
        sampled = paired_frames(
            frames,
            fps,
            target_fps=self.video_fps,
            min_frames=self.min_frames,
            max_frames=self.max_frames,
            temporal_patch_size=step,
        )
        legal = (sampled > 0) & within_aspect_ratio(heights, widths)
        from_utils = self.video_pipeline == "qwen_vl_utils"
        if not from_utils:
            sampled = stepped_frames(frames, sampled)
        rows, columns = merged_grids(
            heights,
            widths,
            factor=factor,
            min_pixels=self.video_min_pixels,
            max_pixels=self._frame_budgets(np.maximum(sampled, 1)),
            keep_thin=from_utils,
        )
        return -(-sampled // step), rows, columns, legal

    def _frame_budgets(self, sampled: NDArray[np.int64]) -> NDArray[np.float64]:
        """Most pixels of a frame when the frames share the video's budget."""
        cap = float(self.video_max_pixels or 0)
        if self.video_total_pixels is None:
            return np.full(sampled.size, cap)
        if self.video_pipeline == "qwen_vl_utils":
            shares = self.video_total_pixels / sampled * self.temporal_patch_size
        else:
            shares = np.floor(int(self.video_total_pixels) * self.temporal_patch_size / sampled)
        budgets: NDArray[np.float64] = np.minimum(cap, shares)
        return np.maximum(budgets, int(self.video_min_pixels * 1.05))

    def _whole_video_grids(
        self,
        frames: NDArray[np.int64],
        fps: NDArray[np.float64],
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
    ) -> _Grids:
        """Grids where the budget bounds all sampled frames together."""
        step = self.temporal_patch_size
        factor = self.patch_size * self.merge_size
        sampled = evenly_spaced_frames(
            frames,
            fps,
            target_fps=self.video_fps,
            min_frames=self.min_frames,
            max_frames=self.max_frames,
        )
        enlarge = np.maximum(np.maximum(factor / heights, factor / widths), 1.0)
        heights = (heights * enlarge).astype(np.int64)
        widths = (widths * enlarge).astype(np.int64)
        rows, columns = merged_grids(
            heights,
            widths,
            factor=factor,
            min_pixels=self.video_min_pixels,
            max_pixels=self._video_budgets(sampled),
            frames=sampled,
            rounded_frames=(np.rint(sampled / step) * step).astype(np.int64),
        )
        legal = (sampled >= step) & within_aspect_ratio(heights, widths)
        return -(-sampled // step), rows, columns, legal

    def _video_budgets(self, sampled: NDArray[np.int64]) -> NDArray[np.float64]:
        """Most pixels of all sampled frames together."""
        total = int(self.video_total_pixels or 0)
        if self.video_max_pixels is None:
            return np.full(sampled.size, float(total))
        of_frame = np.minimum(self.video_max_pixels, total // sampled)
        smallest = int(self.video_min_pixels * 1.05)
        budgets: NDArray[np.float64] = np.maximum(of_frame, smallest) * sampled * 1.0
        return budgets

    def _counts(
        self,
        segments: NDArray[np.int64],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        legal: NDArray[np.bool_],
    ) -> MediaCounts:
        """Counts from rows and columns of merged patches."""
        tokens = segments * rows * columns
        return media_counts(
            segments=segments,
            grid_heights=rows * self.merge_size,
            grid_widths=columns * self.merge_size,
            tokens=tokens,
            legal=legal & (tokens > 0),
        )
