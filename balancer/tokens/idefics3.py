"""Idefics3 and SmolVLM: a fixed longest side, cut into tiles, with a global view."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.tile_grids import covering_grids
from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_positive
from balancer.tokens.sizes import checked_videos

__all__ = ["Idefics3"]

_MAX_SIDE_PIXELS = 4096
"""No image is scaled beyond this side, whatever `longest_side` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idefics3(FamilyRule):
    """Tiles with two tokens each before them, a newline a row of tiles, and a global view.

    Tokenizers of the family write the blank line before the global view as one token. The time
    stamps and the sentence around the frames of a video are text and are not counted. Sources:
    Laurençon et al., Idefics3 (2024); Marafioti et al., SmolVLM (2025); transformers
    `image_processing_idefics3.py`, `video_processing_smolvlm.py`.

    Attributes:
        family: Name of the family, part of `name`.
        longest_side: Side every image is scaled to, up or down, pixels.
        tile_size: Side of a tile and of the global view, pixels.
        patch_size: Side of a patch, pixels; a rest at the border is cut off.
        tokens_per_tile: Tokens after pixel shuffling.
        split_images: Whether images are cut into tiles at all.
        video_frames: Most frames sampled from a video; 0 for a family without videos.
        video_fps: Frames sampled a second.
        video_skip_seconds: Cut off at both ends of long videos.
        default_fps: Frame rate assumed where it is not known.

    Example:
        >>> Idefics3().images(np.array([480]), np.array([640])).tokens
        array([2227])
        >>> Idefics3.smolvlm().images(np.array([480]), np.array([640])).tokens
        array([862])
    """

    family: str = "idefics3"
    longest_side: int = 1456
    tile_size: int = 364
    patch_size: int = 14
    tokens_per_tile: int = 169
    split_images: bool = True
    video_frames: int = 0
    video_fps: float = 1.0
    video_skip_seconds: float = 1.0
    default_fps: float = 30.0

    def __post_init__(self) -> None:
        require_positive(self, "longest_side", "tile_size", "patch_size", "tokens_per_tile")
        require_positive(self, "video_fps", "default_fps")

    @classmethod
    def smolvlm(cls, **settings: Any) -> "Idefics3":
        """The rule of SmolVLM and SmolVLM2 with 256M and 500M parameters.

        Those with 2.2B take `longest_side=1536, tile_size=384, patch_size=14, tokens_per_tile=81`.
        """
        published: dict[str, Any] = {
            "family": "smolvlm",
            "longest_side": 2048,
            "tile_size": 512,
            "patch_size": 16,
            "tokens_per_tile": 64,
            "video_frames": 64,
        }
        return cls(**{**published, **settings})

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """Tiles and global view of each image."""
        rows, columns = self._tile_grids(heights, widths)
        split = (rows > 1) | (columns > 1)
        if not self.split_images:
            split &= False
        tile_tokens = rows * (columns * (self.tokens_per_tile + 2) + 1)
        return self._counts(
            1 + np.where(split, rows * columns, 0),
            self.tokens_per_tile + 3 + np.where(split, tile_tokens, 0),
            np.ones(heights.size, np.bool_),
        )

    def videos(
        self,
        frames: NDArray[np.int64],
        fps: NDArray[np.float64],
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
    ) -> MediaCounts:
        """One global view a sampled frame."""
        frames, fps, _, _ = checked_videos(frames, fps, heights, widths)
        sampled = self._sampled_frames(frames, np.where(np.isnan(fps), self.default_fps, fps))
        legal = np.full(frames.size, self.video_frames > 0)
        return self._counts(sampled, sampled * (self.tokens_per_tile + 3), legal)

    def _sampled_frames(
        self, frames: NDArray[np.int64], fps: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Distinct frames between the first and the last, cut at both ends where long."""
        seconds = frames / fps
        wanted = np.maximum(np.minimum(np.rint(self.video_fps * seconds), self.video_frames), 1)
        skip = self.video_skip_seconds
        # The published rule compares seconds with frames times frame rate; so does this one.
        long = (seconds - 2 * skip > self.video_frames * self.video_fps) & (skip > 0)
        first = np.where(long, (skip * fps).astype(np.int64), 0)
        last = np.where(long, (frames - skip * fps).astype(np.int64), frames - 1)
        last = np.minimum(last, frames - 1)
        whole = first >= last
        first, last = np.where(whole, 0, first), np.where(whole, frames - 1, last)
        sampled: NDArray[np.int64] = np.minimum(wanted, last - first + 1).astype(np.int64)
        return sampled

    def _tile_grids(
        self, heights: NDArray[np.int64], widths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and columns of tiles after scaling the longer side."""
        rows, columns = np.empty_like(heights), np.empty_like(widths)
        covering_grids(
            heights, widths, self.longest_side, _MAX_SIDE_PIXELS, self.tile_size, rows, columns
        )
        return rows, columns

    def _counts(
        self, segments: NDArray[np.int64], tokens: NDArray[np.int64], legal: NDArray[np.bool_]
    ) -> MediaCounts:
        side = self.tile_size // self.patch_size
        return media_counts(
            segments=segments, grid_heights=side, grid_widths=side, tokens=tokens, legal=legal
        )
