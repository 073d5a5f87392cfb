"""Samples of a stream that cannot be read, sized or collated: named, or left out and listed."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from balancer.plan import Flag
from loaders.sample_errors import SampleReadError
from loaders.streams.shards import ShardedStream
from tests.loaders.streaming import (
    TextStream,
    ids,
    lengths,
    on_ranks,
    rebalanced,
    shards_of,
    stream_loader,
    text_size,
)

MAKERS = {"stream": stream_loader, "rebalance": rebalanced}


class FailingSizes:
    """`size_fn` that fails on samples as long as their ids are in `bad`."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad

    def __call__(self, sample: dict[str, Any]) -> dict[str, int]:
        if sample["id"] in self.bad:
            raise OSError(f"sample {sample['id']} is torn")
        return text_size(sample)


def real_ids(batches: list[Any]) -> list[int]:
    return [
        sample["id"]
        for batch in batches
        for sample, flag in zip(batch, batch.facts.flags, strict=True)
        if flag == Flag.REAL
    ]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("policy", ["replace", "filler"])
@pytest.mark.parametrize(("kind", "num_workers"), [("stream", 0), ("stream", 2), ("rebalance", 0)])
def test_failing_samples_are_left_out_counted_and_listed_and_all_others_come(
    policy, kind, num_workers
):
    """In every epoch, also where one fails at the very end; every step has its microbatches."""
    bad = {3, 4, 17, 29}
    loader = MAKERS[kind](
        TextStream(lengths(30)), size_fn=FailingSizes(bad), on_sample_error=policy, tail="filler",
        num_workers=num_workers,
    )  # fmt: skip
    for epoch in range(2):
        batches = list(loader)
        assert sorted(ids(batches)) == [i for i in range(30) if i not in bad]
        assert [len(list(step)) for step in _by_step(batches)] == [2] * 7
        stats = loader.stats()
        assert (sorted(stats.failed), stats.num_read, stats.left_out) == (sorted(bad), 30, [])
        assert loader.failures.total == len(loader.failures) == 4 * (epoch + 1)
    failure = next(each for each in loader.failures if each.sample_id == 17)
    assert failure.error == "OSError: sample 17 is torn"
    assert failure.substitute_id is None


def _by_step(batches: list[Any]) -> list[list[Any]]:
    steps: dict[int, list[Any]] = {}
    for batch in batches:
        steps.setdefault(batch.facts.step, []).append(batch)
    return list(steps.values())


@pytest.mark.parametrize("kind", list(MAKERS))
def test_a_resume_leaves_out_what_had_failed_and_nothing_else(kind):
    """At every microbatch: failures that pass by, as of a network, do not change the window."""
    make, bad = MAKERS[kind], {2, 5, 13, 21}
    options: dict[str, Any] = {"on_sample_error": "replace", "tail": "filler"}
    whole = list(make(TextStream(lengths(24)), size_fn=FailingSizes(bad), **options))
    for taken in range(1, len(whole)):
        loader = make(TextStream(lengths(24)), size_fn=FailingSizes(bad), **options)
        iterator = iter(loader)
        before = [next(iterator) for _ in range(taken)]
        state = json.loads(json.dumps(loader.state_dict()))
        iterator.close()
        told = [failure.sample_id for failure in loader.failures]
        resumed = make(TextStream(lengths(24)), size_fn=text_size, **options)
        resumed.load_state_dict(state)
        got = real_ids(before) + real_ids(list(resumed))
        assert sorted(got + told) == list(range(24))
        assert set(resumed.stats().failed) <= set(told)


@pytest.mark.parametrize("policy", ["replace", "filler"])
def test_a_sample_that_fails_only_when_its_window_is_read_again_is_an_error(policy):
    """The window was planned with it; without it, other samples would come twice or never."""
    options: dict[str, Any] = {"on_sample_error": policy}
    loader = stream_loader(TextStream(lengths(24)), **options)
    next(iter(loader))
    resumed = stream_loader(TextStream(lengths(24)), size_fn=FailingSizes({5}), **options)
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(
        SampleReadError, match=r"not failed on before the state was saved.* sample 5"
    ):
        list(resumed)
    resumed = stream_loader(TextStream(lengths(24)), size_fn=FailingSizes({8}), **options)
    resumed.load_state_dict(loader.state_dict())
    assert 8 not in ids(resumed)
    assert resumed.stats().failed == [8]


