"""Local search: moves and swaps out of the lines that set the step time.

Lines, groups and loads are those of `balancer.kernels.steptime`; amounts and caps those of
`balancer.kernels.limits`.
"""

import numpy as np
from numba import njit

from balancer.kernels.limits import fits, put, take
from balancer.kernels.steptime import line_loads

__all__ = ["refine"]


@njit(nogil=True)
def _rank_top(load, group, k, num_modules, dp_size, top, top_rank):
    """Store the three largest loads of a group in module k, and the ranks of the first two."""
    at = (group * num_modules + k) * 3
    top[at : at + 3] = -1
    top_rank[at : at + 3] = -1
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


@njit(nogil=True)
def _largest_other(group, k, rank_a, rank_b, num_modules, top, top_rank):
    """Largest load of the group in module k over ranks other than the two; 0 if there is none."""
    at = (group * num_modules + k) * 3
    for place in range(3):
        if top_rank[at + place] != rank_a and top_rank[at + place] != rank_b:
            return max(top[at + place], np.int64(0))
    return np.int64(0)


@njit(nogil=True)
def _change(line_a, line_b, give, back, costs, num_modules, dp_size, load, top, top_rank):
    """Change of the step time when `give` goes from line a to line b and `back` (or -1) returns."""
    group_a, rank_a = line_a // dp_size, line_a % dp_size
    group_b, rank_b = line_b // dp_size, line_b % dp_size
    change = np.int64(0)
    for k in range(num_modules):
        amount = costs[give * num_modules + k]
        if back >= 0:
            amount -= costs[back * num_modules + k]
        after_a = load[line_a * num_modules + k] - amount
        after_b = load[line_b * num_modules + k] + amount
        if group_a == group_b:
            other = _largest_other(group_a, k, rank_a, rank_b, num_modules, top, top_rank)
            change += max(other, after_a, after_b) - top[(group_a * num_modules + k) * 3]
        else:
            other = _largest_other(group_a, k, rank_a, rank_a, num_modules, top, top_rank)
            change += max(other, after_a) - top[(group_a * num_modules + k) * 3]
            other = _largest_other(group_b, k, rank_b, rank_b, num_modules, top, top_rank)
            change += max(other, after_b) - top[(group_b * num_modules + k) * 3]
    return change


@njit(nogil=True)
def _members(cells, dp_size, num_lines, one_group):
    """Items of every line, as `items[start[line]:start[line + 1]]`."""
    start = np.zeros(num_lines + 1, np.int64)
    for item in range(cells.size):
        line = cells[item] % dp_size if one_group else cells[item]
        start[line + 1] += 1
    for line in range(num_lines):
        start[line + 1] += start[line]
    at = start.copy()
    items = np.empty(cells.size, np.int64)
    for item in range(cells.size):
        line = cells[item] % dp_size if one_group else cells[item]
        items[at[line]] = item
        at[line] += 1
    return start, items


@njit(nogil=True)
def _try_exchange(give, back, target, cells, amounts, caps, padded, used, count, longest):
    """Move `give` to cell `target` (and `back`, if any, to give's cell) unless a cap would break.

    Undoes itself and returns False where it would, or where a cell would stay empty.
    """
    source, num_caps = cells[give], caps.size
    if back < 0 and count[source] < 2:
        return False
    cells[give] = -1
    take(give, source, amounts, num_caps, padded, used, count, longest, cells)
    if back >= 0:
        cells[back] = -1
        take(back, target, amounts, num_caps, padded, used, count, longest, cells)
    legal = fits(give, target, amounts, caps, padded, used, count, longest)
    if legal and back >= 0:
        legal = fits(back, source, amounts, caps, padded, used, count, longest)
    cells[give] = target if legal else source
    put(give, cells[give], amounts, num_caps, used, count, longest)
    if back >= 0:
        cells[back] = source if legal else target
        put(back, cells[back], amounts, num_caps, used, count, longest)
    return legal


@njit(nogil=True)
def _best_exchange(line_a, line_b, start, items, costs, num_modules, dp_size, load, top, top_rank):
    """Best move or swap between two lines: the change, the item given, the item returned (-1)."""
    best, best_give, best_back = np.int64(0), -1, -1
    for p in range(start[line_a], start[line_a + 1]):
        give = items[p]
        change = _change(line_a, line_b, give, -1, costs, num_modules, dp_size, load, top, top_rank)
        if change < best:
            best, best_give, best_back = change, give, -1
        for s in range(start[line_b], start[line_b + 1]):
            back = items[s]
            change = _change(
                line_a, line_b, give, back, costs, num_modules, dp_size, load, top, top_rank
            )
            if change < best:
                best, best_give, best_back = change, give, back
    return best, best_give, best_back


@njit(nogil=True)
def refine(cells, costs, num_modules, amounts, caps, padded, dp_size, num_slots, num_groups,
           goal, budget):  # fmt: skip
    """Improve `cells` in place until the step time is `goal`, nothing helps, or `budget` is spent.

    Visits the lines that set the step time in turn; between such a line and each other line makes
    the best move or swap that shortens the step. `budget` counts evaluated exchanges, each
    O(num_modules). Returns the step time.
    """
    num_lines = num_groups * dp_size
    load = line_loads(cells, costs, num_modules, dp_size, num_groups)
    top = np.empty(num_groups * num_modules * 3, np.int64)
    top_rank = np.empty(num_groups * num_modules * 3, np.int64)
    value = np.int64(0)
    for g in range(num_groups * num_modules):
        _rank_top(load, g // num_modules, g % num_modules, num_modules, dp_size, top, top_rank)
        value += top[g * 3]
    num_cells = dp_size * num_slots
    used = np.zeros(num_cells * caps.size, np.int64)
    count = np.zeros(num_cells, np.int64)
    longest = np.zeros(num_cells, np.int64)
    for item in range(cells.size):
        put(item, cells[item], amounts, caps.size, used, count, longest)
    start, items = _members(cells, dp_size, num_lines, num_groups == 1)
    idle, g, step = 0, 0, 0
    while idle < num_groups * num_modules and value > goal and budget > 0:
        line_a = (g // num_modules) * dp_size + top_rank[g * 3]
        improved = False
        for offset in range(1, num_lines):
            line_b = (line_a + offset + step) % num_lines
            if line_b == line_a:
                continue
            size_a = start[line_a + 1] - start[line_a]
            size_b = start[line_b + 1] - start[line_b]
            budget -= size_a * (size_b + 1)
            change, give, back = _best_exchange(
                line_a, line_b, start, items, costs, num_modules, dp_size, load, top, top_rank
            )
            if give < 0:
                continue
            target = cells[back] if back >= 0 else line_b
            if back < 0 and num_groups == 1:  # any microbatch of the rank: the emptiest
                for slot in range(num_slots):
                    if count[slot * dp_size + line_b] < count[target]:
                        target = slot * dp_size + line_b
            if not _try_exchange(
                give, back, target, cells, amounts, caps, padded, used, count, longest
            ):
                continue
            value += change
            for k in range(num_modules):
                moved = costs[give * num_modules + k]
                if back >= 0:
                    moved -= costs[back * num_modules + k]
                load[line_a * num_modules + k] -= moved
                load[line_b * num_modules + k] += moved
                for line in (line_a, line_b):
                    _rank_top(load, line // dp_size, k, num_modules, dp_size, top, top_rank)
            start, items = _members(cells, dp_size, num_lines, num_groups == 1)
            improved, step = True, step + offset
            break
        idle = 0 if improved else idle + 1
        if not improved:
            g = (g + 1) % (num_groups * num_modules)
    return value
