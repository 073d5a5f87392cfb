"""Plain-Python oracles of pipelines: schedules as textbooks give them, simulated event by event."""

from heapq import heappop, heappush
from itertools import permutations

from tests.naive import MASK64, Cells, least_loaded, mix


def lane(schedule, p, pp_size, virtual, num_microbatches):
    """Operations ("F" or "B", stage, microbatch) of pipeline rank p, in order."""
    if virtual == 1:
        ahead = pp_size - p if schedule == "1f1b" else 2 * (pp_size - p) - 1
        forwards = [("F", p, j) for j in range(num_microbatches)]
        backwards = [("B", p, j) for j in range(num_microbatches)]
    else:
        ahead = 2 * (pp_size - p - 1) + (virtual - 1) * pp_size + 1
        forwards, backwards = [], []
        for group in range(0, num_microbatches, pp_size):
            chunks = [range(group, group + pp_size)] * virtual
            for chunk, group_of in enumerate(chunks):
                forwards += [("F", chunk * pp_size + p, j) for j in group_of]
                backwards += [("B", (virtual - 1 - chunk) * pp_size + p, j) for j in group_of]
    operations = []
    while forwards or backwards:
        held = sum(1 if kind == "F" else -1 for kind, _, _ in operations)
        operations.append(forwards.pop(0) if forwards and held < ahead else backwards.pop(0))
    return operations


def waits_for(operation, num_stages):
    """What must have ended before an operation, on whichever pipeline rank."""
    kind, stage, j = operation
    if kind == "F":
        return ("F", stage - 1, j) if stage > 0 else None
    return ("B", stage + 1, j) if stage < num_stages - 1 else ("F", stage, j)


def events(schedule, pp_size, virtual, forward, backward, passes=(), boundary=0):
    """Event queue of a pipeline: (end, pipeline rank, operation) in the order they end.

    `forward[j][s]` and `backward[j][s]` are durations of microbatch j at stage s. Microbatches in
    `passes` pass work of the stages from `boundary` on to the next one.
    """
    num_stages = pp_size * virtual

    def waits_for_all(operation):
        waited = [waits_for(operation, num_stages)]
        kind, stage, j = operation
        if kind == "B" and stage == boundary - 1 and j in passes:
            waited.append(("B", boundary, j + 1))
        return waited

    left = [lane(schedule, p, pp_size, virtual, len(forward)) for p in range(pp_size)]
    queue, ended, idle, log = [], {None}, set(range(pp_size)), []
    now = 0
    while True:
        for p in sorted(idle):
            if left[p] and all(waited in ended for waited in waits_for_all(left[p][0])):
                operation = left[p].pop(0)
                kind, stage, j = operation
                heappush(queue, (now + (forward if kind == "F" else backward)[j][stage], p,
                                 len(log), operation))  # fmt: skip
                idle.discard(p)
        if not queue:
            break
        now, p, _, operation = heappop(queue)
        log.append((now, p, operation))
        ended.add(operation)
        idle.add(p)
    assert not any(left)
    return log


def time(schedule, pp_size, virtual, forward, backward, passes=(), boundary=0):
    """When the last operation ends."""
    log = events(schedule, pp_size, virtual, forward, backward, passes, boundary)
    return max(end for end, _, _ in log)


def best_order(schedule, pp_size, virtual, forward, backward):
    """Least time over all orders of the microbatches."""
    orders = permutations(range(len(forward)))
    return min(
        time(schedule, pp_size, virtual, [forward[j] for j in o], [backward[j] for j in o])
        for o in orders
    )


def peak(schedule, pp_size, virtual, tokens):
    """Most tokens held by a pipeline rank between forwards and backwards, chunk by chunk."""
    most = 0
    for p in range(pp_size):
        held = 0
        for kind, _, j in lane(schedule, p, pp_size, virtual, len(tokens)):
            held += tokens[j] if kind == "F" else -tokens[j]
            most = max(most, held)
    return most


def place_at_targets(order, shares, costs, inverse, amounts, caps, padded, dp_size, num_slots):
    """Greedy on ranks by shares, then on the microbatch filled least over its target."""
    cells = Cells(amounts, caps, padded, dp_size * num_slots)
    rank_loads = [[0] * len(shares[0]) for _ in range(dp_size)]
    loads = [[0] * len(costs[0]) for _ in range(dp_size * num_slots)]
    placed = [-1] * len(order)
    for item in order:
        ranks = list(range(dp_size))
        while ranks and placed[item] < 0:
            rank = least_loaded(rank_loads, shares[item], ranks)
            ranks.remove(rank)
            own = range(rank * num_slots, (rank + 1) * num_slots)
            fitting = [cell for cell in own if cells.fits(item, cell)]
            if not fitting:
                continue
            placed[item] = min(
                fitting,
                key=lambda cell, item=item: max(
                    (
                        float(loads[cell][c] + cost) * inverse[cell % num_slots][c]
                        for c, cost in enumerate(costs[item])
                        if cost > 0
                    ),
                    default=0.0,
                ),
            )
            cells.held[placed[item]].append(item)
            for loaded, row in ((rank_loads[rank], shares), (loads[placed[item]], costs)):
                for c, cost in enumerate(row[item]):
                    loaded[c] += cost
    return placed


