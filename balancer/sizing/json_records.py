"""SampleTables from JSON lines."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from balancer.errors import ArgumentError
from balancer.probing import media_kind, read_header
from balancer.samples import SampleTable
from balancer.sizing.cache import cached_table
from balancer.sizing.key import files_fingerprint, identity
from balancer.sizing.passes import SizeFunction, sizes_of
from balancer.sizing.sample_size import SampleSize, content_size, size_of

__all__ = ["table_from_jsonl"]


def table_from_jsonl(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    size_fn: SizeFunction | None = None,
    *,
    count_tokens: Callable[[str], int] | None = None,
    media_folder: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_key: str | None = None,
    progress: bool = True,
) -> SampleTable:
    """Sizes of the records of JSON lines files, one sample a line, read line by line.

    Args:
        paths: One file, or several whose lines follow each other.
        size_fn: Size of a record. When not given, records with `content` or `messages` are read
            by `content_size`, others have the keys of `SampleSize`.
        count_tokens: As in `content_size`.
        media_folder: Folder of the media files that records name without their sizes; headers are
            read there.
        cache: As in `table_from_dataset`; the data is known by names, lengths and times of change
            of the files.
        cache_key: As in `table_from_dataset`.
        progress: Show a progress bar with the time left.

    Raises:
        ArgumentError: A line is no JSON object, or a size is missing.
        OSError: A file cannot be read.
        SampleError: `size_fn` raised, or a size is impossible; names the sample.
    """
    files = [Path(paths)] if isinstance(paths, (str, os.PathLike)) else [Path(p) for p in paths]
    if not files:
        raise ArgumentError("paths is empty; give at least one JSON lines file")
    read = size_fn or _RecordSize(count_tokens, media_folder)

    def compute() -> SampleTable:
        total = sum(file.stat().st_size for file in files)
        with tqdm(
            total=total, desc="sizing", unit="B", unit_scale=True, disable=not progress
        ) as bar:
            return sizes_of(_records(files, bar.update), read)

    if cache is None:
        return compute()
    settings = (read, count_tokens, str(media_folder))
    key = (cache_key if cache_key is not None else identity(settings), files_fingerprint(files))
    return cached_table(cache, key, compute)


class _RecordSize:
    """Size of a JSON record: of its content, or of its keys."""

    def __init__(
        self,
        count_tokens: Callable[[str], int] | None,
        media_folder: str | os.PathLike[str] | None,
    ) -> None:
        self.count_tokens = count_tokens
        self.folder = None if media_folder is None else str(media_folder)

    def __call__(self, record: Mapping[str, Any]) -> SampleSize:
        if "content" not in record and "messages" not in record:
            known = SampleSize.__dataclass_fields__
            return size_of({name: value for name, value in record.items() if name in known})
        measure = None if self.folder is None else self._measure
        return content_size(record, count_tokens=self.count_tokens, measure=measure)

    def _measure(self, kind: str, name: str) -> Mapping[str, float]:
        path = Path(self.folder or ".") / name
        found = media_kind(path)
        if found != kind:
            raise ArgumentError(f"content has the {kind} {name}, whose suffix is not of that kind")
        with open(path, "rb") as file:
            header = read_header(file, kind=found)
        if header.fault:
            raise ArgumentError(f"{path} is truncated: {header.fault}")
        sizes = {name: getattr(header, name) for name in ("height", "width", "frames", "fps")}
        return {**sizes, "seconds": header.seconds, "bytes": header.encoded_bytes}


def _records(files: Sequence[Path], done: Callable[[int], object]) -> Iterator[Any]:
    for path in files:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                done(len(line))
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                except ValueError as error:
                    raise ArgumentError(f"{path}, line {number}: no JSON ({error})") from error
                if not isinstance(record, dict):
                    raise ArgumentError(f"{path}, line {number}: no JSON object")
                yield record
