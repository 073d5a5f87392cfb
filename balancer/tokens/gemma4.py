"""Gemma 4: native aspect ratio within a token budget, pooled three by three."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_positive
from balancer.tokens.sizes import checked_audio, checked_videos
from balancer.tokens.video_frames import stepped_frames

__all__ = ["Gemma4"]

_SIDES = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemma4(FamilyRule):
    """The largest grid of the image's aspect ratio within the budget, markers at both ends.

    The encoder pads every image to the budget; `patches` are those before padding. Time stamps
    between the frames of a video are text and are not counted. Source: transformers
    `processing_gemma4.py`, `feature_extraction_gemma4.py`.

    Attributes:
        patch_size: Side of a patch, pixels.
        pooling_size: Patches a side that become one token.
        max_tokens: Token budget of an image: 70, 140, 280, 560 or 1120.
        video_max_tokens: Token budget of a frame.
        video_frames: Frames sampled from a video; a shorter video is illegal.
        wrapper_tokens: Tokens around an image, frame or audio clip: its start and end markers.
        sampling_rate: Audio samples a second.
        max_audio_seconds: Audio beyond this is cut off.

    Example:
        >>> rule = Gemma4()
        >>> rule.images(np.array([480]), np.array([640])).tokens
        array([268])
        >>> rule.audio(np.array([10.0])).tokens
        array([252])
    """

    FAMILY: ClassVar[str] = "gemma-4"

    patch_size: int = 16
    pooling_size: int = 3
    max_tokens: int = 280
    video_max_tokens: int = 70
    video_frames: int = 32
    wrapper_tokens: int = 2
    sampling_rate: int = 16000
    max_audio_seconds: float = 30.0

    def __post_init__(self) -> None:
        require_positive(self, "patch_size", "pooling_size", "max_tokens", "video_max_tokens")
        require_positive(self, "video_frames", "sampling_rate", "max_audio_seconds")

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """One grid an image; illegal where it would shrink to nothing."""
        rows, columns, legal = self._pooled_sides(heights, widths, self.max_tokens)
        return self._counts(np.ones_like(rows), rows, columns, legal)

    def videos(
        self,
        frames: NDArray[np.int64],
        fps: NDArray[np.float64],
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
    ) -> MediaCounts:
        """One grid a sampled frame, evenly spaced over the video."""
        frames, _, heights, widths = checked_videos(frames, fps, heights, widths)
        rows, columns, legal = self._pooled_sides(heights, widths, self.video_max_tokens)
        sampled = stepped_frames(frames, np.full(frames.size, self.video_frames))
        return self._counts(sampled, rows, columns, legal & (frames >= self.video_frames))

    def audio(self, seconds: NDArray[np.float64]) -> MediaCounts:
        """One token a 40 ms of audio: 10 ms frames, halved twice by convolutions."""
        seconds = np.minimum(checked_audio(seconds), self.max_audio_seconds)
        samples = np.rint(seconds * self.sampling_rate).astype(np.int64)
        mel_frames = (samples - 1) // (self.sampling_rate // 100)
        positions = -(-mel_frames // 4)
        return media_counts(
            segments=1,
            grid_heights=1,
            grid_widths=positions,
            tokens=positions + self.wrapper_tokens,
            legal=positions > 0,
        )

    def _pooled_sides(
        self, heights: NDArray[np.int64], widths: NDArray[np.int64], max_tokens: int
    ) -> _SIDES:
        """Rows and columns of tokens, and whether the size fits the budget."""
        unit = self.patch_size * self.pooling_size
        budget_pixels = max_tokens * self.pooling_size**2 * self.patch_size**2
        scales = np.sqrt(budget_pixels / (heights * widths))
        rows = np.floor(scales * heights / unit).astype(np.int64)
        columns = np.floor(scales * widths / unit).astype(np.int64)
        flat, thin = rows == 0, columns == 0
        columns = np.where(flat & ~thin, np.minimum(widths // heights, max_tokens), columns)
        rows = np.where(thin & ~flat, np.minimum(heights // widths, max_tokens), rows)
        rows, columns = np.where(flat & ~thin, 1, rows), np.where(thin & ~flat, 1, columns)
        return rows, columns, ~(flat & thin) & (rows * columns <= max_tokens)

    def _counts(
        self,
        segments: NDArray[np.int64],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        legal: NDArray[np.bool_],
    ) -> MediaCounts:
        return media_counts(
            segments=segments,
            grid_heights=rows * self.pooling_size,
            grid_widths=columns * self.pooling_size,
            tokens=segments * (rows * columns + self.wrapper_tokens),
            legal=legal,
        )
