"""Images resized to whole merged patches within a pixel budget."""

import numpy as np
from numba import njit

__all__ = ["resize_to_grids"]


@njit(nogil=True, error_model="numpy")
def resize_to_grids(
    heights,
    widths,
    frames,
    rounded_frames,
    min_pixels,
    max_pixels,
    factor,
    least_rounded,
    least_shrunk,
    rows,
    columns,
):
    """Write rows and columns of `factor` pixels; every column is float64, sizes whole numbers.

    `least_rounded` and `least_shrunk` bound the grid from below where its sides are rounded, and
    where they are shrunk. All three grids are worked out for every image: without branches, several
    images are one instruction, and a wrongly guessed branch costs more than the grids.
    """
    for i in range(heights.size):
        height, width = heights[i], widths[i]
        tall = max(least_rounded, np.rint(height / factor))
        wide = max(least_rounded, np.rint(width / factor))
        rounded_pixels = rounded_frames[i] * (tall * factor) * (wide * factor)
        pixels = frames[i] * height * width
        shrink = np.sqrt(pixels / max_pixels[i])
        shrunk_tall = max(least_shrunk, np.floor(height / shrink / factor))
        shrunk_wide = max(least_shrunk, np.floor(width / shrink / factor))
        grow = np.sqrt(min_pixels[i] / pixels)
        grown_tall = np.ceil(height * grow / factor)
        grown_wide = np.ceil(width * grow / factor)
        over, under = rounded_pixels > max_pixels[i], rounded_pixels < min_pixels[i]
        rows[i] = shrunk_tall if over else (grown_tall if under else tall)
        columns[i] = shrunk_wide if over else (grown_wide if under else wide)
