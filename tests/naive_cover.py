"""Plain-Python oracles of `balancer.kernels.cover` and `balancer.kernels.cover_exact`."""

from itertools import product


class Placement:
    """Items in microbatches, with limits; `kinds` and `needed`, `barred` are sets by item, cell."""

    def __init__(self, cells, amounts, caps, padded, kinds, needed, barred):
        self.cells, self.amounts, self.caps, self.padded = list(cells), amounts, caps, padded
        self.kinds, self.needed, self.barred = kinds, needed, barred

    def items(self, cell):
        return [item for item, own in enumerate(self.cells) if own == cell]

    def has(self, cell):
        return set().union(*(self.kinds[item] for item in self.items(cell)))

    def lacks(self, cell):
        return self.needed[cell] - self.has(cell)

    def intruders(self, cell):
        return [(i, k) for i in self.items(cell) for k in self.kinds[i] & self.barred[cell]]

    def fits(self, cell):
        items = self.items(cell)
        if not items:
            return False
        for a, cap in enumerate(self.caps):
            values = [self.amounts[item][a] for item in items]
            held = len(values) * max(values) if self.padded and a == 0 else sum(values)
            if held > cap:
                return False
        return True

    def after(self, give, back, target):
        """The placement with `give` in `target` and `back`, if any, where `give` was."""
        cells = list(self.cells)
        cells[give] = target
        if back is not None:
            cells[back] = self.cells[give]
        return Placement(
            cells, self.amounts, self.caps, self.padded, self.kinds, self.needed, self.barred
        )

    def mends(self, give, back, target):
        """Whether an exchange is legal, takes no needed kind away and brings no barred one in."""
        source, new = self.cells[give], self.after(give, back, target)
        returned = set() if back is None else self.kinds[back]
        return (
            all(new.fits(cell) and new.lacks(cell) <= self.lacks(cell) for cell in (source, target))
            and not (self.kinds[give] - returned) & self.barred[target]
            and not (returned - self.kinds[give]) & self.barred[source]
        )


def _least(placement, totals, exchanges):
    """The legal exchange that changes the loads least, the first of equals."""
    best, least = None, None
    for give, back, target in exchanges:
        change = abs(totals[give] - (0 if back is None else totals[back]))
        if (best is None or change < least) and placement.mends(give, back, target):
            best, least = (give, back, target), change
    return best


def cover_cells(placement, totals, num_kinds):
    """Mend fault after fault, as the kernel does."""
    num_items, num_cells = len(placement.cells), len(placement.needed)
    improved = True
    while improved:
        improved = False
        for cell, kind in product(range(num_cells), range(num_kinds)):
            if kind in placement.lacks(cell):
                exchanges = [
                    (give, back, cell)
                    for give in range(num_items)
                    if kind in placement.kinds[give]
                    for back in [None, *placement.items(cell)]
                ]
                best = _least(placement, totals, exchanges)
                if best:
                    placement, improved = placement.after(*best), True
        for give in range(num_items):
            own = placement.cells[give]
            if placement.kinds[give] & placement.barred[own]:
                moves = [(give, None, cell) for cell in range(num_cells) if cell != own]
                swaps = [
                    (give, back, placement.cells[back])
                    for back in range(num_items)
                    if placement.cells[back] != own
                ]
                clean = [
                    (give, back, cell)
                    for give, back, cell in moves + swaps
                    if not placement.barred[cell] & placement.kinds[give]
                    and not (back is not None and placement.barred[own] & placement.kinds[back])
                ]
                best = _least(placement, totals, clean)
                if best:
                    placement, improved = placement.after(*best), True
    return placement.cells


def can_be_covered(amounts, caps, padded, kinds, in_all, first_slot, dp_size, num_slots):
    """Whether any assignment has the same kinds on all ranks of each slot from `first_slot` on."""
    num_cells = dp_size * num_slots
    nothing = [set()] * num_cells
    for cells in product(range(num_cells), repeat=len(amounts)):
        placement = Placement(cells, amounts, caps, padded, kinds, nothing, nothing)
        if all(placement.fits(cell) for cell in range(num_cells)):
            slots = [
                [placement.has(slot * dp_size + rank) for rank in range(dp_size)]
                for slot in range(first_slot, num_slots)
            ]
            if all(in_all <= has and has == slot[0] for slot in slots for has in slot):
                return True
    return False
