"""SampleTables from WebDataset shards: tar files, read member by member."""

import io
import json
import os
import tarfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO, Literal, get_args

from tqdm import tqdm

from balancer.errors import ArgumentError, SampleError
from balancer.probing import MediaHeader, MediaKind, media_kind, read_header
from balancer.samples import SampleTable
from balancer.sizing.columns import GrowingColumns, joined_tables
from balancer.sizing.sample_size import SampleSize

__all__ = ["OnShardError", "check_end", "table_from_tar"]

OnShardError = Literal["raise", "skip"]
_TEXTS = (".txt", ".caption", ".text")


def table_from_tar(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    count_tokens: Callable[[str], int] | None = None,
    num_workers: int = 8,
    on_error: OnShardError = "raise",
    progress: bool = True,
) -> SampleTable:
    """Sizes of the samples of WebDataset shards, in the order of the shards and their members.

    Members with one name up to the first dot behind the last slash are one sample. Of media only
    the header (and the end) is read; of `.json` members the keys `text_tokens` and
    `target_tokens` count, and before those the texts of `.txt`, `.text` and `.caption` members.

    Args:
        paths: Shards; plain tar files, or compressed ones, whose members are then unpacked in
            memory one at a time.
        count_tokens: Tokens of a text; needed where samples have texts and no `text_tokens`.
        num_workers: Shards read at once, in threads; 0 reads in the calling thread.
        on_error: What becomes of a sample with a corrupt or truncated member. `"raise"`: an error
            names all of them. `"skip"`: the sample is left out, with a warning that counts them.
        progress: Show a progress bar, in shards.

    Raises:
        ArgumentError: Nothing to read, or texts cannot be counted.
        OSError: A shard cannot be read.
        SampleError: Members are at fault, or a shard is cut short; names them.
    """
    shards = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not shards:
        raise ArgumentError("paths is empty; give at least one tar file")
    if on_error not in get_args(OnShardError):
        raise ArgumentError(f"on_error is {on_error!r}; allowed: 'raise', 'skip'")
    if num_workers < 0:
        raise ArgumentError(f"num_workers is {num_workers}; allowed: whole numbers >= 0")
    read = partial(_read_shard, count_tokens)
    with tqdm(total=len(shards), desc="sizing", unit="shard", disable=not progress) as bar:
        results = []
        for result in _mapped(read, [os.fspath(shard) for shard in shards], num_workers):
            results.append(result)
            bar.update()
    faults = [fault for _, shard_faults in results for fault in shard_faults]
    if faults:
        shown = "; ".join(faults[:10]) + (f"; and {len(faults) - 10} more" if faults[10:] else "")
        if on_error == "raise":
            raise SampleError(
                f"paths has {len(faults)} samples with members that are corrupt or truncated: "
                f"{shown}; mend them, or set on_error='skip'"
            )
        warnings.warn(f"{len(faults)} samples are left out: {shown}", stacklevel=2)
    return joined_tables([table for table, _ in results])


def _mapped(
    read: Callable[[str], tuple[SampleTable, list[str]]], shards: list[str], num_workers: int
) -> Iterator[tuple[SampleTable, list[str]]]:
    if num_workers == 0:
        yield from map(read, shards)
        return
    with ThreadPoolExecutor(num_workers, thread_name_prefix="shards") as pool:
        try:
            yield from pool.map(read, shards)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _read_shard(
    count_tokens: Callable[[str], int] | None, shard: str
) -> tuple[SampleTable, list[str]]:
    """Sizes of the samples of a shard, and the faults of those left out."""
    columns, faults = GrowingColumns(), []
    try:
        with tarfile.open(shard) as tar:
            for key, members in _grouped(tar):
                sample = _Sample(f"{shard}:{key}")
                for member in members:
                    _read_member(sample, tar, member)
                if sample.fault:
                    faults.append(sample.fault)
                else:
                    columns.append(sample.size(count_tokens))
            check_end(tar)
    except (tarfile.TarError, EOFError) as error:
        raise SampleError(
            f"paths: the shard {shard} is corrupt or cut short ({error}) after {len(columns)} "
            "whole samples; write it again, or leave it out"
        ) from error
    return columns.table(), faults


