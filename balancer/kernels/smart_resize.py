"""Sides rounded to a multiple and scaled into a pixel budget, image by image."""

import numpy as np
from numba import njit

__all__ = ["resize_sides"]


@njit(nogil=True, error_model="numpy")
def resize_sides(
    heights,
    widths,
    frames,
    rounded_frames,
    min_pixels,
    max_pixels,
    factor,
    smallest_side,
    smallest_shrunk,
    new_heights,
    new_widths,
):
    """Write the new sides; columns of one element hold for every image.

    `smallest_side` bounds the rounded sides from below, `smallest_shrunk` the shrunk ones.
    """
    frames_step = 0 if frames.size == 1 else 1
    rounded_step = 0 if rounded_frames.size == 1 else 1
    min_step = 0 if min_pixels.size == 1 else 1
    max_step = 0 if max_pixels.size == 1 else 1
    for i in range(heights.size):
        height, width = float(heights[i]), float(widths[i])
        least, most = min_pixels[i * min_step], max_pixels[i * max_step]
        pixels = float(frames[i * frames_step] * heights[i] * widths[i])
        new_height = max(smallest_side, np.rint(height / factor) * factor)
        new_width = max(smallest_side, np.rint(width / factor) * factor)
        rounded_pixels = rounded_frames[i * rounded_step] * new_height * new_width
        if rounded_pixels > most:
            scale = np.sqrt(pixels / most)
            new_height = max(smallest_shrunk, np.floor(height / scale / factor) * factor)
            new_width = max(smallest_shrunk, np.floor(width / scale / factor) * factor)
        elif rounded_pixels < least:
            scale = np.sqrt(least / pixels)
            new_height = np.ceil(height * scale / factor) * factor
            new_width = np.ceil(width * scale / factor) * factor
        new_heights[i], new_widths[i] = int(new_height), int(new_width)
