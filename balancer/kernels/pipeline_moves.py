"""Moves of microbatches and samples on pipelines, each judged by simulation and kept or undone.

Cells are `rank * num_slots + slot`; a slot's number is its place in the rank's order. Loads and
operations are those of `balancer.kernels.pipeline`; amounts and caps those of
`balancer.kernels.limits`. Arguments that go together are tuples: `limits` is amounts, caps, and
whether amount 0 is padded tokens; `books` what each cell holds: used, count, longest; `schedule`
lane, after, duration, stages, pipeline ranks; `members` the items of each rank in equal parts of
one list, the number of each rank's, and each item's place in its part.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.limits import put, take
from balancer.kernels.pipeline import end_times, peak_in_flight
from balancer.kernels.ranks import slowed

__all__ = ["draw", "is_worse", "rank_value", "rehouse", "slowest_rank", "try_exchange", "try_order"]


@kernel
def draw(state, below):
    """Next of the sequence of whole numbers below `below` (SplitMix64; Steele et al., 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    value = state[0]
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    value = (value ^ (value >> np.uint64(31))) >> np.uint64(32)
    return np.int64((value * np.uint64(below)) >> np.uint64(32))


@kernel
def _swap_slots(cell_a, cell_b, num_columns, loads, num_caps, books):
    """Exchange the work and the books of two microbatches; their items are not renamed."""
    used, count, longest = books
    for c in range(num_columns):
        at_a, at_b = cell_a * num_columns + c, cell_b * num_columns + c
        loads[at_a], loads[at_b] = loads[at_b], loads[at_a]
    for a in range(num_caps):
        at_a, at_b = cell_a * num_caps + a, cell_b * num_caps + a
        used[at_a], used[at_b] = used[at_b], used[at_a]
    count[cell_a], count[cell_b] = count[cell_b], count[cell_a]
    longest[cell_a], longest[cell_b] = longest[cell_b], longest[cell_a]


@kernel
def _exchange(give, back, source, target, cells, costs, num_columns, num_slots, loads, limits,
              books, ranks):  # fmt: skip
    """Move `give` from source to target, and `back`, if any, the other way, legal or not."""
    amounts, caps, padded = limits
    used, count, longest = books
    cells[give] = -1
    take(give, source, amounts, caps.size, padded, used, count, longest, cells)
    if back >= 0:
        cells[back] = -1
        take(back, target, amounts, caps.size, padded, used, count, longest, cells)
        put(back, source, amounts, caps.size, used, count, longest)
        cells[back] = source
    put(give, target, amounts, caps.size, used, count, longest)
    cells[give] = target
    for c in range(num_columns):
        amount = costs[give * num_columns + c]
        if back >= 0:
            amount -= costs[back * num_columns + c]
        loads[source * num_columns + c] -= slowed(amount, source // num_slots, 0, 1, ranks)
        loads[target * num_columns + c] += slowed(amount, target // num_slots, 0, 1, ranks)


@kernel
def _within(cell, limits, books):
    """Whether a microbatch has an item and keeps its caps."""
    _, caps, padded = limits
    used, count, longest = books
    within = count[cell] > 0
    for a in range(caps.size):
        held = used[cell * caps.size + a]
        if padded and a == 0:
            held = count[cell] * longest[cell]
        within = within and held <= caps[a]
    return within


@kernel
def _excess(rank, num_slots, most, num_caps, padded, books, tokens, schedule):
    """Tokens in flight of a rank above `most`."""
    used, count, longest = books
    lane, _, duration, num_stages, pp_size = schedule
    for slot in range(num_slots):
        cell = rank * num_slots + slot
        tokens[slot] = count[cell] * longest[cell] if padded else used[cell * num_caps]
    peak = peak_in_flight(tokens, 0, lane, duration, num_stages, pp_size)
    return max(np.int64(0), peak - most)


@kernel
def is_worse(excess_a, time_a, excess_b, time_b):
    """Whether value a is above value b: more tokens over the cap, or as many and later."""
    return excess_a > excess_b or (excess_a == excess_b and time_a > time_b)


@kernel
def slowest_rank(excess, times):
    """Rank of the largest value."""
    slowest = 0
    for rank in range(1, times.size):
        if is_worse(excess[rank], times[rank], excess[slowest], times[slowest]):
            slowest = rank
    return slowest


@kernel
def rank_value(rank, num_slots, loads, schedule, most, limits, books, scratch):
    """Excess tokens in flight and time of a rank. O(operations)."""
    lane, after, duration, num_stages, _ = schedule
    clock, end, tokens = scratch
    first = rank * num_slots * 2 * num_stages
    time = end_times(loads, first, lane, after, duration, clock, end)
    if most == 0:
        return np.int64(0), time
    num_caps, padded = limits[1].size, limits[2]
    return _excess(rank, num_slots, most, num_caps, padded, books, tokens, schedule), time


@kernel
def _slot_after(slot, start, stop, swapped):
    """Where the microbatch of a slot is after a swap of, or a rotation from, start to stop."""
    if slot == start:
        return stop
    if swapped:
        return start if slot == stop else slot
    if start < slot <= stop:
        return slot - 1
    return slot + 1 if stop <= slot < start else slot


@kernel
def try_order(rank, state, cells, members, num_slots, loads, schedule, most, limits, books,
              scratch, excess, times, slack):  # fmt: skip
    """Swap two microbatches of a rank, or put one in elsewhere; whether that was kept.

    Kept if the rank is then later than it was by at most `slack`.
    """
    member, size, _ = members
    room, first = member.size // times.size, rank * num_slots
    start, stop = draw(state, num_slots), draw(state, num_slots)
    swapped = draw(state, 2) == 0
    if start == stop:
        return False
    step = stop - start if swapped else (1 if stop > start else -1)
    for turn in range(2):
        for slot in range(start, stop, step):
            _swap_slots(
                first + slot, first + slot + step, 2 * schedule[3], loads, limits[1].size, books
            )
        if turn == 1:
            return False
        over, time = rank_value(rank, num_slots, loads, schedule, most, limits, books, scratch)
        if not is_worse(over, time, excess[rank], times[rank] + slack):
            break
        start, stop, step = stop, start, -step
    for t in range(size[rank]):
        item = member[rank * room + t]
        cells[item] = first + _slot_after(cells[item] - first, start, stop, swapped)
    excess[rank], times[rank] = over, time
    return True


@kernel
def rehouse(give, back, rank, other, members, num_ranks):
    """List `give` under the other rank, and `back`, if any, under this one."""
    member, size, place = members
    room = member.size // num_ranks
    if back >= 0:
        member[rank * room + place[give]] = back
        member[other * room + place[back]] = give
        place[give], place[back] = place[back], place[give]
    elif rank != other:
        size[rank] -= 1
        last = member[rank * room + size[rank]]
        member[rank * room + place[give]] = last
        place[last] = place[give]
        member[other * room + size[other]] = give
        place[give] = size[other]
        size[other] += 1


@kernel
def try_exchange(give, back, target, rank, cells, members, costs, num_slots, loads, schedule, most,
                 limits, books, scratch, excess, times, slack, ranks=None):  # fmt: skip
    """Move an item of a rank to a microbatch, or swap it with `back`; whether that was kept.

    Kept if no cap breaks and both ranks of it are then later than this one was by at most `slack`.
    """
    member, size, _ = members
    room, count = member.size // times.size, books[1]
    source, other = cells[give], target // num_slots
    if target == source or (back < 0 and (size[other] == room or count[source] < 2)):
        return False
    over, time = excess[rank], times[rank]
    over_other, time_other = excess[other], times[other]
    for turn in range(2):
        _exchange(give, back, source, target, cells, costs, 2 * schedule[3], num_slots, loads,
                  limits, books, ranks)  # fmt: skip
        if turn == 1:
            break
        kept = _within(source, limits, books) and _within(target, limits, books)
        for seen in range(2):
            which = other if seen else rank
            if kept and (seen == 0 or other != rank):
                excess[which], times[which] = rank_value(
                    which, num_slots, loads, schedule, most, limits, books, scratch
                )
                kept = not is_worse(excess[which], times[which], over, time + slack)
        if kept:
            rehouse(give, back, rank, other, members, times.size)
            return True
        source, target = target, source
    excess[other], times[other] = over_other, time_other
    excess[rank], times[rank] = over, time
    return False
