"""StreamLoader on one rank: conservation, memory, limits, state, workers, bad input."""

import json
import logging
import pickle
import warnings
from collections import Counter
from itertools import count
from typing import Any

import numpy as np
import pytest

from balancer.errors import ArgumentError, CapacityError, PlanError, SampleError, StateError
from balancer.plan import Flag
from loaders.collate import PackedCollator
from loaders.loader import BalancedDataLoader
from loaders.streams.loader import StreamLoader
from tests.loaders.planning import ids_of, text_tokens
from tests.loaders.streaming import (
    SplitTextStream,
    StatefulTextStream,
    TextStream,
    ids,
    lengths,
    rebalanced,
    stream_loader,
    text_size,
)


@pytest.mark.parametrize("tail", ["drop", "pad", "filler"])
def test_every_sample_comes_once_in_every_epoch_but_those_reported(tail):
    """C2: what a window holds at the end of the stream makes steps; the next epoch is whole."""
    loader = stream_loader(TextStream(lengths(43)), tail=tail)
    for _ in range(2):
        epoch = list(loader)
        real = [
            sample_id
            for batch in epoch
            for sample_id, flag in zip(batch.facts.sample_ids, batch.facts.flags, strict=True)
            if flag == Flag.REAL
        ]
        stats = loader.stats()
        assert sorted(real + stats.dropped) == list(range(43))
        assert len(stats.dropped) == (3 if tail == "drop" else 0)
        assert stats.num_repeats == (1 if tail == "pad" else 0)
        assert stats.num_read == 43
        assert ids(epoch) == [i for batch in epoch for i in batch.facts.sample_ids]
        assert len(epoch) == 2 * stats.num_steps == (20 if tail == "drop" else 22)


def test_each_epoch_logs_once_what_its_tail_drops_a_resumed_one_too(caplog):
    loader = stream_loader(TextStream(lengths(11)))
    caplog.set_level(logging.WARNING, logger="loaders.streams")
    for _ in range(2):
        list(loader)
    assert [f"epoch {epoch}: rank 0 drops 3 samples" in caplog.text for epoch in (0, 1, 2)] == [
        True, True, False,
    ]  # fmt: skip
    assert len(caplog.records) == 2
    caplog.clear()
    first = stream_loader(TextStream(lengths(11)))
    next(iter(first))
    assert not caplog.records
    resumed = stream_loader(TextStream(lengths(11)))
    resumed.load_state_dict(first.state_dict())
    list(resumed)
    assert [record.args for record in caplog.records] == [(0, 0, 3, "")]
    assert resumed.stats().dropped == [8, 9, 10]
    list(stream_loader(TextStream(lengths(12))))
    assert len(caplog.records) == 1


def test_ten_samples_with_a_window_of_eight_all_come():
    loader = stream_loader(
        TextStream(lengths(10)), global_batch_size=8, num_microbatches=1, tail="filler"
    )
    for _ in range(2):
        assert sorted(ids(loader)) == list(range(10))


def test_the_first_microbatch_comes_after_a_window_and_no_more_than_a_window_is_held():
    """L5: an endless stream; samples read are never more than those handed out plus a window."""

    class Endless(TextStream):
        def __iter__(self) -> Any:
            for index in count():
                self.num_read += 1
                yield {"id": index, "input_ids": [0] * (1 + index % 7)}

    dataset = Endless([])
    loader = stream_loader(dataset, window_size=13)
    done = 0
    for batch in loader:
        step_begun = done - done % 4  # a step's samples are released when the next is asked for
        assert dataset.num_read <= step_begun + 12
        done += len(batch)
        if done > 200:
            break
    assert dataset.num_read >= done