class Search:
    """The local search with everything recomputed from scratch."""

    def __init__(self, placed, costs, constants, limits, num_ranks, num_slots, shape, most):
        self.placed, self.costs, self.constants = list(placed), costs, constants
        self.cells = Cells(*limits, num_ranks * num_slots)
        self.limits, self.most, self.shape = limits, most, shape
        self.num_ranks, self.num_slots = num_ranks, num_slots
        self.members = [
            [item for item, cell in enumerate(placed) if cell // num_slots == rank]
            for rank in range(num_ranks)
        ]
        self.room = max(map(len, self.members)) + 8
        self.state = 0

    def draw(self, below):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK64
        return (mix(self.state) >> 32) * below >> 32

    def held(self, cell):
        return [item for item, where in enumerate(self.placed) if where == cell]

    def value(self, rank):
        """Tokens over the cap, and time, of a rank."""
        num_stages = self.shape[1] * self.shape[2]
        rows, tokens = [], []
        for slot in range(self.num_slots):
            items = self.held(rank * self.num_slots + slot)
            rows.append(
                [
                    constant + sum(self.costs[item][c] for item in items)
                    for c, constant in enumerate(self.constants)
                ]
            )
            if self.most:
                tokens.append(self.cells.allocated(items, 0))
        over = max(0, peak(*self.shape, tokens) - self.most) if self.most else 0
        forward = [row[:num_stages] for row in rows]
        return over, time(*self.shape, forward, [row[num_stages:] for row in rows])

    def slowest(self):
        values = [self.value(rank) for rank in range(self.num_ranks)]
        return values.index(max(values)), max(values)

    def legal(self, cell):
        items = self.held(cell)
        within = (self.cells.allocated(items, a) <= cap for a, cap in enumerate(self.cells.caps))
        return bool(items) and all(within)

    def try_order(self, rank, slack):
        start, stop = self.draw(self.num_slots), self.draw(self.num_slots)
        swapped = self.draw(2) == 0
        if start == stop:
            return
        slots = list(range(self.num_slots))
        if swapped:
            slots[start], slots[stop] = slots[stop], slots[start]
        else:
            slots.insert(stop, slots.pop(start))
        before, (over, time) = list(self.placed), self.value(rank)
        first = rank * self.num_slots
        for item in self.members[rank]:
            self.placed[item] = first + slots.index(before[item] - first)
        if self.value(rank) > (over, time + slack):
            self.placed = before

    def draw_exchange(self, rank, other, near):
        """Item given, item returned or None, microbatch it goes to; None if nothing was found."""
        mine, theirs = self.members[rank], self.members[other]
        if not mine:
            return None
        give = mine[self.draw(len(mine))]
        if near and self.draw(4) > 0:
            distance = 1 + self.draw(2 << self.draw(8))
            back = give + distance if self.draw(2) == 0 else give - distance
            return (give, back, self.placed[back]) if 0 <= back < len(self.placed) else None
        target = other * self.num_slots + self.draw(self.num_slots)
        if self.draw(3) > 0 and theirs:
            back = theirs[self.draw(len(theirs))]
            return give, back, self.placed[back]
        return give, None, target

    def try_exchange(self, rank, give, back, target, slack):
        source, other = self.placed[give], target // self.num_slots
        mine, theirs = self.members[rank], self.members[other]
        if target == source:
            return
        if back is None and (len(theirs) == self.room or len(self.held(source)) < 2):
            return
        before, (over, time) = list(self.placed), self.value(rank)
        self.placed[give] = target
        if back is not None:
            self.placed[back] = source
        legal = self.legal(source) and self.legal(target)
        if not legal or max(self.value(rank), self.value(other)) > (over, time + slack):
            self.placed = before
        elif back is not None:
            at, there = mine.index(give), theirs.index(back)
            mine[at], theirs[there] = back, give
        elif other != rank:
            mine[mine.index(give)] = mine[-1]
            mine.pop()
            theirs.append(give)

    def run(self, goal, budget, warmth=0, chances=()):
        """Cells and value of the best seen; with `warmth` by annealing."""
        best, value = list(self.placed), self.slowest()[1]
        temperature, period, slack = warmth, 1, 0
        for spent in range(budget):
            if value[0] == 0 and value[1] <= goal:
                break
            slowest = self.slowest()[0]
            if warmth:
                if spent * 64 >= budget * period:
                    temperature -= temperature // 12
                    period += 1
                slack = (temperature >> 10) * chances[self.draw(1024)]
            kind = self.draw(4)
            if kind == 0:
                self.try_order(slowest, slack)
            else:
                other = slowest
                if kind > 1 and self.num_ranks > 1:
                    other = (slowest + 1 + self.draw(self.num_ranks - 1)) % self.num_ranks
                found = self.draw_exchange(slowest, other, warmth > 0)
                if found:
                    self.try_exchange(slowest, *found, slack)
            if self.slowest()[1] < value:
                best, value = list(self.placed), self.slowest()[1]
        self.placed = best
        return best, value
