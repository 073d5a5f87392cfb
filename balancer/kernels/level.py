"""Levelling: moves and swaps that bring the microbatches of a slot near its mean in every module.

The step time alone says little about an exchange where many microbatches are nearly the dearest.
Here exchanges are judged by how far two microbatches are above or below the mean of their slot:
the squares of that, every module relative to its own mean. Microbatches are the lines of
`balancer.kernels.steptime` and slots its groups; amounts and caps are those of
`balancer.kernels.limits`, ranks those of `balancer.kernels.ranks`, cover that of
`balancer.kernels.cover`.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.cover import keeps_cover, note_exchange, try_exchange
from balancer.kernels.limits import put
from balancer.kernels.ranks import reserved, slowed
from balancer.kernels.refine import link, unlink
from balancer.kernels.steptime import line_loads
from balancer.kernels.tops import rank_top, update_top

__all__ = ["level"]

_VISIT = 8
"""What a pair of microbatches counts on top of its exchanges."""

_LEAST = 1e-10
"""Least change of the squares that counts: a microbatch 0.001 % nearer to the mean."""


@kernel
def _set_means(load, num_modules, dp_size, mean, weight):
    """Mean load of each slot in each module; one over the mean of all slots in each module."""
    num_slots = mean.size // num_modules
    for k in range(num_modules):
        total = 0.0
        for slot in range(num_slots):
            in_slot = np.int64(0)
            for rank in range(dp_size):
                in_slot += load[(slot * dp_size + rank) * num_modules + k]
            mean[slot * num_modules + k] = in_slot / dp_size
            total += mean[slot * num_modules + k]
        weight[k] = num_slots / total if total > 0.0 else 0.0


@kernel
def _best_exchange(cell_a, cell_b, best, first, after, costs, num_modules, dp_size, load, top, mean,
                   weight, ranks, cells, cover):  # fmt: skip
    """Exchange of two microbatches of a slot that lowers their squares most, and by how much.

    The item given and the item returned (-1 for none); both -1 where none lowers them by more than
    `best` does, or where either microbatch would become dearer than the slot's dearest.
    """
    slot, rank_a, rank_b = cell_a // dp_size, cell_a % dp_size, cell_b % dp_size
    best_give, best_back = -1, -1
    give = first[cell_a]
    while give >= 0:
        back = -1
        while True:
            change, inside = 0.0, True
            for k in range(num_modules):
                amount = costs[give * num_modules + k]
                if back >= 0:
                    amount -= costs[back * num_modules + k]
                less = slowed(amount, rank_a, k, num_modules, ranks)
                more = slowed(amount, rank_b, k, num_modules, ranks)
                load_a, load_b = load[cell_a * num_modules + k], load[cell_b * num_modules + k]
                dearest = top[(slot * num_modules + k) * 3]
                if load_a - less > dearest or load_b + more > dearest:
                    inside = False
                    break
                unit, middle = weight[k], mean[slot * num_modules + k]
                a, b = less * unit, more * unit
                change += a * (a - 2.0 * ((load_a - middle) * unit))
                change += b * (b + 2.0 * ((load_b - middle) * unit))
            if (
                inside
                and change < best
                and keeps_cover(give, back, cells[back] if back >= 0 else cell_b, cells, cover)
            ):
                best, best_give, best_back = change, give, back
            back = first[cell_b] if back < 0 else after[back]
            if back < 0:
                break
        give = after[give]
    return best, best_give, best_back


@kernel
def level(cells, costs, num_modules, amounts, caps, padded, dp_size, num_slots, goal, budget, width,
          ranks=None, cover=None):  # fmt: skip
    """Improve `cells` in place until the step time is `goal`, nothing helps, or `budget` is spent.

    Visits the dearest microbatch of each slot in each module in turn; of its exchanges with up to
    `width` microbatches of the slot that are below the mean makes the best one. `budget` counts
    evaluated exchanges, each O(num_modules). Returns the step time, never more than before.
    """
    num_cells, num_tops = num_slots * dp_size, num_slots * num_modules
    load = line_loads(cells, costs, num_modules, dp_size, num_slots, ranks)
    mean, weight = np.empty(num_tops), np.empty(num_modules)
    _set_means(load, num_modules, dp_size, mean, weight)
    top, top_rank = np.empty(num_tops * 3, np.int64), np.empty(num_tops * 3, np.int64)
    value = np.int64(0)
    for t in range(num_tops):
        rank_top(load, t // num_modules, t % num_modules, num_modules, dp_size, top, top_rank)
        value += top[t * 3]
    used = reserved(num_cells, caps.size, dp_size, 1, ranks)
    count, longest = np.zeros(num_cells, np.int64), np.zeros(num_cells, np.int64)
    first = np.empty(num_cells, np.int64)
    for cell in range(num_cells):
        first[cell] = -1
    after, before = np.empty(cells.size, np.int64), np.empty(cells.size, np.int64)
    for item in range(cells.size):
        put(item, cells[item], amounts, caps.size, used, count, longest)
        link(item, cells[item], first, after, before)
    idle, t, turn = 0, 0, 0
    while idle < num_tops and value > goal and budget > 0:
        slot, k = t // num_modules, t % num_modules
        cell_a, other = slot * dp_size + top_rank[t * 3], -1
        best, give, back, visits = -_LEAST, -1, -1, 0
        for _ in range(dp_size):
            turn += 1
            cell_b = slot * dp_size + turn % dp_size
            if cell_b == cell_a or load[cell_b * num_modules + k] > mean[t]:
                continue
            visits += 1
            budget -= count[cell_a] * (count[cell_b] + 1) + _VISIT
            best, found, returned = _best_exchange(
                cell_a, cell_b, best, first, after, costs, num_modules, dp_size, load, top, mean,
                weight, ranks, cells, cover,
            )  # fmt: skip
            if found >= 0:
                give, back, other = found, returned, cell_b
            if visits == width or budget <= 0:
                break
        made = give >= 0 and try_exchange(
            give, back, other, cells, amounts, caps, padded, used, count, longest
        )
        idle = 0 if made else idle + 1
        if not made:
            t = (t + 1) % num_tops
            continue
        note_exchange(give, back, cell_a, other, cover)
        unlink(give, cell_a, first, after, before)
        link(give, other, first, after, before)
        if back >= 0:
            unlink(back, other, first, after, before)
            link(back, cell_a, first, after, before)
        for j in range(num_modules):
            amount = costs[give * num_modules + j]
            if back >= 0:
                amount -= costs[back * num_modules + j]
            value -= top[(slot * num_modules + j) * 3]
            load[cell_a * num_modules + j] -= slowed(
                amount, cell_a % dp_size, j, num_modules, ranks
            )
            load[other * num_modules + j] += slowed(amount, other % dp_size, j, num_modules, ranks)
            for cell in (cell_a, other):
                update_top(load, cell, j, num_modules, dp_size, top, top_rank)
            value += top[(slot * num_modules + j) * 3]
    return value
