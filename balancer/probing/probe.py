"""probe: headers of many media files at once."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from balancer.errors import ArgumentError, SampleError
from balancer.probing.headers import MediaHeader, MediaKind, media_kind, read_header, require_reader
from balancer.probing.media_files import STRINGS, MediaFiles

__all__ = ["HeaderColumns", "OnError", "check_on_error", "media_paths", "probe"]

OnError = Literal["raise", "skip", "estimate"]
_SIZES: dict[str, Any] = {
    "heights": np.int64,
    "widths": np.int64,
    "frames": np.int64,
    "fps": np.float64,
    "seconds": np.float64,
    "encoded_bytes": np.int64,
}


def probe(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    num_workers: int = 8,
    on_error: OnError = "raise",
    progress: bool = True,
) -> MediaFiles:
    """Sizes of media files from their headers, many at once.

    Images are opened with Pillow and never decoded; audio and video with PyAV. JPEG, PNG, WebP,
    WAV, MP4, Matroska and Ogg files are also checked to be whole, by how they end. Every file is
    read before faults are reported, so that one pass names all of them.

    Args:
        paths: One folder (all media below it, by suffix, in sorted order), one file, or files.
        num_workers: Threads; 0 reads in the calling thread.
        on_error: What becomes of a missing, corrupt or truncated file. `"raise"`: an error names
            all of them. `"skip"`: it has no row. `"estimate"`: its own header where that is
            readable, else the medians of the files of its kind.
        progress: Show a progress bar.

    Raises:
        ArgumentError: Nothing to read, or a file whose suffix is of no known kind.
        BalancerError: The library that reads a kind is not installed.
        SampleError: Files are at fault and `on_error` is `"raise"`, or there is nothing to
            estimate from; carries their positions in `paths`.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from PIL import Image
        >>> with TemporaryDirectory() as folder:
        ...     Image.new("RGB", (640, 480)).save(f"{folder}/a.png")
        ...     files = probe(folder, progress=False)
        >>> files.heights, files.widths
        (array([480]), array([640]))
    """
    check_on_error(on_error)
    names = media_paths(paths)
    if num_workers < 0:
        raise ArgumentError(f"num_workers is {num_workers}; allowed: whole numbers >= 0")
    columns = HeaderColumns(names)
    with tqdm(total=len(names), desc="probing", unit="file", disable=not progress) as bar:
        _read_all(columns, num_workers, bar.update)
    return columns.result(on_error)


def media_paths(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> list[str]:
    """The files that `paths` names, with a folder replaced by the media below it.

    Raises:
        ArgumentError: There are none.
    """
    if isinstance(paths, (str, os.PathLike)):
        if os.path.isdir(paths):
            found = sorted(str(path) for path in Path(paths).rglob("*") if media_kind(path))
            if not found:
                raise ArgumentError(f"paths is the folder {paths}, which has no media files")
            return found
        return [os.fspath(paths)]
    names = [os.fspath(path) for path in paths]
    if not names:
        raise ArgumentError("paths is empty; give a folder or at least one file")
    return names


def check_on_error(on_error: str) -> None:
    """Raise unless `on_error` is one of the policies.

    Raises:
        ArgumentError: It is not.
    """
    if on_error not in get_args(OnError):
        raise ArgumentError(
            f"on_error is {on_error!r}; allowed: {', '.join(map(repr, get_args(OnError)))}"
        )


class HeaderColumns:
    """Columns that are filled row by row, from any thread, and then become `MediaFiles`.

    Args:
        names: Names of the files; their suffixes say what they hold.

    Raises:
        ArgumentError: A suffix is of no known kind.
        BalancerError: The library that reads a kind is not installed.
    """

    def __init__(self, names: Sequence[str]) -> None:
        kinds = [media_kind(name) for name in names]
        unknown = [name for name, kind in zip(names, kinds, strict=True) if kind is None]
        if unknown:
            raise ArgumentError(
                f"paths has {unknown[0]} ({len(unknown)} such in all), whose suffix is of no known "
                "kind of media; leave it out or rename it (see balancer.probing.headers.SUFFIXES)"
            )
        known = [kind for kind in kinds if kind is not None]
        for kind in sorted(set(known)):
            require_reader(kind)
        num = len(names)
        self.names, self.kinds = np.array(names, STRINGS), np.array(known, STRINGS)
        self.formats = np.full(num, "unknown", STRINGS)
        self.sizes: dict[str, NDArray[Any]] = {
            name: np.zeros(num, kind) for name, kind in _SIZES.items()
        }
        self.readable = np.zeros(num, np.bool_)
        self.faults: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.names)

    def read(self, row: int, open_file: Callable[[], BinaryIO]) -> None:
        """Fill a row from the file that `open_file` opens, or note its fault."""
        kind: MediaKind = self.kinds[row]
        try:
            with open_file() as file:
                header = read_header(file, kind=kind)
        except ArgumentError as error:
            self.faults[row] = str(error).removeprefix("file ")
        except OSError as error:
            self.faults[row] = error.strerror or type(error).__name__
        else:
            self._fill(row, header)

    def result(self, on_error: OnError) -> MediaFiles:
        """The columns, with the files at fault treated as `on_error` says."""
        estimated = np.zeros(len(self), np.bool_)
        estimated[sorted(self.faults)] = True
        if on_error == "estimate":
            self._estimate()
            rows = np.arange(len(self))
        else:
            rows = np.flatnonzero(~estimated)
        files = MediaFiles(
            rows=rows,
            paths=self.names[rows],
            kinds=self.kinds[rows],
            formats=self.formats[rows],
            estimated=estimated[rows],
            num_given=len(self),
            faults=tuple((row, self.names[row], self.faults[row]) for row in sorted(self.faults)),
            **{name: column[rows] for name, column in self.sizes.items()},
        )
        if on_error == "raise":
            files.raise_faults()
        return files

    def _fill(self, row: int, header: MediaHeader) -> None:
        for name, column in self.sizes.items():
            column[row] = getattr(header, _HEADER_NAMES.get(name, name))
        self.formats[row] = header.format
        self.readable[row] = True
        if header.fault:
            self.faults[row] = f"truncated: {header.fault}"

    def _estimate(self) -> None:
        """Medians over the readable files of a kind, for those that are not readable."""
        for kind in np.unique(self.kinds):
            own = self.kinds == kind
            unknown, known = own & ~self.readable, own & self.readable
            if unknown.any() and not known.any():
                row = int(np.argmax(unknown))
                raise SampleError(
                    f"paths: no {kind} file is readable, so there is nothing to estimate from; "
                    f"the first is {self.names[row]}: {self.faults[row]}",
                    sample_ids=np.flatnonzero(unknown).tolist(),
                )
            for column in self.sizes.values():
                if unknown.any():
                    median = np.median(column[known])
                    column[unknown] = np.rint(median) if column.dtype.kind == "i" else median


_HEADER_NAMES = {"heights": "height", "widths": "width"}


def _opened(name: str) -> BinaryIO:
    return open(name, "rb")


def _read_all(columns: HeaderColumns, num_workers: int, done: Callable[[int], object]) -> None:
    """Read every file by its name, in ranges of rows that threads take in turn."""

    def read_range(start: int, stop: int) -> int:
        for row in range(start, stop):
            columns.read(row, partial(_opened, str(columns.names[row])))
        return stop - start

    num = len(columns)
    if num_workers == 0:
        for row in range(num):
            done(read_range(row, row + 1))
        return
    size = max(1, min(256, num // (8 * num_workers)))
    with ThreadPoolExecutor(num_workers, thread_name_prefix="probe") as pool:
        ranges = [
            pool.submit(read_range, start, min(start + size, num)) for start in range(0, num, size)
        ]
        try:
            for future in as_completed(ranges):
                done(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
