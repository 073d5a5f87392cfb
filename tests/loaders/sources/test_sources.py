"""TarDataset and FolderDataset: what was written is read, by number, in threads and processes."""

import io
import json
import multiprocessing
import os
import pickle
import tarfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
import webdataset
from PIL import Image

from balancer.errors import ArgumentError, SampleError
from balancer.samples import SampleTable
from loaders import BalancedDataLoader
from loaders.sources import FolderDataset, TarDataset, decode_image
from loaders.sources.tar_index import index_of
from loaders.stages import Stage, StagePipeline

# WebDataset itself leaves shards open for the garbage collector to close.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]

COUNTS = (3, 1, 4)
DEMO = Path(__file__).parents[4] / "shared" / "data" / "demo" / "images"


def png(width, height):
    file = io.BytesIO()
    Image.new("RGB", (width, height), (width, height, 7)).save(file, "PNG")
    return file.getvalue()


def records():
    """Eight samples: an image of its own size, a text, and a record."""
    for i in range(sum(COUNTS)):
        yield {
            "png": png(10 + i, 20),
            "txt": f"text {i}".encode(),
            "json": json.dumps({"text_tokens": i + 1}).encode(),
        }


def write_tar(path, members):
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return str(path)


@pytest.fixture
def shards(tmp_path):
    rows = enumerate(records())
    paths = []
    for number, count in enumerate(COUNTS):
        members = []
        for _ in range(count):
            i, record = next(rows)
            members += [(f"folder/{i:03d}.{name.upper()}", data) for name, data in record.items()]
        paths.append(write_tar(tmp_path / f"{number}.tar", members))
    return paths


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "media"
    for i, record in enumerate(records()):
        for name, data in record.items():
            path = root / f"{i // 3}" / f"{i:03d}.{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    (root / "README.txt").write_text("no sample")
    return root


@pytest.fixture(params=["tar", "folder"])
def dataset(request):
    fixture = request.getfixturevalue({"tar": "shards", "folder": "folder"}[request.param])
    return {"tar": TarDataset, "folder": FolderDataset}[request.param](fixture)


def image_width(dataset, index):
    return decode_image(dataset[index])["image"].size[0]


def test_every_sample_has_the_bytes_written(dataset):
    assert len(dataset) == sum(COUNTS)
    for i, record in enumerate(records()):
        sample = dataset[i]
        assert sample["__id__"] == i
        assert {name: sample[name] for name in record} == record
    with pytest.raises(IndexError, match="index is 8; allowed: 0 to 7"):
        dataset[8]


def test_samples_are_those_that_webdataset_yields(shards, tmp_path):
    """Members without an extension are no samples to either."""
    odd = [
        ("__meta__", b"{}"),
        ("__e__.json", b"3"),
        ("folder/nodot", b""),
        ("a.b/c.seg.png", b"1"),
        ("d.t", b"2"),
    ]
    shards = [*shards, write_tar(tmp_path / "odd.tar", odd)]
    dataset = TarDataset(shards)
    ours = [dataset[i] for i in range(len(dataset))]
    stream = webdataset.WebDataset(shards, shardshuffle=False, empty_check=False)
    for own, theirs in zip(ours, stream, strict=True):
        fields = {k: v for k, v in theirs.items() if k not in ("__local_path__", "__url__")}
        assert {k: v for k, v in own.items() if k not in ("__id__", "__url__")} == fields


def test_threads_read_what_one_reads(dataset):
    indices = [(7 * i) % 8 for i in range(80)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(dataset.__getitem__, indices)) == [dataset[i] for i in indices]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_any_start_method_read_the_same(dataset, method):
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(image_width, dataset, 5).result(60) == 15


def test_a_pickle_is_small_and_reads_the_same(dataset):
    sent = pickle.dumps(dataset)
    assert len(sent) < 2000
    assert pickle.loads(sent)[3] == dataset[3]


def test_sizes_come_from_headers(dataset):
    sizes = dataset.sizes
    assert isinstance(sizes, SampleTable)
    assert sizes.image_widths.tolist() == [10 + i for i in range(8)]
    assert sizes.text_tokens.tolist() == [i + 1 for i in range(8)]


def test_members_that_are_no_samples_are_not_sized_in_silence(tmp_path):
    path = write_tar(tmp_path / "a.tar", [("nodot", b"1"), ("x.png", png(4, 4))])
    with pytest.raises(ArgumentError, match="paths has 1 samples and 2 with sizes"):
        TarDataset(path).sizes  # noqa: B018


def test_as_the_read_stage_of_a_pipeline(dataset):
    stages = [
        Stage(name="read", work=dataset.__getitem__, threads=0, workers=2),
        Stage(name="decode", work=decode_image, threads=0, workers=2),
    ]
    with StagePipeline(stages) as pipeline:
        widths = [[s["image"].size[0] for s in made] for _, made in pipeline([[5, 0], [3, 7]])]
    assert widths == [[15, 10], [13, 17]]


def ids_of(samples):
    return [sample["__id__"] for sample in samples]


def test_as_the_dataset_of_the_loader(dataset):
    loader = BalancedDataLoader(
        dataset, global_batch_size=4, num_microbatches=2, dp_rank=0, dp_size=1,
        cost_model=lambda table: table.text_tokens, collate_fn=ids_of,
    )  # fmt: skip
    assert sorted(i for batch in loader for i in batch) == list(range(8))


