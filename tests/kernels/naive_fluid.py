"""Plain-Python oracle of the fluid sizes: the same rounds, on nested lists."""

import math


def longest_path(works, lane, after, duration, pp_size):
    """Time of flat works, and how often each is on a longest path."""
    end, before = [], []
    clock, last = [0.0] * pp_size, [-1] * pp_size
    for operation, (p, waited) in enumerate(zip(lane, after, strict=True)):
        start, comes_from = clock[p], last[p]
        if waited >= 0 and end[waited] > start:
            start, comes_from = end[waited], waited
        end.append(start + works[duration[operation]])
        before.append(comes_from)
        clock[p], last[p] = end[-1], operation
    flow = [0.0] * len(works)
    latest = clock.index(max(clock))
    operation = last[latest]
    while operation >= 0:
        flow[duration[operation]] += 1.0
        operation = before[operation]
    return clock[latest], flow


def held(sizes, rows, constants):
    """What each microbatch holds in each column, flat."""
    return [
        sum((size * row[c] for size, row in zip(shares, rows, strict=True)), start=constant)
        for shares in sizes
        for c, constant in enumerate(constants)
    ]


def charges(flow, tolled, rows, fill_rows, num_microbatches, g):
    """What group g pays in each microbatch."""
    columns = len(flow) // num_microbatches
    paid = []
    for j in range(num_microbatches):
        charge = 0.0
        for c in range(columns):
            charge += flow[j * columns + c] * rows[g][c]
        for a, fill in enumerate(fill_rows[g]):
            charge += tolled[j * len(fill_rows[g]) + a] * fill
        paid.append(charge)
    return paid


def fluid_sizes(rows, fill_rows, constants, lane, after, duration, pp_size, num_microbatches,
                num_rounds):  # fmt: skip
    """Best sizes (by microbatch, then group), prices and tolls, all flat."""
    num_fills = len(fill_rows[0]) if fill_rows else 0
    sizes = [[1.0 / num_microbatches] * len(rows) for _ in range(num_microbatches)]
    weights = []
    for row in rows:
        weight = 0.0
        for work in row:
            weight += work
        weights.append(weight)
    mixed = num_rounds * (num_rounds + 1) / 2.0
    prices = [0.0] * (num_microbatches * len(constants))
    tolls = [0.0] * (num_microbatches * num_fills)
    best, best_value = None, math.inf
    for turn in range(num_rounds):
        works = held(sizes, rows, constants)
        filled = held(sizes, fill_rows, [0.0] * num_fills)
        value, flow = longest_path(works, lane, after, duration, pp_size)
        penalty, overfill = 0.4 / num_microbatches, 0.0
        tolled = [penalty if fill > 1.0 + 1e-9 else 0.0 for fill in filled]
        for at, toll in enumerate(tolled):
            overfill += toll * (filled[at] - 1.0)
            tolls[at] += toll * (1.0 + turn) / mixed
        value += overfill
        if value < best_value:
            best, best_value = [list(shares) for shares in sizes], value
        for at, flows in enumerate(flow):
            prices[at] += flows * (1.0 + turn) / mixed
        rate = 1.0 / math.sqrt(1.0 + turn)
        for g, weight in enumerate(weights):
            paid = charges(flow, tolled, rows, fill_rows, num_microbatches, g)
            for j, charge in enumerate(paid):
                step = rate * (charge - min(paid)) / weight
                sizes[j][g] /= 1.0 + step + 0.5 * step * step
            total = 0.0
            for shares in sizes:
                total += shares[g]
            for shares in sizes:
                shares[g] /= total
    return [share for shares in best for share in shares], prices, tolls
