"""Recipes of Lightning, accelerate and FSDP2 run as written; what they do to our parts."""

import pytest
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities.data import _update_dataloader
from torch.utils.data import DataLoader, DistributedSampler

from balancer.errors import ArgumentError
from loaders.sampler import BalancedBatchSampler
from tests.loaders.planning import make_planner


@pytest.mark.parametrize("stage", [RunningStage.TRAINING, RunningStage.PREDICTING])
def test_case_j3_lightning_cannot_build_the_sampler_anew_and_hears_why(stage):
    """Lightning's own function that puts its sampler in gets advice, not a TypeError."""
    batches = BalancedBatchSampler(make_planner(), dp_rank=0)
    loader = DataLoader(range(50), batch_sampler=batches)
    theirs = DistributedSampler(range(50), num_replicas=2, rank=0)
    with pytest.raises(ArgumentError, match=r"a DistributedSampler.*use_distributed_s"):
        _update_dataloader(loader, theirs, mode=stage)


@pytest.mark.parametrize("given", [{"batch_size": 4}, {"drop_last": False}])
def test_case_j3_what_the_plan_has_is_refused(given):
    with pytest.raises(ArgumentError, match="global_batch_size and tail"):
        BalancedBatchSampler(make_planner(), **given)
