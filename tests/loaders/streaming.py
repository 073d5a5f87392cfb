"""Streams and processes for the tests of StreamLoader and rebalance."""

import os
import pickle
import time
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.multiprocessing
from torch import distributed
from torch.utils.data import IterableDataset, get_worker_info

from balancer.cost import Costs
from balancer.topology import Limits, Topology
from loaders.streams.loader import StreamLoader
from loaders.streams.moving_plan import plan_moving
from loaders.streams.plan import plan_in_place
from loaders.streams.rebalance import RebalancedLoader, rebalance
from loaders.streams.rules import StreamRules
from loaders.streams.shards import ShardedStream
from tests.loaders.planning import skewed_lengths, text_tokens

TIME_LIMIT_S = 120


class TextStream(IterableDataset[Any]):
    """Samples `first`, `first + 1`, ... with as many tokens as `lengths` says; counts reads."""

    def __init__(self, lengths: list[int], first: int = 0) -> None:
        self.lengths = lengths
        self.first = first
        self.num_read = 0

    def sample(self, index: int) -> dict[str, Any]:
        tokens = torch.full((self.lengths[index],), self.first + index)
        return {"id": self.first + index, "input_ids": tokens}

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self.lengths)):
            self.num_read += 1
            yield self.sample(index)


class SplitTextStream(TextStream):
    """The same, of which each worker takes its part by itself: a contiguous one, of any length."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        num = len(self.lengths)
        for index in range(num * worker // workers, num * (worker + 1) // workers):
            yield self.sample(index)


class StatefulTextStream(TextStream):
    """The same, with a state of its own; what is skipped is not read."""

    position = 0

    def __iter__(self) -> Iterator[Any]:
        while self.position < len(self.lengths):
            self.position += 1
            self.num_read += 1
            yield self.sample(self.position - 1)

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def shards_of(sizes: list[int], **options: Any) -> ShardedStream:
    """Shards of so many samples, whose ids are those that the stream gives them."""

    def read(name: str) -> Iterator[dict[str, Any]]:
        shard = int(name)
        for index in range(sizes[shard]):
            sample_id = index * len(sizes) + shard
            yield {"id": sample_id, "input_ids": torch.full((1 + 7 * sample_id % 50,), sample_id)}

    return ShardedStream([str(shard) for shard in range(len(sizes))], read, **options)


def text_size(sample: dict[str, Any]) -> dict[str, int]:
    length = len(sample["input_ids"])
    return {"text_tokens": length, "target_tokens": length - 1}


def keep(samples: Any) -> Any:
    return samples


keep.wants_facts = True  # type: ignore[attr-defined]


def stream_loader(dataset: Any, **options: Any) -> StreamLoader:
    return StreamLoader(dataset, **(_settings() | options))


def rebalanced(dataset: Any, **options: Any) -> RebalancedLoader:
    return rebalance(dataset, **(_settings() | options))


def _settings() -> dict[str, Any]:
    return {
        "size_fn": text_size,
        "cost_model": text_tokens,
        "window_size": 8,
        "global_batch_size": 4,
        "num_microbatches": 2,
        "collate_fn": keep,
    }


def ids(microbatches: Any) -> list[int]:
    return [sample["id"] for microbatch in microbatches for sample in microbatch]


def lengths(num_samples: int, seed: int = 0) -> list[int]:
    return [min(length, 300) for length in skewed_lengths(num_samples, seed)]


@cache
def compile_kernels() -> None:
    """Plan once in this process, so that those forked from it need not compile."""
    for num in (48, 12):  # few samples are placed exactly, more are searched
        costs, owner = Costs.from_values(lengths(num), tokens=lengths(num)), np.arange(num) % 3
        for barrier, limits in (("microbatch", Limits()), ("step", Limits(max_tokens=400))):
            rules = StreamRules(
                topology=Topology(dp_size=3, num_microbatches=2, barrier=barrier, limits=limits),
                global_batch_size=num // 2, window_steps=2, oversize="drop", tail="filler",
            )  # fmt: skip
            plan_moving(costs, owner, rules, is_last=True)
            plan_in_place(costs, owner, [0, 1, 2], rules)


def on_ranks(function: Callable[[int], Any], num_ranks: int, folder: Path) -> list[Any]:
    """What the function returns on each of several gloo processes; kills them when time is up."""
    compile_kernels()
    context = torch.multiprocessing.start_processes(
        _rank, (function, num_ranks, folder), nprocs=num_ranks, join=False, start_method="fork"
    )
    deadline = time.monotonic() + TIME_LIMIT_S
    try:
        while not context.join(timeout=0.2):
            assert time.monotonic() < deadline, "the ranks did not finish: they wait for each other"
    finally:
        for process in context.processes:
            process.kill()
    return [pickle.loads((folder / f"rank{rank}").read_bytes()) for rank in range(num_ranks)]


def _rank(rank: int, function: Any, num_ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=num_ranks)
    try:
        result = function(rank)
    except BaseException:
        traceback.print_exc()
        raise
    (folder / f"rank{rank}").write_bytes(pickle.dumps(result))
    distributed.barrier()
    distributed.destroy_process_group()
    os._exit(0)  # as the parent's fixtures are not this process's