def check_end(tar: tarfile.TarFile) -> None:
    """Refuse a damaged header, which the standard library takes for the end of the file.

    Raises:
        tarfile.ReadError: There is something where the members end.
    """
    file: Any = tar.fileobj
    file.seek(tar.offset)
    if file.read(tarfile.BLOCKSIZE).strip(b"\0"):
        raise tarfile.ReadError(f"no readable header at byte {tar.offset}")


def _grouped(tar: tarfile.TarFile) -> Iterator[tuple[str, list[tarfile.TarInfo]]]:
    """Files of each sample, which follow each other."""
    key = ""
    members: list[tarfile.TarInfo] = []
    for member in tar:
        if not member.isfile():
            continue
        folder, name = os.path.split(member.name)
        own = os.path.join(folder, name.split(".")[0])
        if own != key and members:
            yield key, members
            members = []
        key = own
        members.append(member)
        tar.members = []  # type: ignore[attr-defined]  # else it keeps an object a member
    if members:
        yield key, members


class _Sample:
    """What is known of a sample of which some members are read."""

    def __init__(self, name: str) -> None:
        self.name, self.fault = name, ""
        self.headers: dict[MediaKind, list[MediaHeader]] = {"image": [], "video": [], "audio": []}
        self.texts: list[str] = []
        self.record: Mapping[str, Any] = {}

    def size(self, count_tokens: Callable[[str], int] | None) -> SampleSize:
        images, videos = self.headers["image"], self.headers["video"]
        text_tokens = self.record.get("text_tokens")
        if text_tokens is None:
            if count_tokens is None and self.texts:
                raise ArgumentError(
                    f"count_tokens is not given, and {self.name} has a text without text_tokens in "
                    "a .json member; give count_tokens"
                )
            text_tokens = sum(count_tokens(text) for text in self.texts) if count_tokens else 0
        media = [header for group in self.headers.values() for header in group]
        return SampleSize(
            text_tokens=text_tokens,
            target_tokens=self.record.get("target_tokens"),
            image_heights=[header.height for header in images],
            image_widths=[header.width for header in images],
            video_frames=[header.frames for header in videos],
            video_fps=[header.fps for header in videos],
            video_heights=[header.height for header in videos],
            video_widths=[header.width for header in videos],
            audio_seconds=[header.seconds for header in self.headers["audio"]],
            encoded_bytes=sum(header.encoded_bytes for header in media),
        )


def _read_member(sample: _Sample, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    kind, suffix = media_kind(member.name), os.path.splitext(member.name)[1].lower()
    if kind is None and suffix not in (*_TEXTS, ".json"):
        return
    file = _opened(tar, member)
    try:
        if kind is not None:
            header = read_header(file, kind=kind)
            sample.headers[kind].append(header)
            if header.fault:
                sample.fault = f"{sample.name} ({member.name}): truncated: {header.fault}"
        elif suffix == ".json":
            sample.record = json.load(file)
        else:
            sample.texts.append(file.read().decode())
    except (ArgumentError, ValueError) as error:
        sample.fault = f"{sample.name} ({member.name}): {str(error).removeprefix('file ')}"


def _opened(tar: tarfile.TarFile, member: tarfile.TarInfo) -> BinaryIO:
    """The member, so that seeking in it is cheap."""
    file = tar.extractfile(member)
    if file is None:
        raise tarfile.ReadError(f"{member.name} cannot be read")
    plain = isinstance(tar.fileobj, io.BufferedReader)
    return file if plain else io.BytesIO(file.read())  # type: ignore[return-value]
