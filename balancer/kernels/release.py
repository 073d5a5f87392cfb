"""Order of microbatches that are released one after the other, as their CPU work is done.

Slot k of an order is released when each row (a rank whose workers prepare it) has prepared the
first k microbatches: `prep[row * num_slots + j]` is what microbatch j takes there. Operations are
those of `balancer.kernels.pipeline`, of `num_columns` columns a microbatch; those of column 0 (the
forward at the first stage, or all there is) wait for the release.
"""

import numpy as np

from balancer.kernels.compiled import kernel
from balancer.kernels.pipeline import peak_in_flight

__all__ = ["order_by_release", "released_time"]


@kernel
def _end(order, prep, loads, num_columns, schedule, scratch):
    """When the last operation ends. O(slots * rows + operations)."""
    lane, after, duration, _, _ = schedule
    release, ready, clock, end, _ = scratch
    num_slots, last = order.size, np.int64(0)
    for row in range(ready.size):
        ready[row] = 0
    for p in range(clock.size):
        clock[p] = 0
    for k in range(num_slots):
        release[k] = 0
        for row in range(ready.size):
            ready[row] += prep[row * num_slots + order[k]]
            release[k] = max(release[k], ready[row])
    for operation in range(lane.size):
        k, column = divmod(duration[operation], num_columns)
        p = lane[operation]
        start = clock[p]
        if after[operation] >= 0:
            start = max(start, end[after[operation]])
        if column == 0:
            start = max(start, release[k])
        clock[p] = start + loads[order[k] * num_columns + column]
        end[operation] = clock[p]
        last = max(last, clock[p])
    return last


@kernel
def _scratch(num_slots, num_rows, num_operations, pp_size):
    return (np.empty(num_slots, np.int64), np.empty(num_rows, np.int64),
            np.empty(pp_size, np.int64), np.empty(num_operations, np.int64),
            np.empty(num_slots, np.int64))  # fmt: skip


@kernel
def released_time(order, prep, loads, num_columns, schedule):
    """When the last operation ends with the microbatches in an order."""
    scratch = _scratch(order.size, prep.size // order.size, schedule[0].size, schedule[4])
    return _end(order, prep, loads, num_columns, schedule, scratch)


@kernel
def _put_at(order, start, stop):
    """Take the microbatch at `start` out and put it in at `stop`."""
    moved, step = order[start], 1 if stop > start else -1
    for k in range(start, stop, step):
        order[k] = order[k + step]
    order[stop] = moved


@kernel
def _over(order, tokens, most, schedule, scratch):
    """Whether more than `most` tokens are in flight at once (0: any may be)."""
    if most == 0:
        return False
    lane, _, duration, num_stages, pp_size = schedule
    held = scratch[4]
    for k in range(order.size):
        held[k] = tokens[order[k]]
    return peak_in_flight(held, 0, lane, duration, num_stages, pp_size) > most


@kernel
def order_by_release(order, prep, loads, num_columns, schedule, tokens, most):
    """Improve an order in place by moving one microbatch at a time, and return its time.

    Stops where no such move makes it shorter. O(slots**2) simulations a pass.
    """
    scratch = _scratch(order.size, prep.size // order.size, schedule[0].size, schedule[4])
    best = _end(order, prep, loads, num_columns, schedule, scratch)
    improved = True
    while improved:
        improved = False
        for start in range(order.size):
            for stop in range(order.size):
                if start == stop:
                    continue
                _put_at(order, start, stop)
                time = _end(order, prep, loads, num_columns, schedule, scratch)
                if time < best and not _over(order, tokens, most, schedule, scratch):
                    best, improved = time, True
                else:
                    _put_at(order, stop, start)
    return best
