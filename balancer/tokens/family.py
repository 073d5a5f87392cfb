"""What every family of token rules shares: its name and its answer to media it cannot take."""

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from balancer.tokens.counts import MediaCounts, illegal_media
from balancer.tokens.sizes import checked_audio, checked_images, checked_videos

__all__ = ["FamilyRule"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FamilyRule:
    """Base of the rules: a medium that a family does not override is illegal for it.

    By itself it is the rule of a text-only model.

    Example:
        >>> rule = FamilyRule()
        >>> rule.name
        'text-only()'
        >>> rule.images(np.array([480]), np.array([640])).legal
        array([False])
    """

    FAMILY: ClassVar[str] = "text-only"

    @property
    def name(self) -> str:
        """Family name with all its settings: equal names give equal counts."""
        family = self.FAMILY
        settings: list[str] = []
        for field in dataclasses.fields(self):
            value: Any = getattr(self, field.name)
            if field.name == "family":
                family = value
            else:
                settings.append(f"{field.name}={value}")
        return f"{family}({','.join(settings)})".replace(" ", "")

    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """Every image is illegal."""
        return illegal_media(checked_images(heights, widths)[0].size)

    def videos(
        self,
        frames: NDArray[np.int64],
        fps: NDArray[np.float64],
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
    ) -> MediaCounts:
        """Every video is illegal."""
        return illegal_media(checked_videos(frames, fps, heights, widths)[0].size)

    def audio(self, seconds: NDArray[np.float64]) -> MediaCounts:
        """Every audio clip is illegal."""
        return illegal_media(checked_audio(seconds).size)
