"""BalancedBatchSampler: all ranks together are the plan, epochs follow, lengths are exact."""

import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.plan import Flag
from balancer.planner import EpochPlanner
from balancer.samples import SampleTable
from balancer.topology import Limits, Topology
from loaders.sampler import BalancedBatchSampler
from tests.loaders.planning import make_planner, skewed_lengths, text_tokens

TAILS = ("drop", "pad", "filler")


def all_ranks(planner):
    return [BalancedBatchSampler(planner, dp_rank=rank) for rank in range(planner.topology.dp_size)]


def test_batch_i_of_the_global_view_belongs_to_rank_i_modulo_dp_size():
    planner = make_planner(dp_size=3, num_microbatches=2, global_batch_size=12)
    together = list(BalancedBatchSampler(planner))
    assert len(together) % 3 == 0
    for rank, view in enumerate(all_ranks(planner)):
        assert together[rank::3] == list(view)


def test_all_ranks_together_deliver_the_plan_of_the_epoch():
    planner = make_planner()
    plan = planner.plan_epoch(0)
    for rank, view in enumerate(all_ranks(planner)):
        assert list(view) == [ids.tolist() for ids in plan.for_rank(rank)]


@given(
    num_samples=st.integers(min_value=8, max_value=70),
    dp_size=st.integers(min_value=1, max_value=4),
    num_microbatches=st.integers(min_value=1, max_value=2),
    tail=st.sampled_from(TAILS),
    epoch=st.integers(min_value=0, max_value=3),
)
def test_len_is_what_is_iterated_and_equal_on_all_ranks(
    num_samples, dp_size, num_microbatches, tail, epoch
):
    """Every rank gets len(view) microbatches, none empty, and each id once, or it is dropped."""
    planner = make_planner(
        num_samples,
        dp_size=dp_size,
        num_microbatches=num_microbatches,
        global_batch_size=8,
        tail=tail,
    )
    delivered = []
    for view in all_ranks(planner):
        view.set_epoch(epoch)
        promised = len(view)
        batches = list(view)
        assert promised == len(batches)
        assert promised == planner.microbatches_per_epoch(epoch)
        assert all(batches)
        delivered += [
            sample_id
            for batch in batches
            for sample_id, flag in zip(batch, batch.facts.flags, strict=True)
            if flag == Flag.REAL
        ]
    assert sorted(delivered + planner.dropped(epoch).tolist()) == list(range(num_samples))


def test_len_is_exact_where_limits_force_more_microbatches():
    lengths = skewed_lengths(200)
    view = BalancedBatchSampler.from_table(
        SampleTable.from_lengths(lengths),
        text_tokens,
        Topology(dp_size=2, num_microbatches=1, limits=Limits(max_tokens=max(lengths))),
        global_batch_size=40,
        dp_rank=1,
    )
    for epoch in range(3):
        promised = len(view)
        batches = list(view)
        assert promised == len(batches) > view.planner.num_steps, epoch
        assert max(sum(lengths[i] for i in batch) for batch in batches) <= max(lengths)


def test_case_a6_the_plan_does_not_depend_on_any_global_generator():
    views = []
    for rank in range(4):
        random.seed(rank)
        np.random.seed(rank)  # noqa: NPY002  (the point is the global generator)
        torch.manual_seed(rank)
        planner = make_planner(dp_size=4)
        before = (random.getstate()[1], torch.get_rng_state().tolist())
        views.append(list(BalancedBatchSampler(planner)))
        assert (random.getstate()[1], torch.get_rng_state().tolist()) == before
    assert all(view == views[0] for view in views)


