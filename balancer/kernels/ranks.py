"""Ranks that differ in speed and limits, in kernels.

`ranks` is `None` where all are alike; kernels are then compiled without any of this. Otherwise it
is a tuple: `slowness[rank * num_modules + k]`, what a unit of cost in column k takes on a rank, and
`reserve[rank * num_caps + a]`, how far the rank's cap of an amount lies below `caps[a]`. Loads of
ranks and microbatches are then times. Cells are `slot * dp_size + rank` with `stride` 1, and
`rank * num_slots + slot` with `stride` equal to `num_slots`.
"""

import numpy as np

from balancer.kernels.compiled import kernel

__all__ = ["fits_alone", "reserved", "slowed"]


@kernel
def slowed(amount, rank, k, num_modules, ranks):
    """Time that `amount` of column k takes on a rank."""
    if ranks is None:
        return amount
    return amount * ranks[0][rank * num_modules + k]


@kernel
def reserved(num_cells, num_caps, dp_size, stride, ranks):
    """What microbatches that are still empty hold of each amount: what their rank cannot take."""
    used = np.zeros(num_cells * num_caps, np.int64)
    if ranks is not None:
        for cell in range(num_cells):
            rank = cell // stride % dp_size
            for a in range(num_caps):
                used[cell * num_caps + a] = ranks[1][rank * num_caps + a]
    return used


@kernel
def fits_alone(item, cell, amounts, caps, dp_size, stride, ranks):
    """Whether `item` keeps the caps of an empty microbatch."""
    if ranks is not None:
        rank = cell // stride % dp_size
        for a in range(caps.size):
            if amounts[item * caps.size + a] > caps[a] - ranks[1][rank * caps.size + a]:
                return False
    return True
