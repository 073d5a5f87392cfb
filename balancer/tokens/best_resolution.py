"""Choice of a canvas for any-resolution images (LLaVA-NeXT, LLaVA-OneVision), and its unpadding."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError

__all__ = ["best_resolutions", "checked_pinpoints", "unpadded_grids"]


def checked_pinpoints(
    pinpoints: Sequence[Sequence[int]], tile_size: int
) -> tuple[tuple[int, int], ...]:
    """The canvases as a tuple of (height, width) pairs.

    Raises:
        ArgumentError: No canvas, not a pair, or a side that is no positive multiple of `tile_size`.

    Example:
        >>> checked_pinpoints([[336, 672]], 336)
        ((336, 672),)
    """
    pairs = tuple((int(pair[0]), int(pair[1])) for pair in pinpoints if len(pair) == 2)
    if not pairs or len(pairs) != len(pinpoints):
        raise ArgumentError(f"grid_pinpoints is {pinpoints}; it must be (height, width) pairs")
    for pair in pairs:
        if min(pair) < tile_size or pair[0] % tile_size or pair[1] % tile_size:
            raise ArgumentError(
                f"grid_pinpoints has {pair}; both sides must be multiples of {tile_size}"
            )
    return pairs


def best_resolutions(
    heights: NDArray[np.int64], widths: NDArray[np.int64], pinpoints: Sequence[tuple[int, int]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Canvas of each image: most image pixels kept, then least canvas wasted, then the first.

    Takes O(num_images * num_pinpoints). The rule is `select_best_resolution` of LLaVA-NeXT
    (haotian-liu/LLaVA `llava/mm_utils.py`; transformers `image_processing_utils.py`).

    Returns:
        Heights and widths of the chosen canvases, pixels.

    Example:
        >>> size = np.array([500])
        >>> best_resolutions(size, 2 * size, [(336, 672), (672, 672)])
        (array([336]), array([672]))
    """
    most_kept = np.full(heights.size, -1, np.int64)
    least_wasted = np.zeros(heights.size, np.int64)
    best_heights = np.zeros(heights.size, np.int64)
    best_widths = np.zeros(heights.size, np.int64)
    for canvas_height, canvas_width in pinpoints:
        scales = np.minimum(canvas_width / widths, canvas_height / heights)
        scaled_pixels = (widths * scales).astype(np.int64) * (heights * scales).astype(np.int64)
        kept = np.minimum(scaled_pixels, heights * widths)
        wasted = canvas_height * canvas_width - kept
        better = (kept > most_kept) | ((kept == most_kept) & (wasted < least_wasted))
        most_kept = np.where(better, kept, most_kept)
        least_wasted = np.where(better, wasted, least_wasted)
        best_heights = np.where(better, canvas_height, best_heights)
        best_widths = np.where(better, canvas_width, best_widths)
    return best_heights, best_widths


def unpadded_grids(
    heights: NDArray[np.int64],
    widths: NDArray[np.int64],
    grid_heights: NDArray[np.int64],
    grid_widths: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of a canvas's patch grid that lie on the image, not on its padding.

    The padding is cut by the same whole number of rows (or columns) at both ends, so a rest of one
    stays; the rule is `unpad_image` of LLaVA-NeXT.

    Example:
        >>> one = np.array([1])
        >>> unpadded_grids(100 * one, 400 * one, 24 * one, 48 * one)
        (array([12]), array([48]))
    """
    wider = widths / heights > grid_widths / grid_heights
    image_heights = _floor_of_rounded(heights * (grid_widths / widths))
    image_widths = _floor_of_rounded(widths * (grid_heights / heights))
    cut_rows = np.where(wider, (grid_heights - image_heights) // 2 * 2, 0)
    cut_columns = np.where(wider, 0, (grid_widths - image_widths) // 2 * 2)
    return grid_heights - cut_rows, grid_widths - cut_columns


def _floor_of_rounded(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Floor after rounding to seven decimals, which only lifts values just under an integer."""
    floors = np.floor(values)
    whole: NDArray[np.int64] = (floors + (values - floors > 0.99999995)).astype(np.int64)
    return whole
