"""Limits: the most that one microbatch may hold, and how tokens are counted for it."""

from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from balancer.checks import check_choice, check_count
from balancer.errors import ArgumentError

__all__ = ["Layout", "Limits", "padded_to"]

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
        pad_sample_to: Tokens of each sample are rounded up to a multiple of this: 2 x ranks of
            context parallelism, 8 or 16 for FP8. Padding counts as tokens of the microbatch.
        pad_microbatch_to: Tokens of a microbatch, so rounded, are rounded up to a multiple of this.

    Raises:
        ArgumentError: A number is not a positive whole number, `max_tokens` is less than
            `pad_microbatch_to`, or the layout is unknown.

    Example:
        >>> Limits(max_tokens=8192).max_images is None
        True
        >>> Limits(max_tokens=100, pad_microbatch_to=64).room
        {'tokens': 64}
    """

    max_tokens: int | None = None
    max_patches: int | None = None
    max_images: int | None = None
    max_samples: int | None = None
    layout: Layout = "packed"
    pad_sample_to: int = 1
    pad_microbatch_to: int = 1

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, get_args(Layout))
        for name in _LIMIT_NAMES:
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("pad_sample_to", self.pad_sample_to)
        check_count("pad_microbatch_to", self.pad_microbatch_to)
        if self.max_tokens is not None and self.max_tokens < self.pad_microbatch_to:
            raise ArgumentError(
                f"max_tokens is {self.max_tokens}, less than pad_microbatch_to="
                f"{self.pad_microbatch_to}, to which any microbatch is rounded up; raise it to at "
                f"least {self.pad_microbatch_to}"
            )

    def __repr__(self) -> str:
        """All fields, without rounding where there is none, which leaves fingerprints alone."""
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("pad_sample_to", "pad_microbatch_to"):
            if shown[name] == 1:
                del shown[name]
        return f"Limits({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def given(self) -> dict[str, int]:
        """The limits that are set, by the name of the amount: `tokens`, `patches`, ..."""
        values = {name.removeprefix("max_"): getattr(self, name) for name in _LIMIT_NAMES}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def room(self) -> dict[str, int]:
        """What rounded samples may add up to under each limit that is set."""
        room = self.given
        if self.max_tokens is not None:
            room["tokens"] = self.max_tokens // self.pad_microbatch_to * self.pad_microbatch_to
        return room

    def taken(self, name: str, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """What samples take of an amount of which they have `values`: tokens are rounded up."""
        return padded_to(values, self.pad_sample_to) if name == "tokens" else values

    def enough(self, name: str, values: NDArray[np.int64]) -> int:
        """Least limit under which each of some samples fits by itself."""
        most = self.taken(name, values).max(keepdims=True)
        return int(padded_to(most, self.pad_microbatch_to)[0] if name == "tokens" else most[0])


def padded_to(values: NDArray[np.int64], multiple: int) -> NDArray[np.int64]:
    """Values rounded up to a multiple; themselves where that is 1.

    Example:
        >>> padded_to(np.array([4, 6, 10]), 4)
        array([ 4,  8, 12])
    """
    return values if multiple == 1 else -(-values // multiple) * multiple


_LIMIT_NAMES = ("max_tokens", "max_patches", "max_images", "max_samples")
