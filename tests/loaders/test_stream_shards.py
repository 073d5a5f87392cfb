"""Streams in shards: shared out to ranks and workers, resumed under other numbers of both."""

import json
import random
from collections import Counter
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.errors import ArgumentError, StateError
from balancer.plan import Flag
from balancer.topology import Topology
from loaders.loader import BalancedDataLoader
from loaders.streams import ShardedStream, StreamLoader
from loaders.streams.failing import Omissions
from loaders.streams.reader import WindowReader
from loaders.streams.resharding import reshard
from loaders.streams.rows import RowPricing
from loaders.streams.shard_place import shards_left
from loaders.streams.sharded_source import ShardedSource
from tests.loaders.planning import text_tokens
from tests.loaders.streaming import TextStream, ids, lengths, shards_of, stream_loader, text_size

SIZES = [7, 1, 12, 0, 5, 9]


def all_ids(sizes: list[int]) -> list[int]:
    return sorted(
        index * len(sizes) + shard for shard, size in enumerate(sizes) for index in range(size)
    )


def real_ids(microbatches: Any) -> list[int]:
    """What microbatches say they hold, which must be what they do hold."""
    found = []
    for batch in microbatches:
        assert [sample["id"] for sample in batch] == list(batch.facts.sample_ids)
        pairs = zip(batch.facts.sample_ids, batch.facts.flags, strict=True)
        found += [sample_id for sample_id, flag in pairs if flag == Flag.REAL]
    return found


def test_the_order_of_shards_is_drawn_by_seed_and_epoch_only():
    stream = ShardedStream(range(20), lambda shard: [shard], shuffle=True, seed=3)
    first, second = stream.order(0), stream.order(1)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    assert ShardedStream(range(20), list, shuffle=True, seed=3).order(0) == first
    stream.set_epoch(1)
    assert list(stream) == second


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_every_sample_comes_once_an_epoch_and_a_resume_is_exact(num_workers):
    """After 7 microbatches, persistent workers: the same rest, and the next epoch is whole."""
    options: dict[str, Any] = {
        "tail": "filler", "num_workers": num_workers, "persistent_workers": num_workers > 0,
    }  # fmt: skip
    loader = stream_loader(shards_of(SIZES, shuffle=True), **options)
    whole = [ids([batch]) for batch in loader]
    following = list(loader)
    assert sorted(real_ids(following)) == all_ids(SIZES)
    assert [ids([batch]) for batch in following] != whole
    loader = stream_loader(shards_of(SIZES, shuffle=True), **options)
    iterator = iter(loader)
    for _ in range(7):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    iterator.close()
    resumed = stream_loader(shards_of(SIZES, shuffle=True), **options)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert [ids([batch]) for batch in resumed] == whole[7:]
    assert [ids([batch]) for batch in resumed] == [ids([batch]) for batch in following]


def test_resumed_at_any_microbatch_with_other_settings_the_rest_comes_once():
    """One rank, from steps of 4 to steps of 6, after every number of microbatches."""
    options: dict[str, Any] = {"tail": "filler", "window_size": 13}
    whole = list(stream_loader(shards_of(SIZES), **options))
    for taken in range(1, len(whole)):
        loader = stream_loader(shards_of(SIZES), **options)
        iterator = iter(loader)
        before = real_ids([next(iterator) for _ in range(taken)])
        resumed = stream_loader(shards_of(SIZES), global_batch_size=6, **options)
        resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        after = list(resumed)
        assert sorted(before + real_ids(after)) == all_ids(SIZES)
        assert after[0].facts.step == taken // 2
        assert resumed.epoch == 1
        assert sorted(real_ids(resumed)) == all_ids(SIZES)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_the_number_of_workers_may_change_and_what_was_resumed_may_be_resumed_again():
    """H4: no workers for 5 microbatches, two workers for 4, three to the end."""
    got: list[int] = []
    state = None
    for num_workers, taken in ((0, 5), (2, 4), (3, 100)):
        loader = stream_loader(shards_of(SIZES), tail="filler", num_workers=num_workers)
        if state is not None:
            loader.load_state_dict([state])
        for count, batch in enumerate(loader, 1):
            got += real_ids([batch])
            state = json.loads(json.dumps(loader.state_dict()))
            if count == taken:
                break
    assert sorted(got) == all_ids(SIZES)


