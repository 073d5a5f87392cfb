"""Bytes of a plan's microbatches, and those most likely to run out of memory."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.memory import MemoryModel
from balancer.plan import Plan
from balancer.reorder import reordered
from balancer.topology import check_count

__all__ = [
    "HeavyMicrobatch",
    "PackedLayout",
    "heaviest_first",
    "heaviest_microbatches",
    "microbatch_bytes",
    "packed_bytes",
]

_AMOUNTS = ("tokens", "patches", "images")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLayout:
    """Bytes of the tensors that a packed microbatch is delivered in, before the model runs.

    Attributes:
        bytes_per_token: By default int64 `input_ids`, `labels` and one row of `position_ids`, and
            int32 `sequence_ids`; 44 with the three rows of multimodal rotary positions.
        bytes_per_patch: Values of a patch times their bytes: `patch_values` x 4 for float32.
        bytes_per_image: By default the three int64 of `image_grid_thw`.
        bytes_per_sample: By default one int32 of `cu_seqlens`, int64 `sample_ids`, int8 flag, and
            float64 `sample_loss_scales`.

    Example:
        >>> PackedLayout(bytes_per_patch=1176 * 4).bytes_per_token
        28.0
    """

    bytes_per_token: float = 28.0
    bytes_per_patch: float = 0.0
    bytes_per_image: float = 24.0
    bytes_per_sample: float = 21.0


def packed_bytes(
    plan: Plan, costs: Costs, layout: PackedLayout | None = None
) -> NDArray[np.float64]:
    """Bytes of the packed tensors of each microbatch, float64, in order of `plan.offsets`.

    Example:
        >>> costs = Costs.from_values([1.0, 1.0], tokens=[100, 50])
        >>> packed_bytes(Plan.from_cells([[[[0, 1]]]]), costs)
        array([4246.])
    """
    given = layout or PackedLayout()
    topology = replace(plan.topology, limits=replace(plan.topology.limits, layout="packed"))
    amounts = replace(plan, topology=topology, certificates=()).amounts(costs)
    total = np.full(len(amounts["tokens"]), 4.0)  # cu_seqlens has one entry more than samples
    for name in (*_AMOUNTS, "samples"):
        total += getattr(given, f"bytes_per_{_SINGULAR[name]}") * amounts[name]
    return total


_SINGULAR = {"tokens": "token", "patches": "patch", "images": "image", "samples": "sample"}


def microbatch_bytes(plan: Plan, costs: Costs, model: MemoryModel) -> NDArray[np.float64]:
    """Bytes of each microbatch under the plan's layout, float64, in order of `plan.offsets`."""
    amounts = plan.amounts(costs)
    return model.bytes(**{name: amounts[name] for name in _AMOUNTS})


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyMicrobatch:
    """A microbatch with what it holds.

    Attributes:
        step: Step of the plan.
        index: Microbatch of the rank in that step.
        dp_rank: Rank.
        bytes: Bytes by the memory model.
        tokens: Tokens, padding included under the padded layout.
        patches: Patches.
        images: Images.
        sample_ids: Its samples, in order.
    """

    step: int
    index: int
    dp_rank: int
    bytes: float
    tokens: int
    patches: int
    images: int
    sample_ids: tuple[int, ...]


def heaviest_microbatches(
    plan: Plan, costs: Costs, model: MemoryModel, count: int = 10
) -> tuple[HeavyMicrobatch, ...]:
    """The microbatches most likely to run out of memory, heaviest first, ties in plan order.

    Run them before training starts: if they fit, all do.

    Raises:
        ArgumentError: `count` is not a positive whole number.

    Example:
        >>> costs = Costs.from_values([1.0, 1.0], tokens=[100, 50])
        >>> plan = Plan.from_cells([[[[1], [0]]]])
        >>> heaviest_microbatches(plan, costs, MemoryModel(bytes_per_token=10.0), 1)[0].sample_ids
        (0,)
    """
    check_count("count", count)
    sizes = microbatch_bytes(plan, costs, model)
    amounts = plan.amounts(costs)
    heavy = []
    for cell in np.argsort(-sizes, kind="stable")[:count]:
        slot, dp_rank = divmod(int(cell), plan.topology.dp_size)
        step = int(np.searchsorted(plan.step_slots, slot, side="right")) - 1
        heavy.append(
            HeavyMicrobatch(
                step=step,
                index=slot - int(plan.step_slots[step]),
                dp_rank=dp_rank,
                bytes=float(sizes[cell]),
                tokens=int(amounts["tokens"][cell]),
                patches=int(amounts["patches"][cell]),
                images=int(amounts["images"][cell]),
                sample_ids=tuple(
                    plan.sample_ids[plan.offsets[cell] : plan.offsets[cell + 1]].tolist()
                ),
            )
        )
    return tuple(heavy)


def heaviest_first(plan: Plan, costs: Costs, model: MemoryModel) -> Plan:
    """The same plan with the microbatches of every step in descending order of their bytes.

    All ranks run a step's microbatches in the same new order, by the heaviest of all ranks, so the
    samples that meet in a slot, the step times and the certificates stay. A step that would run
    out of memory does so at its start, and the allocator's blocks are large from the beginning.

    Example:
        >>> costs = Costs.from_values([1.0, 1.0], tokens=[50, 100])
        >>> plan = Plan.from_cells([[[[0]], [[1]]]])
        >>> heaviest_first(plan, costs, MemoryModel(bytes_per_token=10.0)).sample_ids
        array([1, 0])
    """
    dp_size = plan.topology.dp_size
    by_slot = microbatch_bytes(plan, costs, model).reshape(-1, dp_size).max(axis=1)
    step_of_slot = np.repeat(np.arange(plan.num_steps), np.diff(plan.step_slots))
    slots = np.lexsort((np.arange(len(by_slot)), -by_slot, step_of_slot))
    cells = (slots[:, None] * dp_size + np.arange(dp_size)).ravel()
    return reordered(plan, cells)
