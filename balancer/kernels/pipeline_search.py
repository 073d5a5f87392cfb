"""Search on pipelines: random moves at the slowest rank, each judged by simulation.

Local search, or simulated annealing (Kirkpatrick et al., 1983), whose temperatures are those of
`balancer.kernels.search`. Random numbers come from a counter, so the same input gives the same
result everywhere.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.limits import put
from balancer.kernels.pipeline_moves import (
    draw,
    is_worse,
    rank_value,
    slowest_rank,
    try_exchange,
    try_order,
)
from balancer.kernels.pipeline_place import cell_loads
from balancer.kernels.ranks import reserved
from balancer.kernels.search import NEIGHBOURS, PERIODS

__all__ = ["search_pipelines"]


@kernel
def _draw_exchange(rank, elsewhere, near, state, cells, members, num_ranks, num_slots):
    """An item of a rank, the item returned for it or -1, and the microbatch it goes to.

    It stays on the rank or goes `elsewhere`; but with `near`, three in four are swaps with an item
    about as dear (items are numbered dearest first). The first is -1 where nothing was found.
    """
    member, size, _ = members
    room, other, back = member.size // num_ranks, rank, np.int64(-1)
    if elsewhere and num_ranks > 1:
        other = (rank + 1 + draw(state, num_ranks - 1)) % num_ranks
    if size[rank] == 0:
        return back, back, back
    give = member[rank * room + draw(state, size[rank])]
    if near and draw(state, 4) > 0:
        back = 1 + draw(state, np.int64(2) << draw(state, NEIGHBOURS))
        back = give + back if draw(state, 2) == 0 else give - back
        if back < 0 or back >= cells.size:
            return np.int64(-1), back, back
        return give, back, cells[back]
    target = other * num_slots + draw(state, num_slots)
    if draw(state, 3) > 0 and size[other] > 0:
        back = member[other * room + draw(state, size[other])]
        target = cells[back]
    return give, back, target


@kernel
def search_pipelines(cells, members, costs, constants, limits, num_ranks, num_slots, schedule, most,
                     goal, budget, seed, warmth, chances, ranks=None):  # fmt: skip
    """Improve `cells` in place; returns the tokens over the cap and the time of the slowest rank.

    Tuples are those of `balancer.kernels.pipeline_moves`; `most` tokens may be in flight (times
    stages a rank; 0: any). Stops when the time is `goal`, or after `budget` moves. A move is kept
    if both ranks of it are then no worse than the slowest was, so the slowest never gets worse.
    With `warmth` they may be later than that by temperature * c, with c drawn from `chances`
    (1,024 values of an exponential distribution times 1,024); the temperature starts at `warmth`,
    and the best that was seen is returned. Each `seed` draws other moves.
    `ranks` are those of `balancer.kernels.ranks`, of one column.
    """
    amounts, caps, _ = limits
    num_cells, num_items = num_ranks * num_slots, cells.size
    used = reserved(num_cells, caps.size, num_ranks, num_slots, ranks)
    count, longest = np.zeros(num_cells, np.int64), np.zeros(num_cells, np.int64)
    best_cells = np.empty(num_items, np.int64)
    for item in range(num_items):
        put(item, cells[item], amounts, caps.size, used, count, longest)
        best_cells[item] = cells[item]
    books = (used, count, longest)
    loads = cell_loads(cells, costs, constants, num_cells, num_slots, ranks)
    lane, _, _, _, pp_size = schedule
    scratch = (np.empty(pp_size, np.int64), np.empty(lane.size, np.int64),
               np.empty(num_slots, np.int64))  # fmt: skip
    excess, times = np.zeros(num_ranks, np.int64), np.zeros(num_ranks, np.int64)
    for rank in range(num_ranks):
        excess[rank], times[rank] = rank_value(
            rank, num_slots, loads, schedule, most, limits, books, scratch
        )
    state = np.empty(1, np.uint64)
    state[0] = np.uint64(seed)
    slowest = slowest_rank(excess, times)
    best_over, best = excess[slowest], times[slowest]
    temperature, slack, period = np.int64(warmth), np.int64(0), 1
    for spent in range(budget):
        if best_over == 0 and best <= goal:
            break
        if warmth > 0:
            if spent * PERIODS >= budget * period:
                temperature -= temperature // 12
                period += 1
            slack = (temperature >> 10) * chances[draw(state, chances.size)]
        kind = draw(state, 4)
        if kind == 0:
            kept = try_order(slowest, state, cells, members, num_slots, loads, schedule, most,
                             limits, books, scratch, excess, times, slack)  # fmt: skip
        else:
            give, back, target = _draw_exchange(
                slowest, kind > 1, warmth > 0, state, cells, members, num_ranks, num_slots
            )
            kept = give >= 0 and try_exchange(
                give, back, target, slowest, cells, members, costs, num_slots, loads, schedule,
                most, limits, books, scratch, excess, times, slack, ranks,
            )  # fmt: skip
        if not kept:
            continue
        slowest = slowest_rank(excess, times)
        if is_worse(best_over, best, excess[slowest], times[slowest]):
            best_over, best = excess[slowest], times[slowest]
            for item in range(num_items):
                best_cells[item] = cells[item]
    for item in range(num_items):
        cells[item] = best_cells[item]
    return best_over, best
