"""A job that comes back with other ranks, microbatches or batch size: every sample once."""

from itertools import chain

import pytest

from balancer.errors import ArgumentError
from loaders.loader import BalancedDataLoader
from tests.loaders.planning import TextDataset, ids_of, skewed_lengths, text_tokens

NUM_SAMPLES = 120


def make_ranks(dp_size, **options):
    settings = {
        "cost_model": text_tokens,
        "global_batch_size": 24,
        "num_microbatches": 2,
        "collate_fn": ids_of,
        "on_topology_change": "replan",
    }
    dataset = TextDataset(skewed_lengths(NUM_SAMPLES))
    return [
        BalancedDataLoader(dataset, dp_rank=rank, dp_size=dp_size, **(settings | options))
        for rank in range(dp_size)
    ]


def run(ranks, steps, *, microbatches_more=0):
    """Ids of each step that all ranks were handed, whole steps and then some microbatches."""
    streams = [iter(loader) for loader in ranks]
    per_step = ranks[0].batch_sampler.planner.topology.num_microbatches
    done = [
        sorted(i for s in streams for _ in range(per_step) for i in next(s)) for _ in range(steps)
    ]
    for _ in range(microbatches_more):
        for stream in streams:
            next(stream)
    state = ranks[-1].state_dict()
    for stream in streams:
        stream.close()
    return done, state


def rest(ranks):
    """Ids of each step that is left, over all ranks."""
    by_step = {}
    for loader in ranks:
        for step in loader.steps():
            for microbatch in step:
                by_step.setdefault(step.number, []).extend(microbatch)
    return {number: sorted(ids) for number, ids in by_step.items()}


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 8), (3, 1), (1, 4)])
@pytest.mark.parametrize("microbatches_more", [0, 1])
def test_case_h3_h4_other_ranks_go_on_with_exactly_the_rest(before, after, microbatches_more):
    """The steps keep their members; a step that was not whole is done again, all of it."""
    options = {"num_microbatches": 2}
    plain = [
        sorted(make_ranks(1)[0].batch_sampler.planner.step_ids(0, step)[0].tolist())
        for step in range(5)
    ]
    done, state = run(make_ranks(before, **options), 2, microbatches_more=microbatches_more)
    assert done == plain[:2]
    ranks = make_ranks(after, num_microbatches=1)
    for loader in ranks:
        loader.load_state_dict(state)
        assert loader.state_dict() == state
    assert {len(loader) for loader in ranks} == {2 * 2 + 3}
    assert rest(ranks) == {2: plain[2], 3: plain[3], 4: plain[4]}
    assert [len(loader) for loader in ranks] == [5] * after
    assert sorted(chain(*rest(ranks).values())) == list(range(NUM_SAMPLES))


def test_several_changes_in_one_epoch():
    """Ranks, microbatches, batch size and window change three times; all samples come once."""
    got, state = run(make_ranks(4, window_steps=3), 1)
    for dp_size, options in (
        (2, {"num_microbatches": 3, "window_steps": 3}),
        (3, {"global_batch_size": 18, "window_steps": 2}),
        (1, {"num_microbatches": 1, "global_batch_size": 7, "max_tokens": 10**6}),
    ):
        ranks = make_ranks(dp_size, tail="filler", **options)
        for loader in ranks:
            loader.load_state_dict(state)
        done, state = run(ranks, 1)
        got += done
    loader = make_ranks(1, num_microbatches=1, global_batch_size=7, max_tokens=10**6,
                        tail="filler")[0]  # fmt: skip
    loader.load_state_dict(state)
    got += rest([loader]).values()
    assert sorted(chain(*got)) == list(range(NUM_SAMPLES))


def test_a_rank_lost_inside_a_step_gets_its_samples_back():
    """Two of four ranks live: they redo the step in which the others were lost."""
    ranks = make_ranks(4)
    streams = [iter(loader) for loader in ranks]
    first = sorted(i for stream in streams for i in [*next(stream), *next(stream)])
    second = [i for stream in streams[:2] for i in [*next(stream), *next(stream)]]
    state = ranks[0].state_dict(completed_steps_only=True)
    assert state == ranks[1].state_dict(completed_steps_only=True)
    for stream in streams:
        stream.close()
    survivors = make_ranks(2)
    for loader in survivors:
        loader.load_state_dict(state)
    left = rest(survivors)
    assert set(second) <= set(left[1])
    assert sorted(chain(first, *left.values())) == list(range(NUM_SAMPLES))


def test_speeds_and_limits_may_change_too():
    done, state = run(make_ranks(2), 2)
    ranks = make_ranks(2, max_tokens=10**5, barrier="step")
    for loader in ranks:
        loader.load_state_dict(state)
    assert sorted(chain(*done, *rest(ranks).values())) == list(range(NUM_SAMPLES))


def test_what_is_left_may_make_no_step_of_the_new_size():
    """24 samples left and steps of 48: they are listed as dropped, and the next epoch begins."""
    _, state = run(make_ranks(2), 4)
    loader = make_ranks(1, global_batch_size=48)[0]
    loader.load_state_dict(state)
    assert loader.epoch == 1
    planner = loader.batch_sampler.planner
    assert planner.dropped(0).tolist() == sorted(planner.steps(0).cut.tolist())
    assert len(planner.dropped(0)) == 24


def test_an_epoch_that_was_resumed_can_be_run_again_whole():
    _, state = run(make_ranks(2), 2)
    loader = make_ranks(1)[0]
    loader.load_state_dict(state)
    assert len(rest([loader])) == 3
    loader.set_epoch(0)
    assert sorted(chain(*rest([loader]).values())) == list(range(NUM_SAMPLES))
    assert loader.epoch == 1


def test_the_policy_is_one_of_two():
    with pytest.raises(ArgumentError, match="on_topology_change is 'warn'; allowed: 'error'"):
        make_ranks(1, on_topology_change="warn")
