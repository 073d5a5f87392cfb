"""Which modules run where: so that no rank skips an encoder that the others wait in.

Under FSDP, ZeRO-3, tensor or expert parallelism every rank takes part in the collectives of every
module that runs. A microbatch without an image then hangs the ranks whose microbatch has one.
"""

import numpy as np
from numpy.typing import NDArray

from balancer.plan import Plan
from balancer.priced import PricedSamples

__all__ = ["missing_modules", "used_modules"]


def used_modules(plan: Plan, costs: PricedSamples) -> NDArray[np.bool_]:
    """Whether each microbatch has work in each module, `(num_microbatches, num_modules)`.

    Rows are in the order of `plan.offsets`, columns in that of `costs.modules`.
    """
    if not len(plan.sample_ids):
        return np.zeros((0, len(costs.modules)), np.bool_)
    working = costs.select(plan.sample_ids).values > 0
    return np.logical_or.reduceat(working, plan.offsets[:-1], axis=0)


def missing_modules(plan: Plan, costs: PricedSamples) -> NDArray[np.bool_]:
    """Modules a microbatch does not use though another rank's does at the same time.

    Same shape as `used_modules`. Where true, that rank has to run the module on a dummy input,
    with its output times zero, if its ranks wait for each other inside the module.

    Example:
        >>> from balancer.cost import Costs
        >>> costs = Costs.from_values([[3, 1], [0, 2]], modules=("vision", "language"))
        >>> missing_modules(Plan.from_cells([[[[0], [1]]]]), costs)
        array([[False, False],
               [ True, False]])
    """
    used = used_modules(plan, costs)
    by_slot = used.reshape(-1, plan.topology.dp_size, used.shape[1])
    missing: NDArray[np.bool_] = by_slot.any(axis=1, keepdims=True) & ~by_slot
    return missing.reshape(used.shape)
