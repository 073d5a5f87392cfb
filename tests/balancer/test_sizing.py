"""Sizes from datasets, JSON lines and shards; the cache and what it is keyed by."""

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from balancer.errors import ArgumentError, SampleError
from balancer.samples import SampleTable
from balancer.sizing.columns import GrowingColumns
from balancer.sizing.dataset import (
    SampleSize,
    StartMethod,
    table_from_columns,
    table_from_dataset,
    table_from_jsonl,
    table_from_tar,
)


class Untouchable:
    """A dataset that must not be read."""

    fingerprint = "numbers"

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> int:
        raise RuntimeError(f"sample {index} was decoded")


class Numbers(Untouchable):
    def __getitem__(self, index: int) -> int:
        if not 0 <= index < 50:
            raise IndexError(index)
        return index


def size_of_number(number: int) -> SampleSize:
    images = [10 * (side + 1) for side in range(number % 3)]
    return SampleSize(
        text_tokens=number,
        target_tokens=number // 2,
        image_heights=images,
        image_widths=images[::-1],
        audio_seconds=[0.5] if number % 7 == 0 else [],
        encoded_bytes=number * 100,
    )


def _fails_on_13(number: int) -> dict[str, Any]:
    if number == 13:
        raise KeyError("no text here")
    return {"text_tokens": number}


def _table(**options: Any) -> SampleTable:
    return table_from_dataset(Numbers(), size_of_number, progress=False, **options)


@pytest.mark.parametrize(
    ("num_workers", "start_method"), [(1, "fork"), (3, "fork"), (2, "spawn"), (2, "forkserver")]
)
def test_processes_give_the_table_of_one(num_workers: int, start_method: StartMethod) -> None:
    alone = _table()
    assert alone.text_tokens.tolist() == list(range(50))
    assert alone.num_images.tolist() == [number % 3 for number in range(50)]
    together = _table(num_workers=num_workers, start_method=start_method)
    assert together.fingerprint == alone.fingerprint


def test_an_iterable_is_read_once() -> None:
    def numbers() -> Iterator[int]:
        yield from range(50)

    table = table_from_dataset(numbers(), size_of_number, progress=False)
    assert table.fingerprint == _table().fingerprint


def test_planning_from_arrays_touches_no_sample() -> None:
    table = SampleTable.from_arrays(text_tokens=np.arange(len(Untouchable())))
    assert len(table) == 50
    with pytest.raises(SampleError, match="dataset failed on sample 0: RuntimeError"):
        table_from_dataset(Untouchable(), size_of_number, progress=False)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_failure_names_the_sample(num_workers: int) -> None:
    with pytest.raises(SampleError, match=r"size_fn failed on sample 13: KeyError") as raised:
        table_from_dataset(
            Numbers(), _fails_on_13, num_workers=num_workers, start_method="fork", progress=False
        )
    assert raised.value.sample_ids == (13,)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 2.5])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_impossible_size_names_the_sample(value: float, num_workers: int) -> None:
    def size(number: int) -> dict[str, Any]:
        return {"text_tokens": value if number == 41 else 1}

    with pytest.raises(SampleError, match="text_tokens of sample 41") as raised:
        table_from_dataset(
            Numbers(), size, num_workers=num_workers, start_method="fork", progress=False
        )
    assert raised.value.sample_ids == (41,)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (lambda _: 3, "returned int"),
        (lambda _: {"tokens": 3}, "has tokens"),
        (lambda _: {"target_tokens": 3}, "no text_tokens"),
        (lambda _: {"text_tokens": "many"}, "no number"),
        (lambda _: {"text_tokens": 1, "image_heights": [3]}, "different numbers of items"),
    ],
)
def test_what_is_no_size_is_told(size: Callable[[int], Any], message: str) -> None:
    with pytest.raises(SampleError, match=message):
        table_from_dataset(Numbers(), size, progress=False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _table(num_workers=-1), "num_workers is -1"),
        (lambda: table_from_dataset(3, size_of_number), "dataset is a int"),
        (lambda: table_from_dataset(iter([1]), size_of_number, num_workers=2), "num_workers is 2"),
        (
            lambda: table_from_dataset(
                Numbers(), lambda n: {"text_tokens": n}, num_workers=1, start_method="spawn"
            ),
            "size_fn cannot be sent",
        ),
        (lambda: table_from_jsonl([]), "paths is empty"),
        (lambda: table_from_tar([]), "paths is empty"),
        (lambda: table_from_tar(["a.tar"], on_error="estimate"), "on_error is 'estimate'"),
        (lambda: table_from_columns([1, 2]), "dataset is a list"),
    ],
)
def test_bad_arguments_are_told(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()


def test_the_pass_is_shown_with_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    table_from_dataset(Numbers(), size_of_number)
    shown = capsys.readouterr().err
    assert "sizing" in shown
    assert "50/50" in shown


def test_memory_grows_by_flat_columns_only() -> None:
    columns = GrowingColumns()
    size = SampleSize(text_tokens=5, image_heights=[10], image_widths=[20])
    tracemalloc.start()
    for _ in range(20_000):
        columns.append(size)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown / 20_000 < 150  # 12 numbers of 8 bytes, and room to grow
