"""Fewer bins by undoing some of a packing and filling them anew, again and again.

Numbers that are passed on are int64 and not literals, for which callees would be compiled again.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.packing_fill import draw, fill_bins, give, new_stock

__all__ = ["fill_and_search"]

_MANY_LENGTHS = 4096


@kernel
def _undo(stock, contents, end, per_1024, kept, state):
    """Copy the records that stay to `kept`, give the rest back to the stock.

    Bins with room left are undone, and of the full ones those of about `per_1024` / 1024 of the
    records, all or a random number. Returns (end of kept, samples, bins, squared room undone).
    """
    begin, kept_end, samples, bins, squares = 0, 0, 0, 0, 0.0
    while begin < end:
        num, room = contents[begin], contents[begin + 1]
        stop = begin + 3 + 2 * contents[begin + 2]
        undone = num if room > 0 else 0
        if room == 0 and draw(state, 1024) < per_1024:
            undone = num if draw(state, 2) == 0 else 1 + draw(state, num)
        if undone > 0:
            for k in range(begin + 3, stop, 2):
                give(stock, contents[k], undone * contents[k + 1])
                samples += undone * contents[k + 1]
            bins += undone
            squares += float(undone) * float(room) ** 2
        if undone < num:
            kept[kept_end] = num - undone
            for k in range(1, stop - begin):
                kept[kept_end + k] = contents[begin + k]
            kept_end += stop - begin
        begin = stop
    return kept_end, samples, bins, squares


@kernel
def _first_fill(stock, lengths, counts, capacity, thirds, enough, state):
    """The best of fills that settle for an end within 1/512, 0 and 1/128 of the capacity.

    The first alone where there are many lengths: its ends are then nearly as good.
    """
    space = 4096 + 16 * lengths.size
    best, best_end, best_bins = np.empty(space, np.int64), 0, np.int64(-1)
    other = np.empty(space, np.int64)
    for shift in (9, 62, 7):
        samples, none, plain = np.int64(0), np.int64(0), np.int64(1)  # not literals, see below
        for t in range(lengths.size):
            give(stock, lengths[t], counts[t])
            samples += counts[t]
        other, end, bins, _ = fill_bins(
            stock, samples, capacity, capacity >> shift, thirds, plain, state, other, none
        )
        if best_bins < 0 or bins < best_bins:
            best, other = other, best
            best_end, best_bins = end, bins
        if best_bins <= enough or lengths.size > _MANY_LENGTHS:
            break
    return best, best_end, best_bins


@kernel
def fill_and_search(lengths, counts, capacity, thirds, rounds, enough, state):
    """Fill bins with look-ahead, then repack parts of them `rounds` times.

    A round is kept if it needs no more bins and, with as many, its room is at least as
    concentrated (sum of squares). Ends early at `enough` bins. Ruin and recreate (Schrimpf et
    al., 2000) with fill as the second half. `thirds` lengths are tried as the third of an end.
    Returns (contents, end, bins).
    """
    stock = new_stock(lengths[0])
    contents, end, bins = _first_fill(stock, lengths, counts, capacity, thirds, enough, state)
    other = np.empty(contents.size, np.int64)
    for _ in range(rounds):
        if bins <= enough:
            break
        if other.size < end:
            other = np.empty(contents.size, np.int64)
        kept_end, samples, undone, before = _undo(
            stock, contents, end, 2 << draw(state, 7), other, state
        )
        tried = thirds if draw(state, 2) == 0 else 8 * thirds
        settle = capacity >> (4 + draw(state, 12) if draw(state, 2) else np.int64(62))
        spread = np.int64(1) << draw(state, 9)
        other, other_end, filled, after = fill_bins(
            stock, samples, capacity, settle, tried, spread, state, other, kept_end
        )
        if filled < undone or (filled == undone and after >= before):
            bins += filled - undone
            contents, other = other, contents
            end = other_end
    return contents, end, bins
