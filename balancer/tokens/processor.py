"""A token rule made of any Hugging Face processor that reports its own token counts."""

import hashlib
import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError
from balancer.tokens.counts import MediaCounts, illegal_media, media_counts
from balancer.tokens.sizes import checked_audio, checked_images, checked_videos

__all__ = ["FrameSampler", "ProcessorTokens", "ReportingProcessor"]

FrameSampler = Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[np.int64]]
"""From frames and frame rates of video files to the frames that are sampled, at least one each."""

_Size = tuple[int, ...]
_Count = tuple[int, int]

_PARTS = ("image_processor", "video_processor", "feature_extractor")


class ReportingProcessor(Protocol):
    """What is asked of a processor; those of transformers 5 for most families have it."""

    def _get_num_multimodal_tokens(self, **sizes: Any) -> Any:
        """Counts as attributes, one a size."""
        ...


class ProcessorTokens:
    """Asks the processor itself, once for every distinct size.

    Slower than a family's own rule (tens of microseconds a distinct size), and as exact as the
    processor's report: some leave out the markers around an image, and none reports how an image is
    cut, so `segments` and `patches` need a hint. A size that the processor refuses with a
    `ValueError` is illegal, as is a medium that it does not report.

    Args:
        processor: Any object with the `_get_num_multimodal_tokens` of transformers' processors.
        patches_per_tile: Patches of a tile, for families whose processor reports tiles as its
            "patches"; `None` for those that report the patches of one undivided image.
        patches_per_token: Encoder patches of one video or audio token, which are not reported.
        sample_frames: From a file's frames and rates to the sampled frames; `None` for all frames.

    Raises:
        ArgumentError: The processor does not report token counts.

    Example:
        >>> class Report:
        ...     num_image_tokens = [256]
        ...     num_image_patches = [1]
        >>> class Processor:
        ...     def _get_num_multimodal_tokens(self, image_sizes=None):
        ...         return Report()
        >>> rule = ProcessorTokens(Processor(), patches_per_tile=1024)
        >>> counts = rule.images(np.array([480, 480]), np.array([640, 640]))
        >>> counts.tokens, counts.patches
        (array([256, 256]), array([1024, 1024]))
    """

    __slots__ = (
        "_counts",
        "_name",
        "_parameters",
        "patches_per_tile",
        "patches_per_token",
        "processor",
        "sample_frames",
    )

    def __init__(
        self,
        processor: ReportingProcessor,
        *,
        patches_per_tile: int | None = None,
        patches_per_token: int = 1,
        sample_frames: FrameSampler | None = None,
    ) -> None:
        report = getattr(processor, "_get_num_multimodal_tokens", None)
        if report is None:
            raise ArgumentError(
                f"processor is a {type(processor).__name__}, which has no "
                "_get_num_multimodal_tokens; use the family's rule from token_rule instead"
            )
        self.processor = processor
        self.patches_per_tile = patches_per_tile
        self.patches_per_token = patches_per_token
        self.sample_frames = sample_frames
        self._parameters = frozenset(inspect.signature(report).parameters)
        self._counts: dict[tuple[str, _Size], _Count | None] = {}
        self._name = _name_of(processor, patches_per_tile, patches_per_token, sample_frames)

    @property
    def name(self) -> str:
        """The processor's class with a digest of its settings."""
        return self._name

    def images(self, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> MediaCounts:
        """Counts of each image, as the processor reports them."""
        heights, widths = checked_images(heights, widths)
        tokens, units, legal = self._look_up("image", np.stack([heights, widths], axis=1))
        if self.patches_per_tile is None:
            segments, patches = np.ones_like(units), units
        else:
            # Idefics3 reports no tile for an image that is not cut.
            segments, patches = np.maximum(units, 1), np.full_like(units, self.patches_per_tile)
        return media_counts(
            segments=segments, grid_heights=1, grid_widths=patches, tokens=tokens, legal=legal
        )

    def videos(
        self,
        frames: NDArray[np.int64],
        fps: NDArray[np.float64],
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
    ) -> MediaCounts:
        """Counts of each video, one segment each; illegal where the processor reports none."""
        frames, fps, heights, widths = checked_videos(frames, fps, heights, widths)
        if self.sample_frames is not None:
            frames = np.asarray(self.sample_frames(frames, fps), np.int64)
        return self._without_patches("video", np.stack([frames, heights, widths], axis=1))

    def audio(self, seconds: NDArray[np.float64]) -> MediaCounts:
        """Counts of each audio clip, one segment each; illegal where none is reported."""
        seconds = checked_audio(seconds)
        extractor = getattr(self.processor, "feature_extractor", None)
        rate = getattr(extractor, "sampling_rate", 16000)
        samples = np.rint(seconds * rate).astype(np.int64)
        return self._without_patches("audio", samples[:, None])

    def _without_patches(self, medium: str, sizes: NDArray[np.int64]) -> MediaCounts:
        tokens, _, legal = self._look_up(medium, sizes)
        patches = tokens * self.patches_per_token
        return media_counts(
            segments=1, grid_heights=1, grid_widths=patches, tokens=tokens, legal=legal
        )

    def _look_up(
        self, medium: str, sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Tokens, reported "patches" and legality of each row of sizes."""
        if _PARAMETER[medium] not in self._parameters or not len(sizes):
            nothing = illegal_media(len(sizes))
            return nothing.tokens, nothing.tokens, nothing.legal
        distinct, positions = np.unique(sizes, axis=0, return_inverse=True)
        keys = [tuple(size) for size in distinct.tolist()]
        self._ask(medium, [key for key in keys if (medium, key) not in self._counts])
        found = [self._counts[medium, key] for key in keys]
        table = np.array([(0, 0) if count is None else count for count in found], np.int64)
        legal = np.array([count is not None for count in found])
        rows = positions.reshape(-1)
        return table[rows, 0], table[rows, 1], legal[rows]

    def _ask(self, medium: str, sizes: Sequence[_Size]) -> None:
        """Ask for all sizes at once; where that is refused, for halves, down to single ones."""
        if not sizes:
            return
        values = [size[0] for size in sizes] if medium == "audio" else [list(s) for s in sizes]
        try:
            report = self.processor._get_num_multimodal_tokens(**{_PARAMETER[medium]: values})
        except (ValueError, ZeroDivisionError):
            if len(sizes) == 1:
                self._counts[medium, sizes[0]] = None
                return
            middle = len(sizes) // 2
            self._ask(medium, sizes[:middle])
            self._ask(medium, sizes[middle:])
            return
        tokens = getattr(report, f"num_{medium}_tokens", None)
        if tokens is None:
            self._counts.update({(medium, size): None for size in sizes})
            return
        units = getattr(report, f"num_{medium}_patches", None) or [1] * len(sizes)
        for size, count, unit in zip(sizes, tokens, units, strict=False):
            self._counts[medium, size] = (int(count), int(unit))


_PARAMETER = {"audio": "audio_lengths", "image": "image_sizes", "video": "video_sizes"}


def _name_of(processor: Any, *hints: Any) -> str:
    """Class name and a digest of every setting that can change the counts."""
    settings: dict[str, Any] = {
        name: value
        for name, value in getattr(processor, "__dict__", {}).items()
        if isinstance(value, bool | int | float | str)
    }
    for part in _PARTS:
        described = getattr(getattr(processor, part, None), "to_dict", None)
        if described is not None:
            settings[part] = described()
    settings["hints"] = [getattr(hint, "__qualname__", hint) for hint in hints]
    text = json.dumps(settings, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"processor:{type(processor).__name__}({digest})"
