"""How many frames of a video the published pipelines sample."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["evenly_spaced_frames", "paired_frames", "stepped_frames"]


def paired_frames(
    frames: NDArray[np.int64],
    fps: NDArray[np.float64],
    *,
    target_fps: float,
    min_frames: int,
    max_frames: int,
    temporal_patch_size: int,
) -> NDArray[np.int64]:
    """Frames at `target_fps` within the limits, rounded down to a multiple of the temporal patch.

    Source: `smart_nframes` of QwenLM/Qwen2.5-VL `qwen-vl-utils`. Zero means too few to sample.

    Example:
        >>> paired_frames(np.array([301]), np.array([30.0]), target_fps=2.0, min_frames=4,
        ...               max_frames=768, temporal_patch_size=2)
        array([20])
    """
    fewest = -(-min_frames // temporal_patch_size) * temporal_patch_size
    most = np.minimum(max_frames, frames) // temporal_patch_size * temporal_patch_size
    wanted = np.minimum(np.maximum(frames / fps * target_fps, fewest), most)
    pairs: NDArray[np.int64] = np.floor(wanted / temporal_patch_size).astype(np.int64)
    return pairs * temporal_patch_size


def stepped_frames(frames: NDArray[np.int64], sampled: NDArray[np.int64]) -> NDArray[np.int64]:
    """Frames that `arange(0, frames, frames / sampled)` yields: now and then one too many.

    The step is rounded, so its multiples can stay just below the end once more than wanted.
    transformers samples Qwen2-VL, Gemma 4 and LLaVA-OneVision videos so.

    Example:
        >>> stepped_frames(np.array([300]), np.array([20]))
        array([20])
    """
    steps = frames / np.maximum(sampled, 1)
    return np.where(sampled > 0, np.ceil(frames / steps), 0).astype(np.int64)


def evenly_spaced_frames(
    frames: NDArray[np.int64],
    fps: NDArray[np.float64],
    *,
    target_fps: float,
    min_frames: int,
    max_frames: int,
) -> NDArray[np.int64]:
    """Frames at `target_fps` within the limits, odd counts included.

    Source: transformers `video_processing_qwen3_vl.py`.

    Example:
        >>> evenly_spaced_frames(np.array([325]), np.array([30.0]), target_fps=2.0, min_frames=4,
        ...                      max_frames=768)
        array([21])
    """
    wanted = np.maximum(np.floor(frames / fps * target_fps), min_frames)
    sampled: NDArray[np.int64] = np.minimum(wanted, np.minimum(max_frames, frames)).astype(np.int64)
    return sampled
