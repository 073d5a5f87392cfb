"""Recipes of Lightning, accelerate and FSDP2 run as written; what they do to our parts."""

import re
import subprocess
import sys
from pathlib import Path

import lightning
import pytest
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities.data import _update_dataloader
from torch.utils.data import DataLoader, DistributedSampler

from balancer.errors import ArgumentError
from loaders.loader import BalancedDataLoader
from loaders.sampler import BalancedBatchSampler
from tests.loaders.planning import TextDataset, ids_of, make_planner, text_tokens
from tests.loaders.test_recipes import program

EQUAL = ["rank 0: 6 microbatches", "rank 1: 6 microbatches"]


def microbatches_of_two_ranks(title: str, folder: Path) -> list[str]:
    """What the two ranks of a recipe print of their number of microbatches."""
    path = folder / "recipe.py"
    path.write_text(program(title))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", str(path)],
        cwd=folder, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return sorted(re.findall(r"rank \d: \d+ microbatches", done.stdout))


@pytest.mark.parametrize("stage", [RunningStage.TRAINING, RunningStage.PREDICTING])
def test_case_j3_lightning_cannot_build_the_sampler_anew_and_hears_why(stage):
    """Lightning's own function that puts its sampler in gets advice, not a TypeError."""
    batches = BalancedBatchSampler(make_planner(), dp_rank=0)
    loader = DataLoader(range(50), batch_sampler=batches)
    theirs = DistributedSampler(range(50), num_replicas=2, rank=0)
    with pytest.raises(ArgumentError, match=r"a DistributedSampler.*use_distributed_s"):
        _update_dataloader(loader, theirs, mode=stage)


@pytest.mark.parametrize("use_distributed_sampler", [True, False])
def test_case_j3_lightning_leaves_our_loader_as_it_is(use_distributed_sampler):
    """On two ranks Lightning's preparation returns our loader itself, under both settings."""
    data = TextDataset([3, 1, 4, 1])
    loader = BalancedDataLoader(
        data, cost_model=text_tokens, batch_size=2, dp_rank=0, dp_size=1, collate_fn=ids_of
    )
    trainer = lightning.Trainer(
        accelerator="cpu", strategy="ddp", devices=2, logger=False, enable_checkpointing=False,
        use_distributed_sampler=use_distributed_sampler,
    )  # fmt: skip
    assert trainer._accelerator_connector.is_distributed
    prepare = trainer._data_connector._prepare_dataloader
    for stage in (RunningStage.TRAINING, RunningStage.PREDICTING):
        assert prepare(loader, shuffle=False, mode=stage) is loader


@pytest.mark.parametrize("given", [{"batch_size": 4}, {"drop_last": False}])
def test_case_j3_what_the_plan_has_is_refused(given):
    with pytest.raises(ArgumentError, match="global_batch_size and tail"):
        BalancedBatchSampler(make_planner(), **given)


@pytest.mark.dist
def test_case_j3_j6_lightning(tmp_path):
    """Two ranks run 3 steps of 2; resumed from a checkpoint after 2 steps they run the third."""
    assert microbatches_of_two_ranks("Lightning", tmp_path) == EQUAL


@pytest.mark.dist
def test_case_j6_accelerate(tmp_path):
    """Two ranks run 6 microbatches each, and the last two again where 4 are skipped."""
    assert microbatches_of_two_ranks("accelerate", tmp_path) == EQUAL


@pytest.mark.dist
def test_case_j6_plain_torch_fsdp2(tmp_path):
    """Two ranks end the FSDP2 recipe after the same number of microbatches."""
    assert microbatches_of_two_ranks("Plain torch: FSDP2", tmp_path) == EQUAL
