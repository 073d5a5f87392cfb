"""MegatronBatchSampler: the plan from `consumed_samples` on, as Megatron-LM asks for it."""

from collections.abc import Iterator

from torch.utils.data import Sampler

from balancer.checks import check_count
from balancer.errors import ArgumentError
from balancer.planner import EpochPlanner
from loaders.microbatch import Microbatch
from loaders.sampler import BalancedBatchSampler

__all__ = ["MegatronBatchSampler"]


class MegatronBatchSampler(Sampler[list[int]]):
    """Microbatches of one rank from `consumed_samples` on, epoch after epoch without end.

    For the DataLoader that Megatron-LM passes through with `--dataloader-type external`. Megatron
    counts `global_batch_size` samples a step and saves the sum, so that number alone says where to
    go on: step `consumed_samples // global_batch_size`. Nothing before it is planned or read. A
    `micro_batch_size` is an average here: each rank runs
    `global_batch_size / (micro_batch_size * data_parallel_size)` microbatches a step, as Megatron
    has it, but of as many samples each as the plan says.

    Ranks of a tensor, context or pipeline group give the same `data_parallel_rank`.

    Args:
        planner: Plans the steps; its topology has Megatron's ranks and microbatches.
        consumed_samples: Samples of the steps already run, over all ranks and epochs.
        micro_batch_size: Average samples of a microbatch.
        data_parallel_rank: Rank of this process.
        data_parallel_size: Data-parallel ranks.

    Raises:
        ArgumentError: A number is not allowed, is not that of the planner, or `consumed_samples`
            ends within a step, as with `--rampup-batch-size`.

    Example:
        An epoch of 3 steps: after 4 of them the second epoch's second step comes next.

        >>> from balancer.cost import Costs
        >>> from balancer.topology import Topology
        >>> planner = EpochPlanner(
        ...     Costs.from_values(range(1, 25)), Topology(dp_size=2, num_microbatches=2),
        ...     global_batch_size=8, effort="fast")
        >>> batches = MegatronBatchSampler(
        ...     planner, consumed_samples=32, micro_batch_size=2, data_parallel_rank=0,
        ...     data_parallel_size=2)
        >>> facts = next(iter(batches)).facts
        >>> facts.epoch, facts.step, facts.num_microbatches
        (1, 1, 2)
    """

    def __init__(
        self,
        planner: EpochPlanner,
        *,
        consumed_samples: int,
        micro_batch_size: int,
        data_parallel_rank: int,
        data_parallel_size: int,
    ) -> None:
        check_count("consumed_samples", consumed_samples, least=0)
        check_count("micro_batch_size", micro_batch_size)
        check_count("data_parallel_size", data_parallel_size)
        check_count("data_parallel_rank", data_parallel_rank, least=0)
        size = _global_batch_size(planner, micro_batch_size, data_parallel_size)
        if consumed_samples % size:
            raise ArgumentError(
                f"consumed_samples is {consumed_samples}, global_batch_size is {size}; allowed: "
                "whole steps, without rampup_batch_size and with the same global_batch_size"
            )
        self.batches = BalancedBatchSampler(planner, dp_rank=data_parallel_rank)
        self.consumed_samples = consumed_samples
        self.steps_behind = consumed_samples // size

    def __iter__(self) -> Iterator[Microbatch]:
        epoch, step = divmod(self.steps_behind, self.batches.planner.num_steps)
        self.batches.seek(step, epoch=epoch)
        while True:
            yield from self.batches.microbatches(counted=True)


def _global_batch_size(planner: EpochPlanner, micro_batch_size: int, dp_size: int) -> int:
    """The planner's samples of a step, which are also what Megatron counts for one."""
    size, topology = planner.global_batch_size, planner.topology
    if size is None:
        raise ArgumentError(
            "planner has no global_batch_size: it fills steps, and Megatron counts the same "
            "number of samples for each; give the planner a global_batch_size"
        )
    if dp_size != topology.dp_size:
        raise ArgumentError(
            f"data_parallel_size is {dp_size}, the planner's dp_size is {topology.dp_size}; give "
            "the planner a Topology with the same"
        )
    if micro_batch_size * dp_size * topology.num_microbatches != size:
        raise ArgumentError(
            f"micro_batch_size is {micro_batch_size}, but the planner's global_batch_size is "
            f"{size} = dp_size {dp_size} x num_microbatches {topology.num_microbatches} x "
            f"{size / (dp_size * topology.num_microbatches):g}; Megatron runs global_batch_size / "
            "(micro_batch_size * data_parallel_size) microbatches: give a planner with as many"
        )
    return size