def test_facts_add_up_to_those_of_the_step():
    loader = stream_loader(TextStream(lengths(40)))
    by_step: dict[int, list[Any]] = {}
    for batch in loader:
        by_step.setdefault(batch.facts.step, []).append(batch.facts)
    for facts in by_step.values():
        assert len({each.step_target_tokens for each in facts}) == 1
        assert sum(sum(each.target_tokens) for each in facts) == facts[0].step_target_tokens
        assert sum(len(each.sample_ids) for each in facts) == facts[0].step_samples == 4
        assert [each.index for each in facts] == [0, 1]
    assert list(by_step) == list(range(10))


def test_collators_get_facts_and_user_functions_a_plain_list():
    packed = next(iter(stream_loader(TextStream(lengths(8)), collate_fn=PackedCollator())))
    assert packed["sample_ids"].tolist() == packed["input_ids"][0].unique().tolist()
    assert packed["global_samples"] == 4
    loader = stream_loader(TextStream(lengths(8)), collate_fn=ids_of)
    assert sorted(i for batch in loader for i in batch) == list(range(8))


def test_limits_hold_and_samples_over_them_follow_the_policy():
    """A limit of 30 tokens, of which two samples have 50: named, left out and listed, or alone."""
    given = [10, 50, 12, 9, 11, 50, 8, 10, 13, 7, 10, 10]
    with pytest.raises(CapacityError, match="sample 1 has 50 tokens"):
        list(stream_loader(TextStream(given), max_tokens=30))
    loader = stream_loader(TextStream(given), max_tokens=30, oversize="drop", tail="filler")
    epoch = list(loader)
    assert sorted(ids(epoch)) == [i for i in range(12) if i not in (1, 5)]
    assert loader.stats().left_out == [1, 5]
    assert all(sum(len(s["input_ids"]) for s in batch) <= 30 for batch in epoch)
    loader = stream_loader(TextStream(given), max_tokens=30, oversize="alone", tail="filler")
    epoch = list(loader)
    assert sorted(ids(epoch)) == list(range(12))
    for batch in epoch:
        tokens = sum(len(sample["input_ids"]) for sample in batch)
        assert tokens <= 30 or (len(batch) == 1 and tokens == 50)


def test_microbatches_grow_in_number_where_limits_ask_for_it():
    loader = stream_loader(TextStream([10] * 8), max_tokens=10)
    assert [step.num_microbatches for step in loader.steps()] == [4, 4]
    with pytest.raises(CapacityError, match="max_microbatches=2"):
        list(stream_loader(TextStream([10] * 8), max_tokens=10, max_microbatches=2))


@pytest.mark.parametrize("stream", [TextStream, StatefulTextStream])
def test_a_resumed_epoch_goes_on_exactly_where_it_was_left(stream):
    """After every number of microbatches: the same rest; and the epochs after it are whole."""
    options: dict[str, Any] = {"tail": "filler", "window_size": 12}
    given = lengths(30)
    whole = [ids([batch]) for batch in stream_loader(TextStream(given), **options)]
    for taken in range(len(whole) + 1):
        loader = stream_loader(stream(given), **options)
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
        assert len(pickle.dumps(state)) < 4096
        dataset = stream(given)
        resumed = stream_loader(dataset, **options)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        rest = [ids([batch]) for batch in resumed]
        assert rest == (whole[taken:] or whole)
        if stream is StatefulTextStream and 0 < taken < len(whole):
            window = 12
            handed_out = sum(map(len, whole[:taken]))
            assert dataset.num_read <= 30 - (handed_out - handed_out % window) + window
        dataset.position = 0
        assert [ids([batch]) for batch in resumed] == whole


def test_states_within_one_epoch_may_follow_one_another():
    """Resumed and saved after every microbatch: nothing twice, nothing lost."""
    loader = stream_loader(TextStream(lengths(40)))
    got: list[int] = []
    for _ in range(20):
        iterator = iter(loader)
        got += ids([next(iterator)])
        state = loader.state_dict()
        loader = stream_loader(TextStream(lengths(40)))
        loader.load_state_dict(state)
    assert sorted(got) == list(range(40))
    next(iter(loader))
    assert loader.epoch == 1


