"""TarIndex: where in a WebDataset shard the members of each sample stand."""

import hashlib
import os
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError, SampleError
from balancer.sizing.shards import check_end

__all__ = ["TarIndex", "index_of"]

_NAME = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")  # key and extension, as WebDataset takes them
_META = re.compile(r"__[^/]*__($|/)")  # members that WebDataset skips


@dataclass(frozen=True, slots=True, kw_only=True)
class TarIndex:
    """Members of the samples of one shard, in flat arrays that forked workers share.

    Attributes:
        starts: First member of each sample and the number of members, int64 `(samples + 1,)`.
        offsets: Where the bytes of each member begin, int64 `(members,)`.
        sizes: Bytes of each member, int64 `(members,)`.
        names: Key of each sample, a dot and the extension of each member, UTF-8, one after another.
        name_ends: Where the name of each member ends, int64 `(members,)`.
    """

    starts: NDArray[np.int64]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    names: NDArray[np.uint8]
    name_ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def members(self, sample: int) -> tuple[str, list[tuple[str, int, int]]]:
        """Key of a sample, and extension, offset and bytes of its members."""
        found = []
        key = ""
        for member in range(int(self.starts[sample]), int(self.starts[sample + 1])):
            begin = self.name_ends[member - 1] if member else 0
            name = self.names[begin : self.name_ends[member]].tobytes().decode()
            key, extension = _split(name)
            found.append((extension, int(self.offsets[member]), int(self.sizes[member])))
        return key, found


def index_of(shard: str, folder: str | None) -> TarIndex:
    """Index of a shard, from the folder of indexes where it is there, else by one header pass.

    An index in the folder counts while the shard has the same size and time of change.

    Raises:
        ArgumentError: The shard does not exist, or is compressed or no tar file.
        SampleError: It is corrupt, cut short, or has a file twice.
    """
    try:
        status = os.stat(shard)
    except FileNotFoundError:
        raise ArgumentError(f"paths names {shard}, which does not exist") from None
    if folder is None:
        return _index(shard)
    identity = f"{os.path.abspath(shard)} {status.st_size} {status.st_mtime_ns}"
    kept = Path(folder) / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.npz"
    if kept.exists():
        with np.load(kept) as arrays:
            return TarIndex(**{name: arrays[name] for name in TarIndex.__slots__})
    index = _index(shard)
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_name(f"{kept.stem}-{os.getpid()}-{os.urandom(4).hex()}.unfinished")
    with open(unfinished, "wb") as file:
        np.savez(file, **{name: getattr(index, name) for name in TarIndex.__slots__})
    os.replace(unfinished, kept)
    return index


def _index(shard: str) -> TarIndex:
    """One pass over the headers."""
    try:
        with tarfile.open(shard, "r:") as tar:
            return _members(tar, shard)
    except tarfile.TarError as error:
        with open(shard, "rb") as file:
            compressed = file.read(6).startswith(
                (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f")
            )
        if compressed:
            raise ArgumentError(
                f"paths names {shard}, which is compressed; unpack it once (media are compressed "
                "already), so that members can be read where they stand"
            ) from error
        raise SampleError(
            f"paths: the shard {shard} is corrupt or cut short ({error}); write it again, or leave "
            "it out"
        ) from error


def _members(tar: tarfile.TarFile, shard: str) -> TarIndex:
    starts: list[int] = []
    offsets: list[int] = []
    sizes: list[int] = []
    name_ends: list[int] = []
    names = bytearray()
    last_key, extensions = "", set[str]()
    for member in tar:
        tar.members = []  # type: ignore[attr-defined]  # else it keeps an object a member
        if not member.isreg() or _META.match(member.name) or not _NAME.match(member.name):
            continue
        key, extension = _split(member.name)
        if not starts or key != last_key:
            starts.append(len(offsets))
            last_key, extensions = key, set()
        if extension in extensions or member.issparse():
            fault = "twice" if extension in extensions else "stored sparse"
            raise SampleError(
                f"paths: the shard {shard} has {member.name} {fault}; write it again",
                sample_ids=[len(starts) - 1],
            )
        extensions.add(extension)
        offsets.append(member.offset_data)
        sizes.append(member.size)
        names += f"{key}.{extension}".encode()
        name_ends.append(len(names))
    check_end(tar)
    return TarIndex(
        starts=np.array([*starts, len(offsets)], np.int64),
        offsets=np.array(offsets, np.int64),
        sizes=np.array(sizes, np.int64),
        names=np.frombuffer(bytes(names), np.uint8),
        name_ends=np.array(name_ends, np.int64),
    )


def _split(name: str) -> tuple[str, str]:
    """Key and extension in lower case."""
    match = _NAME.match(name)
    return (match.group(1), match.group(2).lower()) if match else (name, "")
