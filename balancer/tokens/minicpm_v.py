"""MiniCPM-V 4.6: an overview and slices of nearly the encoder's own resolution."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from balancer.tokens.blocks import in_blocks
from balancer.tokens.counts import MediaCounts, media_counts
from balancer.tokens.family import FamilyRule
from balancer.tokens.settings import require_positive

__all__ = ["MiniCPMV"]

_Sides = tuple[NDArray[np.int64], NDArray[np.int64]]

# numpy's own log differs in the last bit between CPUs, and equal distances between grids decide.
_exact_log = np.frompyfunc(math.log, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniCPMV(FamilyRule):
    """An overview in its own aspect ratio, and a grid of slices where the image is larger.

    Overview and slices have different grids, so `segments` counts patch sequences of the slices'
    size and `grid_heights * grid_widths` is that of a slice (of the overview where there is none);
    `patches` is exact for the slices and counts the overview as one more slice. The rule does not
    count videos. Source: transformers `image_processing_minicpmv4_6.py`.

    Attributes:
        scale_resolution: Side of a square view, pixels.
        patch_size: Side of a patch, pixels.
        max_slices: Most slices of an image.
        merge_size: Patches a side that become one token: 4 ("16x") or 2 ("4x").
        image_id_tokens: Tokens of the numbered tag before an image, 0 without tags; the number is
            one token up to ten images a sample.

    Example:
        >>> MiniCPMV().images(np.array([448]), np.array([448])).tokens
        array([69])
    """

    FAMILY: ClassVar[str] = "minicpm-v-4.6"

    scale_resolution: int = 448
    patch_size: int = 14
    max_slices: int = 9
    merge_size: int = 4
    image_id_tokens: int = 3

    def __post_init__(self) -> None:
        require_positive(self, "scale_resolution", "patch_size", "max_slices", "merge_size")

    @in_blocks
    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """Overview and slices of each image."""
        rows, columns = self._slice_grids(heights, widths)
        sliced = rows > 0
        overview = self._view_grids(
            heights.astype(np.float64), widths.astype(np.float64), enlarge=~sliced
        )
        slice_rows, slice_columns = np.maximum(rows, 1), np.maximum(columns, 1)
        one_slice = self._view_grids(
            np.maximum(np.rint(heights / slice_rows), 1.0),
            np.maximum(np.rint(widths / slice_columns), 1.0),
            enlarge=np.ones_like(sliced),
        )
        merged = self.merge_size**2
        overview_tokens = overview[0] * overview[1] // merged + 2
        slice_tokens = one_slice[0] * one_slice[1] // merged + 2
        tokens = self.image_id_tokens + overview_tokens
        tokens = tokens + np.where(sliced, rows * columns * slice_tokens + rows - 1, 0)
        return media_counts(
            segments=1 + rows * columns,
            grid_heights=np.where(sliced, one_slice[0], overview[0]),
            grid_widths=np.where(sliced, one_slice[1], overview[1]),
            tokens=tokens,
            legal=np.ones(heights.size, np.bool_),
        )

    def _slice_grids(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> _Sides:
        """Rows and columns of slices nearest the aspect ratio; zero where one view is enough."""
        log_ratios = np.asarray(_exact_log(widths / heights), np.float64)
        views = np.ceil(widths * heights / self.scale_resolution**2)
        wanted = np.minimum(views, self.max_slices).astype(np.int64)
        nearest = np.full(heights.size, np.inf)
        best_rows, best_columns = np.ones_like(heights), np.ones_like(heights)
        for slices in range(2, self.max_slices + 1):
            for rows in (count for count in range(1, slices + 1) if slices % count == 0):
                columns = slices // rows
                distances = np.abs(log_ratios - math.log(columns / rows))
                distances = np.where(np.abs(slices - wanted) <= 1, distances, np.inf)
                taller = (distances == nearest) & (rows > best_rows) & np.isfinite(distances)
                better = (distances < nearest) | taller
                nearest = np.where(better, distances, nearest)
                best_rows = np.where(better, rows, best_rows)
                best_columns = np.where(better, columns, best_columns)
        return np.where(wanted > 1, best_rows, 0), np.where(wanted > 1, best_columns, 0)

    def _view_grids(
        self, heights: NDArray[np.float64], widths: NDArray[np.float64], enlarge: NDArray[np.bool_]
    ) -> _Sides:
        """Rows and columns of patches of a view scaled to the area of the encoder's square."""
        scaled = (heights * widths > self.scale_resolution**2) | enlarge
        ratios = widths / heights
        scaled_heights = np.floor(self.scale_resolution / np.sqrt(ratios))
        heights = np.where(scaled, scaled_heights, heights)
        widths = np.where(scaled, np.floor(scaled_heights * ratios), widths)
        unit = self.patch_size * self.merge_size
        rows = np.maximum(np.rint(heights / unit), 1).astype(np.int64)
        columns = np.maximum(np.rint(widths / unit), 1).astype(np.int64)
        return rows * self.merge_size, columns * self.merge_size
