"""Llama 3.2 Vision: up to four tiles, read by cross-attention."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_multiple, require_positive

__all__ = ["Mllama"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mllama(FamilyRule):
    """The canvas of tiles that fits the image best; one token in the text, whatever its size.

    The tiles of an image attend to each other, so they are one segment. The encoder pads every
    image to `max_tiles` tiles; `patches` are those before padding. Source: transformers
    `image_processing_mllama.py`.

    Attributes:
        tile_size: Side of a tile, pixels.
        patch_size: Side of a patch, pixels.
        max_tiles: Most tiles of an image.

    Example:
        >>> counts = Mllama().images(np.array([500]), np.array([1000]))
        >>> counts.grid_heights, counts.grid_widths, counts.tokens
        (array([40]), array([80]), array([1]))
    """

    FAMILY: ClassVar[str] = "llama-3.2-vision"

    tile_size: int = 560
    patch_size: int = 14
    max_tiles: int = 4

    def __post_init__(self) -> None:
        require_positive(self, "tile_size", "patch_size", "max_tiles")
        require_multiple(self, "tile_size", "patch_size")

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """One canvas an image."""
        rows, columns = self._canvases(heights, widths)
        side = self.tile_size // self.patch_size
        return media_counts(
            segments=1,
            grid_heights=rows * side,
            grid_widths=columns * side,
            tokens=1,
            legal=np.ones(heights.size, np.bool_),
        )

    def _canvases(
        self, heights: NDArray[np.int64], widths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and columns of tiles: least enlarged, else least shrunk, then the smallest canvas.

        Takes O(num_images * num_canvases).
        """
        best_scales = np.zeros(heights.size)
        best_rows = np.zeros_like(heights)
        best_columns = np.zeros_like(heights)
        for rows in range(1, self.max_tiles + 1):
            for columns in range(1, self.max_tiles // rows + 1):
                scales = np.minimum(
                    columns * self.tile_size / widths, rows * self.tile_size / heights
                )
                enlarges, enlarged = scales >= 1, best_scales >= 1
                nearer = np.where(enlarged, scales < best_scales, scales > best_scales)
                smaller = (scales == best_scales) & (rows * columns < best_rows * best_columns)
                better = (enlarges & ~enlarged) | ((enlarges == enlarged) & (nearer | smaller))
                best_scales = np.where(better, scales, best_scales)
                best_rows = np.where(better, rows, best_rows)
                best_columns = np.where(better, columns, best_columns)
        return best_rows, best_columns
