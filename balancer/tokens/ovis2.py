"""Ovis2: the fewest tiles that show most of the image, with a thumbnail and grid markers."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_multiple, require_positive
from balancer.tokens.tiling import tile_grids

__all__ = ["Ovis2"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ovis2(FamilyRule):
    """Tiles in a grid whose cells keep enough of their pixels, markers between rows and columns.

    The published code chooses (rows, columns) and then tiles by (columns, rows); so does this rule.
    Source: Lu et al., Ovis (2024); transformers `image_processing_ovis2.py`.

    Attributes:
        tile_size: Side of a tile, pixels.
        patch_size: Side of a patch, pixels.
        tokens_per_tile: Tokens of a tile.
        max_tiles: Most tiles, without the thumbnail; 1 for no tiling.
        covering_threshold: Share of the image's pixels that the tiles must be able to hold.

    Example:
        >>> Ovis2().images(np.array([400, 900]), np.array([400, 1800])).tokens
        array([ 259, 2314])
    """

    FAMILY: ClassVar[str] = "ovis2"

    tile_size: int = 448
    patch_size: int = 14
    tokens_per_tile: int = 256
    max_tiles: int = 9
    covering_threshold: float = 0.9

    def __post_init__(self) -> None:
        require_positive(self, "tile_size", "patch_size", "tokens_per_tile", "max_tiles")
        require_multiple(self, "tile_size", "patch_size")

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """Thumbnail and tiles of each image."""
        columns, rows = self._covering_grids(heights, widths)
        tiles = rows * columns
        views = tiles + (tiles > 1)
        side = self.tile_size // self.patch_size
        return media_counts(
            segments=views,
            grid_heights=side,
            grid_widths=side,
            tokens=3 + views * self.tokens_per_tile + tiles - 1,
            legal=np.ones(heights.size, np.bool_),
        )

    def _covering_grids(
        self, heights: NDArray[np.int64], widths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Fewest tiles above the threshold, then the most covered; else the most covered.

        Takes O(num_images * sum of tiles over all grids).
        """
        covered_most = np.full(heights.size, -1.0)
        enough = np.zeros(heights.size, np.bool_)
        best_first = np.ones_like(heights)
        best_second = np.ones_like(heights)
        for first, second in tile_grids(1, self.max_tiles):
            covered = self._covered_share(heights, widths, first, second)
            suffices = covered > self.covering_threshold
            fewer_or_equal = first * second == best_first * best_second
            improves = np.where(enough, fewer_or_equal & suffices, True) & (covered > covered_most)
            better = (suffices & ~enough) | improves
            covered_most = np.where(better, covered, covered_most)
            enough |= suffices
            best_first = np.where(better, first, best_first)
            best_second = np.where(better, second, best_second)
        return best_first, best_second

    def _covered_share(
        self, heights: NDArray[np.int64], widths: NDArray[np.int64], rows: int, columns: int
    ) -> NDArray[np.float64]:
        """Share of the image's pixels that its cells keep when each is shrunk to a tile."""
        cell_heights, cell_widths = heights // rows, widths // columns
        total = np.zeros(heights.size)
        for row in range(rows):
            last_row = row == rows - 1
            cell_height = heights - row * cell_heights if last_row else cell_heights
            for column in range(columns):
                last_column = column == columns - 1
                cell_width = widths - column * cell_widths if last_column else cell_widths
                total = total + self._kept_pixels(cell_height, cell_width)
        share: NDArray[np.float64] = total / (heights * widths)
        return share

    def _kept_pixels(
        self, heights: NDArray[np.int64], widths: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Pixels of a cell after shrinking its longer side to the tile's."""
        longest, shortest = np.maximum(heights, widths), np.minimum(heights, widths)
        shrunk = shortest / np.maximum(longest, 1) * self.tile_size * self.tile_size
        return np.where(longest > self.tile_size, shrunk, longest * shortest)
