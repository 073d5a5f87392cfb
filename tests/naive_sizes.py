"""Plain-Python oracles of what image sizes become: tile grids, and sides within a budget."""

import math

__all__ = ["closest_grid", "covering_grid", "resized_sides"]


def closest_grid(height, width, tile_size, grids):
    """The (columns, rows) of `grids` that InternVL's published rule settles on."""
    nearest, chosen = float("inf"), grids[0]
    for columns, rows in grids:
        distance = abs(width / height - columns / rows)
        useful = height * width > 0.5 * tile_size * tile_size * columns * rows
        if distance < nearest or (distance == nearest and useful):
            nearest, chosen = distance, (columns, rows)
    return chosen


def covering_grid(height, width, longest_side, largest_side, tile_size):
    """Rows and columns of the tiles of Idefics3's published rule."""
    for longest, even in ((longest_side, True), (largest_side, False)):
        if even or longest < longest_side:
            height, width = scaled(height, width, longest, even)
    ratio, wide = width / height, width >= height
    along = -(-max(height, width) // tile_size)
    across = int(along * tile_size / ratio if wide else along * tile_size * ratio)
    across = -(-across // tile_size)
    return (across, along) if wide else (along, across)


def scaled(height, width, longest, even):
    """Sides after the longer one became `longest`, the other one even where asked."""
    ratio, wide = width / height, width >= height
    shortest = int(longest / ratio if wide else longest * ratio)
    shortest = max(shortest + (shortest % 2 if even else 0), 1)
    return (shortest, longest) if wide else (longest, shortest)


def resized_sides(height, width, factor, budget, *, thin, frames, rounded_frames):
    """Sides of the Qwen2-VL family's published `smart_resize` within (fewest, most) pixels.

    `thin` says which side stays at least `factor`: the rounded one, or else the shrunk one.
    """
    fewest, most = budget
    at_least, shrunk_at_least = (factor, 0) if thin else (0, factor)
    new = [max(at_least, round(side / factor) * factor) for side in (height, width)]
    pixels = frames * height * width
    rounded_pixels = rounded_frames * new[0] * new[1]
    if rounded_pixels > most:
        scale = math.sqrt(pixels / most)
        return [
            max(shrunk_at_least, math.floor(side / scale / factor) * factor)
            for side in (height, width)
        ]
    if rounded_pixels < fewest:
        scale = math.sqrt(fewest / pixels)
        return [math.ceil(side * scale / factor) * factor for side in (height, width)]
    return new
