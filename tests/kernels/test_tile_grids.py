"""The compiled choice of a tile grid equals the plain one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.tokens.tiling import closest_tile_grids, tile_grids
from tests.naive_tiles import closest_grid

_SIDES = st.integers(1, 3000) | st.integers(1, 24).map(lambda tiles: 112 * tiles)


@given(
    sizes=st.lists(st.tuples(_SIDES, _SIDES), min_size=1, max_size=20),
    tile_size=st.sampled_from([112, 336, 448]),
    tiles=st.tuples(st.integers(1, 6), st.integers(0, 12)),
)
def test_grids_equal_the_oracle(
    sizes: list[tuple[int, int]], tile_size: int, tiles: tuple[int, int]
) -> None:
    """Every image gets the grid of the plain rule, at ties between grids too."""
    least, most = tiles[0], sum(tiles)
    heights, widths = np.array(sizes).T
    columns, rows = closest_tile_grids(
        heights, widths, tile_size=tile_size, min_tiles=least, max_tiles=most
    )
    grids = tile_grids(least, most)
    expected = [closest_grid(height, width, tile_size, grids) for height, width in sizes]
    assert list(zip(columns.tolist(), rows.tolist(), strict=True)) == expected
