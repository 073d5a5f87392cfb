"""Resizing to multiples of a factor within a pixel budget, as the Qwen2-VL family does it."""

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.smart_resize import resize_sides

__all__ = ["MAX_ASPECT_RATIO", "smart_resize", "within_aspect_ratio"]

MAX_ASPECT_RATIO = 200
"""Longest over shortest side that the family accepts."""


def within_aspect_ratio(heights: NDArray[np.int64], widths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each image's longer side is at most 200 times its shorter one.

    Example:
        >>> within_aspect_ratio(np.array([1, 1]), np.array([200, 201]))
        array([ True, False])
    """
    shortest = np.maximum(np.minimum(heights, widths), 1)
    within: NDArray[np.bool_] = np.maximum(heights, widths) <= MAX_ASPECT_RATIO * shortest
    return within


def smart_resize(
    heights: NDArray[np.int64],
    widths: NDArray[np.int64],
    *,
    factor: int,
    min_pixels: NDArray[np.float64] | float,
    max_pixels: NDArray[np.float64] | float,
    smallest_side: int = 0,
    frames: NDArray[np.int64] | int = 1,
    rounded_frames: NDArray[np.int64] | int = 1,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sides rounded (half to even) to multiples of `factor`, then scaled into the pixel budget.

    Source: Wang et al., Qwen2-VL (2024), `smart_resize`. Its two published forms differ in thin
    images only: transformers lets a side round to zero and then scales the image up, while
    `qwen-vl-utils` keeps it at `factor`. A result of zero means that the image is not legal.

    Args:
        heights: Pixels.
        widths: Pixels.
        factor: Patch size times merge size, pixels.
        min_pixels: Images smaller than this are scaled up.
        max_pixels: Images larger than this are scaled down; not below `factor` a side when
            `smallest_side` is 0.
        smallest_side: 0 for the transformers form, `factor` for that of qwen-vl-utils.
        frames: Frames that share the budget, for families that bound a whole video.
        rounded_frames: The same, as a multiple of the temporal patch.

    Returns:
        Heights and widths, pixels.

    Example:
        >>> smart_resize(np.array([1080]), np.array([1920]), factor=28, min_pixels=3136,
        ...              max_pixels=12845056)
        (array([1092]), array([1932]))
    """
    new_heights, new_widths = np.empty_like(heights), np.empty_like(widths)
    resize_sides(
        heights,
        widths,
        np.atleast_1d(np.asarray(frames, np.int64)),
        np.atleast_1d(np.asarray(rounded_frames, np.int64)),
        np.atleast_1d(np.asarray(min_pixels, np.float64)),
        np.atleast_1d(np.asarray(max_pixels, np.float64)),
        float(factor),
        float(smallest_side),
        # The two forms guard opposite ends: one the rounding, the other the shrinking.
        0.0 if smallest_side else float(factor),
        new_heights,
        new_widths,
    )
    return new_heights, new_widths
