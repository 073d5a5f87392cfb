"""One process of the `scale` experiment: `python -m benchmarks.scale_rank TASK SETTING`."""

import json
import sys
import time
import tracemalloc
from typing import Any

import numpy as np
from torch.utils.data import DistributedSampler

from balancer.flops.presets import preset
from balancer.planner import EpochPlanner
from balancer.samples import SampleTable
from balancer.sizing.key import files_fingerprint
from balancer.sizing.tables import load_table
from balancer.table_costs import TableCosts
from balancer.topology import Limits, Topology
from loaders.sampler import BalancedBatchSampler

__all__ = ["distributed_sampler", "first_pass", "rank"]

_MIB = 2**20


def first_pass(setting: dict[str, Any]) -> dict[str, float]:
    """Prices every sample once; its result stays in the cache."""
    started = time.perf_counter()
    _sampler(setting)
    return {"first_pass_seconds": time.perf_counter() - started}


def rank(setting: dict[str, Any]) -> dict[str, float]:
    """Opens what is cached, begins an epoch, and seeks in another; times, then memory."""
    _compile(setting)
    started = time.perf_counter()
    sampler = _sampler(setting)
    opened = time.perf_counter()
    sampler.set_epoch(1)
    next(iter(sampler))
    begun = time.perf_counter()
    planner = sampler.planner
    values = {"open_seconds": opened - started, "epoch_start_seconds": begun - opened}
    steps = {"first": 0, "middle": planner.num_steps // 2, "last": planner.num_steps - 1}
    for where, step in steps.items():
        times = np.empty(5)
        for index in range(5):
            begin = time.perf_counter()
            planner.plan(2 + index, step)
            times[index] = time.perf_counter() - begin
        values[f"seek_seconds_{where}"] = float(np.median(times))
    del sampler, planner
    tracemalloc.start()
    sampler = _sampler(setting)
    sampler.set_epoch(1)
    next(iter(sampler))
    values["epoch_start_mib"] = tracemalloc.get_traced_memory()[1] / _MIB
    tracemalloc.stop()
    return values


def distributed_sampler(setting: dict[str, Any]) -> dict[str, float]:
    """Torch's sampler: each rank lists and shuffles all samples."""
    sampler: DistributedSampler[int] = DistributedSampler(
        range(setting["num_samples"]),  # type: ignore[arg-type]
        num_replicas=setting["dp_size"],
        rank=setting["dp_rank"],
        seed=setting["seed"],
    )
    before, started = _anonymous_mib(), time.perf_counter()
    sampler.set_epoch(1)
    indices = iter(sampler)
    next(indices)
    seconds = time.perf_counter() - started
    return {"epoch_start_seconds": seconds, "epoch_start_mib": _anonymous_mib() - before}


def _sampler(setting: dict[str, Any]) -> BalancedBatchSampler:
    costs = TableCosts(
        load_table(setting["path"]),
        preset(setting["model"]),
        cache=setting["cache"],
        data_fingerprint=files_fingerprint([setting["path"]]),
    )
    return _planned(costs, setting)


def _planned(costs: TableCosts, setting: dict[str, Any]) -> BalancedBatchSampler:
    num = setting["num_microbatches"]
    topology = Topology(
        dp_size=setting["dp_size"],
        num_microbatches=num,
        max_microbatches=num,
        limits=Limits(max_tokens=setting["max_tokens"]),
    )
    planner = EpochPlanner(
        costs, topology, global_batch_size=setting["global_batch_size"], oversize="drop",
        illegal="drop", seed=setting["seed"],
    )  # fmt: skip
    return BalancedBatchSampler(planner, dp_rank=setting["dp_rank"])


def _compile(setting: dict[str, Any]) -> None:
    """Compile the kernels on a step of other samples."""
    lengths = np.random.default_rng(9).integers(1, 900, setting["global_batch_size"])
    costs = TableCosts(SampleTable.from_lengths(lengths), preset("text-7b"), progress=False)
    next(iter(_planned(costs, setting)))


def _anonymous_mib() -> float:
    """Memory of this process that is not mapped from a file."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1024
    return float("nan")


if __name__ == "__main__":
    task = {"first_pass": first_pass, "rank": rank, "distributed_sampler": distributed_sampler}
    print(json.dumps(task[sys.argv[1]](json.loads(sys.argv[2]))))
