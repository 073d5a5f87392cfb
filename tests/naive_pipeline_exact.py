"""Plain-Python oracle of the exact search on pipelines: every placement, one after the other."""

from itertools import product

from tests.naive_pipeline import peak, time


def shortest(costs, constants, limits, size, shape, most, best, slowness, reserve):
    """Time and cells of the first shortest placement below `best`; `best` and None.

    `slowness` and `reserve` are of each rank.
    """
    num_ranks, num_slots = size
    amounts, caps, padded = limits
    num_items, num_cells, found = len(costs), num_ranks * num_slots, None
    num_stages = shape[1] * shape[2]
    for cells in product(range(num_cells), repeat=num_items):
        held = [[i for i in range(num_items) if cells[i] == c] for c in range(num_cells)]
        if held.count([]) > max(0, num_cells - num_items):
            continue
        legal, slowest = True, 0
        for rank in range(num_ranks):
            own = held[rank * num_slots : (rank + 1) * num_slots]
            tokens = []
            for items in own:
                for a, cap in enumerate(caps):
                    sizes = [amounts[i][a] for i in items]
                    total = len(sizes) * max(sizes, default=0) if padded and not a else sum(sizes)
                    tokens += [total] if a == 0 else []
                    legal = legal and total <= cap - reserve[rank][a]
            if most:
                legal = legal and peak(*shape, tokens) <= most
            rows = [
                [slowness[rank] * (constant + sum(costs[i][c] for i in items))
                 for c, constant in enumerate(constants)]
                for items in own
            ]  # fmt: skip
            forward, backward = ([row[:num_stages] for row in rows],
                                 [row[num_stages:] for row in rows])  # fmt: skip
            slowest = max(slowest, time(*shape, forward, backward))
        if legal and slowest < best:
            best, found = slowest, cells
    return best, found
