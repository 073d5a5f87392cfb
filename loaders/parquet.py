"""ParquetDataset: rows of Parquet files as a map-style dataset."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from balancer.errors import ArgumentError
from balancer.samples import SampleTable
from balancer.sizing.tables import SizeColumns, table_from_parquet
from balancer.topology import check_count
from loaders.sources.byte_cache import ByteCache

__all__ = ["ParquetDataset"]


class ParquetDataset(Dataset[Any]):
    """Rows of one or more Parquet files, each a dict by column name.

    Lists of numbers become numpy arrays, all else plain Python values. A microbatch reads each row
    group it needs once, and row groups stay in memory up to `cache_bytes` a process: write small
    row groups (some hundred rows) where access is shuffled. Threads share them, and one that asks
    for a row group while another reads it waits for that one. Files are opened by the thread that
    reads them, so it may be used in threads and sent to processes under any start method.

    Args:
        paths: One file, or several whose rows follow each other in the given order.
        columns: Columns to read; all when not given.
        size_columns: Where the sizes stand; `sizes` is read from them.
        transform: Makes a sample of a row, for example decodes and tokenises it.
        cache_bytes: Most bytes of row groups to keep; the one in use is always kept.

    Raises:
        ArgumentError: There is no file, one is missing or not Parquet, or one lacks a column.

    Example:
        >>> import pyarrow, pyarrow.parquet, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = f"{folder.name}/data.parquet"
        >>> rows = pyarrow.table({"input_ids": [[1, 2], [3], [4, 5]], "text_tokens": [2, 1, 2]})
        >>> pyarrow.parquet.write_table(rows, path, row_group_size=2)
        >>> dataset = ParquetDataset(path, columns=["input_ids"], size_columns=SizeColumns())
        >>> len(dataset), dataset[2], dataset.sizes.text_tokens
        (3, {'input_ids': array([4, 5])}, array([2, 1, 2]))
        >>> folder.cleanup()
    """

    def __init__(
        self,
        paths: str | PathLike[str] | Sequence[str | PathLike[str]],
        *,
        columns: Sequence[str] | None = None,
        size_columns: SizeColumns | None = None,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        cache_bytes: int = 256 * 2**20,
    ) -> None:
        check_count("cache_bytes", cache_bytes, least=0)
        given = [paths] if isinstance(paths, str | PathLike) else paths
        self.paths = tuple(os.fspath(path) for path in given)
        if not self.paths:
            raise ArgumentError("paths is empty; give at least one Parquet file")
        self.columns = None if columns is None else tuple(columns)
        self.size_columns = size_columns
        self.transform = transform
        self.cache_bytes = cache_bytes
        group_rows, self._group_files, self._group_numbers = self._row_groups()
        self._group_ends: NDArray[np.int64] = np.cumsum(group_rows)
        self._forget()

    def _forget(self) -> None:
        """Start without open files, rows or sizes in memory."""
        self._opened = threading.local()
        self._cache = ByteCache(max_bytes=self.cache_bytes)
        self._sizes: SampleTable | None = None
        self._process = os.getpid()  # last: another thread may look at it meanwhile

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_process", "_opened", "_cache", "_sizes")
        return {name: value for name, value in vars(self).items() if name not in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    @property
    def sizes(self) -> SampleTable | None:
        """Sizes of all rows, read when first asked for; `None` without `size_columns`."""
        if self._sizes is None and self.size_columns is not None:
            self._sizes = table_from_parquet(self.paths, self.size_columns)
        return self._sizes

    def __len__(self) -> int:
        return int(self._group_ends[-1]) if len(self._group_ends) else 0

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Samples in the order asked for; each row group they lie in is read once.

        Raises:
            IndexError: An index is outside the data.
        """
        ids = np.asarray(indices, np.int64)
        outside = ids[(ids < 0) | (ids >= len(self))]
        if outside.size:
            raise IndexError(f"index is {outside[0]}; allowed: 0 to {len(self) - 1}")
        groups = np.searchsorted(self._group_ends, ids, side="right")
        rows: list[Any] = [None] * len(ids)
        for group in np.unique(groups):
            places = np.flatnonzero(groups == group)
            first_row = self._group_ends[group - 1] if group else 0
            found = self._read_group(int(group)).take(ids[places] - first_row)
            for place, row in zip(places, _dicts(found), strict=True):
                rows[place] = row
        return rows if self.transform is None else [self.transform(row) for row in rows]

    def _row_groups(self) -> tuple[list[int], list[int], list[int]]:
        """Rows, file and number within the file of each row group, after checking all files."""
        rows, files, numbers = [], [], []
        for index in range(len(self.paths)):
            with self._open(index) as file:
                for number in range(file.num_row_groups):
                    rows.append(file.metadata.row_group(number).num_rows)
                    files.append(index)
                    numbers.append(number)
        return rows, files, numbers

    def _open(self, index: int) -> Any:
        import pyarrow
        from pyarrow import parquet

        path = self.paths[index]
        try:
            file = parquet.ParquetFile(path)
        except FileNotFoundError:
            raise ArgumentError(f"paths names {path}, which does not exist") from None
        except pyarrow.ArrowInvalid as error:
            raise ArgumentError(f"paths names {path}, no Parquet file ({error})") from error
        there = file.schema_arrow.names
        missing = [name for name in self.columns or () if name not in there]
        if missing:
            file.close()
            raise ArgumentError(
                f"columns names {missing[0]!r}, which {path} does not have; its columns are "
                f"{', '.join(there)}"
            )
        return file

    def _read_group(self, group: int) -> Any:
        """Arrow table of one row group, from the cache where it is there."""
        if os.getpid() != self._process:  # forked: open files of its own
            self._forget()
        return self._cache.get(group, lambda: self._read_from_file(group), _num_bytes)

    def _read_from_file(self, group: int) -> Any:
        """Arrow table of one row group; a reader of Parquet serves one thread at a time."""
        index = self._group_files[group]
        files: dict[int, Any] = vars(self._opened).setdefault("files", {})
        if index not in files:
            files[index] = self._open(index)
        columns = None if self.columns is None else list(self.columns)
        return files[index].read_row_group(
            self._group_numbers[group], columns=columns, use_threads=False
        )


def _num_bytes(table: Any) -> int:
    return int(table.nbytes)


def _dicts(table: Any) -> Iterator[dict[str, Any]]:
    """Rows of an Arrow table."""
    columns = [_values(column) for column in table.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(table.column_names, values, strict=True))


def _values(column: Any) -> list[Any]:
    """Values of an Arrow column; lists of numbers as numpy arrays of their own."""
    from pyarrow import types

    kind = column.type
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not is_list or not (types.is_integer(kind.value_type) or types.is_floating(kind.value_type)):
        values: list[Any] = column.to_pylist()
        return values
    return [
        np.array(scalar.values.to_numpy(zero_copy_only=False)) if scalar.is_valid else None
        for scalar in column
    ]
