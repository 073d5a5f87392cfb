"""Time of a step: for each group of microbatches that wait for each other, the dearest of them.

A *line* is what waits as one: a rank's whole step (step barrier: one group of `dp_size` lines), or
one microbatch (microbatch barrier: a group a slot). Loads are `load[line * num_modules + k]` with
`line = group * dp_size + rank`; the step takes the sum over groups and modules of the largest load.
Where ranks differ in speed (see `balancer.kernels.ranks`) loads are times.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.ranks import slowed

__all__ = ["line_loads", "step_value"]


@kernel
def line_loads(cells, costs, num_modules, dp_size, num_groups, ranks=None):
    """Load of each line; with one group a rank's slots are added up. O(num_items * num_modules)."""
    load = np.zeros(num_groups * dp_size * num_modules, np.int64)
    for item in range(cells.size):
        line = cells[item] if num_groups > 1 else cells[item] % dp_size
        for k in range(num_modules):
            load[line * num_modules + k] += slowed(
                costs[item * num_modules + k], line % dp_size, k, num_modules, ranks
            )
    return load


@kernel
def step_value(load, num_modules, dp_size):
    """Sum over groups and modules of the largest load."""
    value = np.int64(0)
    num_groups = load.size // (num_modules * dp_size)
    for group in range(num_groups):
        for k in range(num_modules):
            largest = np.int64(0)
            for rank in range(dp_size):
                largest = max(largest, load[(group * dp_size + rank) * num_modules + k])
            value += largest
    return value