def test_a_break_leaves_a_state_and_the_next_iteration_is_the_next_epoch():
    loader = stream_loader(TextStream(lengths(16)))
    for _ in loader:
        break
    assert loader.state_dict()["epoch"] == 0
    assert [batch.facts.epoch for batch in loader] == [1] * 8
    assert loader.epoch == 2


def test_a_state_of_other_settings_is_refused_with_all_that_differs():
    state = stream_loader(TextStream(lengths(16))).state_dict()
    other = stream_loader(TextStream(lengths(16)), global_batch_size=8, tail="pad")
    with pytest.raises(StateError, match=r"global_batch_size: 4 saved, 8 here.*tail: 'drop' saved"):
        other.load_state_dict(state)
    with pytest.raises(StateError, match="version"):
        other.load_state_dict({**state, "version": 99})


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("stream", [TextStream, SplitTextStream])
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_change_neither_the_samples_nor_their_number(stream, persistent):
    """C6: a dataset that every worker would read whole is split; one that splits itself is not."""
    loader = stream_loader(
        stream(lengths(36)), tail="filler", num_workers=4, persistent_workers=persistent
    )
    for _ in range(2):
        assert Counter(ids(loader)) == Counter(range(36))
    del loader


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_batches_are_made_over_all_workers():
    """C5: 10 workers with 100 samples each make 7 full batches of 128."""
    loader = stream_loader(
        SplitTextStream([5] * 1000), global_batch_size=128, num_microbatches=1, window_size=256,
        num_workers=10,
    )  # fmt: skip
    assert [len(batch) for batch in loader] == [128] * 7
    assert len(loader.stats().dropped) == 1000 - 7 * 128


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("stream", [TextStream, SplitTextStream])
def test_a_resume_with_workers_is_exact_and_does_not_shorten_later_epochs(stream):
    """H1, H5: with persistent workers, 5 microbatches in."""
    options: dict[str, Any] = {"num_workers": 3, "persistent_workers": True, "tail": "filler"}
    given = lengths(31)
    loader = stream_loader(stream(given), **options)
    whole = [ids([batch]) for batch in loader]
    loader = stream_loader(stream(given), **options)
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    state = loader.state_dict()
    iterator.close()
    resumed = stream_loader(stream(given), **options)
    resumed.load_state_dict(state)
    assert [ids([batch]) for batch in resumed] == whole[5:]
    assert [ids([batch]) for batch in resumed] == whole
    with pytest.raises(StateError, match="num_workers: 3 saved, 1 here"):
        stream_loader(stream(given)).load_state_dict(state)


