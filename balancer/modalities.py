"""Which modules run where: so that no rank skips an encoder that the others wait in.

Under FSDP, ZeRO-3, tensor or expert parallelism every rank takes part in the collectives of every
module that runs. A microbatch without an image then hangs the ranks whose microbatch has one.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from balancer.priced import PricedSamples

if TYPE_CHECKING:
    from balancer.plan import Plan

__all__ = ["dummy_amounts", "missing_modules", "used_modules"]


def used_modules(plan: "Plan", costs: PricedSamples) -> NDArray[np.bool_]:
    """Whether each microbatch has work in each module, `(num_microbatches, num_modules)`.

    Rows are in the order of `plan.offsets`, columns in that of `costs.modules`.
    """
    if not len(plan.sample_ids):
        return np.zeros((0, len(costs.modules)), np.bool_)
    working = costs.select(plan.sample_ids).values > 0
    return np.logical_or.reduceat(working, plan.offsets[:-1], axis=0)


def missing_modules(plan: "Plan", costs: PricedSamples) -> NDArray[np.bool_]:
    """Modules a microbatch does not use though another rank's does at the same time.

    Same shape as `used_modules`. Where true, that rank has to run the module on a dummy input,
    with its output times zero, if its ranks wait for each other inside the module.

    With `Topology.modality_sync` and a barrier other than `"microbatch"` ranks meet in the last
    microbatch of a step alone, which then lacks every module of the step that it does not use.

    Example:
        >>> from balancer.cost import Costs
        >>> from balancer.plan import Plan
        >>> costs = Costs.from_values([[3, 1], [0, 2]], modules=("vision", "language"))
        >>> missing_modules(Plan.from_cells([[[[0], [1]]]]), costs)
        array([[False, False],
               [ True, False]])
    """
    used = used_modules(plan, costs)
    by_slot = used.reshape(-1, plan.topology.dp_size, used.shape[1])
    missing: NDArray[np.bool_]
    if plan.topology.modality_sync is None or plan.topology.barrier == "microbatch":
        missing = by_slot.any(axis=1, keepdims=True) & ~by_slot
        return missing.reshape(used.shape)
    missing = np.zeros(by_slot.shape, np.bool_)
    for begin, end in zip(plan.step_slots[:-1], plan.step_slots[1:], strict=True):
        missing[end - 1] = by_slot[begin:end].any(axis=(0, 1)) & ~by_slot[end - 1]
    return missing.reshape(used.shape)


def dummy_amounts(plan: "Plan", costs: PricedSamples) -> dict[str, NDArray[np.int64]]:
    """Tokens, patches and images that dummies add to each microbatch; see `Limits.dummies`.

    Empty where no dummy has a size.

    Example:
        >>> from balancer.cost import Costs
        >>> from balancer.plan import Plan
        >>> from balancer.topology import Limits, Topology
        >>> costs = Costs.from_values([[3, 1], [0, 2]], modules=("vision", "language"))
        >>> limits = Limits(dummies={"vision": {"tokens": 4, "patches": 16}})
        >>> topology = Topology(dp_size=2, limits=limits, modality_sync="spread")
        >>> dummy_amounts(Plan.from_cells([[[[0], [1]]]], topology=topology), costs)["tokens"]
        array([0, 4])
    """
    limits = plan.topology.limits
    added = dict[str, NDArray[np.int64]]()
    if not limits.dummies:
        return added
    missing = missing_modules(plan, costs)
    for k, module in enumerate(costs.modules):
        for name, size in limits.dummies.get(module, {}).items():
            taken = limits.taken(name, np.array([size]))
            added[name] = added.get(name, 0) + missing[:, k] * taken
    return added