def test_an_index_kept_is_used_until_the_shard_changes(shards, tmp_path, monkeypatch):
    kept = str(tmp_path / "indexes")
    first = TarDataset(shards, index_folder=kept)
    opened = []
    monkeypatch.setattr(tarfile, "open", lambda *a, real=tarfile.open: opened.append(a) or real(*a))
    assert TarDataset(shards, index_folder=kept)[6] == first[6]
    assert not opened
    os.utime(shards[1], (1, 1))
    assert TarDataset(shards, index_folder=kept)[6] == first[6]
    assert [name for name, _ in opened] == [shards[1]]
    assert not list(Path(kept).glob("*.unfinished"))


def test_a_shard_cut_short_is_named(shards):
    whole = TarDataset(shards)
    data = Path(shards[2]).read_bytes()
    offset = whole._indexes[2].offsets[3]
    Path(shards[2]).write_bytes(data[: offset + 5])
    with pytest.raises(SampleError, match=r"sample 5 \(folder/005 of .*2.tar\)") as caught:
        whole[5]
    assert caught.value.sample_ids == (5,)
    with pytest.raises(SampleError, match=r"2\.tar is corrupt or cut short"):
        TarDataset(shards)


def test_a_damaged_header_is_not_the_end_of_the_shard(shards):
    """The standard library stops there without a word, and half of the samples would be lost."""
    index = index_of(shards[2], None)
    data = bytearray(Path(shards[2]).read_bytes())
    data[index.offsets[6] - 512 + 10] ^= 0xFF
    Path(shards[2]).write_bytes(data)
    with pytest.raises(SampleError, match=r"2\.tar is corrupt.*no readable header at byte"):
        TarDataset(shards)


def test_a_corrupt_image_is_named_with_its_id_and_shard(tmp_path):
    path = write_tar(tmp_path / "a.tar", [("x.png", png(4, 4)), ("y.png", png(4, 4)[:40])])
    dataset = TarDataset(path, transform=decode_image)
    assert dataset[0]["image"].size == (4, 4)
    with pytest.raises(SampleError, match=r"sample 1 \(y of .*a.tar\) has a corrupt image") as e:
        dataset[1]
    assert e.value.sample_ids == (1,)
    with pytest.raises(SampleError, match="has no image; its fields are"):
        decode_image({"__id__": 0, "__key__": "x", "__url__": "a", "txt": b""})


def test_shards_that_cannot_be_read_are_refused(tmp_path):
    twice = write_tar(tmp_path / "twice.tar", [("x.txt", b"1"), ("x.TXT", b"2")])
    packed = tmp_path / "packed.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("x.txt"))
    for paths, error, message in (
        ([], ArgumentError, "paths is empty"),
        (tmp_path / "no.tar", ArgumentError, "does not exist"),
        (packed, ArgumentError, "which is compressed"),
        (twice, SampleError, "has x.TXT twice"),
    ):
        with pytest.raises(error, match=message):
            TarDataset(paths)


def test_files_left_out_are_listed_and_files_that_go_are_errors(folder):
    dataset = FolderDataset(folder)
    assert dataset.left_out == ("README.txt",)
    sent = pickle.dumps(dataset)
    (folder / "1" / "004.png").unlink()
    with pytest.raises(SampleError, match=r"sample 4: .*004\.png cannot be read"):
        dataset[4]
    with pytest.raises(ArgumentError, match="has other files than"):
        pickle.loads(sent)
    (folder / "0" / "000.jpg").write_bytes(b"x")
    with pytest.raises(ArgumentError, match="with the same stem"):
        FolderDataset(folder)
    (folder / "empty").mkdir()
    with pytest.raises(ArgumentError, match="which has no media files"):
        FolderDataset(folder / "empty")


def test_texts_need_a_count_of_tokens(folder):
    for path in folder.rglob("*.json"):
        path.unlink()
    with pytest.raises(ArgumentError, match="count_tokens is not given"):
        FolderDataset(folder).sizes.text_tokens  # noqa: B018
    assert FolderDataset(folder, count_tokens=len).sizes.text_tokens.tolist() == [6] * 8


@pytest.mark.skipif(not DEMO.is_dir(), reason="../shared/data/demo/images is not there")
def test_real_images_have_the_sizes_their_headers_say(tmp_path):
    """Eight of the demo images, from a folder and from a shard: decoded as large as announced."""
    files = sorted(p for p in DEMO.iterdir() if p.stat().st_size < 300_000)[:8]
    (tmp_path / "real").mkdir()
    for path in files:
        (tmp_path / "real" / path.name).write_bytes(path.read_bytes())
    shard = write_tar(tmp_path / "a.tar", [(p.name, p.read_bytes()) for p in files])
    for dataset in (FolderDataset(tmp_path / "real"), TarDataset(shard)):
        decoded = [decode_image(dataset[i])["image"].size for i in range(len(files))]
        sizes = dataset.sizes
        assert decoded == list(
            zip(sizes.image_widths.tolist(), sizes.image_heights.tolist(), strict=True)
        )
