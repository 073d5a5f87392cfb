"""Forward FLOPs of a Whisper-like audio encoder from its dimensions."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.errors import ArgumentError
from balancer.flops.dimensions import AudioDims
from balancer.flops.forward import ForwardFlops, projector_forward

__all__ = ["audio_flops", "audio_forward"]


def audio_forward(dims: AudioDims, segments: ArrayLike, positions: ArrayLike) -> ForwardFlops:
    """Forward FLOPs of the audio encoder, without its projector, for each clip.

    Args:
        dims: Dimensions of the encoder.
        segments: Windows of each clip, which do not attend to each other, `(num_clips,)`.
        positions: Encoder positions of one window, padding included, `(num_clips,)`.

    Raises:
        ArgumentError: Shapes differ, or a number is negative.
    """
    num, length = np.asarray(segments, np.float64), np.asarray(positions, np.float64)
    if num.shape != length.shape or num.ndim != 1:
        raise ArgumentError(
            f"positions has shape {length.shape}, segments has {num.shape}; "
            "allowed: one dimension, equal lengths"
        )
    if not bool(np.all(num >= 0) and np.all(length >= 0)):
        raise ArgumentError("segments or positions has a negative number; allowed: numbers >= 0")
    total = num * length
    width, kernel = dims.width, dims.conv_kernel
    ends = dims.width * dims.mlp_width
    return ForwardFlops(
        stem=2.0 * kernel * dims.mel_bins * width * dims.conv_stride * total,
        layer=2.0 * dims.depth * (4 * width**2 + ends) * total,
        layer_end=2.0 * dims.depth * ends * total,
        attention=4.0 * dims.depth * width * num * length**2,
        head=2.0 * kernel * width**2 * total,
    )


def audio_flops(dims: AudioDims, segments: ArrayLike, positions: ArrayLike) -> NDArray[np.float64]:
    """Forward FLOPs of audio encoder and projector for each clip, float64 `(num_clips,)`.

    The second convolution counts as `head` above: a product of weights with activations that
    recomputing the layers does not repeat.

    Example:
        >>> tiny = AudioDims(depth=1, width=2, num_heads=1, mlp_width=3, mel_bins=4)
        >>> audio_flops(tiny, [1, 2], [10, 10])
        array([2560., 5120.])
    """
    forward = audio_forward(dims, segments, positions)
    total = np.asarray(segments, np.float64) * np.asarray(positions, np.float64)
    return forward.total + projector_forward(dims, total).total
