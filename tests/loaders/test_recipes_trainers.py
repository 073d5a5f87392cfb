"""The programs of loaders/RECIPES.md that run in one process, as they are written there."""

import copy
import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import loaders
from balancer.errors import ArgumentError
from loaders.loss import step_loss, token_losses
from loaders.megatron import MegatronBatchSampler
from tests.loaders.planning import make_planner
from tests.loaders.test_recipes import program


def recipes() -> str:
    """All recipes."""
    return (Path(loaders.__file__).parent / "RECIPES.md").read_text()


def run(title: str) -> dict[str, Any]:
    """Run a recipe in this process; the names that it leaves behind."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program(title), title, "exec"), names)
    return names


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_torchdata_goes_on_in_the_middle_of_a_step():
    """Each sample once: 3 microbatches before the state, 9 after it, also read by 2 workers."""
    names = run("torchdata")
    assert len(names["before"]) == 3
    assert len(names["after"]) == 9
    ids = [sample for batch in names["before"] + names["after"] for sample in batch]
    assert sorted(ids) == list(range(48))
    assert names["after"][0] == names["following"]


def test_megatron_goes_on_from_consumed_samples():
    """Resumed after 4 steps, two ranks get those of steps 5 and 6; an epoch has each id once."""
    make_loader = run("Megatron-LM")["external_loader"]
    numbers = {"micro_batch_size": 4, "global_batch_size": 16, "data_parallel_size": 2}

    def steps(consumed_samples, num_steps):
        loaders = [
            make_loader(consumed_samples=consumed_samples, data_parallel_rank=rank, **numbers)
            for rank in (0, 1)
        ]
        microbatches = [itertools.islice(loader, 2 * num_steps) for loader in loaders]
        ids = [[batch["sample_ids"].tolist() for batch in part] for part in microbatches]
        return [[rank[2 * step : 2 * step + 2] for rank in ids] for step in range(num_steps)]

    whole = steps(0, 6)
    assert steps(64, 2) == whole[4:]
    for epoch in (whole[:3], whole[3:]):
        read = [i for step in epoch for rank in step for batch in rank for i in batch]
        assert sorted(read) == list(range(48))
    assert whole[:3] != whole[3:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"consumed_samples": 24}, "consumed_samples is 24, global_batch_size is 16; allowed"),
        ({"data_parallel_size": 4}, "data_parallel_size is 4, the planner's dp_size is 2"),
        ({"micro_batch_size": 2}, "micro_batch_size is 2, but the planner's global_batch_size"),
        ({"data_parallel_rank": 2}, "dp_rank is 2, the topology's dp_size is 2; allowed"),
    ],
)
def test_megatron_numbers_that_are_not_the_plan_s_are_refused(change, message):
    numbers = {"consumed_samples": 0, "micro_batch_size": 4}
    numbers |= {"data_parallel_rank": 0, "data_parallel_size": 2}
    with pytest.raises(ArgumentError, match=re.escape(message)):
        MegatronBatchSampler(make_planner(), **(numbers | change))


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_case_k7_hydra_builds_a_loader_that_workers_can_be_sent(
    start_method, tmp_path, monkeypatch
):
    """Each sample once, in 3 steps of 2 microbatches, read by workers that inherit nothing."""
    section = recipes().split("## Hydra", maxsplit=1)[1]
    written = section.split("```yaml\n", maxsplit=1)[1].split("```", maxsplit=1)[0]
    assert "multiprocessing_context: forkserver" in written
    (tmp_path / "loader.yaml").write_text(written.replace("forkserver", start_method))
    monkeypatch.chdir(tmp_path)
    names = run("Hydra")
    assert names["loader"].multiprocessing_context == start_method
    assert len(names["ids"]) == len(names["loader"]) == 6
    assert sorted(i for ids in names["ids"] for i in ids) == list(range(24))


def test_case_j6_hugging_face_trainer(tmp_path, monkeypatch):
    """The Trainer's weights are those of a loop with `loss_scale`, also resumed mid-epoch."""
    monkeypatch.chdir(tmp_path)
    names = run("Hugging Face Trainer")
    trained = copy.deepcopy(names["model"].state_dict())

    model = fresh_llama(names["model"].config)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = names["trainer"].get_train_dataloader()
    assert len(loader) == 6
    for step in itertools.islice(itertools.chain(loader.steps(), loader.steps()), 5):
        for batch in step:
            inputs = {name: batch[name] for name in ("input_ids", "position_ids")}
            logits = model(**inputs, use_cache=False).logits
            lengths = batch["cu_seqlens"].diff().tolist()
            alone = [model(ids).logits for ids in batch["input_ids"].split(lengths, dim=1)]
            torch.testing.assert_close(torch.cat(alone, dim=1), logits, rtol=1e-4, atol=1e-5)
            step_loss(token_losses(logits, batch["labels"]), batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(model.state_dict(), trained, rtol=1e-5, atol=1e-6)

    resumed = names["BalancedTrainer"](
        fresh_llama(model.config), names["arguments"], train_dataset=names["dataset"]
    )
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoints" / "checkpoint-4"))
    torch.testing.assert_close(resumed.model.state_dict(), trained, rtol=1e-5, atol=1e-6)


def fresh_llama(config: Any) -> Any:
    """The recipe's model before training."""
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config)


@pytest.mark.filterwarnings("ignore")
def test_deepspeed_batch_sizes_are_those_of_the_plan():
    """DeepSpeed takes the three numbers, each step has just as many, and a wrong one is refused."""
    names = run("DeepSpeed")
    config, loader = names["config"], names["loader"]
    for step in loader.steps():
        batches = list(step)
        assert len(batches) == config["gradient_accumulation_steps"]
        assert sum(len(batch["sample_ids"]) for batch in batches) == config["train_batch_size"]
    reason = "deepspeed is no part of the test extra: it is large and builds for CUDA"
    module = pytest.importorskip("deepspeed.runtime.config", reason=reason)
    read = module.DeepSpeedConfig(config)
    assert (read.train_batch_size, read.gradient_accumulation_steps) == (8, 2)
    assert read.train_micro_batch_size_per_gpu == 4
    with pytest.raises(AssertionError, match="train_batch_size is not equal"):
        module.DeepSpeedConfig(config | {"train_batch_size": 1})


@pytest.mark.dist
def test_case_j6_two_ranks_of_the_trainer_give_the_weights_of_one(tmp_path, monkeypatch):
    """The Trainer counts target tokens over ranks: the ranks share the steps, not the loss."""
    monkeypatch.chdir(tmp_path)
    alone = run("Hugging Face Trainer")["model"].state_dict()
    path = tmp_path / "train.py"
    saves = 'torch.save(model.state_dict(), f"weights{arguments.process_index}.pt")\n'
    path.write_text(program("Hugging Face Trainer") + saves)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", str(path)],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in (0, 1):
        shared = torch.load(tmp_path / f"weights{rank}.pt")
        torch.testing.assert_close(shared, alone, rtol=1e-5, atol=1e-6)
