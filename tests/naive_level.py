"""Plain-Python oracle of the levelling: same visits, all loads added up anew."""

from tests.naive import ALIKE, slowed
from tests.naive_refine import Search

VISIT, LEAST = 8, 1e-10


class Levelling(Search):
    """Exchanges judged by squares of the distance from the slot's mean, as it was at the start."""

    def __init__(self, placed, costs, amounts, caps, padded, dp_size, num_slots, ranks):
        super().__init__(
            placed, costs, amounts, caps, padded, dp_size, num_slots, max(num_slots, 2), ranks
        )
        self.modules, slots = range(len(costs[0])), range(num_slots)
        sums = [[sum(self.load(cell, k) for cell in self.slot(slot)) for k in self.modules]
                for slot in slots]  # fmt: skip
        self.mean = [[float(value) / float(dp_size) for value in row] for row in sums]
        totals = [sum(self.mean[slot][k] for slot in slots) for k in self.modules]
        self.weight = [num_slots / total if total > 0.0 else 0.0 for total in totals]

    def slot(self, slot):
        return range(slot * self.dp_size, (slot + 1) * self.dp_size)

    def dearest(self, slot, k):
        return max(self.load(cell, k) for cell in self.slot(slot))

    def change(self, give, back, cell_a, cell_b):
        """Change of the squares; None where a microbatch becomes dearer than the slot's dearest."""
        slot, change = cell_a // self.dp_size, 0.0
        for k in self.modules:
            amount = self.costs[give][k] - (self.costs[back][k] if back >= 0 else 0)
            less = slowed(amount, cell_a % self.dp_size, k, self.ranks)
            more = slowed(amount, cell_b % self.dp_size, k, self.ranks)
            load_a, load_b = self.load(cell_a, k), self.load(cell_b, k)
            if max(load_a - less, load_b + more) > self.dearest(slot, k):
                return None
            unit, middle = self.weight[k], self.mean[slot][k]
            a, b = less * unit, more * unit
            change += a * (a - 2.0 * ((load_a - middle) * unit))
            change += b * (b + 2.0 * ((load_b - middle) * unit))
        return change


def level(placed, costs, amounts, caps, padded, dp_size, num_slots, goal, budget, width,
          ranks=ALIKE):  # fmt: skip
    """Assignment and step time after the levelling."""
    search = Levelling(placed, costs, amounts, caps, padded, dp_size, num_slots, ranks)
    modules = len(costs[0])
    num_tops = num_slots * modules
    idle = t = turn = 0

    def value():
        return sum(search.dearest(top // modules, top % modules) for top in range(num_tops))

    while idle < num_tops and value() > goal and budget > 0:
        slot, k = t // modules, t % modules
        cell_a = max(search.slot(slot), key=lambda cell: search.load(cell, k))
        best, exchange, visits = -LEAST, None, 0
        for _ in range(dp_size):
            turn += 1
            cell_b = slot * dp_size + turn % dp_size
            if cell_b == cell_a or search.load(cell_b, k) > search.mean[slot][k]:
                continue
            visits += 1
            budget -= len(search.lines[cell_a]) * (len(search.lines[cell_b]) + 1) + VISIT
            for give in search.lines[cell_a]:
                for back in [-1, *search.lines[cell_b]]:
                    change = search.change(give, back, cell_a, cell_b)
                    if change is not None and change < best:
                        best, exchange = change, (give, back, cell_b)
            if visits == width or budget <= 0:
                break
        made = exchange is not None and search.exchange(*exchange)
        idle = 0 if made else idle + 1
        if not made:
            t = (t + 1) % num_tops
            continue
        give, back, cell_b = exchange
        search.lines[cell_a].remove(give)
        search.lines[cell_b].insert(0, give)
        if back >= 0:
            search.lines[cell_b].remove(back)
            search.lines[cell_a].insert(0, back)
    return search.placed, value()
