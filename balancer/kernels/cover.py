"""Which kinds of samples each microbatch holds, needs and must not hold.

A kind is a module that some samples of the step use and others do not; `kinds[i]` has bit k set if
item i is of kind k. `needed[c]` and `barred[c]` are such bits of microbatch c: kinds of which it
needs an item, and kinds of which it may have none. `cover` is `None` where nothing is asked for
(kernels are then compiled without any of this), else the tuple `(kinds, needed, barred, uses,
sole)`: `uses[c * num_kinds + k]` counts the items of kind k in c, and `sole[c]` has the bits of
the needed kinds of which c has exactly one item. Amounts, caps and ranks are those of
`balancer.kernels.limits` and `balancer.kernels.ranks`.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.limits import fits, put, take
from balancer.kernels.ranks import reserved

__all__ = ["cover_cells", "cover_state", "keeps_cover", "note_exchange", "try_exchange"]


@kernel
def try_exchange(give, back, target, cells, amounts, caps, padded, used, count, longest):
    """Move `give` to cell `target` (and `back`, if any, to give's cell) unless a cap would break.

    Undoes itself and returns False where it would, or where a cell would stay empty.
    """
    source, num_caps = cells[give], caps.size
    if back < 0 and count[source] < 2:
        return False
    cells[give] = -1
    take(give, source, amounts, num_caps, padded, used, count, longest, cells)
    if back >= 0:
        cells[back] = -1
        take(back, target, amounts, num_caps, padded, used, count, longest, cells)
    legal = fits(give, target, amounts, caps, padded, used, count, longest)
    if legal and back >= 0:
        legal = fits(back, source, amounts, caps, padded, used, count, longest)
    cells[give] = target if legal else source
    put(give, cells[give], amounts, num_caps, used, count, longest)
    if back >= 0:
        cells[back] = source if legal else target
        put(back, cells[back], amounts, num_caps, used, count, longest)
    return legal


@kernel
def _set_sole(cell, needed, num_kinds, uses, sole):
    """Recompute the needed kinds of which a microbatch has exactly one item."""
    bits = np.int64(0)
    for k in range(num_kinds):
        if needed[cell] >> k & 1 and uses[cell * num_kinds + k] == 1:
            bits |= np.int64(1) << k
    sole[cell] = bits


@kernel
def cover_state(cells, kinds, num_kinds, needed):
    """`uses` and `sole` of an assignment."""
    uses = np.zeros(needed.size * num_kinds, np.int64)
    sole = np.zeros(needed.size, np.int64)
    for item in range(cells.size):
        for k in range(num_kinds):
            uses[cells[item] * num_kinds + k] += kinds[item] >> k & 1
    for cell in range(needed.size):
        _set_sole(cell, needed, num_kinds, uses, sole)
    return uses, sole


@kernel
def keeps_cover(give, back, target, cells, cover):
    """Whether moving `give` to `target` (and `back`, if any, the other way) breaks no rule more.

    No needed kind is lost, and no barred kind comes in.
    """
    if cover is None:
        return True
    kinds, _, barred, _, sole = cover
    source = cells[give]
    given = kinds[give]
    returned = kinds[back] if back >= 0 else np.int64(0)
    lost = (sole[source] & given & ~returned) | (barred[target] & given & ~returned)
    if back >= 0:
        lost |= (sole[target] & returned & ~given) | (barred[source] & returned & ~given)
    return lost == 0


@kernel
def note_exchange(give, back, source, target, cover):
    """Account for an exchange that was made."""
    if cover is not None:
        kinds, needed, _, uses, sole = cover
        num_kinds = uses.size // needed.size
        for k in range(num_kinds):
            change = kinds[give] >> k & 1
            if back >= 0:
                change -= kinds[back] >> k & 1
            uses[source * num_kinds + k] -= change
            uses[target * num_kinds + k] += change
        _set_sole(source, needed, num_kinds, uses, sole)
        _set_sole(target, needed, num_kinds, uses, sole)


@kernel
def _try(give, back, target, best, cells, totals, amounts, caps, padded, used, count, longest,
         cover):  # fmt: skip
    """Least change of load known so far: `best`, or that of this exchange where it is legal."""
    change = totals[give]
    if back >= 0:
        change = abs(change - totals[back])
    if change >= best or not keeps_cover(give, back, target, cells, cover):
        return best
    source = cells[give]
    if not try_exchange(give, back, target, cells, amounts, caps, padded, used, count, longest):
        return best
    cells[give] = source  # undone without a test: before the exchange all caps were kept
    take(give, target, amounts, caps.size, padded, used, count, longest, cells)
    if back >= 0:
        cells[back] = target
        take(back, source, amounts, caps.size, padded, used, count, longest, cells)
        put(back, target, amounts, caps.size, used, count, longest)
    put(give, source, amounts, caps.size, used, count, longest)
    return change


@kernel
def _bring(cell, k, members, cells, totals, amounts, caps, padded, used, count, longest, cover):
    """Bring an item of kind k to a microbatch that lacks it; False where no exchange is legal."""
    num_members = 0
    for item in range(cells.size):
        if cells[item] == cell:
            members[num_members] = item
            num_members += 1
    least = np.int64(2**62)
    best_give, best_back = -1, -1
    for give in range(cells.size):
        if not cover[0][give] >> k & 1:
            continue
        for m in range(-1, num_members):
            back = members[m] if m >= 0 else -1
            change = _try(give, back, cell, least, cells, totals, amounts, caps, padded, used,
                          count, longest, cover)  # fmt: skip
            if change < least:
                least, best_give, best_back = change, give, back
    return best_give, best_back


@kernel
def _send_away(give, cells, totals, amounts, caps, padded, used, count, longest, cover):
    """Where an item can go that is barred from its microbatch: the cell, the item returned."""
    kinds, _, barred, _, _ = cover
    source, least = cells[give], np.int64(2**62)
    best_target, best_back = -1, -1
    for target in range(barred.size):
        if target != source and not barred[target] & kinds[give]:
            change = _try(give, -1, target, least, cells, totals, amounts, caps, padded, used,
                          count, longest, cover)  # fmt: skip
            if change < least:
                least, best_target, best_back = change, target, -1
    for back in range(cells.size):
        target = cells[back]
        clean = not (barred[target] & kinds[give] or barred[source] & kinds[back])
        if target != source and clean:
            change = _try(give, back, target, least, cells, totals, amounts, caps, padded, used,
                          count, longest, cover)  # fmt: skip
            if change < least:
                least, best_target, best_back = change, target, back
    return best_target, best_back


@kernel
def cover_cells(cells, kinds, num_kinds, needed, barred, totals, amounts, caps, padded, dp_size,
                ranks=None):  # fmt: skip
    """Exchange items, in place, until no microbatch lacks a needed kind or holds a barred one.

    Each exchange mends a fault without making another, and of those it is the one that changes the
    loads least; stops where there is none. No cap breaks and no microbatch becomes empty.
    O(faults * num_items * items of a microbatch).
    """
    used = reserved(needed.size, caps.size, dp_size, 1, ranks)
    count = np.zeros(needed.size, np.int64)
    longest = np.zeros(needed.size, np.int64)
    for item in range(cells.size):
        put(item, cells[item], amounts, caps.size, used, count, longest)
    uses, sole = cover_state(cells, kinds, num_kinds, needed)
    cover = (kinds, needed, barred, uses, sole)
    members = np.empty(cells.size, np.int64)
    improved = True
    while improved:
        improved = False
        for fault in range(needed.size * num_kinds + cells.size):
            give, back, target = -1, -1, -1
            if fault < needed.size * num_kinds:
                target, k = fault // num_kinds, fault % num_kinds
                if needed[target] >> k & 1 and uses[fault] == 0:
                    give, back = _bring(target, k, members, cells, totals, amounts, caps, padded,
                                        used, count, longest, cover)  # fmt: skip
            else:
                item = fault - needed.size * num_kinds
                if kinds[item] & barred[cells[item]]:
                    target, back = _send_away(item, cells, totals, amounts, caps, padded, used,
                                              count, longest, cover)  # fmt: skip
                    give = item if target >= 0 else -1
            if give >= 0:
                source = cells[give]
                try_exchange(give, back, target, cells, amounts, caps, padded, used, count, longest)
                note_exchange(give, back, source, target, cover)
                improved = True
