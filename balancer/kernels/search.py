"""Search beyond local optima: simulated annealing over moves and swaps (Kirkpatrick et al., 1983).

Random numbers come from a counter and temperatures are whole numbers, so the same input gives the
same result everywhere. Lines, groups and loads are those of `balancer.kernels.steptime`; amounts
and caps those of `balancer.kernels.limits`; ranks and cover those of `balancer.kernels.ranks` and
`balancer.kernels.cover`.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.cover import keeps_cover, note_exchange, try_exchange
from balancer.kernels.limits import put
from balancer.kernels.pipeline_moves import draw, rehouse
from balancer.kernels.ranks import reserved, slowed
from balancer.kernels.steptime import line_loads
from balancer.kernels.tops import rank_top, set_rest, update_top

__all__ = ["NEIGHBOURS", "PERIODS", "anneal"]

NEIGHBOURS = 8
"""Powers of two up to which the item returned in a swap is near the given one in dearness."""

PERIODS = 64
"""Temperatures; each is a twelfth below the one before, the last 1/256 of the first."""


@kernel
def _fill_members(cells, num_lines, size, room, member, place):
    """List the items of each line; lines are cells, or with fewer lines than cells, ranks."""
    for item in range(cells.size):
        line = cells[item] % num_lines
        place[item] = size[line]
        member[line * room + size[line]] = item
        size[line] += 1


@kernel
def _propose(line_a, state, cells, num_lines, size, room, member):
    """Draw an exchange out of a line: the item given, the item returned or -1, the other line.

    Three in four are swaps with an item about as dear (items are numbered dearest first). The
    other line is -1 where nothing was found.
    """
    if size[line_a] == 0:
        return -1, -1, -1
    give, back = member[line_a * room + draw(state, size[line_a])], np.int64(-1)
    if draw(state, 4) > 0:
        back = 1 + draw(state, np.int64(2) << draw(state, NEIGHBOURS))
        back = give + back if draw(state, 2) == 0 else give - back
        line_b = cells[back] % num_lines if 0 <= back < cells.size else np.int64(-1)
    else:
        line_b = draw(state, num_lines)
        at = draw(state, size[line_b] + 1)
        if at < size[line_b]:
            back = member[line_b * room + at]
        elif size[line_b] == room:
            line_b = np.int64(-1)
    return give, back, line_b if line_b != line_a else np.int64(-1)


@kernel
def _change(give, back, line_a, line_b, costs, num_modules, dp_size, load, top, top_rank, rest_a,
            rest_b, ranks):  # fmt: skip
    """How much longer the step is after an exchange."""
    now = set_rest(line_a, line_b, num_modules, dp_size, top, top_rank, rest_a, rest_b)
    same_group = line_a // dp_size == line_b // dp_size
    time = np.int64(0)
    for k in range(num_modules):
        amount = costs[give * num_modules + k]
        if back >= 0:
            amount -= costs[back * num_modules + k]
        less, more = amount, amount
        if ranks is not None:  # a call, even of nothing, costs a third more
            less = slowed(amount, line_a % dp_size, k, num_modules, ranks)
            more = slowed(amount, line_b % dp_size, k, num_modules, ranks)
        largest_a = max(rest_a[k], load[line_a * num_modules + k] - less)
        largest_b = max(rest_b[k], load[line_b * num_modules + k] + more)
        time += max(largest_a, largest_b) if same_group else largest_a + largest_b
    return time - now


@kernel
def _shift_load(give, back, line_a, line_b, costs, num_modules, dp_size, load, top, top_rank,
                ranks):  # fmt: skip
    """Account for an exchange in loads and largest loads; returns how many were ranked anew."""
    ranked = 0
    for k in range(num_modules):
        amount = costs[give * num_modules + k]
        if back >= 0:
            amount -= costs[back * num_modules + k]
        load[line_a * num_modules + k] -= slowed(amount, line_a % dp_size, k, num_modules, ranks)
        load[line_b * num_modules + k] += slowed(amount, line_b % dp_size, k, num_modules, ranks)
        ranked += update_top(load, line_a, k, num_modules, dp_size, top, top_rank)
        ranked += update_top(load, line_b, k, num_modules, dp_size, top, top_rank)
    return ranked


@kernel
def anneal(cells, costs, num_modules, amounts, caps, padded, dp_size, num_slots, num_groups, goal,
           budget, warmth, seed, chances, ranks=None, cover=None):  # fmt: skip
    """Improve `cells` in place by annealing, and return the step time: the best that was seen.

    Proposes exchanges out of the dearest line of a group in a module. One that makes the step
    longer by d is made where d <= temperature * c, with c drawn from `chances` (1,024 values of
    an exponential distribution times 1,024). The temperature starts at `warmth`; `seed` starts the
    random numbers. `budget` counts
    proposals, and again dp_size / 32 for each time that the loads of a group are ranked anew.
    Stops when the best is `goal`.
    """
    num_lines, num_cells, num_items = num_groups * dp_size, num_slots * dp_size, cells.size
    load = line_loads(cells, costs, num_modules, dp_size, num_groups, ranks)
    num_tops = num_groups * num_modules
    top, top_rank = np.empty(num_tops * 3, np.int64), np.empty(num_tops * 3, np.int64)
    value = np.int64(0)
    for g in range(num_tops):
        rank_top(load, g // num_modules, g % num_modules, num_modules, dp_size, top, top_rank)
        value += top[g * 3]
    used = reserved(num_cells, caps.size, dp_size, 1, ranks)
    count, longest = np.zeros(num_cells, np.int64), np.zeros(num_cells, np.int64)
    size, room = np.zeros(num_lines, np.int64), np.int64(0)
    best_cells = np.empty(num_items, np.int64)
    for item in range(num_items):
        put(item, cells[item], amounts, caps.size, used, count, longest)
        best_cells[item] = cells[item]
        size[cells[item] % num_lines] += 1
        room = max(room, size[cells[item] % num_lines] + 16)
    member, place = np.empty(num_lines * room, np.int64), np.empty(num_items, np.int64)
    for line in range(num_lines):
        size[line] = 0
    _fill_members(cells, num_lines, size, room, member, place)
    members = (member, size, place)
    rest_a, rest_b = np.empty(num_modules, np.int64), np.empty(num_modules, np.int64)
    state = np.zeros(1, np.uint64)
    state[0] = seed
    best, temperature, spent, period = value, np.int64(warmth), np.int64(0), 1
    while spent < budget and best > goal:
        spent += 1
        if spent * PERIODS >= budget * period:
            temperature -= temperature // 12
            period += 1
        g = draw(state, num_tops)
        line_a = (g // num_modules) * dp_size + top_rank[g * 3]
        give, back, line_b = _propose(line_a, state, cells, num_lines, size, room, member)
        if line_b < 0:
            continue
        longer = _change(give, back, line_a, line_b, costs, num_modules, dp_size, load, top,
                         top_rank, rest_a, rest_b, ranks)  # fmt: skip
        if longer > (temperature >> 10) * chances[draw(state, chances.size)]:
            continue
        source, target = cells[give], line_b
        if back >= 0:
            target = cells[back]
        elif num_groups == 1:
            target = draw(state, num_slots) * dp_size + line_b
        if not keeps_cover(give, back, target, cells, cover) or not try_exchange(
            give, back, target, cells, amounts, caps, padded, used, count, longest
        ):
            continue
        note_exchange(give, back, source, target, cover)
        rehouse(give, back, line_a, line_b, members, num_lines)
        value += longer
        spent += dp_size // 32 * _shift_load(give, back, line_a, line_b, costs, num_modules,
                                             dp_size, load, top, top_rank, ranks)  # fmt: skip
        if value < best:
            best = value
            for item in range(num_items):
                best_cells[item] = cells[item]
    for item in range(num_items):
        cells[item] = best_cells[item]
    return best
