"""What still fits into a microbatch: the innermost test of every placement kernel.

Amounts are flattened rows: amount `a` of item `i` is `amounts[i * num_caps + a]`, and of
microbatch `c` is `used[c * num_caps + a]`. In the padded layout amount 0 is tokens, and a
microbatch allocates its samples times its longest.
"""

from balancer.kernels.compiled import kernel

__all__ = ["fits", "put", "take"]


@kernel
def fits(item, cell, amounts, caps, padded, used, count, longest):
    """Whether `item` can join `cell` without breaking a cap."""
    num_caps = caps.size
    for a in range(num_caps):
        amount = amounts[item * num_caps + a]
        if padded and a == 0:
            if (count[cell] + 1) * max(longest[cell], amount) > caps[0]:
                return False
        elif used[cell * num_caps + a] + amount > caps[a]:
            return False
    return True


@kernel
def put(item, cell, amounts, num_caps, used, count, longest):
    """Account for `item` joining `cell`."""
    count[cell] += 1
    for a in range(num_caps):
        used[cell * num_caps + a] += amounts[item * num_caps + a]
    if num_caps and amounts[item * num_caps] > longest[cell]:
        longest[cell] = amounts[item * num_caps]


@kernel
def take(item, cell, amounts, num_caps, padded, used, count, longest, cells):
    """Account for `item` leaving `cell`; `cells` must no longer name it there.

    Only where a longest item leaves a padded cell does it take a pass over all items.
    """
    count[cell] -= 1
    for a in range(num_caps):
        used[cell * num_caps + a] -= amounts[item * num_caps + a]
    if padded and amounts[item * num_caps] == longest[cell]:
        longest[cell] = 0
        for other in range(cells.size):
            if cells[other] == cell and amounts[other * num_caps] > longest[cell]:
                longest[cell] = amounts[other * num_caps]
