"""Plain-Python oracle of in-step deferral: a rank's value from scratch, and the local search."""

from tests import naive_pipeline
from tests.naive import MASK64, mix

ILLEGAL = 2**62


def rank_value(items, num_slots, constants, limits, sides, shape, boundary, most):
    """Tokens over the cap, and time, of a rank; `items` are (slot, late, costs, amounts)."""
    num_stages = shape[1] * shape[2]
    if any(slot + late == num_slots for slot, late, _, _ in items):
        return ILLEGAL, 0
    passes = {slot for slot, late, _, _ in items if late}
    encoded = [[row for row in items if row[0] == j] for j in range(num_slots)]
    spoken = [[row for row in items if row[0] + row[1] == j] for j in range(num_slots)]
    caps, padded = limits
    held = []
    for side, rows in enumerate((encoded, spoken)):
        tokens = []
        for members in rows:
            if not members:
                return ILLEGAL, 0
            for a, cap in enumerate(caps):
                amount = sum(row[3][a] for row in members)
                if padded and a == 0:
                    amount = len(members) * max(row[3][0] for row in members)
                if a == 0:
                    tokens.append(amount)
                if amount > cap and sides[a] in (side, 2):
                    return ILLEGAL, 0
        held.append(tokens)
    if any(j in passes and j + 1 in passes for j in range(num_slots)):
        return ILLEGAL, 0
    over = 0
    if most:
        over = max(0, *(naive_pipeline.peak(*shape, tokens) - most for tokens in held))
    rows = []
    for j in range(num_slots):
        both = [(encoded, spoken)[c % num_stages >= boundary][j] for c in range(len(constants))]
        rows.append([k + sum(row[2][c] for row in both[c]) for c, k in enumerate(constants)])
    forward, backward = [row[:num_stages] for row in rows], [row[num_stages:] for row in rows]
    return over, naive_pipeline.time(*shape, forward, backward, passes, boundary)


class DeferralSearch:
    """The local search over places, order and lateness, with all recomputed."""

    def __init__(self, placed, costs, amounts, num_ranks, num_slots, value_of):
        self.placed, self.late = list(placed), [0] * len(placed)
        self.costs, self.amounts = costs, amounts
        self.num_ranks, self.num_slots, self.value_of = num_ranks, num_slots, value_of
        self.members = [
            [item for item, cell in enumerate(placed) if cell // num_slots == rank]
            for rank in range(num_ranks)
        ]
        self.room = max(map(len, self.members)) + 8
        self.state = 0

    def draw(self, below):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK64
        return (mix(self.state) >> 32) * below >> 32

    def value(self, rank):
        first = rank * self.num_slots
        return self.value_of([
            (self.placed[item] - first, self.late[item], self.costs[item], self.amounts[item])
            for item in self.members[rank]
        ])  # fmt: skip

    def slowest(self):
        values = [self.value(rank) for rank in range(self.num_ranks)]
        return values.index(max(values)), max(values)

    def rehouse(self, give, back, rank, other):
        own, theirs = self.members[rank], self.members[other]
        if back is not None:
            own[own.index(give)], theirs[theirs.index(back)] = back, give
        elif rank != other:
            own[own.index(give)] = own[-1]
            own.pop()
            theirs.append(give)

    def place(self, give, back, rank, other, cell, late):
        if back is not None:
            self.placed[give], self.placed[back] = self.placed[back], self.placed[give]
            self.late[give], self.late[back] = self.late[back], self.late[give]
        else:
            self.placed[give], self.late[give] = cell, late
        if rank != other:
            self.rehouse(give, back, rank, other)

    def swap_slots(self, rank, start, stop):
        first = rank * self.num_slots
        turned = {first + start: first + stop, first + stop: first + start}
        self.placed = [turned.get(cell, cell) for cell in self.placed]

    def try_move(self, rank, before):
        """Draw a move, make it, and undo it unless both ranks are then no worse than `before`."""
        kind = self.draw(4)
        start, stop = self.draw(self.num_slots), self.draw(self.num_slots)
        if kind == 0:
            if start != stop:
                self.swap_slots(rank, start, stop)
                if self.value(rank) > before:
                    self.swap_slots(rank, start, stop)
            return
        own = self.members[rank]
        give, back, other = own[self.draw(len(own))], None, rank
        cell, late = self.placed[give], 1 - self.late[give]
        if kind > 1:
            if self.num_ranks > 1 and self.draw(2) == 0:
                other = (rank + 1 + self.draw(self.num_ranks - 1)) % self.num_ranks
            cell, late = other * self.num_slots + start, stop % 2
        if kind == 3 and self.members[other]:
            back = self.members[other][self.draw(len(self.members[other]))]
        if give == back:
            return
        if other != rank and back is None and len(self.members[other]) == self.room:
            return
        was = self.placed[give], self.late[give]
        self.place(give, back, rank, other, cell, late)
        if self.value(rank) > before or self.value(other) > before:
            self.place(give, back, other, rank, *was)

    def run(self, goal, budget):
        for _ in range(budget):
            rank, (over, time) = self.slowest()
            if over == 0 and time <= goal:
                break
            self.try_move(rank, (over, time))
        return self.slowest()[1][1]
