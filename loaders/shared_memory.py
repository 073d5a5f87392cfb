"""Whether what workers send fits the shared memory of the machine, told before they start."""

import os
import shutil
import warnings

from balancer.planner import EpochPlanner

__all__ = ["bytes_in_flight", "warn_of_full_shared_memory"]

BYTES_OF_TOKEN = 3 * 8 + 4
"""input_ids, labels and position_ids as int64, sequence_ids as int32."""
BYTES_OF_PATCH = 3 * 2 * 14 * 14 * 4
"""A patch of Qwen2-VL in float32, the largest of the common ones."""
DEFAULT_PREFETCH = 2


def bytes_in_flight(planner: EpochPlanner, *, num_workers: int, prefetch_factor: int | None) -> int:
    """About as many bytes of collated microbatches wait in shared memory at once.

    `num_workers * prefetch_factor` microbatches of the average size, one of them of the largest
    sample; tokens and patches only, as the sizes tell no more.

    Example:
        >>> from balancer.cost import Costs
        >>> from balancer.topology import Topology
        >>> costs = Costs.from_values([1.0] * 8, tokens=[1000] * 8)
        >>> planner = EpochPlanner(costs, Topology(dp_size=2), global_batch_size=4)
        >>> bytes_in_flight(planner, num_workers=2, prefetch_factor=2) == 4 * 2 * 1000 * 28
        True
    """
    topology, costs = planner.topology, planner.costs
    microbatches = num_workers * (prefetch_factor or DEFAULT_PREFETCH)
    of_step = planner.samples_per_epoch / planner.num_steps
    samples = of_step / (topology.dp_size * topology.num_microbatches)
    expected = 0.0
    for amount, size in (("tokens", BYTES_OF_TOKEN), ("patches", BYTES_OF_PATCH)):
        largest = costs.largest(amount)
        mean = costs.clipped_sum(amount, max(largest, 1)) / max(len(costs), 1)
        of_microbatch = mean * samples
        expected += size * ((microbatches - 1) * of_microbatch + max(of_microbatch, largest))
    return int(expected)


def warn_of_full_shared_memory(
    planner: EpochPlanner, *, num_workers: int, prefetch_factor: int | None, path: str = "/dev/shm"
) -> None:
    """Warn where `bytes_in_flight` is more than what is free; a worker would die of a bus error.

    Nothing is said where there are no workers, or no such file system.
    """
    if not num_workers or not os.path.isdir(path):
        return
    expected = bytes_in_flight(planner, num_workers=num_workers, prefetch_factor=prefetch_factor)
    free = shutil.disk_usage(path).free
    if expected > free:
        warnings.warn(
            f"num_workers={num_workers} with prefetch_factor={prefetch_factor or DEFAULT_PREFETCH} "
            f"keep about {expected / 2**20:.0f} MiB of microbatches in shared memory, and {path} "
            f"has {free / 2**20:.0f} MiB free; lower num_workers or prefetch_factor, make "
            f"microbatches smaller (max_tokens, max_patches), or enlarge {path} (docker run "
            "--shm-size)",
            stacklevel=2,
        )
