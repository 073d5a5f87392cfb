"""Limits: the most that one microbatch may hold, and how tokens are counted for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
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
        dummies: Size of the dummy input that a microbatch without work in a module runs it on, by
            the module's name: `{"vision": {"tokens": 4, "patches": 16}}`. Every microbatch keeps
            room for all of them. See `Topology.modality_sync`.

    Raises:
        ArgumentError: A number is not a positive whole number, a limit is less than what
            `pad_microbatch_to` and `dummies` take, or the layout is unknown.

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
    dummies: Mapping[str, Mapping[str, int]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, get_args(Layout))
        for name in _LIMIT_NAMES:
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("pad_sample_to", self.pad_sample_to)
        check_count("pad_microbatch_to", self.pad_microbatch_to)
        object.__setattr__(self, "dummies", plain_dummies(self.dummies, self.layout))
        for name, room in self.room.items():
            if room < 1:
                least = self.given[name] + 1 - room
                if name == "tokens":
                    least = int(padded_to(np.array([least]), self.pad_microbatch_to)[0])
                raise ArgumentError(
                    f"max_{name} is {self.given[name]}, which leaves no room beside what "
                    f"pad_microbatch_to={self.pad_microbatch_to} and dummies={self.dummies} take; "
                    f"raise it to at least {least}"
                )

    def __repr__(self) -> str:
        """All fields but those added later that are not used, so that fingerprints stay."""
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("pad_sample_to", "pad_microbatch_to", "dummies"):
            if shown[name] in (1, {}):
                del shown[name]
        return f"Limits({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def given(self) -> dict[str, int]:
        """The limits that are set, by the name of the amount: `tokens`, `patches`, ..."""
        values = {name.removeprefix("max_"): getattr(self, name) for name in _LIMIT_NAMES}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def room(self) -> dict[str, int]:
        """What rounded samples may add up to under each limit that is set, dummies left out."""
        room = self.given
        if self.max_tokens is not None:
            room["tokens"] = self.max_tokens // self.pad_microbatch_to * self.pad_microbatch_to
        for name in room:
            sizes = np.array([dummy.get(name, 0) for dummy in self.dummies.values()], np.int64)
            room[name] -= int(self.taken(name, sizes).sum())
        return room

    def taken(self, name: str, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """What samples take of an amount of which they have `values`: tokens are rounded up."""
        return padded_to(values, self.pad_sample_to) if name == "tokens" else values

    def enough(self, name: str, values: NDArray[np.int64]) -> int:
        """Least limit under which each of some samples fits by itself, beside all dummies."""
        sizes = np.array([dummy.get(name, 0) for dummy in self.dummies.values()], np.int64)
        most = self.taken(name, values).max(keepdims=True) + self.taken(name, sizes).sum()
        return int(padded_to(most, self.pad_microbatch_to)[0] if name == "tokens" else most[0])


def plain_dummies(dummies: object, layout: Layout) -> dict[str, dict[str, int]]:
    """Dummies as plain dicts in the order of their names.

    Raises:
        ArgumentError: It is no mapping from modules to sizes, or gives tokens under the padded
            layout, where they would be a row of their own.
    """
    if not isinstance(dummies, Mapping):
        raise ArgumentError(
            f'dummies is {dummies!r}; allowed: sizes by module, {{"vision": {{"patches": 16}}}}'
        )
    plain = dict[str, dict[str, int]]()
    for module in sorted(dummies):
        sizes = dummies[module]
        if not isinstance(sizes, Mapping) or set(sizes) - set(_DUMMY_SIZES):
            raise ArgumentError(
                f"dummies[{module!r}] is {sizes!r}; allowed: a mapping with any of "
                f"{', '.join(map(repr, _DUMMY_SIZES))}"
            )
        for name, size in sizes.items():
            check_count(f"dummies[{module!r}][{name!r}]", size, least=0)
        if layout == "padded" and sizes.get("tokens", 0):
            raise ArgumentError(
                f'dummies[{module!r}] has {sizes["tokens"]} tokens under layout="padded"; leave '
                "them out: add the dummy's output times zero to a token that is there"
            )
        plain[module] = {name: int(sizes[name]) for name in _DUMMY_SIZES if name in sizes}
    return plain


_DUMMY_SIZES = ("tokens", "patches", "images")


def padded_to(values: NDArray[np.int64], multiple: int) -> NDArray[np.int64]:
    """Values rounded up to a multiple; themselves where that is 1.

    Example:
        >>> padded_to(np.array([4, 6, 10]), 4)
        array([ 4,  8, 12])
    """
    return values if multiple == 1 else -(-values // multiple) * multiple


_LIMIT_NAMES = ("max_tokens", "max_patches", "max_images", "max_samples")
