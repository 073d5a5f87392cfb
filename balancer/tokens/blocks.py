"""Counting many images a block at a time."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from balancer.tokens.counts import MediaCounts
from balancer.tokens.sizes import checked_images

__all__ = ["BLOCK", "in_blocks"]

BLOCK = 12288
"""Images of a block: a column of them is 96 KiB, so that what a rule works on stays in the cache
and comes from memory that the process already has."""

_INT = NDArray[np.int64]
_Rule = TypeVar("_Rule")
_COLUMNS = ("segments", "grid_heights", "grid_widths", "tokens", "legal")


def in_blocks(
    images: Callable[[_Rule, _INT, _INT], MediaCounts],
) -> Callable[[_Rule, _INT, _INT], MediaCounts]:
    """Make a rule's `images` check its sizes, and count them `BLOCK` at a time.

    A million images take less than half as long.

    Example:
        >>> @in_blocks
        ... def images(rule, heights, widths):
        ...     return rule.images(heights, widths)
        >>> from balancer.tokens import token_rule
        >>> sides = np.full(3 * BLOCK, 56)
        >>> int(images(token_rule("qwen2.5-vl"), sides, sides).tokens.sum()) == 4 * sides.size
        True
    """

    @functools.wraps(images)
    def counted(rule: _Rule, heights: _INT, widths: _INT) -> MediaCounts:
        heights, widths = checked_images(heights, widths)
        if heights.size <= BLOCK:
            return images(rule, heights, widths)
        whole: dict[str, NDArray[Any]] = {}
        for start in range(0, heights.size, BLOCK):
            block = slice(start, start + BLOCK)
            part = images(rule, heights[block], widths[block])
            for name in _COLUMNS:
                _put(whole, name, block, getattr(part, name), heights.size)
        return MediaCounts(**whole)

    return counted


def _put(
    whole: dict[str, NDArray[Any]], name: str, block: slice, values: NDArray[Any], num: int
) -> None:
    """Write a block of a column; a column of one number throughout stays a view of that number."""
    column, one_number = whole.get(name), not any(values.strides)
    if column is None and one_number:
        whole[name] = np.broadcast_to(values[0], num)
        return
    if column is None:
        column = whole[name] = np.empty(num, values.dtype)
    elif not any(column.strides):
        if one_number and values[0] == column[0]:
            return
        column = whole[name] = np.full(num, column[0])
    column[block] = values
