"""Time of one rank's step when its microbatches run through a pipeline.

Operations are those of `balancer.pipeline_schedule`: `lane`, `after` and `duration`, each after
all it waits for. `loads[column]` is how long an operation with `duration` that column takes: of
microbatch j the forwards at its stages, then the backwards, `2 * num_stages` in all. The time does
not depend on anything but these, so one pass over the operations is the simulation.
"""

import numpy as np

from balancer.kernels.compiled import kernel

__all__ = ["end_times", "peak_in_flight", "pipeline_time", "rank_peaks", "rank_times"]


@kernel
def end_times(loads, first, lane, after, duration, clock, end):
    """Store when each operation ends, and when each pipeline rank does; returns the last end.

    Loads begin at `first`; `clock` has an entry for each pipeline rank. O(operations).
    """
    for p in range(clock.size):
        clock[p] = 0
    for operation in range(lane.size):
        p = lane[operation]
        start = clock[p]
        if after[operation] >= 0 and end[after[operation]] > start:
            start = end[after[operation]]
        clock[p] = start + loads[first + duration[operation]]
        end[operation] = clock[p]
    last = clock[0]
    for p in range(1, clock.size):
        if clock[p] > last:
            last = clock[p]
    return last


@kernel
def pipeline_time(loads, lane, after, duration, pp_size):
    """When the last operation ends. O(operations)."""
    clock = np.empty(pp_size, loads.dtype)
    end = np.empty(lane.size, loads.dtype)
    return end_times(loads, 0, lane, after, duration, clock, end)


@kernel
def rank_times(loads, num_ranks, lane, after, duration, pp_size):
    """The time of each data-parallel rank, whose loads stand one after the other."""
    size = loads.size // num_ranks
    clock = np.empty(pp_size, loads.dtype)
    end = np.empty(lane.size, loads.dtype)
    times = np.empty(num_ranks, loads.dtype)
    for rank in range(num_ranks):
        times[rank] = end_times(loads, rank * size, lane, after, duration, clock, end)
    return times


@kernel
def peak_in_flight(tokens, first, lane, duration, num_stages, pp_size):
    """Most tokens whose activations a pipeline rank holds at once, times the stages of a rank.

    Microbatch j has `tokens[first + j]`. They are held at a stage from its forward to its
    backward; with several stages a rank each holds a fraction, so the result is to be compared
    with the cap times `num_stages / pp_size`. O(operations).
    """
    held = np.zeros(pp_size, np.int64)
    peak = np.int64(0)
    for operation in range(lane.size):
        microbatch, column = divmod(duration[operation], 2 * num_stages)
        p = lane[operation]
        if column < num_stages:
            held[p] += tokens[first + microbatch]
            peak = max(peak, held[p])
        else:
            held[p] -= tokens[first + microbatch]
    return peak


@kernel
def rank_peaks(tokens, num_ranks, lane, duration, num_stages, pp_size):
    """`peak_in_flight` of each data-parallel rank, whose microbatches stand one after the other."""
    size = tokens.size // num_ranks
    peaks = np.empty(num_ranks, np.int64)
    for rank in range(num_ranks):
        peaks[rank] = peak_in_flight(tokens, rank * size, lane, duration, num_stages, pp_size)
    return peaks
