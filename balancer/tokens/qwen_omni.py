"""Qwen2.5-Omni: Qwen2-VL's images and videos, and audio in short windows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.qwen_vl import QwenVL
from balancer.tokens.settings import require_positive
from balancer.tokens.sizes import checked_audio
from balancer.tokens.whisper import mel_frames, pooled_frames

__all__ = ["QwenOmni"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QwenOmni(QwenVL):
    """Images and videos as in `QwenVL`; one audio token a 40 ms, attention within two seconds.

    The sound of a video is an audio clip of its own. Source: Xu et al., Qwen2.5-Omni (2025);
    transformers `processing_qwen2_5_omni.py`.

    Attributes:
        sampling_rate: Samples a second.
        hop_samples: Samples between two spectrogram frames.
        max_audio_seconds: Audio beyond this is cut off.
        window_frames: Spectrogram frames that attend to each other; the last window of a clip is
            counted whole.

    Example:
        >>> counts = QwenOmni().audio(np.array([10.0]))
        >>> counts.segments, counts.tokens
        (array([5]), array([250]))
    """

    family: str = "qwen2.5-omni"
    sampling_rate: int = 16000
    hop_samples: int = 160
    max_audio_seconds: float = 300.0
    window_frames: int = 200

    def __post_init__(self) -> None:
        QwenVL.__post_init__(self)
        require_positive(self, "sampling_rate", "hop_samples", "max_audio_seconds")
        require_positive(self, "window_frames")

    def audio(self, seconds: NDArray[np.float64]) -> MediaCounts:
        """Windows of each clip; illegal where it is too short for one token."""
        frames = mel_frames(
            checked_audio(seconds),
            sampling_rate=self.sampling_rate,
            hop_samples=self.hop_samples,
            window_seconds=self.max_audio_seconds,
        )
        tokens = pooled_frames(frames)
        return media_counts(
            segments=-(-frames // self.window_frames),
            grid_heights=1,
            grid_widths=self.window_frames // 2,
            tokens=tokens,
            legal=tokens > 0,
        )
