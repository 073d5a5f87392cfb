"""SampleTables from Parquet and Arrow columns, and table files that are memory-mapped."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.resources import as_file, files
from os import PathLike
from typing import Any

import numpy as np

from balancer.errors import ArgumentError, SampleError
from balancer.samples import SampleTable
from balancer.sizing.arrow_columns import ArrowColumn, media_items

__all__ = [
    "SizeColumns",
    "embedded_table",
    "load_table",
    "save_table",
    "table_from_arrow",
    "table_from_parquet",
]

_FORMAT = b"1"
_FORMAT_KEY = b"evenstep.sample_table"
_MEDIA = {
    "images": {"height": "image_heights", "width": "image_widths"},
    "videos": {
        "frames": "video_frames",
        "fps": "video_fps",
        "height": "video_heights",
        "width": "video_widths",
    },
    "audio": {"seconds": "audio_seconds"},
}
_OFFSETS = {"images": "image_offsets", "videos": "video_offsets", "audio": "audio_offsets"}
_PER_SAMPLE = ("text_tokens", "target_tokens", "encoded_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeColumns:
    """Names of the columns that hold the sizes of the samples.

    A column named here by the caller must be in the data; one that keeps its default name may be
    absent (`text_tokens` excepted), and `None` leaves it out. A media column holds a list a
    sample, or one number a sample for data with at most one item each; null means no item.

    Attributes:
        text_tokens: Text tokens.
        target_tokens: Supervised tokens; null means all text tokens.
        image_heights: Pixels.
        image_widths: Pixels.
        video_frames: Frames in the file.
        video_fps: Frames a second in the file; null means not known.
        video_heights: Pixels.
        video_widths: Pixels.
        audio_seconds: Seconds.
        encoded_bytes: Bytes to read; a list is summed, null means not known.

    Example:
        >>> SizeColumns(text_tokens="num_tokens").text_tokens
        'num_tokens'
    """

    text_tokens: str = "text_tokens"
    target_tokens: str | None = "target_tokens"
    image_heights: str | None = "image_heights"
    image_widths: str | None = "image_widths"
    video_frames: str | None = "video_frames"
    video_fps: str | None = "video_fps"
    video_heights: str | None = "video_height"
    video_widths: str | None = "video_width"
    audio_seconds: str | None = "audio_seconds"
    encoded_bytes: str | None = "image_bytes"


def table_from_arrow(table: Any, columns: SizeColumns | None = None) -> SampleTable:
    """Table from the columns of a `pyarrow.Table`; row `i` is sample `i`.

    Args:
        table: A `pyarrow.Table` or record batch.
        columns: Where each size stands; the names of `SizeColumns` when not given.

    Raises:
        ArgumentError: A column is missing, or is not of numbers.
        SampleError: A size is null where it must be known, or impossible; carries the row ids.

    Example:
        >>> import pyarrow
        >>> data = pyarrow.table({"n": [7, 9], "image_heights": [[480], []],
        ...                       "image_widths": [[640], []]})
        >>> table_from_arrow(data, SizeColumns(text_tokens="n")).num_images
        array([1, 0])
    """
    names = _present(columns or SizeColumns(), table.schema.names, "the table")
    given = {size: ArrowColumn(size, name, table.column(name)) for size, name in names.items()}
    text = given["text_tokens"]
    if text.nulls.any():
        sample_id = int(np.argmax(text.nulls))
        raise SampleError(
            f"text_tokens of sample {sample_id} is null in column {text.name!r} "
            f"({int(text.nulls.sum())} in all); write 0 where a sample has no text",
            sample_ids=np.flatnonzero(text.nulls).tolist(),
        )
    arrays: dict[str, Any] = {"text_tokens": text.scalars(0)}
    if "target_tokens" in given:
        arrays["target_tokens"] = given["target_tokens"].scalars(arrays["text_tokens"])
    if "encoded_bytes" in given:
        arrays["encoded_bytes"] = given["encoded_bytes"].sums()
    for group in _MEDIA.values():
        arrays |= media_items([given[size] for size in group.values() if size in given])
    return SampleTable.from_arrays(**arrays)


def table_from_parquet(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    columns: SizeColumns | None = None,
    *,
    memory_map: bool = True,
) -> SampleTable:
    """Table from one or more Parquet files; only the columns of sizes are read.

    Args:
        paths: One file, or several whose rows follow each other in the given order.
        columns: Where each size stands; the names of `SizeColumns` when not given.
        memory_map: Map the files rather than read them into buffers.

    Raises:
        ArgumentError: A file is not Parquet, a column is missing, or is not of numbers.
        OSError: A file cannot be read.
        SampleError: As in `table_from_arrow`; ids run on over the files.
    """
    import pyarrow

    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    if not given:
        raise ArgumentError("paths is empty; give at least one Parquet file")
    tables = [_read(path, columns or SizeColumns(), memory_map) for path in given]
    for path, table in zip(given, tables, strict=True):
        if set(table.column_names) != set(tables[0].column_names):
            raise ArgumentError(
                f"paths: {path} has size columns {', '.join(table.column_names)}, {given[0]} has "
                f"{', '.join(tables[0].column_names)}; write the files alike"
            )
    return table_from_arrow(pyarrow.concat_tables(tables, promote_options="permissive"), columns)


def save_table(table: SampleTable, path: str | PathLike[str]) -> None:
    """Write a table as an Arrow IPC file, one row a sample, that `load_table` maps into memory.

    Media are one `large_list<struct>` column a medium; any Arrow reader can open the file.
    """
    import pyarrow

    arrays: dict[str, Any] = {name: pyarrow.array(getattr(table, name)) for name in _PER_SAMPLE}
    for medium, parts in _MEDIA.items():
        items = pyarrow.StructArray.from_arrays(
            [pyarrow.array(getattr(table, column)) for column in parts.values()], list(parts)
        )
        offsets = pyarrow.array(getattr(table, _OFFSETS[medium]))
        arrays[medium] = pyarrow.LargeListArray.from_arrays(offsets, items)
    batch = pyarrow.record_batch(list(arrays.values()), names=list(arrays))
    schema = batch.schema.with_metadata({_FORMAT_KEY: _FORMAT})
    with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, schema) as writer:
        writer.write_batch(batch.replace_schema_metadata(schema.metadata))


def load_table(path: str | PathLike[str]) -> SampleTable:
    """Map a table written by `save_table`; O(1), pages are read when they are touched.

    The file must not change while the table is in use.

    Raises:
        ArgumentError: The file is not such a table.
        OSError: The file cannot be read.
    """
    import pyarrow

    source = pyarrow.memory_map(str(path))
    try:
        reader = pyarrow.ipc.open_file(source)
        batch = reader.get_batch(0)
    except pyarrow.ArrowInvalid as error:
        raise ArgumentError(f"path: {path} is not a saved table ({error})") from error
    if (reader.schema.metadata or {}).get(_FORMAT_KEY) != _FORMAT:
        raise ArgumentError(
            f"path: {path} is an Arrow file but not a saved table of format {_FORMAT.decode()}; "
            "write it with save_table, or read it with table_from_arrow"
        )
    columns = {name: batch.column(name).to_numpy() for name in _PER_SAMPLE}
    for medium, parts in _MEDIA.items():
        lists: Any = batch.column(medium)
        empty = np.zeros(1, np.int64)
        columns[_OFFSETS[medium]] = lists.offsets.to_numpy() if len(lists) else empty
        for part, column in parts.items():
            columns[column] = lists.values.field(part).to_numpy()
    return SampleTable(**columns)


def embedded_table() -> SampleTable:
    """Sizes of 8,192 real samples of many sources that come with the package.

    Captions, document pages, interleaved pages, questions on videos and text-only samples; sizes
    and counts only. Sources and licences: `balancer/data/PROVENANCE.md`.

    Example:
        >>> len(embedded_table())
        8192
    """
    with as_file(files("balancer") / "data" / "mixture.parquet") as path:
        return table_from_parquet(path, memory_map=False)


def _read(path: str | PathLike[str], columns: SizeColumns, memory_map: bool) -> Any:
    """Arrow table of the columns of sizes of one Parquet file."""
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(str(path), memory_map=memory_map) as file:
            names = _present(columns, file.schema_arrow.names, str(path))
            return file.read(columns=list(dict.fromkeys(names.values())))
    except pyarrow.ArrowInvalid as error:
        raise ArgumentError(f"paths: {path} is not a Parquet file ({error})") from error


def _present(columns: SizeColumns, there: Sequence[str], where: str) -> dict[str, str]:
    """Columns to read, by size; an absent one must be optional and have its default name."""
    names = {}
    for field in fields(columns):
        name = getattr(columns, field.name)
        if name in there:
            names[field.name] = name
        elif name is not None and (name != field.default or field.name == "text_tokens"):
            raise _missing(field.name, name, there, where)
    for group in _MEDIA.values():
        given = [size for size in group.values() if size in names]
        needed = [size for size in group.values() if size != "video_fps" and size not in names]
        if given and needed:
            raise _missing(needed[0], getattr(columns, needed[0]), there, where)
    return names


def _missing(size: str, name: str | None, there: Sequence[str], where: str) -> ArgumentError:
    return ArgumentError(
        f"{size} is column {name!r}, which {where} does not have; its columns are "
        f"{', '.join(there)}; set {size} to one of them"
    )
