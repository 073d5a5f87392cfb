"""Pipelines in which a microbatch passes language work of some samples on to the next one.

Entrain (Jang and Chowdhury 2026, arXiv:2605.27918): `late[item]` is 1 where the sample's language
work runs in the microbatch after that of its encoder work. Then the encoders' backward of its
microbatch waits for the gradient of the next one as well. Pairs only: a microbatch that gets work
passes none on.

Columns are of the language model where `column % num_stages >= boundary`. `sides` says for each
amount where its cap counts: 0 with the encoder work, 1 with the language work, 2 with both. The
other arguments are those of `balancer.kernels.pipeline_moves`; `schedule` is lane, after,
passed_after, duration, stages, pipeline ranks, boundary.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.pipeline import peak_in_flight

__all__ = ["ILLEGAL", "deferred_time", "deferred_times", "deferred_total", "deferred_value"]

ILLEGAL = 2**62
"""Excess of a rank that breaks a cap, leaves a microbatch empty, or passes work on twice."""


@kernel
def deferred_time(loads, first, hands, first_hand, schedule, clock, end):
    """When the last operation ends; `hands` is 1 for a microbatch that passes work on.

    Loads begin at `first`, microbatches at `first_hand`. O(operations).
    """
    lane, after, passed_after, duration, num_stages, _, _ = schedule
    last = loads[first] - loads[first]
    for p in range(clock.size):
        clock[p] = last
    for operation in range(lane.size):
        column = duration[operation]
        waited = after[operation]
        if hands[first_hand + column // (2 * num_stages)]:
            waited = passed_after[operation]
        start = clock[lane[operation]]
        if waited >= 0 and end[waited] > start:
            start = end[waited]
        end[operation] = start + loads[first + column]
        clock[lane[operation]] = end[operation]
        last = max(last, end[operation])
    return last


@kernel
def deferred_times(loads, hands, num_ranks, schedule):
    """The time of each data-parallel rank, whose loads and microbatches stand one after another."""
    clock, end = np.empty(schedule[5], loads.dtype), np.empty(schedule[0].size, loads.dtype)
    size, num_slots = loads.size // num_ranks, hands.size // num_ranks
    times = np.empty(num_ranks, loads.dtype)
    for rank in range(num_ranks):
        times[rank] = deferred_time(
            loads, rank * size, hands, rank * num_slots, schedule, clock, end
        )
    return times


@kernel
def _fill(rank, cells, late, members, num_slots, work, limits, schedule, scratch):
    """Store what each microbatch of a rank holds; whether work is passed to where one is."""
    member, size, room = members
    costs, constants = work
    amounts, caps, _, _ = limits
    num_stages, boundary = schedule[4], schedule[6]
    loads, hands, count, used, longest = scratch[:5]
    num_columns, num_caps = constants.size, caps.size
    for at in range(loads.size):
        loads[at] = constants[at % num_columns]
    for at in range(used.size):
        used[at] = 0
    for at in range(count.size):
        count[at], longest[at] = 0, 0
    for slot in range(num_slots):
        hands[slot] = 0
    for t in range(size[rank]):
        item = member[rank * room + t]
        slot = cells[item] - rank * num_slots
        to = slot + late[item]
        if to == num_slots:
            return False
        hands[slot] |= late[item]
        for c in range(num_columns):
            runs = to if c % num_stages >= boundary else slot
            loads[runs * num_columns + c] += costs[item * num_columns + c]
        for side in range(2):
            row = num_slots + to if side else slot
            count[row] += 1
            for a in range(num_caps):
                used[row * num_caps + a] += amounts[item * num_caps + a]
            if num_caps:
                longest[row] = max(longest[row], amounts[item * num_caps])
    return True


@kernel
def _allocate(num_slots, limits, scratch, tokens):
    """Store tokens as laid out, of encoder work, then of language work; whether all is legal."""
    _, caps, padded, sides = limits
    _, hands, count, used, longest = scratch[:5]
    legal = True
    for row in range(2 * num_slots):
        side, slot = divmod(row, num_slots)
        legal = legal and count[row] > 0
        if side == 0 and slot > 0 and hands[slot] and hands[slot - 1]:
            legal = False
        for a in range(caps.size):
            held = used[row * caps.size + a]
            if a == 0:
                held = count[row] * longest[row] if padded else held
                tokens[row] = held
            if held > caps[a] and (sides[a] == side or sides[a] == 2):
                legal = False
    return legal


@kernel
def deferred_value(rank, cells, late, members, num_slots, work, limits, schedule, most, scratch):
    """Tokens in flight over `most` (0: any; `ILLEGAL` where it may not be) and time of a rank.

    Tokens in flight are counted where the encoder work runs, and where the language work does; the
    larger counts. O(items of the rank * columns + operations).
    """
    loads, hands, _, _, _, tokens, clock, end = scratch
    if not _fill(rank, cells, late, members, num_slots, work, limits, schedule, scratch):
        return np.int64(ILLEGAL), np.int64(0)
    if not _allocate(num_slots, limits, scratch, tokens):
        return np.int64(ILLEGAL), np.int64(0)
    excess = np.int64(0)
    if most > 0:
        lane, _, _, duration, num_stages, pp_size, _ = schedule
        for side in range(2):
            peak = peak_in_flight(tokens, side * num_slots, lane, duration, num_stages, pp_size)
            excess = max(excess, peak - most)
    return excess, deferred_time(loads, 0, hands, 0, schedule, clock, end)


@kernel
def deferred_total(costs, fills, prices, tolls, sides, num_microbatches, num_stages, boundary):
    """Sum over items of what each is charged where that, passed on or not, is least.

    `priced_total` of `balancer.kernels.pipeline_fluid` where work may be passed on; an amount that
    counts on both sides is charged with the encoder work. O(items * prices).
    """
    num_columns, num_fills = prices.size // num_microbatches, tolls.size // num_microbatches
    total = 0.0
    for item in range(costs.size // num_columns):
        least, before = np.inf, np.inf
        for j in range(num_microbatches):
            encoder, language = 0.0, 0.0
            for c in range(num_columns):
                charge = prices[j * num_columns + c] * costs[item * num_columns + c]
                if c % num_stages >= boundary:
                    language += charge
                else:
                    encoder += charge
            for a in range(num_fills):
                charge = tolls[j * num_fills + a] * fills[item * num_fills + a]
                if sides[a] == 1:
                    language += charge
                else:
                    encoder += charge
            least = min(least, min(encoder, before) + language)
            before = encoder
        total += least
    return total