class Rank:
    """One rank's reader, of whose samples any prefix of a window may be handed out."""

    def __init__(self, sizes: list[int], dp_rank: int, dp_size: int, place: Any = None) -> None:
        pricing = RowPricing.of(text_size, text_tokens, Topology(dp_size=1))
        stream = shards_of(sizes)
        self.source = ShardedSource(stream, dp_rank=dp_rank, dp_size=dp_size)
        self.reader = WindowReader(self.source, pricing, Omissions("raise", most_in_a_row=4))
        self.reader.begin(epoch=0, position=place and place["window_start"]["position"])

    def window(self, quota: int, num_read_ahead: int) -> list[int]:
        """Ids of the next window; part of the one after it is read already."""
        self.reader.fill(quota)
        held = [int(each.row[0]) for each in self.reader.held]
        self.position = self.reader.position()
        self.reader.read(num_read_ahead)
        for _ in held:
            self.reader.held.popleft()
        return held


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_ranks_that_go_on_read_exactly_what_those_before_them_had_not_handed_out(data):
    """Any shards, any ranks, several resumes, any samples of a window handed out by any rank."""
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))
    places: list[Any] = [None] * data.draw(st.integers(1, 4))
    got: list[int] = []
    for _ in range(data.draw(st.integers(1, 3))):
        dp_size = len(places)
        ranks = [Rank(sizes, rank, dp_size, place) for rank, place in enumerate(places)]
        for _ in range(data.draw(st.integers(0, 2))):
            for rank in ranks:
                got += rank.window(3, data.draw(st.integers(0, 2)))
        window = [i for rank in ranks for i in rank.window(4, data.draw(st.integers(0, 3)))]
        given_out = [i for i in window if data.draw(st.booleans())]
        got += given_out
        states = [
            {
                "settings": {"dp_rank": number, "dp_size": dp_size}, "epoch": 0, "next_step": 1,
                "window_start": {"position": rank.position, "first_step": 0},
                # Wherever a sample was read, any rank may have handed it out.
                "handed_out": given_out[number::dp_size],
            }
            for number, rank in enumerate(ranks)
        ]  # fmt: skip
        new_size = data.draw(st.integers(1, 4))
        places = [
            reshard(
                data.draw(st.permutations(json.loads(json.dumps(states)))), dp_rank=number,
                dp_size=new_size, num_parts=1, order=range(len(sizes)), quota=4,
            )
            for number in range(new_size)
        ]  # fmt: skip
    for number, place in enumerate(places):
        got += Rank(sizes, number, len(places), place).window(100, 0)
    assert sorted(got) == all_ids(sizes)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_state_does_not_grow_with_the_shards_that_are_left(shuffle):
    """10,000 shards a rank, read to unlike depths, by 3, 2, 4 ranks: under 4 KiB every time."""
    stream = ShardedStream(range(30_000), lambda shard: [shard], shuffle=shuffle, seed=5)
    draw = random.Random(1)
    places: list[Any] = [None] * 3
    got: list[int] = []
    for new_size in (2, 4):
        states = []
        for rank, place in enumerate(places):
            source = ShardedSource(stream, dp_rank=rank, dp_size=len(places))
            source.begin(epoch=2, place=place and place["window_start"]["position"]["place"])
            got += [sample_id for sample_id, _ in islice(source, draw.randint(0, 3000))]
            position = {"number": 0, "skip": 0, "skipped": [], "place": source.mark()}
            assert len(json.dumps(position)) < 1024
            states.append(
                {
                    "settings": {"dp_rank": rank, "dp_size": len(places)}, "epoch": 2,
                    "window_start": {"position": position, "first_step": 0}, "next_step": 1,
                    "handed_out": [],
                }
            )  # fmt: skip
        places = [
            reshard(
                states, dp_rank=rank, dp_size=new_size, num_parts=1, order=stream.order(2), quota=4
            )
            for rank in range(new_size)
        ]
    for rank, place in enumerate(places):
        at = place["window_start"]["position"]["place"]
        for part in shards_left(at, stream.order(2), dp_rank=rank, dp_size=4):
            got += [shard for shard, index in part if index == 0]
    assert sorted(got) == list(range(30_000))


def test_a_whole_state_of_10000_shards_is_short_also_where_it_was_resumed_under_other_settings():
    def loader(**options: Any) -> StreamLoader:
        return stream_loader(shards_of([1, 2] * 5000, shuffle=True), **options)

    state: Any = None
    for size in (4, 6, 8):
        part = loader(global_batch_size=size)
        if state is not None:
            part.load_state_dict([state])
        list(islice(part, 5))
        state = part.state_dict()
        assert len(json.dumps({**state, "handed_out": []})) < 4096


def test_other_orders_of_shards_are_refused():
    """What is left follows from the order, so that a state of another one would lose samples."""
    loader = stream_loader(shards_of(SIZES, shuffle=True, seed=1))
    next(iter(loader))
    for options in ({}, {"shuffle": True, "seed": 2}):
        with pytest.raises(StateError, match="shuffled by seed 1, dataset has"):
            stream_loader(shards_of(SIZES, **options)).load_state_dict([loader.state_dict()])


def test_what_cannot_be_resumed_is_refused_with_what_to_give():
    loader = stream_loader(TextStream(lengths(16)))
    next(iter(loader))
    with pytest.raises(StateError, match="as TextStream, goes on under the same only: give a Shar"):
        stream_loader(TextStream(lengths(16)), global_batch_size=8).load_state_dict(
            [loader.state_dict()]
        )
    loader = stream_loader(shards_of(SIZES))
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(StateError, match=r"with 6 shards, .* dataset has 2 shards"):
        stream_loader(shards_of([5, 5])).load_state_dict([state])
    other = stream_loader(shards_of(SIZES), tail="pad")
    second = {**state, "settings": {**state["settings"], "dp_rank": 1}}
    with pytest.raises(StateError, match=r"ranks \[0, 1\] of a run of 1"):
        other.load_state_dict([state, second])
    two = [{**each, "settings": {**each["settings"], "dp_size": 2}} for each in (state, second)]
    with pytest.raises(StateError, match=r"ranks 0 and 1 are of different places: epoch 0"):
        other.load_state_dict([two[0], {**two[1], "epoch": 1}])
    with pytest.raises(
        StateError, match=r"dp_size: 2 saved, 1 here.*states of all ranks as a list"
    ):
        other.load_state_dict(two[0])


def test_streams_that_are_none_are_refused():
    with pytest.raises(ArgumentError, match="shards is empty"):
        ShardedStream([], list)
    with pytest.raises(ArgumentError, match="read is str"):
        ShardedStream(["a"], "a")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="seed is -1"):
        ShardedStream(["a"], list, shuffle=True, seed=-1)


def test_the_drop_in_takes_a_sharded_stream():
    loader = BalancedDataLoader(
        shards_of(SIZES), size_fn=text_size, window_size=8, cost_model=text_tokens,
        global_batch_size=4, tail="filler", collate_fn=lambda batch: [each["id"] for each in batch],
    )  # fmt: skip
    assert isinstance(loader, StreamLoader)
    assert Counter(i for batch in loader for i in batch) >= Counter(all_ids(SIZES))
