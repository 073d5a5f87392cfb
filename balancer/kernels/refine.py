"""Local search: moves and swaps out of the lines that set the step time.

Lines, groups and loads are those of `balancer.kernels.steptime`; amounts and caps those of
`balancer.kernels.limits`; ranks those of `balancer.kernels.ranks`.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.cover import keeps_cover, note_exchange, try_exchange
from balancer.kernels.limits import put
from balancer.kernels.ranks import reserved, slowed
from balancer.kernels.steptime import line_loads
from balancer.kernels.tops import rank_top, set_rest, update_top

__all__ = ["link", "refine", "unlink"]


@kernel
def link(item, line, first, after, before):
    """Put `item` at the head of its line's list of items."""
    before[item] = -1
    after[item] = first[line]
    if first[line] >= 0:
        before[first[line]] = item
    first[line] = item


@kernel
def unlink(item, line, first, after, before):
    """Take `item` out of its line's list of items."""
    if before[item] >= 0:
        after[before[item]] = after[item]
    else:
        first[line] = after[item]
    if after[item] >= 0:
        before[after[item]] = before[item]


@kernel
def _best_exchange(line_a, line_b, first, after, costs, num_modules, dp_size, load, top, top_rank,
                   rest_a, rest_b, ranks, cells, cover):  # fmt: skip
    """Best move or swap between two lines: the change, the item given, the item returned (-1)."""
    now = set_rest(line_a, line_b, num_modules, dp_size, top, top_rank, rest_a, rest_b)
    same_group = line_a // dp_size == line_b // dp_size
    rank_a, rank_b = line_a % dp_size, line_b % dp_size
    best, best_give, best_back = now, -1, -1
    give = first[line_a]
    while give >= 0:
        back = -1
        while True:
            time = np.int64(0)
            for k in range(num_modules):
                amount = costs[give * num_modules + k]
                if back >= 0:
                    amount -= costs[back * num_modules + k]
                less, more = amount, amount
                if ranks is not None:  # a call, even of nothing, costs a third more
                    less = slowed(amount, rank_a, k, num_modules, ranks)
                    more = slowed(amount, rank_b, k, num_modules, ranks)
                largest_a = max(rest_a[k], load[line_a * num_modules + k] - less)
                largest_b = max(rest_b[k], load[line_b * num_modules + k] + more)
                time += max(largest_a, largest_b) if same_group else largest_a + largest_b
            if time < best and keeps_cover(
                give, back, cells[back] if back >= 0 else line_b, cells, cover
            ):
                best, best_give, best_back = time, give, back
            back = first[line_b] if back < 0 else after[back]
            if back < 0:
                break
        give = after[give]
    return best - now, best_give, best_back


@kernel
def _target_cell(line_b, back, cells, count, dp_size, num_slots, num_groups):
    """Microbatch that takes the given item: the returned item's, else the rank's emptiest."""
    if back >= 0:
        return cells[back]
    if num_groups > 1:
        return line_b
    target = line_b
    for slot in range(num_slots):
        if count[slot * dp_size + line_b] < count[target]:
            target = slot * dp_size + line_b
    return target


@kernel
def refine(cells, costs, num_modules, amounts, caps, padded, dp_size, num_slots, num_groups,
           goal, budget, ranks=None, cover=None):  # fmt: skip
    """Improve `cells` in place until the step time is `goal`, nothing helps, or `budget` is spent.

    Visits the lines that set the step time in turn; between such a line and each other line makes
    the best move or swap that shortens the step. `budget` counts evaluated exchanges, each
    O(num_modules). With `cover` (see `balancer.kernels.cover`; no kind is barred where there is one
    group) no kind is taken from where it is needed or brought to where it is barred. Returns the
    step time.
    """
    num_lines, num_cells, num_items = num_groups * dp_size, num_slots * dp_size, cells.size
    load = line_loads(cells, costs, num_modules, dp_size, num_groups, ranks)
    num_tops = num_groups * num_modules
    top = np.empty(num_tops * 3, np.int64)
    top_rank = np.empty(num_tops * 3, np.int64)
    value = np.int64(0)
    for g in range(num_tops):
        rank_top(load, g // num_modules, g % num_modules, num_modules, dp_size, top, top_rank)
        value += top[g * 3]
    used = reserved(num_cells, caps.size, dp_size, 1, ranks)
    count = np.zeros(num_cells, np.int64)
    longest = np.zeros(num_cells, np.int64)
    size = np.zeros(num_lines, np.int64)
    first = np.empty(num_lines, np.int64)
    for line in range(num_lines):
        first[line] = -1
    rest_a, rest_b = np.empty(num_modules, np.int64), np.empty(num_modules, np.int64)
    after = np.empty(num_items, np.int64)
    before = np.empty(num_items, np.int64)
    for item in range(num_items):
        if not caps.size:
            count[cells[item]] += 1
        else:
            put(item, cells[item], amounts, caps.size, used, count, longest)
        line = cells[item] % num_lines if num_groups == 1 else cells[item]
        size[line] += 1
        link(item, line, first, after, before)
    idle, g, turn = 0, 0, 0
    while idle < num_tops and value > goal and budget > 0:
        line_a = (g // num_modules) * dp_size + top_rank[g * 3]
        improved = False
        for offset in range(num_lines):
            line_b = (line_a + offset + turn) % num_lines
            if line_b == line_a:
                continue
            if budget <= 0:
                break
            budget -= size[line_a] * (size[line_b] + 1)
            change, give, back = _best_exchange(
                line_a, line_b, first, after, costs, num_modules, dp_size, load, top, top_rank,
                rest_a, rest_b, ranks, cells, cover,
            )  # fmt: skip
            if give < 0:
                continue
            source = cells[give]
            target = _target_cell(line_b, back, cells, count, dp_size, num_slots, num_groups)
            if not try_exchange(
                give, back, target, cells, amounts, caps, padded, used, count, longest
            ):
                continue
            note_exchange(give, back, source, target, cover)
            value += change
            unlink(give, line_a, first, after, before)
            link(give, line_b, first, after, before)
            if back >= 0:
                unlink(back, line_b, first, after, before)
                link(back, line_a, first, after, before)
            else:
                size[line_a] -= 1
                size[line_b] += 1
            for k in range(num_modules):
                moved = costs[give * num_modules + k]
                if back >= 0:
                    moved -= costs[back * num_modules + k]
                load[line_a * num_modules + k] -= slowed(
                    moved, line_a % dp_size, k, num_modules, ranks
                )
                load[line_b * num_modules + k] += slowed(
                    moved, line_b % dp_size, k, num_modules, ranks
                )
                for line in (line_a, line_b):
                    update_top(load, line, k, num_modules, dp_size, top, top_rank)
            improved, turn = True, turn + offset
            break
        idle = 0 if improved else idle + 1
        if not improved:
            g = (g + 1) % num_tops
    return value
