"""SampleTables from datasets, JSON lines and WebDataset shards, with progress and a cache."""

import os
from typing import Any

from balancer.errors import ArgumentError
from balancer.samples import SampleTable
from balancer.sizing.cache import cached_table
from balancer.sizing.json_records import table_from_jsonl
from balancer.sizing.key import data_identity, files_fingerprint, identity
from balancer.sizing.passes import SizeFunction, StartMethod, sized, sized_in_processes
from balancer.sizing.sample_size import SampleSize, content_size
from balancer.sizing.shards import OnShardError, table_from_tar
from balancer.sizing.tables import SizeColumns, table_from_arrow

__all__ = [
    "OnShardError",
    "SampleSize",
    "SizeFunction",
    "StartMethod",
    "content_size",
    "files_fingerprint",
    "table_from_columns",
    "table_from_dataset",
    "table_from_jsonl",
    "table_from_tar",
]


def table_from_dataset(
    dataset: Any,
    size_fn: SizeFunction,
    *,
    num_workers: int = 0,
    cache: str | os.PathLike[str] | None = None,
    cache_key: str | None = None,
    data_fingerprint: str | None = None,
    progress: bool = True,
    start_method: StartMethod | None = None,
) -> SampleTable:
    """Sizes of all samples of a dataset, in one pass over it; row `i` is `dataset[i]`.

    Where sizes are already written down there is no need for this pass: `SampleTable.from_arrays`,
    `table_from_columns`, `table_from_parquet` and `probe` never touch a sample.

    Args:
        dataset: With `len` and `[i]`; or any iterable, which is then read in this process.
        size_fn: Size of a sample.
        num_workers: Processes; 0 reads in this one.
        cache: Folder to keep the table in. A later call with the same `size_fn` and data reads
            it from there and does not touch the dataset.
        cache_key: What `size_fn` depends on, as a text: token rule and settings, tokenizer. When
            not given it is found by `balancer.sizing.key.identity`.
        data_fingerprint: A text that changes whenever the data does. The `fingerprint` of the
            dataset, or the content of a list, when not given.
        progress: Show a progress bar with the time left.
        start_method: How processes start; the default of the platform when `None`.

    Raises:
        ArgumentError: What `size_fn` returned is no size, or the cache has nothing to be keyed by.
        BalancerError: A worker process died.
        SampleError: `size_fn` raised, or a size is impossible; names the sample.

    Example:
        >>> texts = ["a short one", "a text that is longer"]
        >>> table = table_from_dataset(
        ...     texts, lambda text: {"text_tokens": len(text.split())}, progress=False)
        >>> table.text_tokens
        array([3, 5])
    """
    num = _length(dataset, num_workers)

    def compute() -> SampleTable:
        if num_workers == 0:
            return sized(dataset, size_fn, num, progress=progress)
        return sized_in_processes(
            dataset,
            size_fn,
            num or 0,
            num_workers=num_workers,
            start_method=start_method,
            progress=progress,
        )

    if cache is None:
        return compute()
    key = (
        cache_key if cache_key is not None else identity(size_fn),
        data_fingerprint if data_fingerprint is not None else data_identity(dataset),
        str(num),
    )
    return cached_table(cache, key, compute)


def table_from_columns(dataset: Any, columns: SizeColumns | None = None) -> SampleTable:
    """Sizes from the columns of a Hugging Face dataset; no image is decoded, no row is looped over.

    Works with any object that has `column_names`, `select_columns` and `with_format("arrow")`. For
    images without columns of sizes, use `table_from_dataset` on the dataset with
    `cast_column("image", datasets.Image(decode=False))` and `balancer.probing.read_header`.

    Args:
        dataset: A `datasets.Dataset`; its indices (after `shuffle` or `select`) are followed.
        columns: Where each size stands; the names of `SizeColumns` when not given.

    Raises:
        ArgumentError: `dataset` is no such object, or a column is missing.
        SampleError: A size is impossible.
    """
    if not all(hasattr(dataset, name) for name in ("column_names", "select_columns")):
        raise ArgumentError(
            f"dataset is a {type(dataset).__name__}; allowed: a datasets.Dataset; for other "
            "datasets use table_from_dataset"
        )
    names = columns or SizeColumns()
    wanted = [getattr(names, field) for field in SizeColumns.__dataclass_fields__]
    present = [name for name in dataset.column_names if name in wanted]
    return table_from_arrow(dataset.select_columns(present).with_format("arrow")[:], names)


def _length(dataset: Any, num_workers: int) -> int | None:
    if num_workers < 0:
        raise ArgumentError(f"num_workers is {num_workers}; allowed: whole numbers >= 0")
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        return len(dataset)
    if not hasattr(dataset, "__iter__"):
        raise ArgumentError(
            f"dataset is a {type(dataset).__name__}; allowed: something with len and [i], or an "
            "iterable"
        )
    if num_workers:
        raise ArgumentError(
            f"num_workers is {num_workers}; an iterable without len and [i] is read in this "
            "process: set num_workers=0"
        )
    return None
