"""Media of a table's samples as a token rule counts them, with the sample each belongs to."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.samples import SampleTable
from balancer.tokens import MediaCounts, TokenRule, illegal_media

__all__ = ["TableMedia", "sum_by_sample", "table_media"]

_INT = NDArray[np.int64]
_COLUMNS = ("segments", "grid_heights", "grid_widths", "tokens", "legal")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMedia:
    """All media of a table as a rule counts them; items it does not take count nothing.

    Attributes:
        visual_owners: Sample of every image, then of every video, int64.
        visual: Counts of every image, then of every video.
        clip_owners: Sample of every audio clip, int64.
        clips: Counts of every audio clip.
        illegal: Ids, ascending, of the samples with an item that the rule does not take.
        illegal_because: What the rule does not take, for the first of them.
    """

    visual_owners: _INT
    visual: MediaCounts
    clip_owners: _INT
    clips: MediaCounts
    illegal: _INT
    illegal_because: str


def table_media(table: SampleTable, rule: TokenRule) -> TableMedia:
    """Counts of every image, video and audio clip of the table, and what the rule refuses.

    Example:
        >>> from balancer.tokens import token_rule
        >>> table = SampleTable.from_arrays(
        ...     text_tokens=[5, 5], image_heights=[[56], [10]], image_widths=[[56], [9000]])
        >>> media = table_media(table, token_rule("qwen2.5-vl"))
        >>> media.visual.tokens, media.illegal
        (array([4, 0]), array([1]))
        >>> media.illegal_because
        'the token rule takes no image of 10 x 9000 pixels (height x width), in sample 1'
    """
    heights, widths = table.image_heights, table.image_widths
    image_owners = _owners(table.image_offsets)
    images = rule.images(heights, widths) if image_owners.size else illegal_media(0)
    video_sizes = (table.video_heights, table.video_widths)
    video_owners = _owners(table.video_offsets)
    videos = illegal_media(0)
    if video_owners.size:
        videos = rule.videos(table.video_frames, table.video_fps, *video_sizes)
    clip_owners = _owners(table.audio_offsets)
    clips = rule.audio(table.audio_seconds) if clip_owners.size else illegal_media(0)
    pixels = "pixels (height x width)"
    refused = [
        *_refused("image", images, image_owners, (heights, widths), pixels),
        *_refused("video", videos, video_owners, video_sizes, pixels),
        *_refused("audio", clips, clip_owners, (table.audio_seconds,), "seconds"),
    ]
    ids = [owners for owners, _ in refused]
    return TableMedia(
        visual_owners=np.concatenate([image_owners, video_owners]),
        visual=_joined(images, videos),
        clip_owners=clip_owners,
        clips=clips,
        illegal=np.unique(np.concatenate(ids)) if ids else np.zeros(0, np.int64),
        illegal_because=min(refused, key=lambda entry: entry[0][0])[1] if refused else "",
    )


def _refused(
    medium: str,
    counts: MediaCounts,
    owners: _INT,
    sizes: tuple[NDArray[Any], ...],
    unit: str,
) -> list[tuple[_INT, str]]:
    """Samples with an item of this medium that the rule refuses, and the first of them in words."""
    items = np.flatnonzero(~counts.legal)
    if not items.size:
        return []
    size = " x ".join(f"{column[items[0]]:g}" for column in sizes)
    what = f"the token rule takes no {medium} of {size} {unit}, in sample {owners[items[0]]}"
    return [(owners[items], what)]


def sum_by_sample(owners: _INT, values: NDArray[Any], num_samples: int) -> NDArray[np.float64]:
    """Sum of each sample's items, in their order; counts are exact below 2**53.

    Example:
        >>> sum_by_sample(np.array([0, 0, 2]), np.array([1, 2, 5]), 3)
        array([3., 0., 5.])
    """
    return np.bincount(owners, values, num_samples).astype(np.float64)


def _owners(offsets: _INT) -> _INT:
    """Sample of each media item, from where each sample's items begin."""
    return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))


def _joined(first: MediaCounts, second: MediaCounts) -> MediaCounts:
    if not len(second.legal):
        return first
    return MediaCounts(
        **{name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in _COLUMNS}
    )