def test_another_process_with_another_hash_seed_plans_the_same():
    code = (
        "from tests.loaders.planning import make_planner;"
        "from loaders.sampler import BalancedBatchSampler;"
        "print(list(BalancedBatchSampler(make_planner(dp_size=4))))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "77", "NUMBA_NUM_THREADS": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == str(list(BalancedBatchSampler(make_planner(dp_size=4))))


def test_epochs_follow_one_another_if_nobody_sets_them():
    view = BalancedBatchSampler(make_planner(), dp_rank=0)
    first, second = list(view), list(view)
    assert first != second
    assert view.epoch == 2
    view.set_epoch(0)
    assert list(view) == first
    assert list(view) == second


def test_set_epoch_on_the_sampler_attribute_is_what_frameworks_call():
    view = BalancedBatchSampler(make_planner(), dp_rank=0)
    view.sampler.set_epoch(5)
    assert (view.epoch, view.sampler.epoch) == (5, 5)
    batch = next(iter(view))
    assert batch.facts.epoch == 5


def test_an_epoch_that_was_broken_off_is_not_repeated():
    view = BalancedBatchSampler(make_planner(), dp_rank=0)
    for _ in view:
        assert view.epoch == 0
        break
    assert view.epoch == 1
    assert next(iter(view)).facts.epoch == 1


def test_setting_the_running_epoch_again_starts_it_again():
    view = BalancedBatchSampler(make_planner(), dp_rank=0)
    iterator = iter(view)
    first = next(iterator)
    view.set_epoch(0)
    assert next(iter(view)) == first


def test_facts_hold_what_the_step_has_over_all_ranks():
    planner = make_planner(30, tail="filler", dp_size=2, num_microbatches=4, global_batch_size=24)
    lengths = planner.costs.target_tokens
    steps = {}
    for batch in BalancedBatchSampler(planner):
        steps.setdefault(batch.facts.step, []).append(batch)
    assert sorted(steps) == [0, 1]
    for step, batches in steps.items():
        assert [b.facts.index for b in batches] == [i // 2 for i in range(8)]
        assert [b.facts.dp_rank for b in batches] == [i % 2 for i in range(8)]
        real = [
            i for b in batches for i, f in zip(b, b.facts.flags, strict=True) if f != Flag.FILLER
        ]
        assert len(real) == (24, 6)[step]
        for batch in batches:
            assert batch.facts.num_microbatches == 4
            assert batch.facts.step_samples == len(real)
            assert batch.facts.step_target_tokens == lengths[real].sum()
            assert batch.facts.sample_ids == tuple(batch)
    assert sum(b.facts.is_filler for b in steps[1]) == 2


def test_a_sampler_can_be_pickled_and_goes_on_the_same():
    view = BalancedBatchSampler(make_planner(), dp_rank=1)
    view.set_epoch(3)
    copy = pickle.loads(pickle.dumps(view))
    assert copy.sampler.epoch == 3
    copy.sampler.set_epoch(4)
    assert copy.epoch == 4
    copy.set_epoch(3)
    batches, copied = list(view), list(copy)
    assert batches == copied
    assert [b.facts for b in batches] == [b.facts for b in copied]


def test_a_batch_survives_pickling_with_its_facts():
    batch = next(iter(BalancedBatchSampler(make_planner())))
    copy = pickle.loads(pickle.dumps(batch))
    assert (copy, copy.facts) == (batch, batch.facts)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_stock_data_loader_takes_it_as_batch_sampler(num_workers):
    view = BalancedBatchSampler(make_planner(), dp_rank=0)
    loader = DataLoader(range(50), batch_sampler=view, collate_fn=list, num_workers=num_workers)
    assert (loader.batch_size, loader.drop_last, view.batch_size) == (None, False, None)
    assert len(loader) == len(view)
    batches = list(loader)
    view.set_epoch(0)
    assert batches == list(view)


@pytest.mark.parametrize("dp_rank", [2, -1, True, 0.5])
def test_a_rank_outside_the_topology_is_refused(dp_rank):
    with pytest.raises(ArgumentError, match="dp_rank is"):
        BalancedBatchSampler(make_planner(dp_size=2), dp_rank=dp_rank)


def test_an_epoch_that_is_no_number_is_refused():
    with pytest.raises(ArgumentError, match="epoch is -1"):
        BalancedBatchSampler(make_planner()).set_epoch(-1)


def test_facts_name_the_modules_that_another_rank_runs_at_the_same_time():
    """Two image samples on four ranks: the ranks without one know that they need a dummy."""
    vision = [0.0] * 8
    vision[2] = vision[5] = 50.0
    costs = Costs.from_values([[v, 2.0] for v in vision], modules=("vision", "language"))
    planner = EpochPlanner(costs, Topology(dp_size=4), global_batch_size=8)
    batches = list(BalancedBatchSampler(planner))
    with_image = [any(vision[index] for index in batch) for batch in batches]
    assert sum(with_image) == 2
    for batch, has_image in zip(batches, with_image, strict=True):
        assert batch.facts.missing_modules == (() if has_image else ("vision",))
