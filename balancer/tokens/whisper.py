"""Whisper's encoder, and Qwen2-Audio on top of it: windows of thirty seconds."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_positive
from balancer.tokens.sizes import checked_audio

__all__ = ["Qwen2Audio", "Whisper", "mel_frames", "pooled_frames"]


def mel_frames(
    seconds: NDArray[np.float64], *, sampling_rate: int, hop_samples: int, window_seconds: float
) -> NDArray[np.int64]:
    """Spectrogram frames that hold sound, after cutting at the window.

    Example:
        >>> mel_frames(np.array([1.0, 99.0]), sampling_rate=16000, hop_samples=160,
        ...            window_seconds=30.0)
        array([ 100, 3000])
    """
    samples = np.rint(np.minimum(seconds, window_seconds) * sampling_rate).astype(np.int64)
    frames: NDArray[np.int64] = -(-samples // hop_samples)
    return frames


def pooled_frames(frames: NDArray[np.int64]) -> NDArray[np.int64]:
    """Frames after the encoder's stride of two and the pooling of two behind it.

    Source: transformers `processing_qwen2_audio.py`.

    Example:
        >>> pooled_frames(np.array([1, 100, 3000]))
        array([  0,  25, 750])
    """
    return ((frames - 1) // 2 + 1 - 2) // 2 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Whisper(FamilyRule):
    """Every clip is padded or cut to one window; tokens are the encoder's positions.

    Source: Radford et al., Whisper (2022); transformers `feature_extraction_whisper.py`.

    Attributes:
        sampling_rate: Samples a second.
        hop_samples: Samples between two spectrogram frames.
        window_seconds: Length of the window.

    Example:
        >>> Whisper().audio(np.array([3.0])).tokens
        array([1500])
    """

    FAMILY: ClassVar[str] = "whisper"

    sampling_rate: int = 16000
    hop_samples: int = 160
    window_seconds: float = 30.0

    def __post_init__(self) -> None:
        require_positive(self, "sampling_rate", "hop_samples", "window_seconds")

    @property
    def window_positions(self) -> int:
        """Positions of the encoder for one window: its frames, halved by a convolution."""
        return round(self.window_seconds * self.sampling_rate) // self.hop_samples // 2

    def audio(self, seconds: NDArray[np.float64]) -> MediaCounts:
        """One window a clip."""
        return media_counts(
            segments=1,
            grid_heights=1,
            grid_widths=self.window_positions,
            tokens=self.window_positions,
            legal=np.ones(checked_audio(seconds).size, np.bool_),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen2Audio(Whisper):
    """Whisper's padded window in the encoder, but tokens only for what holds sound.

    Clips too short for one token are illegal. Source: Chu et al., Qwen2-Audio (2024).

    Example:
        >>> Qwen2Audio().audio(np.array([10.0])).tokens
        array([250])
    """

    FAMILY: ClassVar[str] = "qwen2-audio"

    def audio(self, seconds: NDArray[np.float64]) -> MediaCounts:
        """One window a clip."""
        frames = mel_frames(
            checked_audio(seconds),
            sampling_rate=self.sampling_rate,
            hop_samples=self.hop_samples,
            window_seconds=self.window_seconds,
        )
        tokens = pooled_frames(frames)
        return media_counts(
            segments=1,
            grid_heights=1,
            grid_widths=self.window_positions,
            tokens=tokens,
            legal=tokens > 0,
        )
