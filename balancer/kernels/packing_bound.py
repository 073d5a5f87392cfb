"""What lengths are like, and how many bins they need at least."""

from balancer.kernels.compiled import kernel

__all__ = ["least_bins", "survey"]


@kernel
def survey(values):
    """(smallest, largest, sum); zeros where there are none."""
    if values.size == 0:
        return 0, 0, 0
    least, most, total = values[0], values[0], 0
    for value in values:
        least, most = min(least, value), max(most, value)
        total += value
    return least, most, total


@kernel
def least_bins(lengths, counts, capacity):
    """Lower bound L2 (Martello and Toth, 1990) from distinct lengths, descending. O(distinct).

    For each threshold up to half the capacity: samples above `capacity - threshold` are alone;
    others above half a bin are one a bin; those between the threshold and half a bin must fit what
    the second kind leaves or open more bins.
    """
    half = 0  # first place that is at most half a bin
    while half < lengths.size and 2 * lengths[half] > capacity:
        half += 1
    large, large_sum = 0, 0  # samples above half that are not alone
    for t in range(half):
        large += counts[t]
        large_sum += lengths[t] * counts[t]
    small_sum = 0
    for t in range(half, lengths.size):
        small_sum += lengths[t] * counts[t]
    bins, alone, place = 0, 0, 0
    for t in range(lengths.size, half - 1, -1):
        # the threshold is the length at t, or 0 first
        if t < lengths.size:
            threshold = lengths[t]
            while place < half and lengths[place] > capacity - threshold:
                alone += counts[place]
                large -= counts[place]
                large_sum -= lengths[place] * counts[place]
                place += 1
        rest = small_sum - (large * capacity - large_sum)
        more = (rest + capacity - 1) // capacity if rest > 0 else 0
        bins = max(bins, alone + large + more)
        if t < lengths.size:
            small_sum -= lengths[t] * counts[t]
    return bins
