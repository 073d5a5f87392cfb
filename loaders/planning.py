"""From the loader's arguments to the batch sampler that holds its plan."""

from typing import Any

from numpy.typing import ArrayLike
from torch.distributed.device_mesh import DeviceMesh

from balancer.cost import CostFunction
from balancer.effort import Effort
from balancer.errors import ArgumentError
from balancer.modality_options import ModalitySync
from balancer.planner import Illegal, Tail
from balancer.samples import SampleTable
from balancer.step_planner import Oversize
from balancer.topology import Barrier, Layout, Limits, Modules
from loaders.arguments import (
    resolve_global_batch_size,
    resolve_sizes,
    resolve_tail,
    resolve_topology,
)
from loaders.rank import discover_rank
from loaders.sampler import BalancedBatchSampler
from loaders.state import OnTopologyChange

__all__ = ["plan_batches"]


def plan_batches(
    dataset: Any,
    collate_fn: Any,
    *,
    sizes: SampleTable | None,
    cost_model: CostFunction | None,
    batch_size: int | None,
    global_batch_size: int | None,
    num_microbatches: int,
    max_microbatches: int | None,
    max_tokens: int | None,
    max_patches: int | None,
    max_images: int | None,
    max_samples: int | None,
    limits: Limits | None,
    layout: Layout | None,
    barrier: Barrier,
    modules: Modules,
    modality_sync: ModalitySync | None,
    oversize: Oversize,
    illegal: Illegal,
    window_steps: int,
    effort: Effort,
    tail: Tail | None,
    drop_last: bool | None,
    shuffle: bool,
    seed: int,
    dp_rank: int | None,
    dp_size: int | None,
    mesh: DeviceMesh | None,
    on_topology_change: OnTopologyChange,
    group_ids: ArrayLike | None,
) -> BalancedBatchSampler:
    """This rank's batch sampler; the arguments are those of `BalancedDataLoader`.

    Raises:
        ArgumentError: An argument is not allowed or two do not go together.
        SampleError: A size or a cost is impossible.
        CapacityError: A sample is beyond a limit and `oversize` is `"error"`.
    """
    if cost_model is None:
        raise ArgumentError(
            "cost_model is None; give what a sample costs your model: a FlopsCost, or a function "
            "of the SampleTable such as lambda table: table.text_tokens"
        )
    rank, size = discover_rank(dp_rank, dp_size, mesh)
    topology = resolve_topology(
        collate_fn, dp_size=size, num_microbatches=num_microbatches,
        max_microbatches=max_microbatches, max_tokens=max_tokens, max_patches=max_patches,
        max_images=max_images, max_samples=max_samples, limits=limits, layout=layout,
        barrier=barrier, modules=modules, modality_sync=modality_sync,
    )  # fmt: skip
    capped = set(topology.limits.given) - {"samples"}
    samples_of_step = None  # steps are filled as far as the limits go
    if batch_size is not None or global_batch_size is not None or not capped:
        samples_of_step = resolve_global_batch_size(
            batch_size=batch_size,
            global_batch_size=global_batch_size,
            dp_size=size,
            num_microbatches=num_microbatches,
        )
    return BalancedBatchSampler.from_table(
        resolve_sizes(dataset, sizes),
        cost_model,
        topology,
        global_batch_size=samples_of_step,
        dp_rank=rank,
        on_topology_change=on_topology_change,
        group_ids=group_ids,
        seed=seed,
        shuffle=shuffle,
        oversize=oversize,
        illegal=illegal,
        window_steps=window_steps,
        effort=effort,
        tail=resolve_tail(tail, drop_last),
    )
