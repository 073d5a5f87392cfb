"""SigLIP 2 NaFlex: native aspect ratio within a number of patches."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_positive

__all__ = ["Siglip2"]

_SMALLEST_SCALE = 1e-6
_LARGEST_SCALE = 100.0
_SCALE_STEP = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Siglip2(FamilyRule):
    """The image scaled, up or down, until its patches just fit the budget; one token a patch.

    The encoder pads every image to the budget; `patches` are those before padding. Source:
    Tschannen et al., SigLIP 2 (2025); transformers `image_processing_siglip2.py`.

    Attributes:
        patch_size: Side of a patch, pixels.
        max_patches: Most patches of an image.

    Example:
        >>> counts = Siglip2().images(np.array([480]), np.array([640]))
        >>> counts.grid_heights, counts.grid_widths
        (array([14]), array([18]))
    """

    FAMILY: ClassVar[str] = "siglip2"

    patch_size: int = 16
    max_patches: int = 256

    def __post_init__(self) -> None:
        require_positive(self, "patch_size", "max_patches")

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """One grid an image, its scale found by bisection as published."""
        low = np.full(heights.size, _SMALLEST_SCALE)
        high = np.full(heights.size, _LARGEST_SCALE)
        while (searching := high - low >= _SCALE_STEP).any():
            middle = (low + high) / 2
            rows, columns = self._sides(heights, middle), self._sides(widths, middle)
            fits = rows * columns <= self.max_patches
            low = np.where(searching & fits, middle, low)
            high = np.where(searching & ~fits, middle, high)
        rows, columns = self._sides(heights, low), self._sides(widths, low)
        return media_counts(
            segments=1,
            grid_heights=rows,
            grid_widths=columns,
            tokens=rows * columns,
            legal=np.ones(heights.size, np.bool_),
        )

    def _sides(self, sizes: NDArray[np.int64], scales: NDArray[np.float64]) -> NDArray[np.int64]:
        """Patches along a scaled side, at least one."""
        patches: NDArray[np.int64] = np.ceil(sizes * scales / self.patch_size).astype(np.int64)
        return np.maximum(patches, 1)
