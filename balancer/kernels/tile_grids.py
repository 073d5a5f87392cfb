"""Tile grid of each image: the closest of a list, or as many as its scaled sides need."""

from numba import njit

from balancer.kernels.compiled import kernel

__all__ = ["closest_grids", "covering_grids"]


@kernel
def closest_grids(ratios, pixels, grid_ratios, grid_pixels, best):
    """Write into `best` the grid whose ratio is nearest each image's.

    Of equally near grids the last one that holds fewer pixels than `pixels`, else the first.
    """
    for image in range(ratios.size):
        nearest = abs(ratios[image] - grid_ratios[0])
        chosen = 0
        for grid in range(1, grid_ratios.size):
            distance = abs(ratios[image] - grid_ratios[grid])
            useful = pixels[image] > grid_pixels[grid]
            if (distance < nearest) | ((distance == nearest) & useful):
                chosen = grid
            nearest = min(nearest, distance)
        best[image] = chosen


@njit(nogil=True, error_model="numpy")
def covering_grids(heights, widths, longest_side, largest_side, tile_size, rows, columns):
    """Write the rows and columns of tiles that cover each image scaled to `longest_side`.

    Images beyond `largest_side` are scaled once more. The longer side is then rounded up to whole
    tiles, and the other one grown by as much.
    """
    for image in range(heights.size):
        height, width = heights[image], widths[image]
        ratio, wide = width / height, width >= height
        shortest = int(longest_side / ratio if wide else longest_side * ratio)
        shortest = max(shortest + shortest % 2, 1)
        height, width = (shortest, longest_side) if wide else (longest_side, shortest)
        if longest_side > largest_side:
            ratio, wide = width / height, width >= height
            shortest = max(int(largest_side / ratio if wide else largest_side * ratio), 1)
            height, width = (shortest, largest_side) if wide else (largest_side, shortest)
        ratio, wide = width / height, width >= height
        along = -(-max(height, width) // tile_size)
        grown = along * tile_size
        across = -(-int(grown / ratio if wide else grown * ratio) // tile_size)
        rows[image], columns[image] = (across, along) if wide else (along, across)
