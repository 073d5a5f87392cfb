"""Plain-Python oracle of the exact search: every placement, one after the other."""

from itertools import product


def shortest(costs, num_modules, amounts, caps, padded, dp_size, num_slots, num_groups, best,
             slowness, reserve):  # fmt: skip
    """Step time and cells of the first shortest placement below `best`; `best` and None."""
    num_items, num_cells, found = len(costs) // num_modules, dp_size * num_slots, None
    num_caps = len(caps)
    for cells in product(range(num_cells), repeat=num_items):
        if len(set(cells)) < min(num_items, num_cells):
            continue
        held = [[i for i in range(num_items) if cells[i] == c] for c in range(num_cells)]
        legal = True
        for c, items in enumerate(held):
            for a in range(num_caps):
                sizes = [amounts[i * num_caps + a] for i in items]
                total = sum(sizes)
                if padded and a == 0:
                    total = len(sizes) * max(sizes, default=0)
                legal = legal and total <= caps[a] - reserve[c % dp_size][a]
        if not legal:
            continue
        value = 0
        for group in range(num_groups):
            slots = range(num_slots) if num_groups == 1 else [group]
            for k in range(num_modules):
                loads = [
                    slowness[rank][k] * sum(costs[i * num_modules + k]
                                            for s in slots for i in held[s * dp_size + rank])
                    for rank in range(dp_size)
                ]  # fmt: skip
                value += max(loads)
        if value < best:
            best, found = value, cells
    return best, found
