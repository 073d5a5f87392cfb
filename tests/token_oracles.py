"""What the published processors say about media sizes, to check the token rules against.

Every oracle names a rule and a function from one size to the columns of `MediaCounts` that the
processor reveals, or `None` where it refuses the size. `check_images` and `check_videos` return the
row of a results table.
"""

import importlib.util
import itertools
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from balancer.tokens import MediaCounts, TokenRule

__all__ = [
    "AudioOracle",
    "CheckRow",
    "Columns",
    "ImageOracle",
    "VideoOracle",
    "audio_durations",
    "check_audio",
    "check_images",
    "check_videos",
    "has_torchvision",
    "image_sizes",
    "marker_count",
    "mismatches",
    "refusing",
    "video_sizes",
    "word_tokenizer",
]

Columns = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOracle:
    """A rule and the published code that it must equal on images.

    `run` puts a real image through the processor and reads the columns off the tensors.
    """

    family: str
    source: str
    rule: TokenRule
    count: Callable[[int, int], Columns | None]
    run: Callable[[Any], Columns] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoOracle:
    """A rule and the published code that it must equal on (frames, fps, height, width)."""

    family: str
    source: str
    rule: TokenRule
    count: Callable[[int, float, int, int], Columns | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioOracle:
    """A rule and the published code that it must equal on seconds of audio."""

    family: str
    source: str
    rule: TokenRule
    count: Callable[[float], Columns | None]
    run: Callable[[float], Columns | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """One row of the results table."""

    family: str
    source: str
    cases: int
    mismatches: int
    version: str


_EDGE_SIDES = (
    *(1, 2, 3, 5, 8, 13, 14, 15, 16, 17, 27, 28, 29, 31, 32, 33, 42, 48, 56, 63, 70, 84, 98),
    *(111, 112, 128, 199, 200, 201, 224, 256, 336, 384, 448, 500, 672, 896, 1008, 1024, 1540),
    *(2000, 4096, 10000),
)


def image_sizes(num_random: int, seed: int, *, largest: int = 10000) -> list[tuple[int, int]]:
    """Sizes around every threshold of the families, and log-uniform random ones."""
    edges = [side for side in _EDGE_SIDES if side <= largest]
    rng = np.random.default_rng(seed)
    sides = np.exp(rng.uniform(0, np.log(largest), (num_random // 2, 2))).astype(int)
    photos = rng.integers(200, min(4000, largest), (num_random - num_random // 2, 2))
    drawn = np.maximum(np.concatenate([sides, photos]), 1)
    return [*itertools.product(edges, edges), *((int(h), int(w)) for h, w in drawn)]


def video_sizes(num_random: int, seed: int) -> list[tuple[int, float, int, int]]:
    """Frame counts, rates and sizes: clips of one frame, odd rates, thin frames, long films."""
    rng = np.random.default_rng(seed)
    frames = np.exp(rng.uniform(0, np.log(200_000), num_random)).astype(int)
    rates = rng.choice([1.0, 10.0, 23.976, 24.0, 25.0, 29.97, 30.0, 59.94, 60.0, 120.0], num_random)
    sizes = image_sizes(num_random, seed + 1, largest=4096)
    sizes = [sizes[i] for i in rng.choice(len(sizes), num_random, replace=False)]
    edges = [
        (n, fps, 360, 640) for n in (*range(1, 40), 767, 768, 769, 1536) for fps in (2.0, 24.0)
    ]
    drawn = zip(frames.tolist(), rates.tolist(), sizes, strict=True)
    return [*edges, *((n, fps, h, w) for n, fps, (h, w) in drawn)]


def mismatches(
    counts: MediaCounts, expected: Sequence[Columns | None], cases: Sequence[Any]
) -> list[str]:
    """One line for each case in which the rule and the published code differ."""
    lines: list[str] = []
    for position, (columns, case) in enumerate(zip(expected, cases, strict=True)):
        legal = bool(counts.legal[position])
        if columns is None or not legal:
            if legal != (columns is not None):
                lines.append(f"{case}: legal is {legal}, published {columns}")
            continue
        ours = {name: int(getattr(counts, name)[position]) for name in columns}
        if ours != dict(columns):
            lines.append(f"{case}: {ours}, published {dict(columns)}")
    return lines


def check_images(
    oracle: ImageOracle, sizes: Sequence[tuple[int, int]]
) -> tuple[CheckRow, list[str]]:
    """The table row of an image oracle, and a line for each mismatch."""
    heights, widths = np.array(sizes, np.int64).T
    expected = [oracle.count(height, width) for height, width in sizes]
    lines = mismatches(oracle.rule.images(heights, widths), expected, sizes)
    return _row(oracle.family, oracle.source, len(sizes), lines), lines


def check_videos(
    oracle: VideoOracle, sizes: Sequence[tuple[int, float, int, int]]
) -> tuple[CheckRow, list[str]]:
    """The table row of a video oracle, and a line for each mismatch."""
    frames, fps, heights, widths = (np.array(column) for column in zip(*sizes, strict=True))
    expected = [oracle.count(*size) for size in sizes]
    lines = mismatches(oracle.rule.videos(frames, fps, heights, widths), expected, sizes)
    return _row(oracle.family, oracle.source, len(sizes), lines), lines


def check_audio(oracle: AudioOracle, seconds: Sequence[float]) -> tuple[CheckRow, list[str]]:
    """The table row of an audio oracle, and a line for each mismatch."""
    expected = [oracle.count(duration) for duration in seconds]
    lines = mismatches(oracle.rule.audio(np.array(seconds)), expected, seconds)
    return _row(oracle.family, oracle.source, len(seconds), lines), lines


def audio_durations(num_random: int, seed: int) -> list[float]:
    """Durations around every frame and window border, and log-uniform random ones."""
    rng = np.random.default_rng(seed)
    borders = [samples / 16000 for edge in range(0, 2000, 160) for samples in (edge + 1, edge + 2)]
    borders += [seconds + shift for seconds in (30, 300) for shift in (-0.01, 0, 1e-4, 0.01, 1)]
    return [*borders, *np.exp(rng.uniform(np.log(1e-4), np.log(4000), num_random)).tolist()]


def refusing(
    count: Callable[..., Columns], errors: Iterable[type[Exception]] = (ValueError,)
) -> Callable[..., Columns | None]:
    """The function with `None` in place of the errors by which published code refuses a size."""
    allowed = tuple(errors)

    def count_or_none(*size: Any) -> Columns | None:
        try:
            return count(*size)
        except allowed:
            return None

    return count_or_none


def word_tokenizer(*markers: str, **named: str) -> Any:
    """A real tokenizer of nothing but the given markers, one token each.

    `named` markers are also attributes, as `image_token="<image>"` is for many processors.
    """
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = ["[UNK]", *dict.fromkeys([*markers, *named.values()])]
    ids = {word: position for position, word in enumerate(words)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(ids, unk_token="[UNK]")),
        unk_token="[UNK]",
        extra_special_tokens=named,
    )
    tokenizer.add_tokens(list(markers), special_tokens=True)
    return tokenizer


def marker_count(input_ids: Any) -> int:
    """Tokens that are markers; all other text is the unknown token, whose id is 0."""
    return int((np.asarray(input_ids) != 0).sum())


def has_torchvision() -> bool:
    """Whether the processors that need torchvision can be imported."""
    return importlib.util.find_spec("torchvision") is not None


def _row(family: str, source: str, cases: int, lines: list[str]) -> CheckRow:
    package = source.split(":")[0].replace("_", "-")
    try:
        package_version = version(package)
    except PackageNotFoundError:
        package_version = platform.python_version()
    return CheckRow(
        family=family,
        source=source,
        cases=cases,
        mismatches=len(lines),
        version=package_version,
    )