def test_an_error_names_rank_place_and_sample_and_has_the_original_traceback():
    loader = stream_loader(TextStream(lengths(8)), size_fn=FailingSizes({6}))
    with pytest.raises(SampleReadError) as raised:
        list(loader)
    assert raised.value.sample_ids == (6,)
    told = str(raised.value)
    assert told.startswith("size_fn failed on sample 6 (number 6 of the stream of rank 0 of 1): ")
    assert "in __call__" in told
    assert told.endswith("OSError: sample 6 is torn")
    loader = stream_loader(shards_of([5, 5]), size_fn=FailingSizes({7}))
    with pytest.raises(SampleReadError, match=r"sample 7 \(number 3 of shard '1', rank 0 of 1\)"):
        list(loader)


class TornStream(TextStream):
    def sample(self, index: int) -> dict[str, Any]:
        if index == 6:
            raise OSError("the disk is gone")
        return super().sample(index)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("policy", ["raise", "replace"])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_exception_of_the_dataset_itself_ends_the_run_under_every_policy(policy, num_workers):
    options: dict[str, Any] = {"on_sample_error": policy, "num_workers": num_workers}
    with pytest.raises(SampleReadError) as raised:
        list(stream_loader(TornStream(lengths(12)), **options))
    told = str(raised.value)
    assert "reading failed at sample 6 (number 6 of the stream of rank 0 of 1)" in told
    assert "an iterator that raised gives nothing more" in told
    assert "in sample" in told  # the function that raised

    def read(name: str) -> Iterator[Any]:
        yield from TextStream([4, 4])
        if name == "b":
            raise OSError("the disk is gone")

    with pytest.raises(
        SampleReadError, match=r"(?s)rank 0 of 1: .*number 2 of shard 'b'"
    ) as raised:
        list(stream_loader(ShardedStream(["a", "b", "c"], read), **options))
    assert "the disk is gone" in str(raised.value)
    assert "in read" in str(raised.value)


def test_a_window_that_fails_as_a_whole_is_an_error_even_in_a_stream_without_end():
    class Endless(TextStream):
        def __iter__(self) -> Any:
            for index in count():
                yield {"id": index}

    loader = stream_loader(Endless([]), on_sample_error="replace")
    with pytest.raises(
        SampleReadError, match=r"8 samples one after another.*KeyError: 'input_ids'"
    ):
        next(iter(loader))


def test_a_collate_fn_that_fails_names_the_samples_step_and_microbatch():
    def torn(samples: Any) -> Any:
        raise TypeError("no such field")

    loader = stream_loader(TextStream([5] * 8), collate_fn=torn, on_sample_error="replace")
    with pytest.raises(
        SampleReadError, match=r"collate_fn failed at samples .*step 0, microbatch 0: TypeError"
    ) as raised:
        next(iter(loader))
    assert len(raised.value.sample_ids) == 2


@pytest.mark.dist
@pytest.mark.parametrize("kind", list(MAKERS))
def test_ranks_keep_equal_numbers_of_microbatches_though_samples_of_one_fail(kind, tmp_path):
    """Rank 1 loses 7 of its 40 samples; each of the others comes once, on either rank."""
    bad = {1000, 1001, 1007, 1013, 1014, 1022, 1039}

    def run(rank: int) -> Any:
        loader = MAKERS[kind](
            TextStream(lengths(40, seed=rank), first=1000 * rank), size_fn=FailingSizes(bad),
            on_sample_error="filler", tail="filler",
        )  # fmt: skip
        batches = list(loader)
        places = [(batch.facts.step, batch.facts.index) for batch in batches]
        return places, real_ids(batches), [each.sample_id for each in loader.failures]

    ranks = on_ranks(run, 2, tmp_path)
    assert ranks[0][0] == ranks[1][0]
    delivered = sorted(sample_id for _, real, _ in ranks for sample_id in real)
    assert delivered == sorted({*range(40), *range(1000, 1040)} - bad)
    # Ids count the samples of each rank: number * 2 + rank.
    assert [failed for *_, failed in ranks] == [[], sorted(2 * (i - 1000) + 1 for i in bad)]
