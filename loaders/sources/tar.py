"""TarDataset: samples of WebDataset shards by number, read where they stand."""

import os
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from balancer.errors import ArgumentError, SampleError
from balancer.samples import SampleTable
from loaders.sources.tar_index import TarIndex, index_of

__all__ = ["TarDataset"]


class TarDataset(Dataset[Any]):
    """Samples of WebDataset shards as a map-style dataset; nothing is extracted.

    One pass over the headers says where each member stands; members of one name up to the first dot
    are one sample, as WebDataset groups them. A sample is a dict of bytes by extension, with
    `__id__` (its number), `__key__` and `__url__` (the shard). Each is read by one positioned read
    of a file opened for it, so threads and forked processes share nothing. A pickle holds names
    only; the process that gets it reads the index anew, from `index_folder` where that is given.

    Args:
        paths: One shard, or several whose samples follow each other; plain tar files.
        index_folder: Where indexes are kept, by the shard's name, size and time of change; none
            are when not given.
        transform: Makes a sample of the dict, for example `loaders.sources.decode_image`.
        count_tokens: Tokens of a text, for `sizes`.

    Raises:
        ArgumentError: There is no shard, or one is missing or compressed.
        SampleError: A shard is corrupt, cut short, or has a file twice.

    Example:
        >>> import io, tarfile, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = f"{folder.name}/a.tar"
        >>> with tarfile.open(path, "w") as tar:
        ...     for name in ("x.txt", "x.cls", "y.txt"):
        ...         member = tarfile.TarInfo(name)
        ...         member.size = 5
        ...         tar.addfile(member, io.BytesIO(name.encode()))
        >>> dataset = TarDataset(path)
        >>> len(dataset), dataset[0]["cls"], dataset[1]["__key__"]
        (2, b'x.cls', 'y')
        >>> folder.cleanup()
    """

    def __init__(
        self,
        paths: str | PathLike[str] | Sequence[str | PathLike[str]],
        *,
        index_folder: str | PathLike[str] | None = None,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        given = [paths] if isinstance(paths, str | PathLike) else paths
        self.paths = tuple(os.fspath(path) for path in given)
        if not self.paths:
            raise ArgumentError("paths is empty; give at least one tar file")
        self.index_folder = None if index_folder is None else os.fspath(index_folder)
        self.transform = transform
        self.count_tokens = count_tokens
        self._sizes: SampleTable | None = None
        self._indexes, self._ends = self._read_indexes()

    def _read_indexes(self) -> tuple[list[TarIndex], NDArray[np.int64]]:
        indexes = [index_of(path, self.index_folder) for path in self.paths]
        return indexes, np.cumsum([len(index) for index in indexes], dtype=np.int64)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_indexes", "_ends", "_sizes")
        state = {name: value for name, value in vars(self).items() if name not in kept}
        return state | {"_length": len(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        length = state.pop("_length")
        vars(self).update(state)
        self._sizes = None
        self._indexes, self._ends = self._read_indexes()
        if len(self) != length:
            raise ArgumentError(
                f"paths has {len(self)} samples here and had {length} where the dataset was made; "
                "the shards must not change while they are read"
            )

    @property
    def sizes(self) -> SampleTable:
        """Sizes of all samples, from headers when first asked for.

        Raises:
            ArgumentError: Texts cannot be counted, or members that are no sample are in the way.
            SampleError: A member is corrupt.
        """
        if self._sizes is None:
            from balancer.sizing.shards import table_from_tar

            table = table_from_tar(self.paths, count_tokens=self.count_tokens, progress=False)
            if len(table) != len(self):
                raise ArgumentError(
                    f"paths has {len(self)} samples and {len(table)} with sizes; remove members "
                    "without an extension, and those named __...__"
                )
            self._sizes = table
        return self._sizes

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Any:
        sample = self.read(index)
        return sample if self.transform is None else self.transform(sample)

    def read(self, index: int) -> dict[str, Any]:
        """Bytes of a sample's members by extension, without `transform`.

        Raises:
            IndexError: The index is outside the data.
            SampleError: The shard ends before the sample does.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"index is {index}; allowed: 0 to {len(self) - 1}")
        number = int(np.searchsorted(self._ends, index, side="right"))
        first = int(self._ends[number - 1]) if number else 0
        key, members = self._indexes[number].members(int(index) - first)
        begin = members[0][1]
        end = max(offset + size for _, offset, size in members)
        shard = self.paths[number]
        data = _read_range(shard, begin, end - begin)
        if len(data) < end - begin:
            raise SampleError(
                f"sample {index} ({key} of {shard}) ends at byte {end}, the shard at byte "
                f"{begin + len(data)}: it was cut short since it was indexed",
                sample_ids=[int(index)],
            )
        sample: dict[str, Any] = {"__id__": int(index), "__key__": key, "__url__": shard}
        for extension, offset, size in members:
            sample[extension] = data[offset - begin : offset - begin + size]
        return sample


def _read_range(path: str, begin: int, num_bytes: int) -> bytes:
    """Bytes of a file from a position on; fewer where it ends before."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while num_bytes and (part := os.pread(file, num_bytes, begin)):
            parts.append(part)
            begin, num_bytes = begin + len(part), num_bytes - len(part)
        return b"".join(parts)
    finally:
        os.close(file)
