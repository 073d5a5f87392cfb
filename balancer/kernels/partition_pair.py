"""Two parts shared out anew: the best move or swap, and the best split of all their items.

Items come sorted, dearest first. `sides[t]` says where `items[t]` goes: 0 to part a, 1 to part b.
Limits are those of `balancer.kernels.partition_place`.
"""

import numpy as np

from balancer.kernels.compiled import kernel

__all__ = ["best_swap", "split_by_differences", "split_exactly"]

_REACH = 32  # items tried on either side of the ideal one where limits forbid it


@kernel
def _swap_fits(give, back, a, b, amounts, caps, num_caps, used):
    """Whether `give` may go from part a to b, and `back` (or nothing, -1) the other way."""
    for c in range(num_caps):
        moved = amounts[give * num_caps + c]
        if back >= 0:
            moved -= amounts[back * num_caps + c]
        if used[b * num_caps + c] + moved > caps[b * num_caps + c]:
            return False
        if used[a * num_caps + c] - moved > caps[a * num_caps + c]:
            return False
    return True


@kernel
def best_swap(items_a, size_a, items_b, size_b, can_move, a, b, load, inverse, weights, amounts,
              caps, num_caps, used):  # fmt: skip
    """Move or swap between part a, which ends later, and part b that lets both end earliest.

    Two pointers over the sorted items, O(size_a + size_b) without limits. Returns the later end of
    the two, the item to give and the one to take back (-1: a move; both -1: nothing helps).
    """
    inverse_a, inverse_b = inverse[a], inverse[b]
    load_a, load_b = float(load[a]), float(load[b])
    best, best_give, best_back = load_a * inverse_a, -1, -1
    ideal = (load_a * inverse_a - load_b * inverse_b) / (inverse_a + inverse_b)
    cheaper = 0  # first place in items_b whose item is at most `ideal` cheaper than the given one
    for t in range(size_a):
        give = items_a[t]
        weight = weights[give]
        while cheaper < size_b and weights[items_b[cheaper]] > weight - ideal:
            cheaper += 1
        for way in range(3 if can_move else 2):
            place, step = (cheaper, 1) if way == 0 else (cheaper - 1, -1)
            for _ in range(_REACH):
                if way < 2 and not 0 <= place < size_b:
                    break
                back = items_b[place] if way < 2 else -1
                moved = weight - weights[back] if way < 2 else weight
                end = max((load_a - moved) * inverse_a, (load_b + moved) * inverse_b)
                if end >= best:
                    break
                if _swap_fits(give, back, a, b, amounts, caps, num_caps, used):
                    best, best_give, best_back = end, give, back
                    break
                if way == 2:
                    break
                place += step
    return best, best_give, best_back


@kernel
def split_exactly(items, size, a, b, low, high, inverse, weights, amounts, caps, num_caps, sides):
    """Split that lets both parts end earliest, of all 2**size, into `sides`.

    Visits the splits by Gray code, one item changing sides at a time. Returns the later end of
    the two; -1.0 where no split is legal. Of equal splits the first visited is kept.
    """
    load_a, load_b, count_b = np.int64(0), np.int64(0), 0
    used_a, used_b = np.zeros(num_caps, np.int64), np.zeros(num_caps, np.int64)
    for t in range(size):
        load_a += weights[items[t]]
        for c in range(num_caps):
            used_a[c] += amounts[items[t] * num_caps + c]
    best, best_mask, mask = -1.0, 0, 0
    for visit in range(1 << size):
        if visit > 0:
            t = 0
            while (visit >> t) & 1 == 0:
                t += 1
            mask ^= 1 << t
            sign = 1 if (mask >> t) & 1 else -1
            load_a -= sign * weights[items[t]]
            load_b += sign * weights[items[t]]
            count_b += sign
            for c in range(num_caps):
                used_a[c] -= sign * amounts[items[t] * num_caps + c]
                used_b[c] += sign * amounts[items[t] * num_caps + c]
        end = max(float(load_a) * inverse[a], float(load_b) * inverse[b])
        legal = low <= count_b <= high and low <= size - count_b <= high
        if legal and (best < 0.0 or end < best):
            for c in range(num_caps):
                legal = legal and used_a[c] <= caps[a * num_caps + c]
                legal = legal and used_b[c] <= caps[b * num_caps + c]
            if legal:
                best, best_mask = end, mask
    for t in range(size):
        sides[t] = (best_mask >> t) & 1
    return best


@kernel
def _before(value, node, other_value, other_node):
    return value > other_value or (value == other_value and node < other_node)


@kernel
def _sink(values, nodes, at, size):
    """Move the entry at `at` down to its place: largest value first, then lowest node."""
    value, node = values[at], nodes[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _before(
            values[child + 1], nodes[child + 1], values[child], nodes[child]
        ):
            child += 1
        if not _before(values[child], nodes[child], value, node):
            break
        values[at], nodes[at] = values[child], nodes[child]
        at = child
    values[at], nodes[at] = value, node


@kernel
def split_by_differences(items, size, in_pairs, handicap, weights, values, nodes, parent, sides):
    """Split into near equal sums by differencing, into `sides`; part b starts with `handicap`.

    Largest differencing method (Karmarkar and Karp, 1982): the two largest numbers go to opposite
    sides and their difference stands for both. With `in_pairs` neighbours in the order go to
    opposite sides first, so that counts differ by at most one (Yakir, 1996). A `handicap` >= 0 is
    the sum by which part a is to exceed part b. O(size log size). `values`, `nodes` and `parent`
    are room for `size + 1` numbers.
    """
    num_nodes = (size + 1) // 2 if in_pairs else size
    for node in range(num_nodes):
        if not in_pairs:
            values[node] = weights[items[node]]
        elif 2 * node + 1 < size:
            values[node] = weights[items[2 * node]] - weights[items[2 * node + 1]]
        else:
            values[node] = weights[items[2 * node]]
        nodes[node] = node
    values[num_nodes], nodes[num_nodes] = handicap, num_nodes
    left = num_nodes + 1
    for at in range(left // 2 - 1, -1, -1):
        _sink(values, nodes, at, left)
    merged = np.empty(num_nodes, np.int64)
    for turn in range(num_nodes):
        value, node = values[0], nodes[0]
        left -= 1
        values[0], nodes[0] = values[left], nodes[left]
        _sink(values, nodes, 0, left)
        merged[turn], parent[nodes[0]] = nodes[0], node
        values[0], nodes[0] = value - values[0], node
        _sink(values, nodes, 0, left)
    _colour(nodes[0], merged, parent, num_nodes, values)
    for t in range(size):
        node = t // 2 if in_pairs else t
        side = 1 if values[node] == values[num_nodes] else 0
        sides[t] = 1 - side if in_pairs and t % 2 == 1 else side


@kernel
def _colour(root, merged, parent, num_nodes, colours):
    """Opposite colours for nodes that were set against each other, from the root down."""
    colours[root] = 0
    for turn in range(num_nodes - 1, -1, -1):
        colours[merged[turn]] = 1 - colours[parent[merged[turn]]]
