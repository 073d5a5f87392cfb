"""State of samplers and loaders: where the user stands, any time, in a few plain numbers."""

import json
import pickle

import numpy as np
import pytest

from balancer.cost import Costs
from balancer.errors import ArgumentError, StateError
from balancer.planner import EpochPlanner
from balancer.topology import Topology
from loaders.loader import BalancedDataLoader
from loaders.sampler import BalancedBatchSampler
from tests.loaders.planning import TextDataset, ids_of, make_planner, skewed_lengths, text_tokens

EPOCH = 6
"""Microbatches of a rank in an epoch of `make_loader`: 3 steps of 2."""


class Counting(TextDataset):
    """Counts what is read of it."""

    def __init__(self, lengths):
        super().__init__(lengths)
        self.read = []

    def __getitem__(self, index):
        self.read.append(index)
        return super().__getitem__(index)


def make_loader(dataset=None, **options):
    settings = {
        "cost_model": text_tokens,
        "global_batch_size": 16,
        "num_microbatches": 2,
        "dp_rank": 0,
        "dp_size": 2,
        "collate_fn": ids_of,
    }
    return BalancedDataLoader(dataset or TextDataset(skewed_lengths(50)), **(settings | options))


def take(iterable, count):
    """The first microbatches of an iteration that is then broken off."""
    taken = []
    if count:
        for microbatch in iterable:
            taken.append(microbatch)
            if len(taken) == count:
                break
    return taken


def epochs(loader, count):
    return [list(loader) for _ in range(count)]


def through_json(state):
    return json.loads(json.dumps(state))


@pytest.mark.parametrize("behind", range(EPOCH + 1))
@pytest.mark.parametrize("make", [make_loader, lambda: make_loader().batch_sampler])
def test_case_h1_the_resumed_epoch_is_the_rest_and_the_next_is_whole(make, behind):
    """After k of n microbatches come n - k, then n; after the last one the next epoch comes."""
    whole = epochs(make(), 3)
    first = make()
    assert take(first, behind) == whole[0][:behind]
    resumed = make()
    resumed.load_state_dict(through_json(first.state_dict()))
    expected = [whole[0][behind:], *whole[1:]] if behind < EPOCH else whole[1:]
    assert epochs(resumed, len(expected)) == expected


@pytest.mark.parametrize("workers", [{"num_workers": 0}, {"num_workers": 2, "prefetch_factor": 4}])
def test_case_h2_prefetched_microbatches_are_not_behind(workers):
    """State counts what the loop received: after 5 comes the 6th, whatever was read ahead."""
    whole = list(make_loader())
    loader = make_loader(**workers)
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    state = loader.state_dict()
    iterator.close()
    assert loader.state_dict() == state
    resumed = make_loader(**workers)
    resumed.load_state_dict(state)
    assert list(resumed) == whole[5:]


@pytest.mark.parametrize("behind", [0, 3, EPOCH])
def test_case_h3_saving_right_after_loading_gives_the_loaded_state(behind):
    first = make_loader()
    take(first, behind)
    state = first.state_dict()
    other = make_loader(dp_size=1, on_topology_change="replan")
    for loader in (make_loader(), make_loader().batch_sampler, other):
        loader.load_state_dict(state)
        assert loader.state_dict() == state


@pytest.mark.parametrize("num_workers", [0, 2])
def test_case_h5_the_state_of_a_break_is_where_it_broke(num_workers):
    """A state saved after a break goes on there; the object itself begins the next epoch."""
    whole = epochs(make_loader(), 2)
    loader = make_loader(num_workers=num_workers)
    for _ in range(2):
        take(loader, 4)
        state, epoch = loader.state_dict(), loader.epoch - 1
        resumed = make_loader(num_workers=num_workers)
        resumed.load_state_dict(state)
        assert list(resumed) == whole[epoch][4:]
    loader.load_state_dict(state)
    assert list(loader) == whole[1][4:]


def test_case_h6_the_state_is_loaded_before_the_first_iteration():
    first = make_loader()
    take(first, 3)
    resumed = make_loader()
    iter(resumed)
    resumed.load_state_dict(first.state_dict())
    assert resumed.state_dict()["position"]["microbatch"] == 1
    assert (resumed.epoch, len(resumed)) == (0, EPOCH)
    assert list(resumed) == list(make_loader())[3:]


