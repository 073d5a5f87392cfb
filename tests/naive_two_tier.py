"""Plain-Python oracle of `balancer.kernels.two_tier`."""

from tests.naive import Cells, least_loaded


def place_in_two_tiers(order, shares, amounts, caps, padded, dp_size, num_slots, num_groups):
    """Greedy on groups by their load a rank, then on their ranks, then on microbatches."""
    cells = Cells(amounts, caps, padded, dp_size * num_slots)
    modules = range(len(shares[0]))
    bounds = [g * dp_size // num_groups for g in range(num_groups + 1)]
    members = [range(bounds[g], bounds[g + 1]) for g in range(num_groups)]
    rank_loads = [[0] * len(modules) for _ in range(dp_size)]
    cell_loads = [[0] * len(modules) for _ in range(dp_size * num_slots)]
    placed = [-1] * len(order)

    def key(group, row):
        sums = [sum(rank_loads[rank][k] for rank in members[group]) for k in modules]
        after = [float(sums[k] + row[k]) / len(members[group]) for k in modules]
        squares = 0.0
        for value in after:
            squares += value * value
        return max((after[k] for k in modules if row[k] > 0), default=0.0), squares

    for item in order:
        row = shares[item]
        for group in sorted(range(num_groups), key=lambda g: key(g, row)):
            placed[item] = _cell_in(
                item, members[group], row, rank_loads, cell_loads, cells, dp_size, num_slots
            )
            if placed[item] >= 0:
                break
    return placed


def _cell_in(item, ranks, row, rank_loads, cell_loads, cells, dp_size, num_slots):
    ranks = list(ranks)
    while ranks:
        rank = least_loaded(rank_loads, row, ranks)
        own = [slot * dp_size + rank for slot in range(num_slots)]
        cell = least_loaded(cell_loads, row, [c for c in own if cells.fits(item, c)])
        if cell >= 0:
            cells.held[cell].append(item)
            for k, share in enumerate(row):
                rank_loads[rank][k] += share
                cell_loads[cell][k] += share
            return cell
        ranks.remove(rank)
    return -1
