"""Limits: the most that one microbatch may hold, and how tokens are counted for it."""

from dataclasses import dataclass
from typing import Literal, get_args

from balancer.checks import check_choice, check_count

__all__ = ["Layout", "Limits"]

Layout = Literal["packed", "padded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Most that one microbatch may hold; `None` means no limit.

    Attributes:
        max_tokens: Language-model tokens.
        max_patches: Encoder patches.
        max_images: Images.
        max_samples: Samples.
        layout: How a microbatch lies in memory, and so what `max_tokens` is checked on:
            `"packed"` the sum of its tokens, `"padded"` its samples times its longest.

    Raises:
        ArgumentError: A limit is not a positive whole number, or the layout is unknown.

    Example:
        >>> Limits(max_tokens=8192).max_images is None
        True
    """

    max_tokens: int | None = None
    max_patches: int | None = None
    max_images: int | None = None
    max_samples: int | None = None
    layout: Layout = "packed"

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, get_args(Layout))
        for name in _LIMIT_NAMES:
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))

    @property
    def given(self) -> dict[str, int]:
        """The limits that are set, by the name of the amount: `tokens`, `patches`, ..."""
        values = {name.removeprefix("max_"): getattr(self, name) for name in _LIMIT_NAMES}
        return {name: value for name, value in values.items() if value is not None}


_LIMIT_NAMES = ("max_tokens", "max_patches", "max_images", "max_samples")
