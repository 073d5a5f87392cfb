"""The compiled rules for sizes equal the plain ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.kernels.tile_grids import covering_grids
from balancer.tokens.smart_resize import merged_grids
from balancer.tokens.tiling import closest_tile_grids, tile_grids
from tests.naive_sizes import closest_grid, covering_grid, resized_sides

_SIDES = st.integers(1, 3000) | st.integers(1, 24).map(lambda tiles: 112 * tiles)


@given(
    sizes=st.lists(st.tuples(_SIDES, _SIDES), min_size=1, max_size=20),
    tile_size=st.sampled_from([112, 336, 448]),
    tiles=st.tuples(st.integers(1, 6), st.integers(0, 12)),
)
def test_the_closest_grids_equal_the_oracle(
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


@given(
    sizes=st.lists(st.tuples(_SIDES, _SIDES), min_size=1, max_size=20),
    longest_side=st.integers(100, 6000),
    tile_size=st.integers(10, 600),
)
def test_the_covering_grids_equal_the_oracle(
    sizes: list[tuple[int, int]], longest_side: int, tile_size: int
) -> None:
    """Every image gets the rows and columns of the plain rule, scaled once or twice."""
    heights, widths = np.array(sizes).T.copy()
    rows, columns = np.empty_like(heights), np.empty_like(widths)
    covering_grids(heights, widths, longest_side, 4096, tile_size, rows, columns)
    expected = [covering_grid(*size, longest_side, 4096, tile_size) for size in sizes]
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == expected


@given(
    sizes=st.lists(st.tuples(_SIDES, _SIDES), min_size=1, max_size=20),
    factor=st.sampled_from([14, 28, 32]),
    budget=st.tuples(st.integers(1, 10**6), st.integers(1, 10**7)).map(sorted),
    thin=st.booleans(),
    frames=st.integers(1, 40),
)
def test_resized_sides_equal_the_oracle(
    sizes: list[tuple[int, int]], factor: int, budget: list[int], thin: bool, frames: int
) -> None:
    """Every image gets the sides of the plain rule, whichever way it is scaled."""
    heights, widths = np.array(sizes).T
    found = merged_grids(
        heights,
        widths,
        factor=factor,
        min_pixels=budget[0],
        max_pixels=float(budget[1]),
        keep_thin=thin,
        frames=frames,
        rounded_frames=np.full(len(sizes), 2 * frames),
    )
    expected = [
        resized_sides(*size, factor, budget, thin=thin, frames=frames, rounded_frames=2 * frames)
        for size in sizes
    ]
    assert (factor * np.stack(found, axis=1)).tolist() == expected
