"""Plain-Python oracles: what each compiled kernel must return, written to be read."""

from itertools import product

MASK64 = 2**64 - 1


def mix(value):
    """SplitMix64 finaliser on Python integers."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK64
    return value ^ (value >> 31)


def permuted(positions, size, seed, epoch):
    """Feistel permutation of `range(size)` at some positions."""
    half = 1
    while 4**half < size:
        half += 1
    mask = 2**half - 1
    key = mix((mix(seed) + 0x9E3779B97F4A7C15 * (epoch + 1)) & MASK64)
    ids = []
    for position in positions:
        value = position
        while True:
            left, right = value >> half, value & mask
            for turn in range(6):
                mixed = mix(((right ^ key) + 0x9E3779B97F4A7C15 * (turn + 1)) & MASK64)
                left, right = right, left ^ (mixed & mask)
            value = (left << half) | right
            if value < size:
                break
        ids.append(value)
    return ids


ALIKE = None
"""`ranks` of oracles: `None`, or lists of slownesses by column, and of reserves, of each rank."""


def slowed(cost, rank, k, ranks):
    return cost if ranks is None else cost * ranks[0][rank][k]


class Cells:
    """Microbatches being filled, with their limits; rows of `amounts` are items.

    With `ranks`, microbatch c is of rank c modulo their number.
    """

    def __init__(self, amounts, caps, padded, num_cells, ranks=ALIKE):
        self.amounts, self.caps, self.padded, self.ranks = amounts, caps, padded, ranks
        self.held = [[] for _ in range(num_cells)]

    def allocated(self, items, amount):
        values = [self.amounts[item][amount] for item in items]
        if self.padded and amount == 0:
            return len(values) * max(values, default=0)
        return sum(values)

    def fits(self, item, cell):
        items = [*self.held[cell], item]
        return all(self.allocated(items, a) <= self.cap(cell, a) for a in range(len(self.caps)))

    def cap(self, cell, amount):
        if self.ranks is None:
            return self.caps[amount]
        return self.caps[amount] - self.ranks[1][cell % len(self.ranks[1])][amount]


def least_loaded(loads, cost, open_bins, ranks=ALIKE):
    """First bin with the least (largest load of the modules used, sum of squares) afterwards."""
    best, best_key = -1, None
    for b in open_bins:
        after = [load + slowed(cost[k], b, k, ranks) for k, load in enumerate(loads[b])]
        squares = 0.0
        for value in after:
            squares += float(value) * float(value)
        used = [value for value, c in zip(after, cost, strict=True) if c > 0]
        key = (max(used, default=0), squares)
        if best_key is None or key < best_key:
            best, best_key = b, key
    return best


def place_on_ranks(
    order, shares, rank_shares, amounts, caps, padded, dp_size, num_slots, ranks=ALIKE
):
    """Greedy on ranks by their own shares, then on the microbatches of the rank."""
    cells = Cells(amounts, caps, padded, dp_size * num_slots, ranks)
    rank_loads = [[0] * len(rank_shares[0]) for _ in range(dp_size)]
    cell_loads = [[0] * len(shares[0]) for _ in range(dp_size * num_slots)]
    placed = [-1] * len(order)
    for item in order:
        left = list(range(dp_size))
        while left:
            rank = least_loaded(rank_loads, rank_shares[item], left, ranks)
            own = [slot * dp_size + rank for slot in range(num_slots)]
            cell = least_loaded(cell_loads, shares[item], [c for c in own if cells.fits(item, c)])
            if cell >= 0:
                placed[item] = cell
                cells.held[cell].append(item)
                for k, share in enumerate(rank_shares[item]):
                    rank_loads[rank][k] += slowed(share, rank, k, ranks)
                for k, share in enumerate(shares[item]):
                    cell_loads[cell][k] += share
                break
            left.remove(rank)
    return placed


def place_by_amount(order, amounts, caps, padded, num_cells, ranks=ALIKE):
    """Best-fit on each item's own tightest cap."""
    cells = Cells(amounts, caps, padded, num_cells, ranks)
    placed = [-1] * len(order)
    for item in order:
        shares = [amount / cap for amount, cap in zip(amounts[item], caps, strict=True)]
        tightest = shares.index(max(shares))
        best, best_used = -1, -1
        for cell in range(num_cells):
            used = sum(amounts[other][tightest] for other in cells.held[cell])
            used += caps[tightest] - cells.cap(cell, tightest)
            if used > best_used and cells.fits(item, cell):
                best, best_used = cell, used
        if best >= 0:
            placed[item] = best
            cells.held[best].append(item)
    return placed