def test_case_h7_nothing_that_is_behind_is_read_or_planned():
    """Resuming at the last of many steps reads that step only, and plans no other."""
    dataset = Counting([3] * 4000)
    loader = make_loader(dataset)
    loader.seek(249)
    planned = []
    planner, plan = loader.batch_sampler.planner, loader.batch_sampler.planner.plan
    planner.plan = lambda epoch, step: planned.append(step) or plan(epoch, step)
    assert sum(map(len, loader)) == len(dataset.read) == 8
    assert planned == [249]


def test_case_h8_a_state_of_ten_million_samples_is_small():
    planner = EpochPlanner(
        Costs.from_values(np.ones(10**7)), Topology(dp_size=64), global_batch_size=512,
        window_steps=4,
    )  # fmt: skip
    sampler = BalancedBatchSampler(planner, dp_rank=63)
    sampler.seek(9_999)
    next(iter(sampler))
    state = sampler.state_dict()
    assert len(pickle.dumps(state)) < 4096
    assert len(json.dumps(state)) < 1024


@pytest.mark.parametrize(
    ("change", "fatal", "message"),
    [
        ({"dp_size": 1}, False, "dp_size: 2 in the state, 1 here"),
        ({"num_microbatches": 1}, False, "num_microbatches: 2 in the state, its default here"),
        ({"global_batch_size": 8}, False, "global_batch_size: 16 in the state, 8 here"),
        ({"max_tokens": 10**6}, False, "max_tokens: its default in the state, 1000000 here"),
        ({"tail": "pad"}, False, "tail: its default in the state, 'pad' here"),
        ({"window_steps": 2}, False, "window_steps: its default in the state, 2 here"),
        ({"barrier": "step"}, False, "barrier: its default in the state, 'step' here"),
        ({"seed": 1}, True, "seed: its default in the state, 1 here"),
        ({"shuffle": False}, True, "shuffle: its default in the state, False here"),
        ({"cost_model": lambda table: table.text_tokens + 1}, True, "costs: "),
        ({"dataset": TextDataset([3] * 51)}, True, "num_samples: 50 in the state, 51 here"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_case_h9_a_state_of_another_configuration_is_refused_field_by_field(change, fatal, message):
    first = make_loader()
    take(first, 3)
    state = first.state_dict()
    with pytest.raises(StateError, match=message):
        make_loader(**change).load_state_dict(state)
    replanning = make_loader(**change, on_topology_change="replan")
    if fatal:
        with pytest.raises(StateError, match=message):
            replanning.load_state_dict(state)
    else:
        replanning.load_state_dict(state)


def test_every_difference_is_listed_and_counters_are_none():
    first = make_loader()
    list(first)
    with pytest.raises(StateError) as caught:
        make_loader(dp_size=1, seed=4).load_state_dict(first.state_dict())
    assert [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:-1]] == [
        "dp_size",
        "seed",
    ]
    make_loader().load_state_dict(first.state_dict())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: None, "NoneType without a format"),
        (lambda state: {"step": 3}, "dict without a format"),
        (lambda state: state | {"format": 99}, "format 99; this version reads 1"),
        (lambda state: state | {"position": {"epoch": 0, "stp": 1}}, "damaged"),
        (lambda state: state | {"position": state["position"] | {"step": -1}}, "damaged"),
        (lambda state: state | {"position": state["position"] | {"step": 9}}, "steps 0 to 2"),
        (lambda state: {k: v for k, v in state.items() if k != "costs"}, "missing .'costs'"),
        (lambda state: {k: v for k, v in state.items() if k != "rest"}, "damaged"),
        (lambda state: state | {"rest": {"epoch": 0}}, "damaged"),
        (
            lambda state: state | {"settings": state["settings"] | {"version": 1}},
            "version: 1 in the state",
        ),
    ],
)
def test_a_state_that_cannot_be_used_is_an_error(damage, message):
    with pytest.raises(StateError, match=message):
        make_loader().load_state_dict(damage(make_loader().state_dict()))


