"""Families that resize every image to one size: CLIP, SigLIP, LLaVA-1.5."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError
from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_positive
from balancer.tokens.sizes import checked_images

__all__ = ["FixedImage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedImage(FamilyRule):
    """Every image becomes one square grid of patches and the same number of tokens.

    The defaults are LLaVA-1.5's: CLIP ViT-L/14 at 336 pixels, class token dropped.

    Attributes:
        family: Name of the family, part of `name`.
        image_size: Side the image is resized and cropped to, pixels.
        patch_size: Side of a patch, pixels; a rest at the border is cut off, as a convolution does.
        tokens_per_image: Tokens in the language model; `None` for one a patch.

    Example:
        >>> FixedImage().images(np.array([1, 4000]), np.array([1, 3000])).tokens
        array([576, 576])
    """

    family: str = "llava-1.5"
    image_size: int = 336
    patch_size: int = 14
    tokens_per_image: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, "image_size", "patch_size")
        if self.patch_size > self.image_size:
            raise ArgumentError(
                f"patch_size is {self.patch_size}; it must be at most image_size, {self.image_size}"
            )
        if self.tokens_per_image is not None:
            require_positive(self, "tokens_per_image")

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """The same counts for every image, whatever its size."""
        checked_heights, _ = checked_images(heights, widths)
        side = self.image_size // self.patch_size
        tokens = side * side if self.tokens_per_image is None else self.tokens_per_image
        return media_counts(
            segments=1,
            grid_heights=side,
            grid_widths=side,
            tokens=tokens,
            legal=np.ones(checked_heights.size, np.bool_),
        )
