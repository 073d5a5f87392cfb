"""Local search on pipelines: random moves at the slowest rank, each judged by simulation.

Random numbers come from a counter, so the same input gives the same result everywhere.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.limits import put
from balancer.kernels.pipeline_moves import draw, rank_value, slowest_rank, try_exchange, try_order
from balancer.kernels.pipeline_place import cell_loads
from balancer.kernels.ranks import reserved

__all__ = ["search_pipelines"]


@kernel
def search_pipelines(cells, members, costs, constants, limits, num_ranks, num_slots, schedule, most,
                     goal, budget, seed, ranks=None):  # fmt: skip
    """Improve `cells` in place; returns the tokens over the cap and the time of the slowest rank.

    Tuples are those of `balancer.kernels.pipeline_moves`; `most` tokens may be in flight (times
    stages a rank; 0: any). Stops when the time is `goal`, or after `budget` moves. A move is kept
    if both ranks of it are then no worse than the slowest was, so the slowest never gets worse.
    Each `seed` draws other moves.
    `ranks` are those of `balancer.kernels.ranks`, of one column.
    """
    amounts, caps, _ = limits
    num_cells = num_ranks * num_slots
    used = reserved(num_cells, caps.size, num_ranks, num_slots, ranks)
    count, longest = np.zeros(num_cells, np.int64), np.zeros(num_cells, np.int64)
    for item in range(cells.size):
        put(item, cells[item], amounts, caps.size, used, count, longest)
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
    for _ in range(budget):
        if excess[slowest] == 0 and times[slowest] <= goal:
            break
        kind = draw(state, 4)
        if kind == 0:
            kept = try_order(slowest, state, cells, members, num_slots, loads, schedule, most,
                             limits, books, scratch, excess, times)  # fmt: skip
        else:
            other = slowest
            if kind > 1 and num_ranks > 1:
                other = (slowest + 1 + draw(state, num_ranks - 1)) % num_ranks
            kept = try_exchange(slowest, other, state, cells, members, costs, num_slots, loads,
                                schedule, most, limits, books, scratch, excess, times,
                                ranks)  # fmt: skip
        if kept:
            slowest = slowest_rank(excess, times)
    return excess[slowest], times[slowest]
