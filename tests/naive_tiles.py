"""Plain-Python oracle of the choice of a tile grid."""

__all__ = ["closest_grid"]


def closest_grid(height, width, tile_size, grids):
    """The (columns, rows) of `grids` that InternVL's published rule settles on."""
    nearest, chosen = float("inf"), grids[0]
    for columns, rows in grids:
        distance = abs(width / height - columns / rows)
        useful = height * width > 0.5 * tile_size * tile_size * columns * rows
        if distance < nearest or (distance == nearest and useful):
            nearest, chosen = distance, (columns, rows)
    return chosen
