"""From image files and texts to gradients: predicted sizes, limits, training, two processes."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from balancer.topology import Limits
from loaders.collate import PackedCollator
from loaders.loader import BalancedDataLoader
from tests.loaders.demo import DemoDataset, demo_cost_model, demo_records
from tests.loaders.tiny_model import TinyModel

LIMITS = Limits(max_tokens=448, max_patches=448, max_images=8)
TIME_LIMIT_S = 240


@pytest.fixture(scope="module")
def dataset(shared_data: Path) -> DemoDataset:
    folder = shared_data / "demo"
    return DemoDataset(folder, demo_records(folder, max_text_tokens=150, max_side=1700))


@pytest.fixture(scope="module")
def samples(dataset: DemoDataset) -> list[dict[str, Any]]:
    """All samples, decoded once."""
    return [dataset[index] for index in range(len(dataset))]


def make_loader(dataset: Any, **options: Any) -> BalancedDataLoader:
    settings: dict[str, Any] = {
        "cost_model": demo_cost_model(),
        "global_batch_size": 24,
        "num_microbatches": 2,
        "limits": LIMITS,
        "collate_fn": PackedCollator(check_targets="error"),
        "dp_rank": 0,
        "dp_size": 2,
        "seed": 3,
        "effort": "fast",
    }
    return BalancedDataLoader(dataset, **(settings | options))


@pytest.fixture(scope="module")
def epoch(dataset: DemoDataset) -> list[dict[str, Any]]:
    """Every microbatch of both ranks in an epoch, the first rank's read by two workers."""
    loaders = [make_loader(dataset, dp_rank=0, num_workers=2), make_loader(dataset, dp_rank=1)]
    return [batch for loader in loaders for batch in loader]


def test_predicted_sizes_are_those_of_the_collated_tensors(dataset, epoch):
    costs = demo_cost_model()(dataset.sizes)
    assert len(dataset) >= 90
    for batch in epoch:
        ids = batch["sample_ids"].numpy()
        lengths = batch["cu_seqlens"].diff().numpy()
        np.testing.assert_array_equal(lengths, costs.tokens[ids])
        patches = batch["pixel_values"].shape[0] if "pixel_values" in batch else 0
        images = len(batch["image_grid_thw"]) if "pixel_values" in batch else 0
        assert patches == costs.patches[ids].sum()
        assert images == costs.images[ids].sum()
        assert batch["num_target_tokens"] == costs.target_tokens[ids].sum()
    delivered = np.concatenate([batch["sample_ids"] for batch in epoch])
    assert len(np.unique(delivered)) == len(delivered) == len(dataset) // 24 * 24


def test_limits_hold_in_the_collated_tensors(epoch):
    for batch in epoch:
        assert batch["input_ids"].shape == batch["labels"].shape == batch["position_ids"].shape
        assert batch["input_ids"].shape[1] <= LIMITS.max_tokens
        assert batch["cu_seqlens"][-1] == batch["input_ids"].shape[1]
        if "pixel_values" in batch:
            assert batch["pixel_values"].shape[0] <= LIMITS.max_patches
            assert len(batch["image_grid_thw"]) <= LIMITS.max_images


def test_every_microbatch_knows_the_target_tokens_of_its_step(epoch):
    for total in {batch["global_target_tokens"] for batch in epoch}:
        of_step = [batch for batch in epoch if batch["global_target_tokens"] == total]
        assert sum(batch["num_target_tokens"] for batch in of_step) == total


def test_a_small_model_learns(dataset, samples):
    """The mean loss of an epoch falls by a tenth at least in eight epochs."""
    model = TinyModel()
    assert sum(parameter.numel() for parameter in model.parameters()) < 20_000
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    loader = BalancedDataLoader(
        samples, sizes=dataset.sizes, cost_model=demo_cost_model(), global_batch_size=24,
        num_microbatches=4, limits=LIMITS, collate_fn=PackedCollator(check_targets="error"),
        effort="fast",
    )  # fmt: skip
    means = []
    for _ in range(8):
        losses = []
        for step in loader.steps():
            optimizer.zero_grad()
            parts = []
            for batch in step:
                loss = model(batch) * batch["loss_scale"]
                loss.backward()
                parts.append(loss.item())
            optimizer.step()
            losses.append(sum(parts))
        means.append(np.mean(losses))
    assert means[-1] < 0.9 * means[0]


def gradients_of_rank(dp_rank: int, folder: Path) -> None:
    """One step of one rank under DDP; what the rank saw and the gradients, saved."""
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    distributed.init_process_group("gloo", init_method=store, rank=dp_rank, world_size=2)
    data = torch.load(folder / "data.pt", weights_only=False)
    loader = make_loader(data["samples"], sizes=data["sizes"], dp_rank=None, dp_size=None)
    model = TinyModel()
    parallel = DistributedDataParallel(model)
    seen = []
    for step in loader.steps():
        for batch in step:
            parallel.require_backward_grad_sync = loader.facts.is_last
            (parallel(batch) * batch["loss_scale"]).backward()
            seen += batch["sample_ids"].tolist()
        break
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    torch.save({"seen": seen, "gradients": gradients}, folder / f"rank{dp_rank}.pt")
    distributed.destroy_process_group()


def spawn_ranks(function: Any, arguments: tuple[Any, ...]) -> None:
    """Run the function in two processes; kill them when the time is up."""
    context = torch.multiprocessing.spawn(function, arguments, nprocs=2, join=False)
    deadline = time.monotonic() + TIME_LIMIT_S
    try:
        while not context.join(timeout=1):
            assert time.monotonic() < deadline, "the ranks did not finish: they wait for each other"
    finally:
        for process in context.processes:
            process.kill()


@pytest.mark.dist
def test_two_processes_make_the_gradient_of_the_unbalanced_step(dataset, samples, tmp_path):
    """The samples of the step, one by one in one process, give the same gradient to 1e-10."""
    torch.save({"samples": samples, "sizes": dataset.sizes}, tmp_path / "data.pt")
    spawn_ranks(gradients_of_rank, (tmp_path,))
    ranks = [torch.load(tmp_path / f"rank{rank}.pt") for rank in (0, 1)]
    ids = make_loader(dataset).batch_sampler.planner.step_ids(0, 0)[0].tolist()
    assert sorted(ranks[0]["seen"] + ranks[1]["seen"]) == sorted(ids)

    model, collate = TinyModel(), PackedCollator()
    batches = [collate([samples[index]]) for index in ids]
    num_target_tokens = sum(batch["num_target_tokens"] for batch in batches)
    for batch in batches:
        (model(batch) / num_target_tokens).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.abs().max() > 0, name
        for rank in ranks:
            torch.testing.assert_close(
                rank["gradients"][name], parameter.grad, rtol=1e-10, atol=1e-12, msg=name
            )
