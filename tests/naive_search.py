"""Plain-Python oracle of the annealing: same draws, everything recomputed from scratch."""

from balancer.kernels.search import NEIGHBOURS, PERIODS
from tests.naive import ALIKE, MASK64, Cells, mix, slowed, step_time


class Annealing:
    """Items in lines (each line a list) and their microbatches."""

    def __init__(self, placed, costs, amounts, caps, padded, dp_size, num_slots, num_groups, seed,
                 ranks=ALIKE):  # fmt: skip
        self.placed, self.costs, self.ranks = list(placed), costs, ranks
        self.dp_size, self.num_slots, self.num_groups = dp_size, num_slots, num_groups
        self.cells = Cells(amounts, caps, padded, dp_size * num_slots, ranks)
        self.lines = [[] for _ in range(num_groups * dp_size)]
        for item, cell in enumerate(self.placed):
            self.cells.held[cell].append(item)
            self.lines[cell % len(self.lines)].append(item)
        self.room = max(map(len, self.lines)) + 16
        self.state = seed

    def draw(self, below):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK64
        return (mix(self.state) >> 32) * below >> 32

    def value(self, placed):
        return step_time(placed, self.costs, self.dp_size, self.num_groups, self.ranks)

    def line(self, item):
        return self.placed[item] % len(self.lines)

    def load(self, line, k):
        cost = sum(self.costs[item][k] for item in self.lines[line])
        return slowed(cost, line % self.dp_size, k, self.ranks)

    def dearest_line(self):
        """The dearest line of a random group in a random module."""
        modules = len(self.costs[0])
        group, k = divmod(self.draw(self.num_groups * modules), modules)
        lines = range(group * self.dp_size, (group + 1) * self.dp_size)
        return max(lines, key=lambda line: self.load(line, k))

    def propose(self):
        """The item given, the item returned or -1, and the other line; or `None`."""
        line_a = self.dearest_line()
        if not self.lines[line_a]:
            return None
        give, back = self.lines[line_a][self.draw(len(self.lines[line_a]))], -1
        if self.draw(4) > 0:
            distance = 1 + self.draw(2 << self.draw(NEIGHBOURS))
            back = give + distance if self.draw(2) == 0 else give - distance
            if not 0 <= back < len(self.placed):
                return None
            line_b = self.line(back)
        else:
            line_b = self.draw(len(self.lines))
            at = self.draw(len(self.lines[line_b]) + 1)
            if at < len(self.lines[line_b]):
                back = self.lines[line_b][at]
            elif len(self.lines[line_b]) == self.room:
                return None
        return None if line_b == line_a else (give, back, line_a, line_b)

    def after(self, give, back, target):
        placed = list(self.placed)
        placed[give] = target
        if back >= 0:
            placed[back] = self.placed[give]
        return placed

    def is_legal(self, give, back, source, target):
        held = self.cells.held
        if back < 0 and len(held[source]) < 2:
            return False
        held[source].remove(give)
        if back >= 0:
            held[target].remove(back)
        legal = self.cells.fits(give, target) and (back < 0 or self.cells.fits(back, source))
        held[source].append(give)
        if back >= 0:
            held[target].append(back)
        return legal

    def exchange(self, give, back, line_a, line_b, source, target):
        held = self.cells.held
        held[source].remove(give)
        held[target].append(give)
        at = self.lines[line_a].index(give)
        if back >= 0:
            held[target].remove(back)
            held[source].append(back)
            there = self.lines[line_b].index(back)
            self.lines[line_a][at], self.lines[line_b][there] = back, give
        else:
            self.lines[line_a][at] = self.lines[line_a][-1]
            self.lines[line_a].pop()
            self.lines[line_b].append(give)
        self.placed = self.after(give, back, target)


def anneal(placed, costs, amounts, caps, padded, dp_size, num_slots, num_groups, goal, budget,
           warmth, seed, chances, ranks=ALIKE):  # fmt: skip
    """Best assignment seen and its step time; for fewer than 32 ranks, where re-ranking is free."""
    search = Annealing(
        placed, costs, amounts, caps, padded, dp_size, num_slots, num_groups, seed, ranks
    )
    value = search.value(search.placed)
    best, best_placed, temperature, period = value, search.placed, warmth, 1
    for spent in range(1, budget + 1):
        if best <= goal:
            break
        if spent * PERIODS >= budget * period:
            temperature -= temperature // 12
            period += 1
        proposed = search.propose()
        if proposed is None:
            continue
        give, back, line_a, line_b = proposed
        target = search.placed[back] if back >= 0 else line_b
        # the microbatch of a rank is drawn after the decision, which it does not change
        longer = search.value(search.after(give, back, target)) - value
        if longer > (temperature >> 10) * chances[search.draw(len(chances))]:
            continue
        source = search.placed[give]
        if back < 0 and num_groups == 1:
            target = search.draw(num_slots) * dp_size + line_b
        if not search.is_legal(give, back, source, target):
            continue
        search.exchange(give, back, line_a, line_b, source, target)
        value += longer
        if value < best:
            best, best_placed = value, search.placed
    return best_placed, best
