"""Published complaints about loaders and processes, each as a check; see README.md here."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from balancer.cost import Costs
from balancer.planner import EpochPlanner, plan_step
from balancer.topology import Limits, Topology
from loaders.loader import BalancedDataLoader
from loaders.sampler import BalancedBatchSampler
from tests.loaders.planning import TextDataset, ids_of, skewed_lengths, text_tokens
from tests.loaders.streaming import TextStream, on_ranks, rebalanced, stream_loader


@pytest.mark.dist
@pytest.mark.parametrize(("kind", "expected"), [("plan", 3), ("rebalance", 3), ("stream", 5)])
def test_case_a2_ranks_of_dear_and_cheap_samples_run_equally_many_microbatches(
    kind: str, expected: int, tmp_path: Path
) -> None:
    """Five samples of 95 tokens on rank 0 and five of 20 on rank 1, at most 100 a microbatch.

    No process group is given. Samples that stay where they are need five microbatches, those that
    may move three.
    """
    tokens = [95] * 5 + [20] * 5

    def run(rank: int) -> int:
        num = 0
        for _ in _microbatches(kind, rank, tokens):
            num += 1
            for _ in range(3):
                distributed.all_reduce(torch.ones(1))
        return num

    _compile_kernels(tokens)
    assert on_ranks(run, 2, tmp_path) == [expected] * 2


def _compile_kernels(tokens: list[int]) -> None:
    """Plan once in this process, so that those forked from it need not compile."""
    costs = Costs.from_values(tokens, tokens=tokens)
    for num_microbatches in (1, 3):
        topology = Topology(
            dp_size=2,
            num_microbatches=num_microbatches,
            max_microbatches=5,
            barrier="microbatch",
            limits=Limits(max_tokens=100),
        )
        plan_step(costs, topology)


def _microbatches(kind: str, rank: int, tokens: list[int]) -> Any:
    if kind == "plan":
        topology = Topology(dp_size=2, limits=Limits(max_tokens=100))
        costs = Costs.from_values(tokens, tokens=tokens)
        planner = EpochPlanner(costs, topology, global_batch_size=10, effort="fast")
        return BalancedBatchSampler(planner, dp_rank=rank)
    make = rebalanced if kind == "rebalance" else stream_loader
    stream = TextStream(tokens[5 * rank : 5 * rank + 5], first=5 * rank)
    options = {"num_microbatches": 1, "global_batch_size": 10, "window_size": 5}
    return make(stream, max_tokens=100, **options)


@pytest.mark.parametrize("tail", ["drop", "pad", "filler"])
@pytest.mark.parametrize("oversize", ["drop", "alone"])
def test_case_c4_statistics_count_what_is_not_delivered(tail: Any, oversize: Any) -> None:
    """Twenty-one samples that fit and two that do not, in steps of four."""
    loader = BalancedDataLoader(
        TextDataset([5] * 21 + [50, 60]), cost_model=text_tokens, global_batch_size=4,
        num_microbatches=2, dp_rank=0, dp_size=1, effort="fast", max_tokens=20, tail=tail,
        oversize=oversize, collate_fn=ids_of,
    )  # fmt: skip
    delivered = {i for batch in loader for i in batch}
    lost = (2 if oversize == "drop" else 0) + {"drop": 1, "alone": 3}[oversize] * (tail == "drop")
    assert loader.stats()["dropped"] == 23 - len(delivered) == lost


class PlanningDataset(TextDataset):
    """Runs the planner's kernels for every sample that it reads."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        plan = plan_step(Costs.from_values([3, 1, 1, 2]), Topology(dp_size=2), effort="fast")
        assert len(plan.sample_ids) == 4
        return super().__getitem__(index)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_case_k2_kernels_run_in_forked_workers_after_they_ran_in_the_parent() -> None:
    loader = BalancedDataLoader(
        PlanningDataset(skewed_lengths(32)), cost_model=text_tokens, global_batch_size=16,
        num_microbatches=2, dp_rank=0, dp_size=1, effort="fast", num_workers=2,
        multiprocessing_context="fork", collate_fn=ids_of, timeout=60,
    )  # fmt: skip
    assert sorted(i for batch in loader for i in batch) == list(range(32))


class DrawingDataset(TextDataset):
    """Samples that draw a number."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return super().__getitem__(index) | {"id": random.random()}


class DrawingStream(TextStream):
    """The same, one after the other."""

    def sample(self, index: int) -> dict[str, Any]:
        return super().sample(index) | {"id": random.random()}


def seed_anew(worker_id: int) -> None:
    random.seed()


@pytest.mark.parametrize("kind", ["map", "stream"])
def test_case_g7_workers_may_be_seeded_anew_in_every_run(kind: str) -> None:
    """What `worker_init_fn` seeds by chance stays by chance: two runs draw other numbers."""
    lengths = skewed_lengths(16)
    options: dict[str, Any] = {"num_workers": 2, "worker_init_fn": seed_anew}
    runs = []
    for _ in range(2):
        if kind == "stream":
            loader: Any = stream_loader(DrawingStream(lengths), collate_fn=ids_of, **options)
        else:
            loader = BalancedDataLoader(
                DrawingDataset(lengths), cost_model=text_tokens, global_batch_size=8, dp_rank=0,
                dp_size=1, effort="fast", seed_samples=False, collate_fn=ids_of, timeout=60,
                **options,
            )  # fmt: skip
        runs.append([drawn for batch in loader for drawn in batch])
    assert len(runs[0]) == len(set(runs[0])) == 16
    assert not set(runs[0]) & set(runs[1])


def test_case_l6_processes_import_and_plan_at_once_with_an_empty_cache_folder(
    tmp_path: Path,
) -> None:
    """Three processes, for the sake of small machines; none leaves a file for another to read."""
    code = (
        "from balancer import Costs, Topology, plan_step;"
        "plan = plan_step(Costs.from_values([3, 1, 1, 2]), Topology(dp_size=2), effort='fast');"
        "print(plan.fingerprint)"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    try:
        answers = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * 3, answers
    assert len({printed for printed, _ in answers}) == 1
    assert not list(tmp_path.iterdir())
