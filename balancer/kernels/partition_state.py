"""What the local search on a partition works on: its rules, its state, and room for two parts."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.compiled import kernel
from balancer.kernels.partition_sort import sort_by_key

__all__ = ["Room", "Rules", "State", "gather", "is_legal", "merge", "relink", "room_for", "start"]

_Ints = NDArray[np.int64]


class Rules(NamedTuple):
    """What does not change: the items, and what each part may hold."""

    weights: _Ints
    inverse: NDArray[np.float64]
    amounts: _Ints
    caps: _Ints
    num_caps: int
    low: int
    high: int


class State(NamedTuple):
    """The partition: items of a part as a list in their order, parts in the order they end."""

    parts: _Ints
    load: _Ints
    counts: _Ints
    used: _Ints
    first: _Ints
    after: _Ints
    time: NDArray[np.float64]
    order: _Ints
    place: _Ints


class Room(NamedTuple):
    """Room for the items of two parts and for a split of them."""

    items_a: _Ints
    items_b: _Ints
    items: _Ints
    sides: _Ints
    values: _Ints
    nodes: _Ints
    parent: _Ints


@kernel
def _settle(part, order, place, time):
    """Move a part whose time changed to its place in `order`: ascending time, then index."""
    at, last = place[part], order.size - 1
    while at > 0:
        other = order[at - 1]
        if time[other] < time[part] or (time[other] == time[part] and other < part):
            break
        order[at], place[other] = other, at
        at -= 1
    while at < last:
        other = order[at + 1]
        if time[part] < time[other] or (time[other] == time[part] and part < other):
            break
        order[at], place[other] = other, at
        at += 1
    order[at], place[part] = part, at


@kernel
def gather(part, first, after, items):
    """List the items of a part, dearest first, and return how many there are."""
    size, item = 0, first[part]
    while item >= 0:
        items[size] = item
        size, item = size + 1, after[item]
    return size


@kernel
def merge(room, size_a, size_b):
    """Merge the items of two parts, dearest first; a side tells which part an item is in."""
    at_a, at_b = 0, 0
    for t in range(size_a + size_b):
        from_b = at_a == size_a or (at_b < size_b and room.items_b[at_b] < room.items_a[at_a])
        room.items[t] = room.items_b[at_b] if from_b else room.items_a[at_a]
        room.sides[t] = 1 if from_b else 0
        if from_b:
            at_b += 1
        else:
            at_a += 1


@kernel
def relink(a, b, size, room, state, rules):
    """Give the listed items to the parts that `sides` says, and account for it."""
    num_caps = rules.num_caps
    for part in (a, b):
        state.load[part], state.counts[part], state.first[part] = 0, 0, -1
        for c in range(num_caps):
            state.used[part * num_caps + c] = 0
    for t in range(size - 1, -1, -1):
        item = room.items[t]
        part = b if room.sides[t] == 1 else a
        state.parts[item], state.after[item], state.first[part] = part, state.first[part], item
        state.load[part] += rules.weights[item]
        state.counts[part] += 1
        for c in range(num_caps):
            state.used[part * num_caps + c] += rules.amounts[item * num_caps + c]
    for part in (a, b):
        state.time[part] = float(state.load[part]) * rules.inverse[part]
        _settle(part, state.order, state.place, state.time)


@kernel
def is_legal(a, b, size, room, rules):
    """Whether a split keeps to the counts and the caps of both parts."""
    count_b = 0
    for t in range(size):
        count_b += room.sides[t]
    if not (rules.low <= count_b <= rules.high and rules.low <= size - count_b <= rules.high):
        return False
    for c in range(rules.num_caps):
        used_a, used_b = np.int64(0), np.int64(0)
        for t in range(size):
            amount = rules.amounts[room.items[t] * rules.num_caps + c]
            used_b += amount * room.sides[t]
            used_a += amount * (1 - room.sides[t])
        if used_a > rules.caps[a * rules.num_caps + c]:
            return False
        if used_b > rules.caps[b * rules.num_caps + c]:
            return False
    return True


@kernel
def start(parts, rules):
    """The state of a given partition."""
    num_items, num_parts = rules.weights.size, rules.inverse.size
    load, count = np.zeros(num_parts, np.int64), np.zeros(num_parts, np.int64)
    used = np.zeros(num_parts * rules.num_caps, np.int64)
    first, after = np.full(num_parts, -1), np.empty(num_items, np.int64)
    for item in range(num_items - 1, -1, -1):
        part = parts[item]
        after[item], first[part] = first[part], item
        load[part] += rules.weights[item]
        count[part] += 1
        for c in range(rules.num_caps):
            used[part * rules.num_caps + c] += rules.amounts[item * rules.num_caps + c]
    time = np.empty(num_parts, np.float64)
    for part in range(num_parts):
        time[part] = float(load[part]) * rules.inverse[part]
    order, place = np.arange(num_parts), np.empty(num_parts, np.int64)
    sort_by_key(order, time)
    for at in range(num_parts):
        place[order[at]] = at
    return State(parts, load, count, used, first, after, time, order, place)


@kernel
def room_for(num_items):
    """Room for two parts that hold all the items."""
    return Room(
        np.empty(num_items, np.int64), np.empty(num_items, np.int64),
        np.empty(num_items, np.int64), np.empty(num_items, np.int64),
        np.empty(num_items + 1, np.int64), np.empty(num_items + 1, np.int64),
        np.empty(num_items + 1, np.int64),
    )  # fmt: skip
