"""Sizes from JSON lines, from WebDataset shards, and from the columns of a dataset."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from balancer.errors import ArgumentError, SampleError
from balancer.sizing.dataset import table_from_columns, table_from_jsonl, table_from_tar
from balancer.sizing.tables import SizeColumns


def _write_lines(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_demo_records_give_the_sizes_they_state(shared_data: Path) -> None:
    path = shared_data / "demo" / "samples.jsonl"
    table = table_from_jsonl(path, progress=False)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert table.text_tokens.tolist() == [record["text_tokens"] for record in records]
    assert table.num_images.tolist() == [record["n_images"] for record in records]
    assert len(table.audio_seconds) == 14


def test_sizes_that_are_not_written_down_come_from_headers(
    shared_data: Path, tmp_path: Path
) -> None:
    demo = shared_data / "demo"
    records = [json.loads(line) for line in (demo / "samples.jsonl").read_text().splitlines()][:9]
    stripped = [
        record
        | {
            "content": [
                {k: v for k, v in item.items() if k in ("type", "text", "image", "audio")}
                for item in record["content"]
            ]
        }
        for record in records
    ]
    path = _write_lines(tmp_path / "a.jsonl", stripped)
    table = table_from_jsonl(path, media_folder=demo, progress=False)
    stated = table_from_jsonl(_write_lines(tmp_path / "b.jsonl", records), progress=False)
    assert table.image_heights.tolist() == stated.image_heights.tolist()
    with pytest.raises(SampleError, match=r"sample 0: .*without height.*media_folder"):
        table_from_jsonl(path, progress=False)


def test_messages_supervise_the_assistant_only(tmp_path: Path) -> None:
    image = {"type": "image", "height": 30, "width": 40}
    messages = [
        {"role": "user", "content": [image, {"type": "text", "text": "what is this"}]},
        {"role": "assistant", "content": "a cat"},
    ]
    path = _write_lines(tmp_path / "a.jsonl", [{"messages": messages}, {"text_tokens": 7}])
    table = table_from_jsonl(path, count_tokens=lambda text: len(text.split()), progress=False)
    assert table.text_tokens.tolist() == [5, 7]
    assert table.target_tokens.tolist() == [2, 7]
    assert table.num_images.tolist() == [1, 0]


@pytest.mark.parametrize(("line", "message"), [("{", "line 2: no JSON"), ("[1]", "no JSON object")])
def test_a_broken_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text_tokens": 1}}\n{line}\n')
    with pytest.raises(ArgumentError, match=message):
        table_from_jsonl(path, progress=False)


# Shards.


def _image(height: int, width: int, format_name: str = "JPEG") -> bytes:
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, format_name)
    return file.getvalue()


def _shard(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


_MEMBERS = {
    "a/000.jpg": _image(30, 40),
    "a/000.txt": b"two words",
    "a/001.left.png": _image(50, 60, "PNG"),
    "a/001.right.png": _image(70, 80, "PNG"),
    "a/001.json": b'{"text_tokens": 9, "target_tokens": 4}',
    "a/002.cls": b"3",
    "a/002.jpg": _image(10, 20),
}


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_members_of_a_name_are_one_sample(mode: str, num_workers: int, tmp_path: Path) -> None:
    shards = [_shard(tmp_path / f"{index}.tar", _MEMBERS, mode) for index in range(3)]
    table = table_from_tar(
        shards, count_tokens=lambda t: len(t.split()), num_workers=num_workers, progress=False
    )
    assert table.text_tokens.tolist() == [2, 9, 0] * 3
    assert table.target_tokens.tolist() == [2, 4, 0] * 3
    assert table.num_images.tolist() == [1, 2, 1] * 3
    assert table.image_heights.tolist() == [30, 50, 70, 10] * 3
    assert table.encoded_bytes[0] == len(_MEMBERS["a/000.jpg"])


def test_faulty_members_are_named_or_their_samples_left_out(tmp_path: Path) -> None:
    cut = _MEMBERS | {"a/000.jpg": _MEMBERS["a/000.jpg"][:-200], "a/002.jpg": b"noise"}
    shard = _shard(tmp_path / "0.tar", cut)
    with pytest.raises(SampleError, match=r"2 samples.*a/000\.jpg\).*truncated.*a/002\.jpg"):
        table_from_tar(shard, count_tokens=len, progress=False)
    with pytest.warns(UserWarning, match="2 samples are left out"):
        table = table_from_tar(shard, count_tokens=len, on_error="skip", progress=False)
    assert table.text_tokens.tolist() == [9]


def test_texts_that_cannot_be_counted_and_torn_shards_are_told(tmp_path: Path) -> None:
    shard = _shard(tmp_path / "0.tar", _MEMBERS)
    with pytest.raises(ArgumentError, match=r"count_tokens is not given.*a/000"):
        table_from_tar(shard, progress=False)
    shard.write_bytes(shard.read_bytes()[:2000])
    with pytest.raises(SampleError, match=r"0\.tar is corrupt or cut short"):
        table_from_tar(shard, count_tokens=len, progress=False)


def test_a_damaged_header_is_not_taken_for_the_end_of_the_shard(tmp_path: Path) -> None:
    """Every byte of a header matters: samples behind a damaged one are never lost silently."""
    shard = _shard(tmp_path / "0.tar", _MEMBERS)
    data = bytearray(shard.read_bytes())
    second = data.find(list(_MEMBERS)[3].encode())
    data[second + 148] ^= 1  # its checksum
    shard.write_bytes(bytes(data))
    with pytest.raises(SampleError, match=r"0\.tar is corrupt or cut short \(no readable header"):
        table_from_tar(shard, count_tokens=len, progress=False)


# Hugging Face datasets.


def test_columns_of_a_dataset_are_read_without_decoding() -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict(
        {
            "n": [1, 2, 3],
            "image_heights": [[10], [], [20, 30]],
            "image_widths": [[11], [], [21, 31]],
            "image": [b"never looked at"] * 3,
        }
    )
    table = table_from_columns(data.select([2, 0]), SizeColumns(text_tokens="n"))
    assert table.text_tokens.tolist() == [3, 1]
    assert table.image_heights.tolist() == [20, 30, 10]