def test_case_h11_seek_jumps_over_steps():
    steps = [list(step) for step in make_loader().steps()]
    loader = make_loader()
    loader.seek(2)
    assert [list(step) for step in loader.steps()] == steps[2:]
    loader.seek(1, epoch=0)
    assert loader.state_dict()["position"]["step"] == 1
    assert [step.number for step in loader.steps()] == [1, 2]
    assert loader.epoch == 1


def test_seek_after_a_break_stays_in_the_epoch_that_was_broken():
    loader = make_loader()
    take(loader, 1)
    loader.seek(2)
    assert [(step.epoch, step.number) for step in loader.steps()] == [(0, 2)]


@pytest.mark.parametrize(("step", "epoch"), [(3, 0), (-1, 0), (0, -1), (0.5, 0)])
def test_seeking_a_step_that_is_not_there_is_refused(step, epoch):
    with pytest.raises(ArgumentError, match=r"(step|epoch) is"):
        make_loader().seek(step, epoch=epoch)


def test_setting_the_epoch_that_was_loaded_keeps_the_place():
    """Training loops call set_epoch at the top of each epoch, the resumed one too."""
    first = make_loader()
    take(first, 3)
    resumed = make_loader()
    resumed.load_state_dict(first.state_dict())
    resumed.set_epoch(0)
    resumed.sampler.set_epoch(0)
    assert list(resumed) == list(make_loader())[3:]
    resumed.set_epoch(0)
    assert len(list(resumed)) == EPOCH


def test_setting_another_epoch_gives_the_place_up_and_says_so():
    first = make_loader()
    take(first, 3)
    resumed = make_loader()
    resumed.load_state_dict(first.state_dict())
    with pytest.warns(UserWarning, match=r"set_epoch\(2\) gives up .* epoch 0, step 1"):
        resumed.set_epoch(2)
    assert len(list(resumed)) == EPOCH


def test_several_resumes_of_one_epoch_make_it_whole():
    whole = list(make_loader())
    got, state = [], make_loader().state_dict()
    for _ in range(EPOCH):
        loader = make_loader()
        loader.load_state_dict(through_json(state))
        got += take(loader, 1)
        state = loader.state_dict()
    assert got == whole
    assert state["position"] == {
        "epoch": 1, "step": 0, "microbatch": 0, "rank": 0, "microbatches": 0,
    }  # fmt: skip


def test_an_iteration_begun_before_loading_counts_for_nothing():
    loader, ahead = make_loader(), make_loader()
    take(ahead, 4)
    old = iter(loader)
    next(old)
    loader.load_state_dict(ahead.state_dict())
    next(old)
    assert loader.state_dict() == ahead.state_dict()
    assert list(loader) == list(make_loader())[4:]


@pytest.mark.parametrize("behind", range(1, EPOCH))
def test_completed_steps_only_gives_back_the_step_that_was_not_done(behind):
    """A rank that is lost inside a step gets all samples of the step again."""
    whole = list(make_loader())
    loader = make_loader()
    for done, _ in enumerate(loader, start=1):
        if done == behind:
            lost = loader.state_dict(completed_steps_only=True)
            break
    resumed = make_loader()
    resumed.load_state_dict(lost)
    assert list(resumed) == whole[(behind - 1) // 2 * 2 :]
    assert resumed.state_dict(completed_steps_only=True)["position"]["epoch"] == 1


def test_completed_steps_only_of_a_loaded_state_begins_its_step():
    first = make_loader()
    take(first, 3)
    resumed = make_loader()
    resumed.load_state_dict(first.state_dict())
    resumed.load_state_dict(resumed.state_dict(completed_steps_only=True))
    assert list(resumed) == list(make_loader())[2:]


@pytest.mark.parametrize("behind", range(12))
def test_the_global_view_resumes_at_any_rank(behind):
    """In the view of all ranks a state may fall between two ranks."""
    whole = list(BalancedBatchSampler(make_planner()))
    first = BalancedBatchSampler(make_planner())
    take(first, behind)
    resumed = BalancedBatchSampler(make_planner())
    resumed.load_state_dict(through_json(first.state_dict()))
    assert list(resumed) == whole[behind:]
