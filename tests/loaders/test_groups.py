"""Groups of samples through samplers and loaders: whole in a microbatch, facts of samples."""

import json

import numpy as np
import pytest

from balancer.errors import ArgumentError, StateError
from balancer.plan import Flag
from balancer.planner import EpochPlanner
from balancer.topology import Limits, Topology
from loaders.loader import BalancedDataLoader
from loaders.sampler import BalancedBatchSampler
from tests.loaders.planning import TextDataset, ids_of, skewed_lengths, text_tokens

PAIR_OF = np.tile(np.arange(50), 2)
"""Pair of each of 100 samples: sample i and sample i + 50."""


def pair_views(**options):
    """A view for each of two ranks, steps of 12 pairs."""
    dataset = TextDataset(skewed_lengths(100))
    arguments = {"global_batch_size": 12, "tail": "filler", "effort": "fast", **options}
    topology = Topology(dp_size=2, num_microbatches=2, limits=Limits(max_tokens=4096))
    return [
        BalancedBatchSampler.from_table(
            dataset.sizes, text_tokens, topology, group_ids=PAIR_OF, dp_rank=rank, **arguments
        )
        for rank in (0, 1)
    ]


def assert_whole(batch):
    """Both samples of each pair are in the microbatch."""
    assert sorted(batch) == sorted(sample for at in set(PAIR_OF[batch]) for sample in (at, at + 50))


def real_ids(batch):
    """Samples that are no fillers."""
    return [k for k, flag in zip(batch, batch.facts.flags, strict=True) if flag == Flag.REAL]


def test_fifty_pairs_are_never_split_and_every_sample_comes_once_over_both_ranks():
    views = pair_views()
    delivered = []
    for batch in (batch for view in views for batch in view):
        assert_whole(batch)
        delivered += real_ids(batch)
    assert sorted(delivered) == list(range(100))


def test_facts_are_those_of_the_samples():
    """Step 0 has 12 pairs; tokens and targets are sums over its 24 samples."""
    lengths = skewed_lengths(100)
    batches = [batch for view in pair_views() for batch in view if batch.facts.step == 0]
    assert sum(map(len, batches)) == 24
    step = batches[0].facts
    assert step.step_samples == 24
    assert step.step_target_tokens == sum(lengths[k] - 1 for batch in batches for k in batch)
    for batch in batches:
        facts = batch.facts
        assert facts.sample_ids == tuple(batch)
        assert facts.tokens == sum(lengths[k] for k in batch)
        assert len(facts.flags) == len(facts.target_tokens) == len(batch)


def test_pairs_that_move_within_a_window_say_so_for_each_sample():
    views = pair_views(window_steps=2)
    for batch in (batch for view in views for batch in view):
        assert_whole(batch)
        moved = dict(zip(batch, batch.facts.moved_steps, strict=True))
        assert all(moved[k] == moved[(k + 50) % 100] for k in batch)


def test_a_sampler_of_groups_goes_on_in_mid_epoch():
    """What is delivered before and after a state, through JSON, is one epoch."""
    whole = [list(batch) for batch in pair_views()[0]]
    first = pair_views()[0]
    batches = iter(first)
    before = [list(next(batches)) for _ in range(3)]
    state = json.loads(json.dumps(first.state_dict()))
    second = pair_views()[0]
    second.load_state_dict(state)
    assert before + [list(batch) for batch in second] == whole


def test_a_state_of_other_groups_is_refused():
    state = pair_views()[0].state_dict()
    dataset = TextDataset(skewed_lengths(100))
    others = BalancedBatchSampler.from_table(
        dataset.sizes, text_tokens, Topology(dp_size=2, num_microbatches=2), dp_rank=0,
        global_batch_size=12, group_ids=np.arange(100) // 2,
    )  # fmt: skip
    with pytest.raises(StateError, match="costs"):
        others.load_state_dict(state)


def test_the_rest_of_an_epoch_of_groups_is_planned_anew_for_other_ranks():
    """Of one step at two ranks and the rest at one, every sample comes once."""
    views = pair_views()
    begun = [[batch for batch in view if batch.facts.step == 0] for view in views]
    delivered = [sample for batches in begun for batch in batches for sample in batch]
    views[0].seek(1, epoch=0)
    dataset = TextDataset(skewed_lengths(100))
    alone = BalancedBatchSampler.from_table(
        dataset.sizes, text_tokens, Topology(dp_size=1), dp_rank=0, global_batch_size=5,
        tail="filler", effort="fast", group_ids=PAIR_OF, on_topology_change="replan",
    )  # fmt: skip
    alone.load_state_dict(views[0].state_dict())
    for batch in alone:
        assert_whole(batch)
        delivered += real_ids(batch)
    assert sorted(delivered) == list(range(100))


@pytest.mark.parametrize("workers", ["torch", "thread"])
def test_the_loader_reads_pairs_together(workers):
    """`batch_size` counts pairs, and an oversize pair is dropped whole and counted."""
    lengths = [4] * 20
    lengths[3] = 30
    loader = BalancedDataLoader(
        TextDataset(lengths), cost_model=text_tokens, batch_size=3, max_tokens=32, effort="fast",
        oversize="drop", group_ids=np.tile(np.arange(10), 2), collate_fn=ids_of, workers=workers,
        dp_rank=0, dp_size=1,
    )  # fmt: skip
    batches = list(loader)
    assert [len(batch) for batch in batches] == [6, 6, 6]
    assert all({(k + 10) % 20 for k in batch} == set(batch) for batch in batches)
    assert sorted(sum(batches, start=[])) == [k for k in range(20) if k not in (3, 13)]  # noqa: RUF017
    assert loader.stats()["dropped"] == 2


def test_what_does_not_go_with_groups_is_refused():
    dataset = TextDataset([4] * 20)
    group_ids = np.arange(20) // 2
    with pytest.raises(ArgumentError, match="on_sample_error"):
        BalancedDataLoader(
            dataset, cost_model=text_tokens, batch_size=2, group_ids=group_ids,
            on_sample_error="replace", dp_rank=0, dp_size=1,
        )  # fmt: skip
    sampler = BalancedBatchSampler(
        EpochPlanner(pair_views()[0].planner.costs, Topology(dp_size=1), global_batch_size=2),
        dp_rank=0,
    )
    with pytest.raises(ArgumentError, match="batch_sampler and group_ids are both given"):
        BalancedDataLoader(dataset, batch_sampler=sampler, group_ids=group_ids)
