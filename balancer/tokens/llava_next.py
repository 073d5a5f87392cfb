"""LLaVA-NeXT (LLaVA-1.6): any resolution by tiles, with a base view and unpadding."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from balancer.tokens.best_resolution import best_resolutions, checked_pinpoints, unpadded_grids
from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_multiple, require_positive

__all__ = ["LlavaNext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LlavaNext(FamilyRule):
    """A base view plus the tiles of the best canvas, padding removed, a newline token a row.

    Source: Liu et al., LLaVA-NeXT (2024); transformers `processing_llava_next.py`.

    Attributes:
        tile_size: Side of a tile and of the base view, pixels.
        patch_size: Side of a patch, pixels.
        grid_pinpoints: Canvases (height, width) an image may be fitted to, pixels.
        extra_base_tokens: Tokens of the base view beside its patches: 0 when the class token is
            dropped ("default" feature selection), 1 when it is kept ("full").

    Example:
        >>> LlavaNext().images(np.array([480]), np.array([640])).tokens
        array([2340])
    """

    FAMILY: ClassVar[str] = "llava-next"

    tile_size: int = 336
    patch_size: int = 14
    grid_pinpoints: tuple[tuple[int, int], ...] = (
        (336, 672),
        (672, 336),
        (672, 672),
        (1008, 336),
        (336, 1008),
    )
    extra_base_tokens: int = 0

    def __post_init__(self) -> None:
        require_positive(self, "tile_size", "patch_size")
        require_multiple(self, "tile_size", "patch_size")
        pairs = checked_pinpoints(self.grid_pinpoints, self.tile_size)
        object.__setattr__(self, "grid_pinpoints", pairs)

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """Base view and tiles of each image."""
        canvas_heights, canvas_widths = best_resolutions(heights, widths, self.grid_pinpoints)
        tile_rows = canvas_heights // self.tile_size
        tile_columns = canvas_widths // self.tile_size
        side = self.tile_size // self.patch_size
        rows, columns = unpadded_grids(heights, widths, side * tile_rows, side * tile_columns)
        return media_counts(
            segments=1 + tile_rows * tile_columns,
            grid_heights=side,
            grid_widths=side,
            tokens=side * side + self.extra_base_tokens + rows * (columns + 1),
            legal=np.ones(heights.size, np.bool_),
        )
