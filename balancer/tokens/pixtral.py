"""Pixtral and Mistral-Small-3.1: native resolution, a break token a row."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError
from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_positive

__all__ = ["Pixtral", "PixtralPipeline"]

PixtralPipeline = Literal["transformers", "mistral_common"]
"""Whose preprocessing: they round the shrunk side down, or to the nearest pixel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pixtral(FamilyRule):
    """The image shrunk to a longest side, in rows of tokens that each end in a marker.

    Every row ends in a break token, the last in the end token instead. Sources: Agrawal et al.,
    Pixtral 12B (2024); transformers `processing_pixtral.py`; mistral_common `ImageEncoder`.

    Attributes:
        patch_size: Side of a patch, pixels.
        max_image_size: Longest side, pixels; smaller images keep their size.
        merge_size: Patches a side that become one token.
        pipeline: Whose preprocessing is followed.

    Example:
        >>> Pixtral().images(np.array([200]), np.array([300])).tokens
        array([260])
    """

    FAMILY: ClassVar[str] = "pixtral"

    patch_size: int = 16
    max_image_size: int = 1024
    merge_size: int = 1
    pipeline: PixtralPipeline = "transformers"

    def __post_init__(self) -> None:
        require_positive(self, "patch_size", "max_image_size", "merge_size")
        if self.pipeline not in get_args(PixtralPipeline):
            raise ArgumentError(
                f"pipeline is {self.pipeline!r}; it must be one of {get_args(PixtralPipeline)}"
            )

    @classmethod
    def mistral_small(cls, **settings: Any) -> "Pixtral":
        """The rule with the settings of Mistral-Small-3.1: patches of 14, merged two by two.

        Example:
            >>> Pixtral.mistral_small().images(np.array([280]), np.array([560])).tokens
            array([210])
        """
        return cls(**{"patch_size": 14, "max_image_size": 1540, "merge_size": 2, **settings})

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """Rows of tokens of each image; illegal where a side would shrink to nothing."""
        limit = self.max_image_size
        shrink = np.maximum(np.maximum(heights / limit, widths / limit), 1.0)
        unit = self.patch_size * self.merge_size
        rows = -(-self._rounded(heights / shrink) // unit)
        columns = -(-self._rounded(widths / shrink) // unit)
        return media_counts(
            segments=1,
            grid_heights=rows * self.merge_size,
            grid_widths=columns * self.merge_size,
            tokens=rows * (columns + 1),
            legal=(rows > 0) & (columns > 0),
        )

    def _rounded(self, sides: NDArray[np.float64]) -> NDArray[np.int64]:
        """Whole pixels of the shrunk sides, by the pipeline's own rounding."""
        from_mistral = self.pipeline == "mistral_common"
        whole = np.maximum(np.rint(sides), 1) if from_mistral else np.floor(sides)
        pixels: NDArray[np.int64] = whole.astype(np.int64)
        return pixels
