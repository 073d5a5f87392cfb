"""ByteCache: least recently used goes first, bytes stay bounded, threads read each thing once."""

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.parquet import ParquetDataset
from loaders.sources.byte_cache import ByteCache


@given(keys=st.lists(st.integers(0, 6), max_size=60), max_bytes=st.integers(0, 15))
def test_it_reads_what_a_plain_list_of_the_last_used_would_read(keys, max_bytes):
    """Key k has k bytes; a plain model drops the least recently used while over the bound."""
    cache, model = ByteCache(max_bytes=max_bytes), OrderedDict()
    reads, expected = [], []
    for key in keys:
        cache.get(key, lambda key=key: reads.append(key) or key, lambda value: value)
        if key not in model:
            expected.append(key)
        model[key] = None
        model.move_to_end(key)
        while len(model) > 1 and sum(model) > max_bytes:
            model.popitem(last=False)
    assert reads == expected
    assert len(cache) == len(model)


def test_threads_that_ask_at_once_read_once_and_all_learn_of_a_failure():
    cache = ByteCache(max_bytes=10)
    begun, go = threading.Event(), threading.Event()
    calls = []

    def read():
        calls.append(1)
        begun.set()
        assert go.wait(20)
        if len(calls) == 1:
            raise OSError("first time")
        return "ab"

    for outcome in ("fails", "works"):
        begun.clear()
        go.clear()
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(cache.get, "key", read, len)]
            assert begun.wait(20)
            asked += [pool.submit(cache.get, "key", read, len) for _ in range(3)]
            while any(not future.running() for future in asked):
                pass
            threading.Event().wait(0.05)  # let the others come to wait for the first
            go.set()
            for future in asked:
                if outcome == "fails":
                    with pytest.raises(OSError, match="first time"):
                        future.result(20)
                else:
                    assert future.result(20) == "ab"
    assert len(calls) == 2


def test_threads_read_each_row_group_of_a_parquet_file_once(tmp_path, monkeypatch):
    """Eight threads ask for all rows of ten row groups: ten reads, all rows right."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": list(range(100))}), path, row_group_size=10)
    dataset = ParquetDataset(path)
    reads = []
    read = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile,
        "read_row_group",
        lambda file, number, **options: reads.append(number) or read(file, number, **options),
    )
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(dataset.__getitems__, [list(range(i, 100, 8)) for i in range(8)]))
    assert sorted(row["id"] for part in rows for row in part) == list(range(100))
    assert sorted(reads) == list(range(10))
