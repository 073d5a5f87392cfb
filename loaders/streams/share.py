"""share_out: the samples of one rank in one step, on its microbatches."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.effort import Effort
from balancer.partition import partition
from balancer.plan import Flag
from balancer.step_planner import oversize_ids, plan_step
from balancer.topology import Limits, Topology
from loaders.streams.rules import StreamRules

__all__ = ["Shares", "share_out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Microbatch of each sample of a rank.

    Attributes:
        ids: Samples, fillers included.
        flags: `balancer.plan.Flag` of each.
        slots: Microbatch of each, dearest microbatch first; none is empty.
        alone: Samples over a limit, each in a microbatch of its own.
    """

    ids: NDArray[np.int64]
    flags: NDArray[np.int8]
    slots: NDArray[np.int64]
    alone: NDArray[np.int64]


def share_out(
    costs: Costs,
    ids: NDArray[np.int64],
    flags: NDArray[np.int8],
    rules: StreamRules,
    num_slots: int,
    *,
    by_module: bool = False,
) -> Shares:
    """Share samples out on `num_slots` microbatches of nearly equal cost, within the limits.

    Done for every rank on every rank, so quickly (the default effort is the fast one here): by
    `balancer.partition.partition` on summed costs. Each module by itself, and where a limit is no
    plain sum (rows padded to the longest, rounded sizes, dummies, a sample alone over it), the
    planner of steps does it, microbatches standing for ranks.

    Args:
        costs: Costs of the window.
        ids: Rows of the samples; may repeat.
        flags: Flag of each.
        rules: Limits and policies.
        num_slots: Microbatches.
        by_module: Whether the costs of each module are evened out, or their sum.

    Raises:
        CapacityError: They do not fit.

    Example:
        >>> rules = StreamRules(topology=Topology(dp_size=1), global_batch_size=4, window_steps=1,
        ...                     oversize="error", tail="drop")
        >>> shares = share_out(Costs.from_values([1, 2, 3, 4]), np.arange(4), np.zeros(4, np.int8),
        ...                    rules, 2)
        >>> shares.slots
        array([0, 1, 1, 0])
    """
    limits = rules.topology.limits
    selected = costs.select(ids)
    over = oversize_ids(selected, rules.topology, "alone", sample_ids=None)
    effort: Effort = "fast" if rules.effort == "default" else rules.effort
    if by_module or over.size or not _plain(limits):
        alike = Topology(
            dp_size=num_slots, num_microbatches=1, max_microbatches=1, limits=limits,
            barrier="microbatch" if by_module else "step",
        )  # fmt: skip
        plan = plan_step(
            costs, alike, sample_ids=ids, flags=flags, oversize=rules.oversize, fill=True,
            effort=effort,
        )  # fmt: skip
        cells = plan.cell_of_sample()
        return _in_order(costs, plan.sample_ids, plan.flags, cells, num_slots, plan.alone)
    amounts = {
        "tokens": selected.tokens, "patches": selected.patches, "images": selected.images,
        "samples": np.ones(len(ids), np.int64),
    }  # fmt: skip
    found = partition(
        selected.total,
        num_slots,
        limits=limits.given,
        amounts={name: amounts[name] for name in limits.given},
        effort=effort,
    )
    return _in_order(costs, ids, flags, found.parts, num_slots, over)


def _plain(limits: Limits) -> bool:
    """Whether all limits are on sums of the samples' own amounts."""
    rounded = limits.pad_sample_to > 1 or limits.pad_microbatch_to > 1
    return limits.layout == "packed" and not rounded and not limits.dummies


def _in_order(
    costs: Costs,
    ids: NDArray[np.int64],
    flags: NDArray[np.int8],
    parts: NDArray[np.int64],
    num_slots: int,
    alone: NDArray[np.int64],
) -> Shares:
    """Number microbatches by cost, descending; empty ones get the cheapest sample as a filler."""
    empty = np.flatnonzero(np.bincount(parts, minlength=num_slots) == 0)
    cheapest = ids[np.argmin(costs.total[ids])]
    ids = np.append(ids, np.full(len(empty), cheapest))
    flags = np.append(flags, np.full(len(empty), Flag.FILLER, np.int8))
    parts = np.append(parts, empty)
    loads = np.bincount(parts, weights=costs.total[ids], minlength=num_slots)
    place = np.empty(num_slots, np.int64)
    place[np.argsort(-loads, kind="stable")] = np.arange(num_slots)
    return Shares(ids=ids, flags=flags, slots=place[parts], alone=alone)
