"""The bin that a greedy placement gives its next item to.

Loads are column after column: that of bin b in module k is `load[k * num_bins + b]`, so that the
processor compares several bins at once.
"""

from balancer.kernels.compiled import kernel
from balancer.kernels.ranks import slowed

__all__ = ["add_load", "lightest"]

_CLOSED = 2**63 - 1


@kernel
def _squares(item, shares, num_modules, load, num_bins, b, ranks):
    """Sum over modules of the squared load of bin `b` once it holds `item`."""
    squares = 0.0
    for k in range(num_modules):
        share = slowed(shares[item * num_modules + k], b, k, num_modules, ranks)
        after = float(load[k * num_bins + b] + share)
        squares += after * after
    return squares


@kernel
def lightest(item, shares, num_modules, load, closed, peaks, ranks=None):
    """Open bin where the modules that `item` uses end lowest; then squares, then index.

    Compared is the largest resulting load over those modules alone, so that samples without
    images spread by their language cost and do not pile up where there are few images. Returns -1
    where all bins are closed. Bins are ranks wherever `ranks` is given. `peaks` is space for a
    number for each bin.
    """
    num_bins = closed.size
    for b in range(num_bins):
        peaks[b] = _CLOSED if closed[b] else 0
    for k in range(num_modules):
        share = shares[item * num_modules + k]
        if share > 0:
            loads = load[k * num_bins : (k + 1) * num_bins]
            for b in range(num_bins):
                after = loads[b] + slowed(share, b, k, num_modules, ranks)
                peaks[b] = max(peaks[b], after)
    lowest = _CLOSED
    for b in range(num_bins):
        lowest = min(lowest, peaks[b])
    best, fewest = -1, -1.0
    for b in range(num_bins if lowest < _CLOSED else 0):
        if peaks[b] > lowest:
            continue
        if best < 0:
            best = b
            continue
        if fewest < 0.0:
            fewest = _squares(item, shares, num_modules, load, num_bins, best, ranks)
        squares = _squares(item, shares, num_modules, load, num_bins, b, ranks)
        if squares < fewest:
            best, fewest = b, squares
    return best


@kernel
def add_load(item, shares, num_modules, load, num_bins, b, ranks=None):
    """Account for `item` joining bin `b`."""
    for k in range(num_modules):
        share = slowed(shares[item * num_modules + k], b, k, num_modules, ranks)
        load[k * num_bins + b] += share
