"""What an epoch planner refuses at construction, rather than at some step of some epoch."""

import math

import numpy as np

from balancer.epoch_order import EpochOrder
from balancer.errors import ArgumentError, CapacityError, PlanError
from balancer.groups import check_groups
from balancer.limits import padded_to
from balancer.priced import PricedSamples
from balancer.topology import Topology, check_count

__all__ = ["check_average_step", "check_enough_samples", "check_step_size"]


def check_step_size(
    costs: PricedSamples, topology: Topology, global_batch_size: int | None, window_steps: int
) -> None:
    """Refuse steps with fewer samples than microbatches, or that cannot be filled or limited.

    Raises:
        ArgumentError: Naming the arguments.
    """
    check_groups(costs, topology)
    if global_batch_size is None:
        _check_can_be_filled(topology, window_steps)
        return
    check_count("global_batch_size", global_batch_size)
    cells = topology.dp_size * topology.num_microbatches
    if global_batch_size < cells:
        raise ArgumentError(
            f"global_batch_size is {global_batch_size}, fewer samples than dp_size="
            f"{topology.dp_size} x num_microbatches={topology.num_microbatches} = {cells} "
            f"microbatches; raise it to at least {cells}, or lower num_microbatches"
        )


def check_enough_samples(
    costs: PricedSamples, order: EpochOrder, global_batch_size: int | None, num_steps: int
) -> None:
    """Refuse epochs without a step.

    Raises:
        PlanError: There is no sample, or there are too few for a complete step.
    """
    if not order.num_samples:
        cause = "all are over a limit or illegal" if len(costs) else "there are none"
        raise PlanError(f"costs has no sample to plan ({cause}); an epoch would be empty")
    if not num_steps and global_batch_size is None:
        raise PlanError(
            f"costs has {order.num_samples} samples to plan, which all fit one step, and "
            'tail="drop" (drop_last) drops an incomplete step; lower num_microbatches or the '
            'limits, or pass tail="pad" or "filler"'
        )
    if not num_steps:
        raise PlanError(
            f"costs has {order.num_samples} samples to plan, fewer than global_batch_size="
            f'{global_batch_size}, and tail="drop" (drop_last) drops an incomplete step; lower '
            'global_batch_size, or pass tail="pad" or "filler"'
        )


def check_average_step(
    costs: PricedSamples, topology: Topology, order: EpochOrder, global_batch_size: int | None
) -> None:
    """Refuse limits that even an average step does not fit: most steps would fail later.

    Raises:
        CapacityError: Naming the limit and the least `max_microbatches` that would do.
    """
    most = topology.max_microbatches
    if most is None or global_batch_size is None:
        return
    limits = topology.limits
    for name, limit in limits.room.items():
        if name == "samples":
            mean = float(global_batch_size)
        else:
            left_out = getattr(costs.select(order.left_out), name)
            multiple = limits.pad_sample_to if name == "tokens" else 1
            amount = costs.clipped_sum(name, limit, multiple)
            amount -= np.minimum(limits.taken(name, left_out), limit).sum()
            mean = float(amount) / order.num_samples * global_batch_size
        fits = limit * topology.dp_size * most
        if mean > fits:
            needed = math.ceil(mean / (limit * topology.dp_size))
            least = limits.given[name] - limit + math.ceil(mean / (topology.dp_size * most))
            if name == "tokens":
                least = int(padded_to(np.array([least]), limits.pad_microbatch_to)[0])
            raise CapacityError(
                f"an average step has {mean:.0f} {name}; {topology.dp_size} ranks x "
                f"max_microbatches={most} with room for {limit} under max_{name}="
                f"{limits.given[name]} hold {fits}; raise max_microbatches to at least {needed}, "
                f"raise max_{name} to at least {least}, or lower global_batch_size"
            )


def _check_can_be_filled(topology: Topology, window_steps: int) -> None:
    """Refuse filled steps where nothing ends a step, or where a plan of each cannot be promised.

    Raises:
        ArgumentError: Naming the arguments.
    """
    given = topology.limits.given
    if not set(given) - {"samples"}:
        raise ArgumentError(
            f"global_batch_size is None with limits {given}; a step then holds what fits its "
            "microbatches: set max_tokens (or max_patches, max_images), or give global_batch_size"
        )
    if window_steps > 1:
        raise ArgumentError(
            f"window_steps is {window_steps} with global_batch_size=None; steps of a window share "
            "out equal numbers of samples: give global_batch_size, or window_steps=1"
        )
    for name, value in (
        ("rank_limits", topology.rank_limits), ("max_in_flight", topology.max_in_flight),
    ):  # fmt: skip
        if value:
            raise ArgumentError(
                f"{name} is {value} with global_batch_size=None; that every step fits is known "
                "for limits of microbatches that are the same on all ranks: give one of the two"
            )
