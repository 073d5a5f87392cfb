"""MediaFiles: sizes of many media files, in columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.errors import ArgumentError, SampleError
from balancer.samples import SampleTable

__all__ = ["STRINGS", "MediaFiles"]

STRINGS: Any = np.dtypes.StringDType()
"""Type of the columns of text; flat memory, which forked workers share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaFiles:
    """Sizes of media files, one row a file that was read or estimated.

    Attributes:
        rows: Which of the given files each row is, rising, int64 `(num_files,)`; only files that
            were skipped are missing.
        paths: Names of the files, strings `(num_files,)`.
        kinds: `"image"`, `"video"` or `"audio"`, strings.
        formats: As in `MediaHeader.format`, strings; `"unknown"` where estimated.
        heights: Pixels as shown, int64; 0 for audio.
        widths: Pixels as shown, int64; 0 for audio.
        frames: Frames of a video, int64; 0 for the others.
        fps: Frames a second of a video, float64; `nan` for the others and where not known.
        seconds: Duration of audio and video, float64; `nan` for images.
        encoded_bytes: Bytes of the file, int64.
        estimated: Files at fault whose sizes are those of their own header, where it was
            readable, else medians over the readable files of their kind; bool.
        num_given: Number of files given.
        faults: Row among the given files, name and fault of every file at fault.

    Example:
        >>> from balancer.probing.media_files import STRINGS
        >>> files = MediaFiles(
        ...     rows=np.array([0]), paths=np.array(["a.png"], STRINGS),
        ...     kinds=np.array(["image"], STRINGS), formats=np.array(["PNG/RGB"], STRINGS),
        ...     heights=np.array([480]), widths=np.array([640]), frames=np.array([0]),
        ...     fps=np.array([np.nan]), seconds=np.array([np.nan]),
        ...     encoded_bytes=np.array([9000]), estimated=np.array([False]), num_given=1)
        >>> files.to_table().image_widths
        array([640])
    """

    rows: NDArray[np.int64]
    paths: NDArray[Any]
    kinds: NDArray[Any]
    formats: NDArray[Any]
    heights: NDArray[np.int64]
    widths: NDArray[np.int64]
    frames: NDArray[np.int64]
    fps: NDArray[np.float64]
    seconds: NDArray[np.float64]
    encoded_bytes: NDArray[np.int64]
    estimated: NDArray[np.bool_]
    num_given: int
    faults: tuple[tuple[int, str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_skipped(self) -> int:
        """Files given that have no row."""
        return self.num_given - len(self)

    def to_table(
        self,
        *,
        samples: ArrayLike | None = None,
        text_tokens: ArrayLike | None = None,
        target_tokens: ArrayLike | None = None,
    ) -> SampleTable:
        """Table of the samples that the files belong to.

        Args:
            samples: Sample of each file given to `probe` (skipped ones too), whole numbers
                `(num_given,)`; every row is a sample of its own when not given. Files of a
                sample stay in their order.
            text_tokens: Text tokens of each sample, which also says how many samples there are;
                0 for each when not given.
            target_tokens: As in `SampleTable.from_arrays`.

        Raises:
            ArgumentError: `samples` has another length, or a sample beyond `text_tokens`.
            SampleError: A size is impossible.
        """
        owners = np.arange(len(self)) if samples is None else self._owners(samples)
        if text_tokens is None:
            text = np.zeros(int(owners.max(initial=-1)) + 1, np.int64)
        else:
            text = np.asarray(text_tokens)
        num = text.shape[0]
        if owners.size and (owners.min() < 0 or owners.max() >= num):
            raise ArgumentError(
                f"samples reaches from {owners.min()} to {owners.max()}; allowed: 0 to {num - 1}, "
                "the rows of text_tokens"
            )
        columns: dict[str, Any] = {}
        for kind, sizes in (
            ("image", {"image_heights": "heights", "image_widths": "widths"}),
            (
                "video",
                {
                    "video_frames": "frames",
                    "video_fps": "fps",
                    "video_heights": "heights",
                    "video_widths": "widths",
                },
            ),
            ("audio", {"audio_seconds": "seconds"}),
        ):
            own = np.flatnonzero(self.kinds == kind)
            own = own[np.argsort(owners[own], kind="stable")]
            offsets = np.zeros(num + 1, np.int64)
            np.cumsum(np.bincount(owners[own], minlength=num), out=offsets[1:])
            for column, name in sizes.items():
                columns[column] = (getattr(self, name)[own], offsets)
        encoded = np.zeros(num, np.int64)
        np.add.at(encoded, owners, self.encoded_bytes)
        return SampleTable.from_arrays(
            text_tokens=text, target_tokens=target_tokens, encoded_bytes=encoded, **columns
        )

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`, one row a file, with the columns that `table_from_arrow` reads.

        `text_tokens` is 0; sizes that a kind of media has not are null.
        """
        import pyarrow

        def of(kind: str, values: NDArray[Any]) -> Any:
            return pyarrow.array(values, mask=np.asarray(self.kinds != kind))

        return pyarrow.table(
            {
                "path": self.paths.tolist(),
                "kind": self.kinds.tolist(),
                "format": self.formats.tolist(),
                "text_tokens": np.zeros(len(self), np.int64),
                "image_heights": of("image", self.heights),
                "image_widths": of("image", self.widths),
                "video_frames": of("video", self.frames),
                "video_fps": of("video", self.fps),
                "video_height": of("video", self.heights),
                "video_width": of("video", self.widths),
                "audio_seconds": of("audio", self.seconds),
                "image_bytes": self.encoded_bytes,
                "estimated": self.estimated,
            }
        )

    def counts(self) -> dict[str, int]:
        """How many files were given, read whole, estimated and skipped."""
        return {
            "given": self.num_given,
            "read": int((~self.estimated).sum()),
            "estimated": int(self.estimated.sum()),
            "skipped": self.num_skipped,
        }

    def fault_lines(self, most: int = 10) -> Iterator[str]:
        """One line a file at fault, `most` of them, and one that counts the rest."""
        for _, path, fault in self.faults[:most]:
            yield f"{path}: {fault}"
        if len(self.faults) > most:
            yield f"and {len(self.faults) - most} more"

    def raise_faults(self) -> None:
        """Raise where a file is at fault.

        Raises:
            SampleError: Names the first files and their faults; carries their rows.
        """
        if self.faults:
            raise SampleError(
                f"paths has {len(self.faults)} of {self.num_given} files that are missing, "
                f"corrupt or truncated: {'; '.join(self.fault_lines())}; mend or remove them, or "
                "set on_error='skip' or 'estimate'",
                sample_ids=[row for row, _, _ in self.faults],
            )

    def _owners(self, samples: ArrayLike) -> NDArray[np.int64]:
        given = np.asarray(samples)
        if given.shape != (self.num_given,) or given.dtype.kind not in "iu":
            raise ArgumentError(
                f"samples has shape {given.shape} and type {given.dtype}; allowed: one whole "
                f"number for each of the {self.num_given} files given to probe"
            )
        return given.astype(np.int64)[self.rows]
