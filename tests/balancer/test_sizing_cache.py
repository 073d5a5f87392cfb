"""The cache of sizes: what it is keyed by, torn files, many writers at once."""

import functools
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from balancer.errors import ArgumentError, SampleError
from balancer.sizing.dataset import files_fingerprint, table_from_dataset, table_from_jsonl
from balancer.sizing.key import identity
from balancer.tokens import token_rule
from tests.balancer.test_sizing import Numbers, Untouchable, size_of_number


def _cached(folder: Path, dataset: Any = None, size_fn: Any = size_of_number, **more: Any) -> Any:
    return table_from_dataset(
        Numbers() if dataset is None else dataset, size_fn, cache=folder, progress=False, **more
    )


def test_a_cached_table_is_read_without_touching_the_dataset(tmp_path: Path) -> None:
    first = _cached(tmp_path / "new" / "folder")
    again = _cached(tmp_path / "new" / "folder", Untouchable())
    assert again.fingerprint == first.fingerprint
    assert [path.suffix for path in (tmp_path / "new" / "folder").iterdir()] == [".arrow"]


def _size_by(rule: Any, tokenizer: Any, sample: int) -> dict[str, Any]:
    return {"text_tokens": tokenizer(sample) + int(rule.images(*[np.array([99])] * 2).tokens[0])}


class _Tokenizer:
    def __init__(self, scale: int) -> None:
        self.scale = scale

    def __call__(self, sample: int) -> int:
        return sample * self.scale


def _by(family: str, scale: int, **settings: Any) -> functools.partial[dict[str, Any]]:
    return functools.partial(_size_by, token_rule(family, **settings), _Tokenizer(scale))


def test_the_cache_is_keyed_by_rule_settings_tokenizer_and_data(tmp_path: Path) -> None:
    base = _cached(tmp_path, size_fn=_by("qwen2.5-vl", 2))
    _cached(tmp_path, Untouchable(), size_fn=_by("qwen2.5-vl", 2))  # made anew, equal: found
    for other in (_by("qwen3-vl", 2), _by("qwen2.5-vl", 3), _by("qwen2.5-vl", 2, max_pixels=3136)):
        with pytest.raises(SampleError, match="was decoded"):
            _cached(tmp_path, Untouchable(), size_fn=other)
    with pytest.raises(SampleError, match="was decoded"):
        _cached(tmp_path, Untouchable(), size_fn=_by("qwen2.5-vl", 2), data_fingerprint="other")
    assert len(base) == 50


def test_an_explicit_key_stands_for_the_function(tmp_path: Path) -> None:
    first = _cached(tmp_path, cache_key="rule 1")
    assert _cached(tmp_path, Untouchable(), len, cache_key="rule 1").fingerprint == (
        first.fingerprint
    )
    with pytest.raises(SampleError, match="was decoded"):
        _cached(tmp_path, Untouchable(), cache_key="rule 2")


def test_options_that_do_not_change_the_result_do_not_change_the_key(tmp_path: Path) -> None:
    _cached(tmp_path, num_workers=2, start_method="fork")
    assert len(_cached(tmp_path, Untouchable(), num_workers=0)) == 50


def test_functions_are_told_apart_by_what_they_compute() -> None:
    limit = 3

    def first(text: str) -> int:
        """Counts."""
        return min(len(text), limit)  # a comment

    def same(sentence: str) -> int:
        """Counts in other words."""
        return min(len(sentence), limit)

    def other(text: str) -> int:
        return max(len(text), limit)

    assert identity(first) == identity(same)
    assert identity(first) != identity(other)
    before = identity(first)
    limit = 4
    assert identity(first) != before


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_torn_file_is_computed_again_with_one_warning(damage: str, tmp_path: Path) -> None:
    whole = _cached(tmp_path)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    damaged = {"cut": content[:-100], "changed": content, "empty": b""}[damage]
    path.unlink()  # the table above still maps the old file
    path.write_bytes(damaged)
    with pytest.warns(UserWarning, match="damaged") as warned:
        again = _cached(tmp_path)
    assert len(warned) == 1
    assert again.fingerprint == whole.fingerprint
    assert len(_cached(tmp_path, Untouchable())) == 50


def _write_many(folder: Path, start: Any) -> None:
    start.wait()
    for _ in range(5):
        for path in folder.glob("*.arrow"):
            path.unlink(missing_ok=True)
        assert _cached(folder).text_tokens.tolist() == list(range(50))


def test_many_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Barrier(4)
    writers = [context.Process(target=_write_many, args=(tmp_path, start)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    _cached(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    assert len(_cached(tmp_path, Untouchable())) == 50


def test_a_cache_that_cannot_be_keyed_or_written_is_told_first(tmp_path: Path) -> None:
    class NoFingerprint(Untouchable):
        fingerprint = None  # type: ignore[assignment]

    with pytest.raises(ArgumentError, match="data_fingerprint is not given"):
        _cached(tmp_path, NoFingerprint())
    file = (tmp_path / "open").open("w")
    with file, pytest.raises(ArgumentError, match="give cache_key"):
        _cached(tmp_path, Untouchable(), lambda sample: file.write(sample))
    with pytest.raises(ArgumentError, match=r"cache is .*open"):
        _cached(tmp_path / "open", Untouchable())


def test_lines_are_cached_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text_tokens": 1}\n')
    before = files_fingerprint([path])
    calls = []

    def size(record: dict[str, Any]) -> dict[str, Any]:
        calls.append(record)
        return record

    for _ in range(2):
        table_from_jsonl(path, size, cache=tmp_path / "c", cache_key="k", progress=False)
    assert len(calls) == 1
    path.write_text('{"text_tokens": 1}\n{"text_tokens": 2}\n')
    assert files_fingerprint([path]) != before
    assert (
        len(table_from_jsonl(path, size, cache=tmp_path / "c", cache_key="k", progress=False)) == 2
    )
