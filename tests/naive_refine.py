"""Plain-Python oracle of the local search: same visits, everything recomputed from scratch."""

from tests.naive import ALIKE, Cells, slowed, step_time


class Search:
    """Items in lines (each line a list, newest first) and their microbatches."""

    def __init__(self, placed, costs, amounts, caps, padded, dp_size, num_slots, num_groups,
                 ranks=ALIKE):  # fmt: skip
        self.placed, self.costs, self.ranks = list(placed), costs, ranks
        self.dp_size, self.num_slots, self.num_groups = dp_size, num_slots, num_groups
        self.cells = Cells(amounts, caps, padded, dp_size * num_slots, ranks)
        self.lines = [[] for _ in range(num_groups * dp_size)]
        for item, cell in enumerate(self.placed):
            self.cells.held[cell].append(item)
            self.lines[cell % dp_size if num_groups == 1 else cell].insert(0, item)

    def value(self, placed):
        return step_time(placed, self.costs, self.dp_size, self.num_groups, self.ranks)

    def load(self, line, k):
        cost = sum(self.costs[item][k] for item in self.lines[line])
        return slowed(cost, line % self.dp_size, k, self.ranks)

    def dearest_line(self, group, k):
        lines = range(group * self.dp_size, (group + 1) * self.dp_size)
        return max(lines, key=lambda line: self.load(line, k))

    def target(self, line, back):
        if back >= 0:
            return self.placed[back]
        own = (
            [slot * self.dp_size + line for slot in range(self.num_slots)]
            if self.num_groups == 1
            else [line]
        )
        return min(own, key=lambda cell: len(self.cells.held[cell]))

    def best_exchange(self, line_a, line_b):
        """Best exchange by time alone, whatever the limits: the oracle swaps and recomputes."""
        now = self.value(self.placed)
        best, pair = 0, (-1, -1)
        for give in self.lines[line_a]:
            for back in [-1, *self.lines[line_b]]:
                placed = list(self.placed)
                placed[give] = self.target(line_b, back)
                if back >= 0:
                    placed[back] = self.placed[give]
                change = self.value(placed) - now
                if change < best:
                    best, pair = change, (give, back)
        return pair

    def exchange(self, give, back, target):
        """Carry out an exchange if it is legal."""
        source, held = self.placed[give], self.cells.held
        if back < 0 and len(held[source]) < 2:
            return False
        held[source].remove(give)
        if back >= 0:
            held[target].remove(back)
        legal = self.cells.fits(give, target) and (back < 0 or self.cells.fits(back, source))
        held[target if legal else source].append(give)
        if back >= 0:
            held[source if legal else target].append(back)
        if legal:
            self.placed[give] = target
            if back >= 0:
                self.placed[back] = source
        return legal


def refine(placed, costs, amounts, caps, padded, dp_size, num_slots, num_groups, goal, budget,
           ranks=ALIKE):  # fmt: skip
    """Assignment and step time after the search."""
    search = Search(placed, costs, amounts, caps, padded, dp_size, num_slots, num_groups, ranks)
    modules, num_lines = len(costs[0]), num_groups * dp_size
    idle = g = turn = 0
    while idle < num_groups * modules and search.value(search.placed) > goal and budget > 0:
        line_a = search.dearest_line(g // modules, g % modules)
        improved = False
        for offset in range(num_lines):
            line_b = (line_a + offset + turn) % num_lines
            if line_b == line_a:
                continue
            if budget <= 0:
                break
            budget -= len(search.lines[line_a]) * (len(search.lines[line_b]) + 1)
            give, back = search.best_exchange(line_a, line_b)
            if give < 0 or not search.exchange(give, back, search.target(line_b, back)):
                continue
            search.lines[line_a].remove(give)
            search.lines[line_b].insert(0, give)
            if back >= 0:
                search.lines[line_b].remove(back)
                search.lines[line_a].insert(0, back)
            improved, turn = True, turn + offset
            break
        idle = 0 if improved else idle + 1
        g = g if improved else (g + 1) % (num_groups * modules)
    return search.placed, search.value(search.placed)
