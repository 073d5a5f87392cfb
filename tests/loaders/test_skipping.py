"""accelerate's skip_first_batches and our own state lead to the same place, and never add up."""

import pytest
from accelerate import skip_first_batches
from torch.utils.data import DataLoader

from balancer.errors import StateError
from loaders.sampler import BalancedBatchSampler
from tests.loaders.planning import make_planner

WORKERS = pytest.mark.parametrize("num_workers", [0, 2])


def make_loader(num_workers):
    sampler = BalancedBatchSampler(make_planner(), dp_rank=0)
    return DataLoader(range(50), batch_sampler=sampler, collate_fn=list, num_workers=num_workers)


def state_after(behind):
    sampler = BalancedBatchSampler(make_planner(), dp_rank=0)
    iterator = iter(sampler)
    for _ in range(behind):
        next(iterator)
    return sampler.state_dict()


@WORKERS
def test_case_h10_either_way_gives_the_same_next_batch(num_workers):
    whole = list(make_loader(0))
    loader = make_loader(num_workers)
    loader.batch_sampler.load_state_dict(state_after(3))
    assert list(loader) == whole[3:]
    assert list(skip_first_batches(make_loader(num_workers), 3)) == whole[3:]


@WORKERS
def test_case_h10_both_at_once_are_refused(num_workers):
    loader = make_loader(num_workers)
    loader.batch_sampler.load_state_dict(state_after(3))
    with pytest.raises(StateError, match="SkipBatchSampler is about to skip 3 batches more"):
        list(skip_first_batches(loader, 3))


def test_skipping_in_an_epoch_that_was_not_resumed_is_fine():
    """The state was at the end of an epoch: nothing of the next was skipped by it."""
    loader = make_loader(0)
    loader.batch_sampler.load_state_dict(state_after(6))
    assert len(list(skip_first_batches(loader, 2))) == 4
