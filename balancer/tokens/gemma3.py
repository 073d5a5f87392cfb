"""Gemma 3: one fixed view, with optional crops of elongated images (pan and scan)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_multiple, require_positive

__all__ = ["Gemma3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemma3(FamilyRule):
    """Each view becomes the same number of tokens between markers and blank lines.

    The English sentence that pan and scan puts around the crops is text and is not counted.
    Source: Gemma 3 Technical Report (2025); transformers `image_processing_gemma3.py`.

    Attributes:
        image_size: Side every view is resized to, pixels.
        patch_size: Side of a patch, pixels.
        tokens_per_view: Tokens after pooling.
        wrapper_tokens: Tokens around a view: start, end, and a blank line at both ends.
        pan_and_scan: Whether elongated images also get crops.
        min_crop_size: Shortest side of a crop, pixels; no crops where it would be shorter.
        max_crops: Most crops of an image.
        min_ratio: Aspect ratio from which an image is cropped.

    Example:
        >>> size = np.array([800])
        >>> Gemma3().images(size, 3 * size).tokens
        array([260])
        >>> Gemma3(pan_and_scan=True).images(size, 3 * size).tokens
        array([1040])
    """

    FAMILY: ClassVar[str] = "gemma-3"

    image_size: int = 896
    patch_size: int = 14
    tokens_per_view: int = 256
    wrapper_tokens: int = 4
    pan_and_scan: bool = False
    min_crop_size: int = 256
    max_crops: int = 4
    min_ratio: float = 1.2

    def __post_init__(self) -> None:
        require_positive(self, "image_size", "patch_size", "tokens_per_view")
        require_positive(self, "min_crop_size", "max_crops", "min_ratio")
        require_multiple(self, "image_size", "patch_size")

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """The whole view and the crops of each image."""
        views = np.ones_like(heights)
        if self.pan_and_scan:
            views += self._crops(heights, widths)
        side = self.image_size // self.patch_size
        return media_counts(
            segments=views,
            grid_heights=side,
            grid_widths=side,
            tokens=views * (self.tokens_per_view + self.wrapper_tokens),
            legal=np.ones(heights.size, np.bool_),
        )

    def _crops(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Crops along the longer side; zero where the image is too square or too small."""
        longest, shortest = np.maximum(heights, widths), np.minimum(heights, widths)
        ratios = longest / shortest
        crops = np.minimum(np.floor(ratios + 0.5).astype(np.int64), longest // self.min_crop_size)
        crops = np.minimum(np.maximum(crops, 2), self.max_crops)
        crop_sides = np.minimum(-(-longest // crops), shortest)
        return np.where((ratios >= self.min_ratio) & (crop_sides >= self.min_crop_size), crops, 0)
