"""Greedy placements of a step's samples on ranks and microbatches.

All kernels take items by position: `order` lists them dearest first; `shares[i * num_modules + k]`
is item i's cost in module k as a share of the module's total (int64, all modules on one scale);
amounts and caps are as in `balancer.kernels.limits`, ranks as in `balancer.kernels.ranks`. They
return the cell `slot * dp_size + rank` of each item, or -1 for an item that fitted nowhere.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.lightest import add_load, lightest
from balancer.kernels.limits import fits, put
from balancer.kernels.ranks import fits_alone, reserved

__all__ = ["fill_empty", "place_by_amount", "place_on_ranks"]


@kernel
def place_on_ranks(order, shares, num_modules, rank_shares, num_rank_modules, amounts, caps, padded,
                   dp_size, num_slots, ranks=None):  # fmt: skip
    """Greedy: each item to the rank, then to the microbatch of it, that it loads least.

    Ranks are compared by `rank_shares` (the shares, or their sums as one module), the microbatches
    of a rank by `shares`. Slownesses are those in the columns of `rank_shares`.
    O(num_items * (dp_size + num_slots) * num_modules) while the limits leave room.
    """
    num_items, num_cells = order.size, dp_size * num_slots
    cells = np.empty(num_items, np.int64)
    rank_load = np.zeros(dp_size * num_rank_modules, np.int64)
    cell_load = np.zeros(num_cells * num_modules, np.int64)  # rank after rank
    used = reserved(num_cells, caps.size, dp_size, 1, ranks)
    count = np.zeros(num_cells, np.int64)
    longest = np.zeros(num_cells, np.int64)
    tried = np.zeros(dp_size, np.bool_)
    full = np.zeros(num_slots, np.bool_)
    peaks = np.empty(max(dp_size, num_slots), np.int64)
    for t in range(num_items):
        item = order[t]
        cells[item] = -1
        for rank in range(dp_size):
            tried[rank] = False
        for _ in range(dp_size):
            rank = lightest(item, rank_shares, num_rank_modules, rank_load, tried, peaks, ranks)
            for slot in range(num_slots if caps.size else 0):
                full[slot] = not fits(
                    item, slot * dp_size + rank, amounts, caps, padded, used, count, longest
                )
            begin = rank * num_slots * num_modules
            own = cell_load[begin : begin + num_slots * num_modules]
            slot = lightest(item, shares, num_modules, own, full, peaks)
            if slot < 0:
                tried[rank] = True
                continue
            cells[item] = slot * dp_size + rank
            if caps.size:
                put(item, cells[item], amounts, caps.size, used, count, longest)
            add_load(item, shares, num_modules, own, num_slots, slot)
            add_load(item, rank_shares, num_rank_modules, rank_load, dp_size, rank, ranks)
            break
    return cells


@kernel
def place_by_amount(order, amounts, caps, padded, num_cells, dp_size=1, stride=1, ranks=None):
    """Best-fit: each item to the fullest microbatch it fits, `order` being largest amount first.

    Fullness is measured on the item's own tightest cap. Best-fit decreasing needs at most
    11/9 of the fewest possible cells, plus 6/9, for one cap (Johnson, 1973; Dosa, 2007).
    """
    num_caps = caps.size
    cells = np.empty(order.size, np.int64)
    used = reserved(num_cells, num_caps, dp_size, stride, ranks)
    count = np.zeros(num_cells, np.int64)
    longest = np.zeros(num_cells, np.int64)
    for t in range(order.size):
        item = order[t]
        cells[item] = -1
        tightest, tightness = 0, -1.0
        for a in range(num_caps):
            share = amounts[item * num_caps + a] / caps[a]
            if share > tightness:
                tightest, tightness = a, share
        best, best_used = -1, np.int64(-1)
        for cell in range(num_cells):
            if used[cell * num_caps + tightest] > best_used and fits(
                item, cell, amounts, caps, padded, used, count, longest
            ):
                best, best_used = cell, used[cell * num_caps + tightest]
        if best >= 0:
            cells[item] = best
            put(item, best, amounts, num_caps, used, count, longest)
    return cells


@kernel
def fill_empty(order, num_cells, cells, amounts=None, caps=None, dp_size=1, stride=1, ranks=None):
    """Give every empty cell the cheapest item that does not leave its own cell empty, in place.

    Where ranks differ, the cheapest that fits the rank (`amounts`, `caps` are then needed);
    otherwise any single item fits. With fewer items than cells some stay empty.
    """
    count = np.zeros(num_cells, np.int64)
    for item in range(cells.size):
        count[cells[item]] += 1
    t = order.size - 1
    for cell in range(num_cells):
        if ranks is not None:
            t = order.size - 1
        while count[cell] == 0 and t >= 0:
            item = order[t]
            if count[cells[item]] > 1 and (
                ranks is None or fits_alone(item, cell, amounts, caps, dp_size, stride, ranks)
            ):
                count[cells[item]] -= 1
                count[cell] += 1
                cells[item] = cell
            t -= 1