def place_in_slots(order, costs, amounts, caps, padded, dp_size, num_slots, slack, first_size,
                   ranks=ALIKE):  # fmt: skip
    """Slots sized by the dearest remaining item, each filled on all ranks up to that size."""
    modules = range(len(costs[0]))
    used_by_all = [all(row[k] > 0 for row in costs) for k in modules]
    cells = Cells(amounts, caps, padded, dp_size * num_slots, ranks)
    fleet, fastest = [0.0] * len(modules), []
    for k in modules:
        for rank in range(dp_size):
            fleet[k] += 1.0 / slowed(1, rank, k, ranks)
        fastest.append(min(slowed(1, rank, k, ranks) for rank in range(dp_size)))
    placed = [-1] * len(order)
    left = list(order)
    for slot in range(num_slots):
        last = slot == num_slots - 1
        remaining = [sum(costs[item][k] for item in left) for k in modules]
        fraction = 1.0 / (num_slots - slot)
        for item, k in product(left, modules):
            if remaining[k] > 0:
                longest = costs[item][k] * fastest[k]
                fraction = max(fraction, longest * fleet[k] / remaining[k])
        target = [fraction * remaining[k] / fleet[k] for k in modules]
        inverse = [1.0 / size if size > 0.0 else 0.0 for size in target]
        if slot == 0:
            target = [size * factor for size, factor in zip(target, first_size, strict=True)]
            inverse = [size / factor for size, factor in zip(inverse, first_size, strict=True)]
        loads = [[0] * len(target) for _ in range(dp_size)]
        open_ranks = set(range(dp_size))
        later = []
        for t, item in enumerate(left):
            if not open_ranks or len(later) + len(left) - t <= dp_size * (num_slots - 1 - slot):
                later.extend(left[t:])
                break
            best, best_key = -1, None
            for rank in sorted(open_ranks):
                after = [loads[rank][k] + slowed(costs[item][k], rank, k, ranks) for k in modules]
                if not last and any(after[k] > target[k] * slack for k in modules):
                    continue
                key = max(after[k] * inverse[k] for k in modules)
                if (best_key is None or key < best_key) and cells.fits(item, slot * dp_size + rank):
                    best, best_key = rank, key
            if best < 0:
                later.append(item)
                continue
            placed[item] = slot * dp_size + best
            cells.held[placed[item]].append(item)
            for k in modules:
                loads[best][k] += slowed(costs[item][k], best, k, ranks)
                if not last and used_by_all[k] and loads[best][k] >= target[k]:
                    open_ranks.discard(best)
        left = later
    return placed


def fill_empty(order, num_cells, placed, cells=None):
    """Each empty cell takes the cheapest item that has company, and fits it."""
    placed = list(placed)
    cheapest_first = list(reversed(order))
    for cell in range(num_cells):
        if cell in placed:
            continue
        for item in cheapest_first:
            if placed.count(placed[item]) > 1 and (cells is None or cells.fits(item, cell)):
                placed[item] = cell
                break
    return placed


def step_time(placed, costs, dp_size, num_groups, ranks=ALIKE):
    """Sum over groups and modules of the dearest rank's load, or of the latest's time."""
    modules = range(len(costs[0]))
    load = {}
    for item, cell in enumerate(placed):
        group = cell // dp_size if num_groups > 1 else 0
        for k in modules:
            key = (group, cell % dp_size, k)
            load[key] = load.get(key, 0) + slowed(costs[item][k], cell % dp_size, k, ranks)
    return sum(
        max(load.get((group, rank, k), 0) for rank in range(dp_size))
        for group in range(num_groups)
        for k in modules
    )


def best_possible(costs, dp_size, num_slots, num_groups, amounts=None, cap=None, ranks=ALIKE):
    """Least step time over all legal assignments that leave no cell empty, by trying them all.

    With `amounts`, no cell may hold more than `cap` of them, less the reserve of its rank; None
    where nothing is legal.
    """
    num_cells = dp_size * num_slots
    best = None
    for placed in product(range(num_cells), repeat=len(costs)):
        if len(set(placed)) < num_cells:
            continue
        if amounts is not None:
            held = [0] * num_cells
            for item, cell in enumerate(placed):
                held[cell] += amounts[item]
            reserve = [0] * dp_size if ranks is None else [each[0] for each in ranks[1]]
            if any(value > cap - reserve[cell % dp_size] for cell, value in enumerate(held)):
                continue
        value = step_time(placed, costs, dp_size, num_groups, ranks)
        best = value if best is None else min(best, value)
    return best
