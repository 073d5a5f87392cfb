"""Choice of a tile grid by aspect ratio, as InternVL, GOT-OCR2 and Ovis2-like families do."""

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.tile_grids import closest_grids

__all__ = ["closest_tile_grids", "tile_grids"]


def tile_grids(min_tiles: int, max_tiles: int) -> tuple[tuple[int, int], ...]:
    """All (columns, rows) of `min_tiles` to `max_tiles` tiles, fewest tiles first.

    Example:
        >>> tile_grids(1, 3)
        ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1))
    """
    grids = [
        (columns, rows)
        for columns in range(1, max_tiles + 1)
        for rows in range(1, max_tiles // columns + 1)
        if columns * rows >= min_tiles
    ]
    return tuple(sorted(grids, key=lambda grid: grid[0] * grid[1]))


def closest_tile_grids(
    heights: NDArray[np.int64],
    widths: NDArray[np.int64],
    *,
    tile_size: int,
    min_tiles: int,
    max_tiles: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Grid whose aspect ratio is nearest the image's; of equally near ones the largest useful.

    A larger grid of an equal distance is taken while it holds less than twice the image's pixels.
    Takes O(num_images * num_grids). Source: Chen et al., InternVL 1.5 (2024),
    `find_closest_aspect_ratio`; transformers `get_optimal_tiled_canvas` of GOT-OCR2.

    Returns:
        Columns and rows of tiles.

    Example:
        >>> closest_tile_grids(np.array([900]), np.array([1800]), tile_size=448, min_tiles=1,
        ...                    max_tiles=12)
        (array([4]), array([2]))
    """
    grids = np.array(tile_grids(min_tiles, max_tiles), np.float64)
    best = np.zeros(heights.size, np.int64)
    closest_grids(
        widths / heights,
        (heights * widths).astype(np.float64),
        grids[:, 0] / grids[:, 1],
        0.5 * tile_size * tile_size * grids[:, 0] * grids[:, 1],
        best,
    )
    return grids[best, 0].astype(np.int64), grids[best, 1].astype(np.int64)
