"""Amounts that a module's time depends on, for each sample and for each microbatch."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.errors import ArgumentError, SampleError
from balancer.sample_media import TableMedia, sum_by_sample, table_media
from balancer.samples import SampleTable
from balancer.tokens import TokenRule
from balancer.topology import Layout, check_choice

__all__ = [
    "AMOUNTS",
    "CONSTANT",
    "MODULE_AMOUNTS",
    "amounts_of_media",
    "microbatch_amounts",
    "sample_amounts",
]

CONSTANT = "constant"
"""What a microbatch takes whatever is in it: launches, communication, the optimizer's share."""

MODULE_AMOUNTS = MappingProxyType(
    {
        "vision": ("patches", "patches_squared", "images"),
        "audio": ("audio_patches", "audio_patches_squared", "audio_clips"),
        "language": ("tokens", "tokens_squared"),
    }
)
"""The amounts each module's time may depend on, beside the constant of a microbatch."""

AMOUNTS = MappingProxyType(
    {
        "patches": "patch",
        "patches_squared": "patch^2",
        "images": "image",
        "audio_patches": "patch",
        "audio_patches_squared": "patch^2",
        "audio_clips": "clip",
        "tokens": "token",
        "tokens_squared": "token^2",
        CONSTANT: "microbatch",
    }
)
"""Unit of every amount."""


def sample_amounts(table: SampleTable, rule: TokenRule) -> dict[str, NDArray[np.float64]]:
    """Amounts of each sample, float64 `(num_samples,)` each, exact below 2**53.

    `patches_squared` sums the squares of the sample's segments (tiles, frame groups), and
    `tokens_squared` is the square of the sample's tokens, for attention crosses neither.

    Raises:
        SampleError: The rule does not take a size; names the samples.

    Example:
        >>> from balancer.tokens import token_rule
        >>> table = SampleTable.from_lengths([3, 5])
        >>> sample_amounts(table, token_rule("text-only"))["tokens_squared"]
        array([ 9., 25.])
    """
    media = table_media(table, rule)
    if media.illegal.size:
        raise SampleError(
            f"{media.illegal_because} ({media.illegal.size} samples have such media); resize the "
            "media, or leave the samples out",
            sample_ids=media.illegal.tolist(),
        )
    return amounts_of_media(table, media)


def amounts_of_media(table: SampleTable, media: TableMedia) -> dict[str, NDArray[np.float64]]:
    """Amounts of each sample, as `sample_amounts`; media that are not legal count nothing."""
    visual, clips, num = media.visual, media.clips, len(table)

    def of_visual(values: NDArray[Any]) -> NDArray[np.float64]:
        return sum_by_sample(media.visual_owners, values, num)

    def of_clips(values: NDArray[Any]) -> NDArray[np.float64]:
        return sum_by_sample(media.clip_owners, values, num)

    tokens = table.text_tokens + of_visual(visual.tokens) + of_clips(clips.tokens)
    in_segment = (visual.grid_heights * visual.grid_widths).astype(np.float64)
    in_window = (clips.grid_heights * clips.grid_widths).astype(np.float64)
    return {
        "patches": of_visual(visual.patches),
        "patches_squared": of_visual(visual.segments * in_segment**2),
        "images": table.num_images.astype(np.float64),
        "audio_patches": of_clips(clips.patches),
        "audio_patches_squared": of_clips(clips.segments * in_window**2),
        "audio_clips": np.diff(table.audio_offsets).astype(np.float64),
        "tokens": tokens,
        "tokens_squared": tokens**2,
    }


def microbatch_amounts(
    amounts: Mapping[str, NDArray[np.float64]],
    microbatches: Sequence[ArrayLike],
    *,
    layout: Layout = "packed",
) -> dict[str, NDArray[np.float64]]:
    """Amounts of each microbatch from those of its samples, float64 `(num_microbatches,)` each.

    Args:
        amounts: Amounts of each sample, as `sample_amounts` returns them.
        microbatches: Sample ids of each microbatch.
        layout: Under `"padded"` every sample has the tokens of the microbatch's longest.

    Raises:
        ArgumentError: A microbatch is empty, or the layout is unknown.

    Example:
        >>> lengths = {"tokens": np.array([3.0, 5.0]), "tokens_squared": np.array([9.0, 25.0])}
        >>> microbatch_amounts(lengths, [[0, 1]], layout="padded")["tokens_squared"]
        array([50.])
    """
    check_choice("layout", layout, get_args(Layout))
    groups = [np.asarray(ids, np.int64) for ids in microbatches]
    empty = [index for index, ids in enumerate(groups) if not ids.size]
    if empty:
        raise ArgumentError(f"microbatches[{empty[0]}] is empty; give at least one sample id")
    if not groups:
        return {name: np.zeros(0) for name in amounts}
    sizes = np.array([ids.size for ids in groups])
    starts = np.cumsum(sizes) - sizes
    ids = np.concatenate(groups)
    sums = {name: np.add.reduceat(column[ids], starts) for name, column in amounts.items()}
    if layout == "padded":
        longest = np.maximum.reduceat(amounts["tokens"][ids], starts)
        sums["tokens"] = sizes * longest
        sums["tokens_squared"] = sizes * longest**2
    return sums
