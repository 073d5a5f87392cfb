"""Resizing to whole merged patches within a pixel budget, as the Qwen2-VL family does it."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.kernels.smart_resize import resize_to_grids

__all__ = ["MAX_ASPECT_RATIO", "merged_grids", "within_aspect_ratio"]

MAX_ASPECT_RATIO = 200
"""Longest over shortest side that the family accepts."""


def within_aspect_ratio(heights: NDArray[np.int64], widths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each image's longer side is at most 200 times its shorter one.

    Example:
        >>> within_aspect_ratio(np.array([1, 1]), np.array([200, 201]))
        array([ True, False])
    """
    longest, shortest = np.maximum(heights, widths), np.minimum(heights, widths)
    within: NDArray[np.bool_] = longest <= MAX_ASPECT_RATIO * shortest
    return within


def merged_grids(
    heights: NDArray[np.int64],
    widths: NDArray[np.int64],
    *,
    factor: int,
    min_pixels: NDArray[np.float64] | float,
    max_pixels: NDArray[np.float64] | float,
    keep_thin: bool = False,
    frames: NDArray[np.int64] | int = 1,
    rounded_frames: NDArray[np.int64] | int = 1,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Grid of each image once its sides are multiples of `factor` and within the pixel budget.

    Sides are rounded, half to even, and then scaled where the budget is not met. Source: Wang et
    al., Qwen2-VL (2024), `smart_resize`. Its two published forms differ in thin images only:
    transformers lets a side round to zero and then scales the image up, while `qwen-vl-utils`
    keeps it at one row. No row or no column means that the image is not legal.

    Args:
        heights: Pixels.
        widths: Pixels.
        factor: Side of a merged patch: patch size times merge size, pixels.
        min_pixels: Images smaller than this are scaled up.
        max_pixels: Images larger than this are scaled down; not below a row or a column where
            `keep_thin` is false.
        keep_thin: The form of qwen-vl-utils in place of that of transformers.
        frames: Frames that share the budget, for families that bound a whole video.
        rounded_frames: The same, as a multiple of the temporal patch.

    Returns:
        Rows and columns of merged patches.

    Example:
        >>> merged_grids(np.array([1080]), np.array([1920]), factor=28, min_pixels=3136,
        ...              max_pixels=12845056)
        (array([39]), array([69]))
    """
    size = heights.size
    given = (heights, widths, frames, rounded_frames, min_pixels, max_pixels)
    rows, columns = np.empty(size), np.empty(size)
    resize_to_grids(
        *(_column(values, size) for values in given),
        float(factor),
        # The two forms guard opposite ends: one the rounding, the other the shrinking.
        1.0 if keep_thin else 0.0,
        0.0 if keep_thin else 1.0,
        rows,
        columns,
    )
    return rows.astype(np.int64), columns.astype(np.int64)


def _column(values: ArrayLike, size: int) -> NDArray[np.float64]:
    array = np.asarray(values)
    if array.size == size:
        return array.astype(np.float64).reshape(size)
    return np.full(size, array, np.float64)
