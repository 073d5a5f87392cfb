"""A real WebDataset of tar shards, under StreamLoader's workers and rebalance's exchange."""

import json
from pathlib import Path
from typing import Any

import pytest
import webdataset
from torch import distributed

from balancer.plan import Flag
from loaders.streams import ShardedStream
from tests.loaders.streaming import ids, lengths, on_ranks, rebalanced, stream_loader

# WebDataset itself leaves shards open for the garbage collector to close.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]

COUNTS = [9, 5, 8, 2]


@pytest.fixture
def shards(tmp_path: Path) -> list[str]:
    """Four shards of unequal numbers of samples; ids run through all of them."""
    sizes = iter(enumerate(lengths(sum(COUNTS))))
    urls = []
    for number, count in enumerate(COUNTS):
        urls.append(str(tmp_path / f"shard{number}.tar"))
        with webdataset.TarWriter(urls[-1]) as writer:
            for _ in range(count):
                sample_id, length = next(sizes)
                record = {"id": sample_id, "input_ids": [sample_id] * length}
                writer.write({"__key__": f"{sample_id:04d}", "json": json.dumps(record).encode()})
    return urls


def web_stream(urls: list[str]) -> Any:
    dataset = webdataset.WebDataset(urls, shardshuffle=False, nodesplitter=_as_given)
    return dataset.decode().map(_record)


def _as_given(urls: Any) -> Any:
    return urls


def _record(sample: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = sample["json"]
    return record


def _one_shard(url: str) -> Any:
    return web_stream([url])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_webdataset_comes_whole_and_resumes(shards, num_workers):
    """It splits its shards over the workers by itself; 5 microbatches in, the rest is the same."""
    options: dict[str, Any] = {"tail": "filler", "num_workers": num_workers}
    loader = stream_loader(web_stream(shards), **options)
    whole, states = [], []
    for batch in loader:
        whole.append(ids([batch]))
        states.append(loader.state_dict())
    assert sorted(i for batch in whole for i in batch) == list(range(sum(COUNTS)))
    resumed = stream_loader(web_stream(shards), **options)
    resumed.load_state_dict(states[4])
    assert [ids([batch]) for batch in resumed] == whole[5:]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_a_webdataset_of_each_shard_goes_on_with_other_workers(shards):
    """Two persistent workers read whole shards, as WebDataset does not split them; then three."""
    options: dict[str, Any] = {"tail": "filler", "persistent_workers": True}
    got: list[int] = []
    loader = stream_loader(ShardedStream(shards, _one_shard), num_workers=2, **options)
    for count, batch in enumerate(loader, 1):
        got += [s["id"] for s in batch]
        if count == 5:
            break
    resumed = stream_loader(ShardedStream(shards, _one_shard), num_workers=3, **options)
    resumed.load_state_dict([loader.state_dict()])
    for epoch in (got + ids(resumed), ids(resumed)):
        assert set(epoch) == set(range(sum(COUNTS)))
        assert len(epoch) - sum(COUNTS) <= resumed.stats().num_fillers


@pytest.mark.dist
def test_ranks_that_read_different_shards_run_alike(shards, tmp_path):
    """Rank 0 reads 14 samples, rank 1 reads 10: each once, in equally many microbatches."""

    def run(rank: int) -> Any:
        loader = rebalanced(web_stream(shards[2 * rank : 2 * rank + 2]), tail="filler")
        epoch = list(loader)
        distributed.barrier()
        return [
            [s["id"] for s, flag in zip(batch, batch.facts.flags, strict=True) if flag == Flag.REAL]
            for batch in epoch
        ], loader.stats().ended

    (first, ended), (second, _) = on_ranks(run, 2, tmp_path)
    assert len(first) == len(second)
    assert sorted(i for batch in first + second for i in batch) == list(range(sum(COUNTS)))
    assert ended == {0: 14, 1: 10}
