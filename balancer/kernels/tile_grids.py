"""Choice of each image's tile grid by aspect ratio."""

from numba import njit

__all__ = ["closest_grids"]


@njit(nogil=True)
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
