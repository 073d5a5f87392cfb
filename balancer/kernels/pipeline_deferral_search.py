"""Local search on pipelines that may pass language work on: moves at the slowest rank.

Arguments are those of `balancer.kernels.pipeline_deferral`. Every move is judged by what the ranks
it touches then hold and take, counted anew.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.pipeline_deferral import deferred_value
from balancer.kernels.pipeline_moves import draw, is_worse, rehouse, slowest_rank

__all__ = ["search_deferral"]


@kernel
def _swap_slots(rank, start, stop, cells, members, num_slots):
    """Exchange two microbatches of a rank; what they pass on then goes to their new neighbours."""
    member, size, room = members
    first = rank * num_slots
    for t in range(size[rank]):
        item = member[rank * room + t]
        if cells[item] == first + start:
            cells[item] = first + stop
        elif cells[item] == first + stop:
            cells[item] = first + start


@kernel
def _apply(give, back, rank, other, cell, is_late, cells, late, listed, num_ranks):
    """Exchange `give` of a rank with `back` of the other, or, without it, put `give` in a cell.

    The same with the ranks exchanged, and where `give` was, undoes it.
    """
    if back >= 0:
        cells[give], cells[back] = cells[back], cells[give]
        late[give], late[back] = late[back], late[give]
    else:
        cells[give], late[give] = cell, is_late
    if other != rank:
        rehouse(give, back, rank, other, listed, num_ranks)


@kernel
def _draw_move(rank, state, cells, late, members, num_ranks, num_slots):
    """A random move: give, back, the other rank, cell, lateness; give is -1 for two microbatches.

    Those are exchanged: cell and lateness are then their slots.
    """
    member, size, room = members
    kind, other, back = draw(state, 4), rank, np.int64(-1)
    start, stop = draw(state, num_slots), draw(state, num_slots)
    if kind == 0 or size[rank] == 0:
        return np.int64(-1), back, rank, start, stop
    give = member[rank * room + draw(state, size[rank])]
    if kind == 1:
        return give, back, rank, cells[give], 1 - late[give]
    if num_ranks > 1 and draw(state, 2) == 0:
        other = (rank + 1 + draw(state, num_ranks - 1)) % num_ranks
    if kind == 3 and size[other] > 0:
        back = member[other * room + draw(state, size[other])]
    return give, back, other, other * num_slots + start, stop % 2


@kernel
def search_deferral(cells, late, listed, work, limits, num_ranks, num_slots, schedule, most, goal,
                    budget):  # fmt: skip
    """Improve `cells` and `late` in place, from a legal start; returns the slowest rank's time.

    Stops when the time is `goal`, or after `budget` moves: two microbatches of a rank exchanged; a
    sample's language work passed on or taken back; a sample moved; two samples exchanged. A move
    is kept if both ranks of it are then no worse than the slowest was.
    """
    member, size, _ = listed
    room = member.size // num_ranks
    members = (member, size, room)
    num_columns, num_caps = work[1].size, limits[1].size
    scratch = (np.empty(num_slots * num_columns, np.int64), np.empty(num_slots, np.int64),
               np.empty(2 * num_slots, np.int64), np.empty(2 * num_slots * num_caps, np.int64),
               np.empty(2 * num_slots, np.int64), np.empty(2 * num_slots, np.int64),
               np.empty(schedule[5], np.int64), np.empty(schedule[0].size, np.int64))  # fmt: skip
    excess, times = np.zeros(num_ranks, np.int64), np.zeros(num_ranks, np.int64)
    for each in range(num_ranks):
        excess[each], times[each] = deferred_value(
            each, cells, late, members, num_slots, work, limits, schedule, most, scratch
        )
    state = np.zeros(1, np.uint64)
    rank = slowest_rank(excess, times)
    for _ in range(budget):
        if excess[rank] == 0 and times[rank] <= goal:
            break
        give, back, other, to, how = _draw_move(
            rank, state, cells, late, members, num_ranks, num_slots
        )
        idle = give == back or (other != rank and back < 0 and size[other] == room)
        if to == how if give < 0 else idle:
            continue
        was, was_late = np.int64(-1), np.int64(0)
        over, time, over_other, time_other = excess[rank], times[rank], excess[other], times[other]
        kept = True
        for turn in range(2):
            if give < 0:
                _swap_slots(rank, to, how, cells, members, num_slots)
            elif turn == 0:
                was, was_late = cells[give], late[give]
                _apply(give, back, rank, other, to, how, cells, late, listed, num_ranks)
            else:
                _apply(give, back, other, rank, was, was_late, cells, late, listed, num_ranks)
            for seen in range(2):
                which = other if seen else rank
                if turn == 0 and kept and (seen == 0 or other != rank):
                    excess[which], times[which] = deferred_value(
                        which, cells, late, members, num_slots, work, limits, schedule, most,
                        scratch,
                    )  # fmt: skip
                    kept = not is_worse(excess[which], times[which], over, time)
            if kept:
                break
        if kept:
            rank = slowest_rank(excess, times)
        else:
            excess[other], times[other] = over_other, time_other
            excess[rank], times[rank] = over, time
    return times[rank]
