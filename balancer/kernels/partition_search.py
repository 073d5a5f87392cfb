"""Local search on a partition: the part that ends last shares its items anew with another part.

Items, weights, limits and counts are those of `balancer.kernels.partition_place`.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.partition_pair import best_swap, split_by_differences, split_exactly
from balancer.kernels.partition_state import Rules, gather, is_legal, merge, relink, room_for, start

__all__ = ["improve"]

_EXACT = 10  # items of two parts up to which all their splits are tried


@kernel
def _flip(sides, size):
    """Exchange the two sides of a split."""
    for t in range(size):
        sides[t] = 1 - sides[t]


@kernel
def _split(a, b, size, room, rules):
    """Best split found of all items of two parts; returns their later end, -1.0 if not legal."""
    weights, inverse = rules.weights, rules.inverse
    if size <= _EXACT:
        return split_exactly(
            room.items, size, a, b, rules.low, rules.high, inverse, weights, rules.amounts,
            rules.caps, rules.num_caps, room.sides,
        )  # fmt: skip
    total = np.int64(0)
    for t in range(size):
        total += weights[room.items[t]]
    share = (inverse[b] - inverse[a]) / (inverse[a] + inverse[b])
    excess = np.int64(np.floor(float(total) * share + 0.5))  # of part a over part b
    split_by_differences(
        room.items, size, rules.high - rules.low < 2, abs(excess), weights, room.values,
        room.nodes, room.parent, room.sides,
    )  # fmt: skip
    if excess < 0:
        _flip(room.sides, size)
    if not is_legal(a, b, size, room, rules):
        _flip(room.sides, size)
        if excess != 0 or not is_legal(a, b, size, room, rules):
            return -1.0
    load_a = np.int64(0)
    for t in range(size):
        load_a += weights[room.items[t]] * (1 - room.sides[t])
    return max(float(load_a) * inverse[a], float(total - load_a) * inverse[b])


@kernel
def _share_anew(a, b, goal, room, state, rules):
    """Let the parts a, which ends last, and b both end earlier if a way is found to."""
    size_a = gather(a, state.first, state.after, room.items_a)
    size_b = gather(b, state.first, state.after, room.items_b)
    size, now = size_a + size_b, state.time[a]
    can_move = size_a > rules.low and size_b < rules.high
    end, give, back = best_swap(
        room.items_a, size_a, room.items_b, size_b, can_move, a, b, state.load, rules.inverse,
        rules.weights, rules.amounts, rules.caps, rules.num_caps, state.used,
    )  # fmt: skip
    if end > goal:
        merge(room, size_a, size_b)
        split_end = _split(a, b, size, room, rules)
        if 0.0 <= split_end < end:
            relink(a, b, size, room, state, rules)
            return True
    if give < 0 or end >= now:
        return False
    merge(room, size_a, size_b)
    for t in range(size):
        if room.items[t] == give or room.items[t] == back:
            room.sides[t] = 1 - room.sides[t]
    relink(a, b, size, room, state, rules)
    return True


@kernel
def _random(seed, below):
    """Next state of a 64-bit linear congruential generator (Knuth), and a number from it."""
    seed = seed * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return seed, np.int64(seed >> np.uint64(33)) % below


@kernel
def _mix(a, b, seed, room, state, rules):
    """Swap a random item of part a with one of part b if both still end before the last part."""
    size_a = gather(a, state.first, state.after, room.items_a)
    size_b = gather(b, state.first, state.after, room.items_b)
    if size_a == 0 or size_b == 0:
        return seed
    seed, give = _random(seed, size_a)
    seed, back = _random(seed, size_b)
    give, back = room.items_a[give], room.items_b[back]
    merge(room, size_a, size_b)
    size = size_a + size_b
    for t in range(size):
        if room.items[t] == give or room.items[t] == back:
            room.sides[t] = 1 - room.sides[t]
    moved = rules.weights[give] - rules.weights[back]
    end = max(
        float(state.load[a] - moved) * rules.inverse[a],
        float(state.load[b] + moved) * rules.inverse[b],
    )
    if end < state.time[state.order[-1]] and is_legal(a, b, size, room, rules):
        relink(a, b, size, room, state, rules)
    return seed


@kernel
def improve(parts, weights, inverse, amounts, caps, num_caps, low, high, goal, budget, patience):
    """Improve `parts` in place until the last end is at most `goal` or nothing helps.

    The part that ends last tries the others, the one that ends first to begin with: the best move
    or swap, and if that does not reach the goal a new split of all items of the two; the first
    other part with which both end earlier is taken. Where none helps, two other parts swap at
    random, below the last end, and are tried again. `budget` counts items looked at, `patience`
    those looked at in vain. Returns the last end and what is left of the budget.
    """
    num_parts = inverse.size
    rules = Rules(weights, inverse, amounts, caps, num_caps, low, high)
    state = start(parts, rules)
    room = room_for(weights.size)
    order, counts, seed = state.order, state.counts, np.uint64(0)
    improved = True
    while improved and budget > 0 and state.time[order[-1]] > goal:
        a, improved, waited = order[-1], False, 0
        for turn in range(num_parts - 1):
            b = order[turn]
            budget -= counts[a] + counts[b]
            improved = _share_anew(a, b, goal, room, state, rules)
            if improved or budget <= 0:
                break
        while not improved and num_parts > 2 and waited < patience and budget > 0:
            seed, at_b = _random(seed, num_parts - 1)
            seed, at_c = _random(seed, num_parts - 2)
            b, c = order[at_b], order[at_c + (at_c >= at_b)]
            spent = counts[a] + 2 * (counts[b] + counts[c])
            budget, waited = budget - spent, waited + spent
            seed = _mix(b, c, seed, room, state, rules)
            improved = _share_anew(a, b, goal, room, state, rules)
            improved = improved or _share_anew(a, c, goal, room, state, rules)
    return state.time[order[-1]], budget
