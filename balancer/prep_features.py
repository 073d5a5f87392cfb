"""PrepFeatures: facts about a sample, known before it is decoded, that decide its CPU time."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.errors import ArgumentError
from balancer.probing.media_files import STRINGS, MediaFiles
from balancer.samples import SampleTable
from balancer.tokens import TokenRule

__all__ = ["PrepFeatures", "resize_work", "resized_sizes"]

_INT = NDArray[np.int64]
_FLOAT = NDArray[np.float64]
_KINDS = ("image", "video", "audio")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepFeatures:
    """Amounts of work to read, decode and transform each sample, one column a name.

    Names read `group:amount`. A group is a path from the general to the special, such as
    `image/JPEG/CMYK`, so that a model without coefficients for CMYK can use those of JPEG.

    * `image/FORMAT/MODE:bytes` and `:pixels`: to read and decode.
    * `image:items`, `image:resize_pixels` (see `resize_work`) and `image:output_pixels`.
    * `video/CONTAINER/CODEC:bytes` and `:pixels` (of all frames), `video:items`,
      `video:output_pixels`.
    * `audio/CONTAINER/CODEC:bytes` and `:seconds`, `audio:items`.
    * `text:characters`, and `sample:items`, which is 1 for every sample.

    Attributes:
        names: Names of the columns.
        values: Amounts, float64 `(num_samples, num_names)`, finite, >= 0.

    Raises:
        ArgumentError: The shape of `values` disagrees with `names`, or an amount is not legal.

    Example:
        >>> features = PrepFeatures.from_table(
        ...     SampleTable.from_arrays(text_tokens=[5], image_heights=[[30]], image_widths=[[40]],
        ...                             encoded_bytes=[900]), image_format="JPEG")
        >>> dict(zip(features.names, features.values[0].tolist()))["image/JPEG:pixels"]
        1200.0
    """

    names: tuple[str, ...]
    values: _FLOAT

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names):
            raise ArgumentError(
                f"values has shape {self.values.shape}; allowed: (number of samples, "
                f"{len(self.names)}), one column for each of names"
            )
        if not (np.isfinite(self.values) & (self.values >= 0)).all():
            row, column = np.argwhere(~(np.isfinite(self.values) & (self.values >= 0)))[0]
            raise ArgumentError(
                f"values has {self.values[row, column]:g} for {self.names[column]} of sample "
                f"{row}; allowed: finite numbers >= 0"
            )

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def from_files(
        cls,
        files: MediaFiles,
        *,
        output_heights: ArrayLike | None = None,
        output_widths: ArrayLike | None = None,
        samples: ArrayLike | None = None,
        characters: ArrayLike | None = None,
    ) -> "PrepFeatures":
        """Features of the samples that media files belong to.

        Args:
            files: Sizes of the files, as from `probe`.
            output_heights: Pixels after resizing, one a row of `files`; see `resized_sizes`. As
                in the file where not given: nothing is resized.
            output_widths: As `output_heights`.
            samples: Sample of each row of `files`; every row is a sample when not given.
            characters: Characters of text of each sample, which also says how many samples there
                are; 0 for each when not given.

        Raises:
            ArgumentError: A column has another length, or a sample is beyond `characters`.
        """
        owners = np.arange(len(files)) if samples is None else np.asarray(samples, np.int64)
        if characters is None:
            text = np.zeros(int(owners.max(initial=-1)) + 1)
        else:
            text = np.asarray(characters, np.float64)
        heights = _column("output_heights", output_heights, files.heights)
        widths = _column("output_widths", output_widths, files.widths)
        if owners.shape != (len(files),) or (owners.size and owners.max() >= len(text)):
            raise ArgumentError(
                f"samples has shape {owners.shape} and reaches to {owners.max(initial=-1)}; "
                f"allowed: one row of characters (0 to {len(text) - 1}) for each of the "
                f"{len(files)} files"
            )
        items = _item_amounts(files, heights, widths)
        columns = {
            name: np.bincount(owners, amounts, len(text)).astype(np.float64)
            for name, amounts in items.items()
        }
        columns |= {"text:characters": text, "sample:items": np.ones(len(text))}
        return cls(names=tuple(columns), values=np.stack(list(columns.values()), axis=1))

    @classmethod
    def from_table(
        cls,
        table: SampleTable,
        *,
        image_format: str = "",
        video_format: str = "",
        audio_format: str = "",
        characters: ArrayLike | None = None,
        rule: TokenRule | None = None,
        patch_size: int = 14,
    ) -> "PrepFeatures":
        """Features of the samples of a table, which knows no formats and no bytes a file.

        The bytes of a sample are shared out over its media by their pixels (audio: seconds at
        16,000 a second).

        Args:
            table: Sizes of the samples.
            image_format: Format of all images, for example `"JPEG"` or `"JPEG/RGB"`.
            video_format: Format of all videos.
            audio_format: Format of all audio clips.
            characters: Characters of text of each sample; 0 when not given.
            rule: Token rule that says to which size images are resized; not resized when `None`.
            patch_size: Pixels of the side of a patch of `rule`.
        """
        files, owners = _files_of(table, (image_format, video_format, audio_format))
        heights, widths = files.heights.copy(), files.widths.copy()
        if rule is not None:
            image = np.asarray(files.kinds == "image")
            heights[image], widths[image] = resized_sizes(
                rule, heights[image], widths[image], patch_size=patch_size
            )
        return cls.from_files(
            files,
            output_heights=heights,
            output_widths=widths,
            samples=owners,
            characters=np.zeros(len(table)) if characters is None else characters,
        )

    def only(self, *amounts: str) -> "PrepFeatures":
        """The columns of these names, or whose amount (behind the colon) is one of these."""
        kept = [
            column
            for column, name in enumerate(self.names)
            if name in amounts or name.split(":")[1] in amounts
        ]
        names = tuple(self.names[column] for column in kept)
        return PrepFeatures(names=names, values=self.values[:, kept])

    def select(self, rows: ArrayLike) -> "PrepFeatures":
        """Features of the given rows, in the given order."""
        return PrepFeatures(names=self.names, values=self.values[np.asarray(rows)])


def resize_work(heights: _INT, widths: _INT, output_heights: _INT, output_widths: _INT) -> _FLOAT:
    """Pixels that a separable resampling touches: first along the rows, then along the columns.

    A pass costs lines x max(length before, length after), for a filter widens as it shrinks an
    image (Pillow, `src/libImaging/Resample.c`); a pass that keeps the length is left out.

    Example:
        >>> sizes = [np.array([side]) for side in (100, 200, 50, 200)]
        >>> resize_work(*sizes)  # only the columns change: 200 columns of 100 pixels
        array([20000.])
    """
    rows = np.where(output_widths != widths, heights * np.maximum(widths, output_widths), 0)
    columns = np.where(
        output_heights != heights, output_widths * np.maximum(heights, output_heights), 0
    )
    return np.asarray(rows + columns, np.float64)


def resized_sizes(
    rule: TokenRule, heights: _INT, widths: _INT, *, patch_size: int
) -> tuple[_INT, _INT]:
    """Height and width to which the processor of a rule resizes images.

    Exact for rules with one segment an image. For tiles it is the size of the same area and
    proportions, the thumbnail included. An image the rule refuses keeps its size.

    Example:
        >>> from balancer.tokens import token_rule
        >>> rule = token_rule("qwen2.5-vl")
        >>> resized_sizes(rule, np.array([480]), np.array([640]), patch_size=14)
        (array([476]), array([644]))
    """
    counts = rule.images(heights, widths)
    shrunk = np.sqrt(counts.patches / (heights * widths)) * patch_size
    one = counts.segments == 1
    tall = np.where(one, counts.grid_heights * patch_size, np.rint(heights * shrunk))
    wide = np.where(one, counts.grid_widths * patch_size, np.rint(widths * shrunk))
    return (
        np.where(counts.legal, tall, heights).astype(np.int64),
        np.where(counts.legal, wide, widths).astype(np.int64),
    )


def _item_amounts(files: MediaFiles, heights: _INT, widths: _INT) -> dict[str, _FLOAT]:
    """Amounts of every file, by name; zero in the columns of other kinds and formats."""
    frames = np.where(files.kinds == "video", np.maximum(files.frames, 1), 1)
    pixels = (frames * files.heights * files.widths).astype(np.float64)
    output = (frames * heights * widths).astype(np.float64)
    amounts: dict[str, _FLOAT] = {}
    for kind in _KINDS:
        own = np.asarray(files.kinds == kind)
        if not own.any():
            continue
        amounts[f"{kind}:items"] = own.astype(np.float64)
        if kind != "audio":
            amounts[f"{kind}:output_pixels"] = np.where(own, output, 0.0)
        if kind == "image":
            work = resize_work(files.heights, files.widths, heights, widths)
            amounts["image:resize_pixels"] = np.where(own, work, 0.0)
        second = ("seconds", files.seconds) if kind == "audio" else ("pixels", pixels)
        for format_name in sorted(set(files.formats[own].tolist())):
            group = f"{kind}/{format_name}" if format_name not in ("", "unknown") else kind
            rows = own & np.asarray(files.formats == format_name)
            for name, values in (("bytes", files.encoded_bytes), second):
                column = amounts.setdefault(f"{group}:{name}", np.zeros(len(files)))
                column[rows] += values[rows]
    return amounts


def _files_of(table: SampleTable, formats: tuple[str, str, str]) -> tuple[MediaFiles, _INT]:
    """The media of a table as if they were files, and the sample of each."""
    counts = [table.image_heights.size, table.video_heights.size, table.audio_seconds.size]
    all_offsets = (table.image_offsets, table.video_offsets, table.audio_offsets)
    owners = np.concatenate([np.repeat(np.arange(len(table)), np.diff(o)) for o in all_offsets])
    images, videos, clips = counts

    def column(image: Any, video: Any, audio: Any, kind: Any) -> NDArray[Any]:
        given = zip(counts, (image, video, audio), strict=True)
        return np.concatenate([np.full(num, value, kind) for num, value in given])

    frames = column(0, table.video_frames, 0, np.int64)
    heights = column(table.image_heights, table.video_heights, 0, np.int64)
    widths = column(table.image_widths, table.video_widths, 0, np.int64)
    seconds = column(np.nan, np.nan, table.audio_seconds, np.float64)
    sizes = np.where(np.arange(owners.size) < images, 1, frames) * heights * widths
    size = np.where(np.isnan(seconds), sizes, 16_000 * seconds)
    total = np.bincount(owners, size, len(table))
    share = np.divide(size, total[owners], out=np.zeros(size.shape), where=total[owners] > 0)
    num = images + videos + clips
    files = MediaFiles(
        rows=np.arange(num),
        paths=np.full(num, "", STRINGS),
        kinds=column(*_KINDS, STRINGS),
        formats=column(*formats, STRINGS),
        heights=heights,
        widths=widths,
        frames=frames,
        fps=column(np.nan, table.video_fps, np.nan, np.float64),
        seconds=seconds,
        encoded_bytes=np.rint(share * table.encoded_bytes[owners]).astype(np.int64),
        estimated=np.zeros(num, np.bool_),
        num_given=num,
    )
    return files, owners


def _column(name: str, given: ArrayLike | None, default: _INT) -> _INT:
    column = default if given is None else np.asarray(given, np.int64)
    if column.shape != default.shape:
        raise ArgumentError(
            f"{name} has shape {column.shape}; allowed: {default.shape}, one number a file"
        )
    return column
