"""The three largest loads of each group in each module: what decides an exchange of two lines.

Lines, groups and loads are those of `balancer.kernels.steptime`. With the three largest known, the
step time after any exchange between two lines is known without a pass over the others.
"""

import numpy as np

from balancer.kernels.compiled import kernel

__all__ = ["rank_top", "set_rest", "update_top"]


@kernel
def rank_top(load, group, k, num_modules, dp_size, top, top_rank):
    """Store the three largest loads of a group in module k, and their ranks."""
    at = (group * num_modules + k) * 3
    for place in range(3):
        top[at + place] = -1
        top_rank[at + place] = -1
    for rank in range(dp_size):
        value = load[(group * dp_size + rank) * num_modules + k]
        for place in range(3):
            if value > top[at + place]:
                for shift in range(2, place, -1):
                    top[at + shift] = top[at + shift - 1]
                    top_rank[at + shift] = top_rank[at + shift - 1]
                top[at + place] = value
                top_rank[at + place] = rank
                break


@kernel
def update_top(load, line, k, num_modules, dp_size, top, top_rank):
    """`rank_top` of a line's group, after the line's load changed, where it can matter.

    Returns whether it did.
    """
    group, rank = line // dp_size, line % dp_size
    at = (group * num_modules + k) * 3
    if load[line * num_modules + k] < top[at + 2] and (
        rank != top_rank[at] and rank != top_rank[at + 1] and rank != top_rank[at + 2]
    ):
        return False
    rank_top(load, group, k, num_modules, dp_size, top, top_rank)
    return True


@kernel
def _largest_other(group, k, rank_a, rank_b, num_modules, top, top_rank):
    """Largest load of the group in module k over ranks other than the two; 0 if there is none."""
    at = (group * num_modules + k) * 3
    for place in range(3):
        if top_rank[at + place] != rank_a and top_rank[at + place] != rank_b:
            return max(top[at + place], np.int64(0))
    return np.int64(0)


@kernel
def set_rest(line_a, line_b, num_modules, dp_size, top, top_rank, rest_a, rest_b):
    """Largest loads that an exchange between two lines leaves alone, and the time it may change.

    For each module in the groups of line a and of line b; within one group both are the same.
    """
    group_a, rank_a = line_a // dp_size, line_a % dp_size
    group_b, rank_b = line_b // dp_size, line_b % dp_size
    now = np.int64(0)
    for k in range(num_modules):
        now += top[(group_a * num_modules + k) * 3]
        if group_a == group_b:
            rest_a[k] = _largest_other(group_a, k, rank_a, rank_b, num_modules, top, top_rank)
            rest_b[k] = rest_a[k]
        else:
            now += top[(group_b * num_modules + k) * 3]
            rest_a[k] = _largest_other(group_a, k, rank_a, rank_a, num_modules, top, top_rank)
            rest_b[k] = _largest_other(group_b, k, rank_b, rank_b, num_modules, top, top_rank)
    return now
