"""ParquetDataset: rows by number, row groups read once, nothing open when it travels."""

import multiprocessing
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from balancer.errors import ArgumentError
from balancer.sizing.tables import SizeColumns
from loaders.parquet import ParquetDataset

NUM_ROWS = 50


@pytest.fixture
def paths(tmp_path):
    """Two files of 30 and 20 rows in row groups of 8."""
    written = []
    for name, ids in (("a", range(30)), ("b", range(30, NUM_ROWS))):
        rows = {
            "id": list(ids),
            "input_ids": [[i] * (i % 5 + 1) for i in ids],
            "text_tokens": [i % 5 + 1 for i in ids],
            "image": [bytes([i]) for i in ids],
        }
        written.append(str(tmp_path / f"{name}.parquet"))
        pq.write_table(pa.table(rows), written[-1], row_group_size=8)
    return written


def count_reads(dataset, monkeypatch):
    """Row groups read from now on, in order."""
    reads = []
    read = pq.ParquetFile.read_row_group

    def counted(file, number, **options):
        reads.append(number)
        return read(file, number, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    return reads


def test_rows_run_on_over_row_groups_and_files(paths):
    dataset = ParquetDataset(paths)
    assert len(dataset) == NUM_ROWS
    assert [dataset[i]["id"] for i in range(NUM_ROWS)] == list(range(NUM_ROWS))
    assert dataset[33]["image"] == bytes([33])
    np.testing.assert_array_equal(dataset[33]["input_ids"], [33] * 4)


def test_many_rows_come_in_the_order_asked_for_and_each_group_is_read_once(paths, monkeypatch):
    dataset = ParquetDataset(paths, columns=["id"])
    reads = count_reads(dataset, monkeypatch)
    wanted = [40, 1, 9, 0, 41, 1, 8]
    assert [row["id"] for row in dataset.__getitems__(wanted)] == wanted
    assert len(reads) == 3


def test_row_groups_stay_in_memory_up_to_the_bytes_allowed(paths, monkeypatch):
    generous, stingy = ParquetDataset(paths), ParquetDataset(paths, cache_bytes=0)
    reads = count_reads(generous, monkeypatch)
    for dataset, expected in ((generous, 2), (stingy, 4)):
        reads.clear()
        for index in (0, 20, 1, 21):
            dataset[index]
        assert len(reads) == expected
    assert len(stingy._cache) == 1


def test_sizes_are_read_from_the_named_columns(paths):
    assert ParquetDataset(paths).sizes is None
    sizes = ParquetDataset(paths, columns=["id"], size_columns=SizeColumns()).sizes
    np.testing.assert_array_equal(sizes.text_tokens, np.arange(NUM_ROWS) % 5 + 1)


def test_a_transform_makes_the_sample(paths):
    assert ParquetDataset(paths, transform=lambda row: row["id"] * 10)[7] == 70


def test_what_is_sent_to_a_worker_is_small_and_reads_the_same(paths):
    dataset = ParquetDataset(paths, size_columns=SizeColumns())
    assert dataset.sizes is not None
    dataset[0]
    sent = pickle.dumps(dataset)
    assert len(sent) < 2000
    assert pickle.loads(sent)[34]["id"] == 34


def read_id(dataset, index, queue):
    queue.put(dataset[index]["id"])


def test_a_forked_process_opens_files_of_its_own(paths):
    dataset = ParquetDataset(paths)
    dataset[0]
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=read_id, args=(dataset, 45, queue))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    assert queue.get() == 45


def test_an_index_outside_the_data_is_an_index_error(paths):
    with pytest.raises(IndexError, match="index is 50; allowed: 0 to 49"):
        ParquetDataset(paths)[NUM_ROWS]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["text"]}, "columns names 'text'.*its columns are id, input_ids"),
        ({"cache_bytes": -1}, "cache_bytes is -1"),
    ],
)
def test_bad_arguments_are_refused_by_name(paths, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        ParquetDataset(paths, **arguments)


def test_missing_empty_and_foreign_files_are_refused(tmp_path):
    foreign = tmp_path / "notes.txt"
    foreign.write_text("not a table, but long enough")
    for paths, message in (
        ([], "paths is empty"),
        (tmp_path / "nowhere.parquet", "does not exist"),
        (foreign, "no Parquet file"),
    ):
        with pytest.raises(ArgumentError, match=message):
            ParquetDataset(paths)