def test_a_length_is_only_known_where_steps_per_epoch_says_it():
    """I5: no guess; and an epoch of so many steps, or an error where the stream is too short."""
    with pytest.raises(TypeError, match="steps_per_epoch"):
        len(stream_loader(TextStream(lengths(40))))
    loader = stream_loader(TextStream(lengths(40)), steps_per_epoch=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(loader) == len(list(loader)) == 6
    assert loader.state_dict()["epoch"] == 1
    with pytest.raises(TypeError, match="max_microbatches"):
        len(stream_loader(TextStream([5] * 8), steps_per_epoch=2, max_tokens=20))
    with pytest.raises(PlanError, match="after 10 steps of steps_per_epoch=11"):
        list(stream_loader(TextStream(lengths(40)), steps_per_epoch=11))


def test_an_epoch_without_a_step_is_an_error():
    with pytest.raises(PlanError, match="before a step of global_batch_size=4 samples was full"):
        list(stream_loader(TextStream(lengths(3))))


def test_a_sample_at_fault_is_named_by_its_id():
    with pytest.raises(SampleError, match=r"size_fn failed on sample 0 .*KeyError"):
        list(stream_loader(TextStream(lengths(8)), size_fn=lambda sample: sample["nothing"]))
    with pytest.raises(SampleError, match="text_tokens of sample 5 is -1") as raised:
        list(
            stream_loader(
                TextStream(lengths(8)),
                size_fn=lambda s: {"text_tokens": -1 if s["id"] == 5 else 3},
            )
        )
    assert raised.value.sample_ids == (5,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_size": 3}, "window_size is 3, less than the 4 samples"),
        ({"global_batch_size": 1}, "fewer than num_microbatches=2"),
        ({"barrier": "pipeline"}, "map-style"),
        ({"size_fn": None}, "size_fn is NoneType"),
        ({"batch_size": 2}, "batch_size is 2, global_batch_size is 4"),
        ({"tail": "pad", "drop_last": True}, "drop_last is True, tail is 'pad'"),
        ({"num_workers": -1}, "num_workers is -1"),
        ({"on_sample_error": "skip"}, "on_sample_error is 'skip'"),
        ({"steps_per_epoch": 0}, "steps_per_epoch is 0"),
        ({"effort": "much"}, "effort is 'much'"),
        ({"group_ids": [0, 0, 1]}, r"group_ids is a list.*map-style dataset"),
        ({"modality_sync": "spread"}, "samples must change ranks; use rebalance"),
    ],
)
def test_arguments_that_cannot_be_are_refused_at_construction(options, message):
    with pytest.raises(ArgumentError, match=message):
        stream_loader(TextStream(lengths(8)), **options)
    with pytest.raises(ArgumentError, match="begins anew each time"):
        stream_loader(iter(TextStream(lengths(8))))


def test_ranks_of_the_environment_are_never_taken_for_one(monkeypatch):
    """A2: several ranks that cannot agree are an error, not a loader that does not."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ArgumentError, match="init_process_group"):
        stream_loader(TextStream(lengths(8)))


def test_the_drop_in_makes_a_stream_loader_of_an_iterable_dataset():
    """With `size_fn` and `window_size`; what only suits a map-style dataset is refused by name."""
    options: dict[str, Any] = {"cost_model": text_tokens, "global_batch_size": 4}
    dataset = TextStream(lengths(20))
    loader = BalancedDataLoader(
        dataset, size_fn=text_size, window_size=8, collate_fn=ids_of, shuffle=False, **options
    )
    assert isinstance(loader, StreamLoader)
    assert sorted(i for batch in loader for i in batch) == list(range(20))
    with pytest.raises(ArgumentError, match="without random access; give size_fn and window_size"):
        BalancedDataLoader(dataset, **options)
    for name, value in (("shuffle", True), ("dp_size", 2), ("pin_memory", True), ("seed", 3)):
        with pytest.raises(ArgumentError, match=f"{name} is {value}, but dataset is a TextStream"):
            BalancedDataLoader(
                dataset, size_fn=text_size, window_size=8, **options, **{name: value}
            )
    with pytest.raises(ArgumentError, match=r"group_ids is a ndarray.*give a map-style dataset"):
        BalancedDataLoader(
            dataset, size_fn=text_size, window_size=8, group_ids=np.zeros(20), **options
        )
    loader = BalancedDataLoader(
        dataset, size_fn=text_size, window_size=8, group_ids=None, collate_fn=ids_of, **options
    )
    assert len(list(loader)) == 5


@pytest.mark.parametrize("make", [stream_loader, rebalanced])
def test_both_kinds_of_streams_take_the_effort_of_planning_and_keep_to_it_when_resumed(make):
    loader = make(TextStream(lengths(16)), effort="fast", tail="filler")
    assert sorted(ids(loader)) == list(range(16))
    with pytest.raises(StateError, match=r"effort: 'fast' saved, 0\.5 here"):
        make(TextStream(lengths(16)), effort=0.5, tail="filler").load_state_dict(
            loader.state_dict()
        )
