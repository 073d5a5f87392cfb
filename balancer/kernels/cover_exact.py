"""Exact search for an assignment in which no rank skips a module that others run.

For small steps that exchanges leave with a fault. Kinds are those of `balancer.kernels.cover`.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.limits import fits, put, take
from balancer.kernels.ranks import reserved

__all__ = ["covering_cells"]


@kernel
def _lacking(k, in_all, first_slot, uses, num_kinds, dp_size, num_slots):
    """Items of kind k that are still needed at least: where a slot has some, on its other ranks."""
    lacking = 0
    for slot in range(first_slot, num_slots):
        users = 0
        for rank in range(dp_size):
            users += uses[(slot * dp_size + rank) * num_kinds + k] > 0
        if in_all or users:
            lacking += dp_size - users
    return lacking


@kernel
def _can_be_covered(left, num_left, in_all, first_slot, uses, count, num_kinds, dp_size, num_slots):
    """Whether the items left are enough for what is lacking and for the empty microbatches."""
    empty = 0
    for cell in range(count.size):
        empty += count[cell] == 0
    if empty > num_left:
        return False
    for k in range(num_kinds):
        every = in_all >> k & 1 > 0
        if _lacking(k, every, first_slot, uses, num_kinds, dp_size, num_slots) > left[k]:
            return False
    return True


@kernel
def _is_first_of_its_like(cell, first_slot, count, dp_size, alike):
    """Whether no earlier microbatch is as good: empty ones of a slot are alike, as are slots."""
    if not alike or count[cell] > 0:
        return True
    slot = cell // dp_size
    for other in range(slot * dp_size, cell):
        if count[other] == 0:
            return False
    if first_slot > 0 or slot == 0:
        return True
    before, here = 0, 0
    for rank in range(dp_size):
        before += count[(slot - 1) * dp_size + rank]
        here += count[slot * dp_size + rank]
    return before > 0 or here > 0


@kernel
def covering_cells(order, kinds, num_kinds, in_all, first_slot, amounts, caps, padded, dp_size,
                   num_slots, budget, ranks=None):  # fmt: skip
    """Cells in which all ranks of each slot from `first_slot` on have the same kinds, or all -1.

    Kinds with a bit in `in_all` are in every such microbatch. Places items in `order` one by one
    and turns back where what is left cannot cover what is lacking; tries at most `budget` places,
    each O(dp_size * num_slots * num_kinds), and finds an assignment if there is one unless the
    budget ends first.
    """
    num_items, num_cells = order.size, dp_size * num_slots
    cells = np.empty(num_items, np.int64)
    left = np.zeros(num_kinds, np.int64)
    for item in range(num_items):
        cells[item] = -1
        for k in range(num_kinds):
            left[k] += kinds[item] >> k & 1
    used = reserved(num_cells, caps.size, dp_size, 1, ranks)
    uses = np.zeros(num_cells * num_kinds, np.int64)
    count = np.zeros(num_cells, np.int64)
    longest = np.zeros(num_cells, np.int64)
    depth = 0
    if not _can_be_covered(left, num_items, in_all, first_slot, uses, count, num_kinds, dp_size,
                           num_slots):  # fmt: skip
        return cells
    while 0 <= depth < num_items and budget > 0:
        item = order[depth]
        cell = cells[item]
        if cell >= 0:
            cells[item] = -1
            take(item, cell, amounts, caps.size, padded, used, count, longest, cells)
            for k in range(num_kinds):
                uses[cell * num_kinds + k] -= kinds[item] >> k & 1
                left[k] += kinds[item] >> k & 1
        cell += 1
        placed = False
        while cell < num_cells and budget > 0 and not placed:
            budget -= 1
            if _is_first_of_its_like(cell, first_slot, count, dp_size, ranks is None) and fits(
                item, cell, amounts, caps, padded, used, count, longest
            ):
                cells[item] = cell
                put(item, cell, amounts, caps.size, used, count, longest)
                for k in range(num_kinds):
                    uses[cell * num_kinds + k] += kinds[item] >> k & 1
                    left[k] -= kinds[item] >> k & 1
                placed = _can_be_covered(left, num_items - depth - 1, in_all, first_slot, uses,
                                         count, num_kinds, dp_size, num_slots)  # fmt: skip
                if not placed:
                    cells[item] = -1
                    take(item, cell, amounts, caps.size, padded, used, count, longest, cells)
                    for k in range(num_kinds):
                        uses[cell * num_kinds + k] -= kinds[item] >> k & 1
                        left[k] += kinds[item] >> k & 1
            cell += 1
        depth += 1 if placed else -1
    if depth < num_items:
        for item in range(num_items):
            cells[item] = -1
    return cells
