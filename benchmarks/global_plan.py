"""Global plan: one batch on ranks and microbatches in lockstep, beside other planners."""

import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.pipeline import cell_costs
from balancer.plan import Flag, Plan
from balancer.topology import Limits, Topology
from benchmarks.measure import Record
from benchmarks.planners import PlannerChoice

__all__ = ["bimodal_costs", "lockstep", "measure_global_plan"]

_FLOAT = NDArray[np.float64]
_MOST_IMAGES = 6


def bimodal_costs(num_samples: int, longest: int, seed: int) -> Costs:
    """Text (lognormal, median 180 tokens) and, in 60 %, 1 to 6 images of 64 to 1,280 tokens.

    Sizes of images are log-uniform, their number geometric (0.6): three microbatches of 16,384
    tokens for each 64 samples are nine tenths full. Priced by the forward FLOPs of a language
    model of 32 layers of width 4,096 and of an encoder of 32 layers of width 1,280 with 4 patches
    a token, attention within each image.
    """
    rng = np.random.default_rng(seed)
    drawn = np.minimum(rng.geometric(0.6, num_samples), _MOST_IMAGES)
    counts = np.where(rng.random(num_samples) < 0.6, drawn, 0)
    each = np.exp(rng.uniform(np.log(64), np.log(1280), (num_samples, _MOST_IMAGES)))
    each = np.rint(each).astype(np.int64) * (np.arange(_MOST_IMAGES) < counts[:, None])
    text = np.rint(rng.lognormal(np.log(180), 1, num_samples)).astype(np.int64)
    seen = each.sum(axis=1)
    tokens = np.maximum(np.clip(text + seen, 1, longest), seen)
    patches = 4.0 * each
    language = 32 * (24 * 4096.0**2 * tokens + 4 * 4096.0 * tokens.astype(np.float64) ** 2)
    vision = 32 * (24 * 1280.0**2 * patches + 4 * 1280.0 * patches**2).sum(axis=1)
    return Costs.from_values(
        np.stack([vision, language], axis=1), modules=("vision", "language"), tokens=tokens,
        patches=4 * seen, images=counts, unit="flops",
    )  # fmt: skip


def lockstep(plan: Plan, costs: Costs) -> _FLOAT:
    """Time of each module if ranks wait in every microbatch, over that of an even split.

    Sum over the microbatches of the slowest rank, over the mean rank's sum; the last entry is that
    of all modules in turn, float64 `(modules + 1,)`.
    """
    slots = cell_costs(plan, costs).reshape(-1, plan.topology.dp_size, len(costs.modules))
    even: _FLOAT = slots.sum(axis=(0, 1)) / plan.topology.dp_size
    times: _FLOAT = slots.max(axis=1).sum(axis=0)
    return np.append(times / even, times.sum() / even.sum())


def measure_global_plan(
    *,
    name: str,
    sizes: Sequence[Sequence[int]],
    num_microbatches: int,
    max_tokens: int,
    longest: int,
    planners: Mapping[str, PlannerChoice],
    most_samples: Mapping[str, int],
    num_batches: int,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Lockstep time over ideal of each planner, geometric mean and worst over the batches.

    Also microbatches over the limit, samples not placed (each of them over all batches), and the
    median planning time, warm.

    Args:
        name: Name of the experiment in the records.
        sizes: Pairs of samples and ranks.
        num_microbatches: Microbatches of each rank.
        max_tokens: Tokens of a microbatch.
        longest: Tokens of a sample.
        planners: Planner choices by name.
        most_samples: Largest number of samples for planners that take long with more, by name.
        num_batches: Batches of each size.
        seed: Seed of the first batch.
        quick: The smallest size and two batches.
    """
    records = []
    for num_samples, dp_size in sizes[:1] if quick else sizes:
        topology = Topology(
            dp_size=dp_size, num_microbatches=num_microbatches, max_microbatches=num_microbatches,
            limits=Limits(max_tokens=max_tokens),
        )  # fmt: skip
        batches = [
            bimodal_costs(num_samples, longest, seed + index)
            for index in range(2 if quick else num_batches)
        ]
        for planner in planners.values():
            if num_samples <= most_samples.get(planner.name, num_samples):
                values = _values(planner, batches, topology)
                records += [
                    Record(
                        experiment=name, data="bimodal", planner=planner.name,
                        topology=f"{topology}_n{num_samples}", barrier="microbatch",
                        metric=metric, value=value, n=len(batches),
                        unit={"planning_seconds": "s"}.get(metric, "ratio" if "lockstep" in metric
                                                           else "count"),
                    )
                    for metric, value in values.items()
                ]  # fmt: skip
    return records


def _values(
    planner: PlannerChoice, batches: Sequence[Costs], topology: Topology
) -> dict[str, float]:
    ids = np.arange(len(batches[0]))
    planner(batches[0], topology, ids)  # compiles
    ratios, seconds, over, lost = [], [], 0, 0
    for costs in batches:
        started = time.perf_counter()
        plan = planner(costs, topology, ids)
        seconds.append(time.perf_counter() - started)
        ratios.append(lockstep(plan, costs))
        tokens = plan.amounts(costs)["tokens"]
        over += int((tokens > topology.limits.given["tokens"]).sum())
        lost += len(ids) - len(np.unique(plan.sample_ids[plan.flags == Flag.REAL]))
    means, worst = np.exp(np.log(ratios).mean(axis=0)), np.max(ratios, axis=0)
    by_module = {}
    for k, module in enumerate((*batches[0].modules, "all")):
        by_module[f"lockstep_{module}"] = float(means[k])
        by_module[f"lockstep_{module}_worst"] = float(worst[k])
    return by_module | {
        "microbatches_over_limit": over,
        "samples_lost": lost,
        "planning_seconds": float(np.median(seconds)),
    }
