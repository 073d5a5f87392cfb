"""SampleTables from Arrow and Parquet, and the memory-mapped table file."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from balancer.errors import ArgumentError, SampleError
from balancer.samples import SampleTable
from balancer.sizing.tables import (
    SizeColumns,
    embedded_table,
    load_table,
    save_table,
    table_from_arrow,
    table_from_parquet,
)

_COUNT = st.integers(0, 2**40)
_PIXELS = st.integers(1, 10**6)


@st.composite
def _row(draw: st.DrawFn) -> dict[str, Any]:
    images = draw(st.lists(st.tuples(_PIXELS, _PIXELS), max_size=3))
    video = draw(st.none() | st.tuples(_PIXELS, st.none() | st.floats(0.5, 240), _PIXELS, _PIXELS))
    frames, fps, height, width = video or (None, None, None, None)
    return {
        "text_tokens": draw(_COUNT),
        "target_tokens": draw(st.none() | _COUNT),
        "image_heights": [item[0] for item in images] or draw(st.sampled_from([[], None])),
        "image_widths": [item[1] for item in images] or draw(st.sampled_from([[], None])),
        "image_bytes": draw(st.none() | st.lists(_COUNT, max_size=3)),
        "video_frames": frames,
        "video_fps": fps,
        "video_height": height,
        "video_width": width,
        "audio_seconds": draw(st.none() | st.floats(0.1, 1e4)),
    }


_SCHEMA = pa.schema(
    [
        ("text_tokens", pa.int64()),
        ("target_tokens", pa.int64()),
        ("image_heights", pa.list_(pa.int32())),
        ("image_widths", pa.large_list(pa.int64())),
        ("image_bytes", pa.list_(pa.int64())),
        ("video_frames", pa.int32()),
        ("video_fps", pa.float64()),
        ("video_height", pa.int32()),
        ("video_width", pa.int32()),
        ("audio_seconds", pa.float64()),
    ]
)


def _expected(rows: list[dict[str, Any]]) -> SampleTable:
    """The table of the rows, built one row at a time."""

    def scalars(name: str) -> list[list[Any]]:
        return [[] if row[name] is None else [row[name]] for row in rows]

    rates = [
        [] if row["video_frames"] is None else [row["video_fps"] or float("nan")] for row in rows
    ]
    texts = [row["text_tokens"] for row in rows]
    return SampleTable.from_arrays(
        text_tokens=np.array(texts, np.int64),
        target_tokens=np.array(
            [
                text if row["target_tokens"] is None else row["target_tokens"]
                for text, row in zip(texts, rows, strict=True)
            ],
            np.int64,
        ),
        image_heights=[row["image_heights"] or [] for row in rows],
        image_widths=[row["image_widths"] or [] for row in rows],
        video_frames=scalars("video_frames"),
        video_fps=rates,
        video_heights=scalars("video_height"),
        video_widths=scalars("video_width"),
        audio_seconds=scalars("audio_seconds"),
        encoded_bytes=np.array([sum(row["image_bytes"] or []) for row in rows], np.int64),
    )


@given(st.lists(_row(), max_size=8), st.integers(0, 3), st.integers(1, 3))
def test_arrow_columns_give_the_table_of_their_rows(
    rows: list[dict[str, Any]], skip: int, num_chunks: int
) -> None:
    """Sliced and chunked columns give the table that reading row by row gives."""
    parts = np.array_split(np.arange(len(rows)), num_chunks)
    data = pa.concat_tables(
        [pa.Table.from_pylist([rows[i] for i in part], schema=_SCHEMA) for part in parts]
    ).slice(skip)
    assert table_from_arrow(data).fingerprint == _expected(rows[skip:]).fingerprint


@given(rows=st.lists(_row(), max_size=6))
def test_a_saved_table_is_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    """load_table(save_table(t)) has the bytes of t."""
    path = tmp_path_factory.mktemp("table") / "sizes.arrow"
    table = _expected(rows)
    save_table(table, path)
    assert load_table(path).fingerprint == table.fingerprint


def test_a_loaded_table_is_a_read_only_view_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sizes.arrow"
    save_table(embedded_table(), path)
    gc.collect()  # what earlier tests left is not to be freed, and counted, during this one
    before = pa.total_allocated_bytes()
    table = load_table(path)
    mapped = [(line.split()[0], line) for line in Path("/proc/self/maps").read_text().splitlines()]
    low, high = next(
        (int(part, 16) for part in span.split("-")) for span, line in mapped if str(path) in line
    )
    for name in ("text_tokens", "image_offsets", "image_heights", "video_frames", "encoded_bytes"):
        column = getattr(table, name)
        assert low <= column.__array_interface__["data"][0] < high, name
        assert not column.flags.writeable
    assert pa.total_allocated_bytes() <= before


def test_rows_run_on_over_several_files(tmp_path: Path) -> None:
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    parquet.write_table(pa.table({"text_tokens": pa.array([1, 2], pa.int32())}), paths[0])
    parquet.write_table(pa.table({"text_tokens": pa.array([3], pa.int64())}), paths[1])
    assert table_from_parquet(paths).text_tokens.tolist() == [1, 2, 3]


def test_the_embedded_table_has_images_videos_and_text_only_samples() -> None:
    table = embedded_table()
    assert len(table) == 8192
    assert table.num_images.sum() > 4000
    assert table.num_videos.sum() > 500
    assert ((table.num_images + table.num_videos) == 0).mean() > 0.3
    assert not len(table.audio_seconds)


def test_the_real_mixture_keeps_every_size(shared_data: Path) -> None:
    path = shared_data / "traces" / "mixture.parquet"
    rows = parquet.read_table(path).slice(0, 2000).to_pylist()
    whole = table_from_parquet(path)
    assert whole.select(np.arange(2000)).fingerprint == _expected(rows).fingerprint


def test_fixed_size_lists_and_one_number_a_sample_are_media_too() -> None:
    pair = pa.array([[480, 640], None], pa.list_(pa.int32(), 2))
    data = pa.table({"text_tokens": [1, 2], "image_heights": pair, "image_widths": pair})
    assert table_from_arrow(data).num_images.tolist() == [2, 0]
    data = pa.table(
        {"text_tokens": [1, 2], "image_heights": [480, None], "image_widths": [640, None]}
    )
    assert table_from_arrow(data).image_offsets.tolist() == [0, 1, 1]


def _error(data: dict[str, Any], **names: Any) -> Callable[[], SampleTable]:
    return lambda: table_from_arrow(pa.table(data), SizeColumns(**names))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_error({"n": [1]}), ["text_tokens", "'text_tokens'", "columns are n", "set text_tokens"]),
        (_error({"text_tokens": [1]}, audio_seconds="clip"), ["audio_seconds", "'clip'"]),
        (
            _error({"text_tokens": [1], "image_heights": [[2]]}),
            ["image_widths", "columns are text_tokens, image_heights"],
        ),
        (_error({"text_tokens": ["a"]}), ["text_tokens", "type string", "cast"]),
        (_error({"text_tokens": [[1]]}), ["text_tokens", "one number a sample"]),
        (
            _error({"text_tokens": [1], "image_heights": [[2]], "image_widths": [2]}),
            ["image_heights is list", "image_widths is int64"],
        ),
    ],
)
def test_a_column_that_cannot_be_read_is_named(
    make: Callable[[], SampleTable], words: list[str]
) -> None:
    with pytest.raises(ArgumentError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("data", "sample_ids", "words"),
    [
        ({"text_tokens": [1, None, None]}, (1, 2), "text_tokens of sample 1 is null"),
        ({"text_tokens": [1, float("nan")]}, (1,), "text_tokens of sample 1 is nan"),
        ({"text_tokens": [1, -5]}, (1,), "text_tokens of sample 1 is -5"),
        (
            {"text_tokens": [1, 1], "image_heights": [[], [3, 4]], "image_widths": [[], [3, None]]},
            (1,),
            "image_widths of sample 1 is null",
        ),
        (
            {
                "text_tokens": [1, 1],
                "video_frames": [None, None],
                "video_height": [None, 2],
                "video_width": [None, 2],
            },
            (1,),
            "video_frames of sample 1 is null",
        ),
        (
            {"text_tokens": [1, 1], "image_heights": [[2], [3]], "image_widths": [[2], [3, 3]]},
            (1,),
            "different numbers of items for sample 1",
        ),
    ],
)
def test_an_impossible_size_names_its_sample(
    data: dict[str, Any], sample_ids: tuple[int, ...], words: str
) -> None:
    with pytest.raises(SampleError, match=words) as caught:
        table_from_arrow(pa.table(data))
    assert caught.value.sample_ids == sample_ids


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "x.txt"
    text.write_text("not a table, only some text that is long enough")
    with pytest.raises(ArgumentError, match="not a Parquet file"):
        table_from_parquet(text)
    with pytest.raises(ArgumentError, match="not a saved table"):
        load_table(text)
    with pytest.raises(FileNotFoundError):
        table_from_parquet(tmp_path / "absent.parquet")
    with pytest.raises(ArgumentError, match="paths is empty"):
        table_from_parquet([])
    other = tmp_path / "other.arrow"
    batch = pa.record_batch({"text_tokens": [1]})
    with pa.OSFile(str(other), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(ArgumentError, match="table_from_arrow"):
        load_table(other)
