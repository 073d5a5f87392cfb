"""Best sizes of microbatches if samples were fluid, and prices that prove a lower bound.

The time of a pipeline is the longest path through its operations: convex in the loads. So no plan
is faster than the best split of one rank's mean load into microbatches of any size, and every
mixture of paths bounds that from below: it charges each cost column of each microbatch a price,
and every sample pays at least in its cheapest microbatch. Sizes and prices are found together by
multiplicative weights (Freund and Schapire, 1999), with later rounds weighing more in the prices.
"""

import numpy as np

from balancer.kernels.compiled import kernel

__all__ = ["fluid_sizes", "priced_total"]

_PENALTY = 0.4
"""Price of overfilling every microbatch by its whole cap, in units of a rank's mean work: about
twice what room under a cap is worth where it is scarce. Any price gives a valid bound."""


@kernel
def _longest_path(loads, lane, after, duration, clock, last, end, before, flow):
    """Time of the loads; adds 1 to `flow` at each column on a longest path."""
    for p in range(clock.size):
        clock[p], last[p] = 0.0, -1
    for at in range(flow.size):
        flow[at] = 0.0
    for operation in range(lane.size):
        p = lane[operation]
        start, before[operation] = clock[p], last[p]
        waited = after[operation]
        if waited >= 0 and end[waited] > start:
            start, before[operation] = end[waited], waited
        end[operation] = start + loads[duration[operation]]
        clock[p], last[p] = end[operation], operation
    latest = 0
    for p in range(clock.size):
        if clock[p] > clock[latest]:
            latest = p
    operation = last[latest]
    while operation >= 0:
        flow[duration[operation]] += 1.0
        operation = before[operation]
    return clock[latest]


@kernel
def _fill(sizes, rows, num_microbatches, constants, filled):
    """Store what each microbatch holds: its shares of the groups' rows, plus the constants."""
    num_columns = constants.size
    num_groups = sizes.size // num_microbatches
    for j in range(num_microbatches):
        for c in range(num_columns):
            value = constants[c]
            for g in range(num_groups):
                value += sizes[j * num_groups + g] * rows[g * num_columns + c]
            filled[j * num_columns + c] = value


@kernel
def _overfill(filled, penalty, tolled):
    """Store the toll of each place over its cap, 0 elsewhere; returns what they come to."""
    total = 0.0
    for at in range(filled.size):
        tolled[at] = 0.0
        if filled[at] > 1.0 + 1e-9:
            tolled[at] = penalty
            total += penalty * (filled[at] - 1.0)
    return total


@kernel
def _reweigh(sizes, rows, fill_rows, flow, tolled, rate, weights, charge):
    """Move every group towards the microbatches where it is charged less."""
    num_groups, num_microbatches = weights.size, charge.size
    num_columns = flow.size // num_microbatches
    num_fills = fill_rows.size // num_groups
    for g in range(num_groups):
        least, total = np.inf, 0.0
        for j in range(num_microbatches):
            charge[j] = 0.0
            for c in range(num_columns):
                charge[j] += flow[j * num_columns + c] * rows[g * num_columns + c]
            for a in range(num_fills):
                charge[j] += tolled[j * num_fills + a] * fill_rows[g * num_fills + a]
            least = min(least, charge[j])
        for j in range(num_microbatches):
            step = rate * (charge[j] - least) / weights[g]
            sizes[j * num_groups + g] /= 1.0 + step + 0.5 * step * step
            total += sizes[j * num_groups + g]
        for j in range(num_microbatches):
            sizes[j * num_groups + g] /= total


@kernel
def fluid_sizes(rows, fill_rows, constants, lane, after, duration, pp_size, num_microbatches,
                num_rounds):  # fmt: skip
    """Share of each group in each microbatch, the prices of cost columns, the tolls of caps.

    Group g has the work `rows[g * num_columns + c]` on a rank, all groups and columns together 1,
    and takes up `fill_rows[g * num_fills + a]` of each cap; any microbatch costs `constants[c]`
    more. Shares of group g are `sizes[j * num_groups + g]`.
    O(num_rounds * (operations + num_microbatches * rows.size)).
    """
    num_columns = constants.size
    num_groups = rows.size // num_columns
    num_fills = fill_rows.size // max(num_groups, 1)
    sizes = np.empty(num_microbatches * num_groups)
    best, best_value = np.zeros(sizes.size), np.inf
    loads, flow = np.empty(num_microbatches * num_columns), np.empty(num_microbatches * num_columns)
    filled, tolled = np.empty(num_microbatches * num_fills), np.empty(num_microbatches * num_fills)
    prices, tolls = np.zeros(loads.size), np.zeros(filled.size)
    weights, charge = np.zeros(num_groups), np.empty(num_microbatches)
    no_constants = np.zeros(num_fills)
    clock, end = np.empty(pp_size), np.empty(lane.size)
    last, before = np.empty(pp_size, np.int64), np.empty(lane.size, np.int64)
    for at in range(sizes.size):
        sizes[at] = 1.0 / num_microbatches
    for at in range(rows.size):
        weights[at // num_columns] += rows[at]
    mixed = num_rounds * (num_rounds + 1) / 2.0
    for turn in range(num_rounds):
        _fill(sizes, rows, num_microbatches, constants, loads)
        _fill(sizes, fill_rows, num_microbatches, no_constants, filled)
        value = _longest_path(loads, lane, after, duration, clock, last, end, before, flow)
        value += _overfill(filled, _PENALTY / num_microbatches, tolled)
        for at in range(tolled.size):
            tolls[at] += tolled[at] * (1.0 + turn) / mixed
        if value < best_value:
            best_value = value
            for at in range(sizes.size):
                best[at] = sizes[at]
        for at in range(flow.size):
            prices[at] += flow[at] * (1.0 + turn) / mixed
        if num_groups > 0:
            rate = 1.0 / np.sqrt(1.0 + turn)
            _reweigh(sizes, rows, fill_rows, flow, tolled, rate, weights, charge)
    return best, prices, tolls


@kernel
def priced_total(costs, fills, prices, tolls, num_microbatches):
    """Sum over items of what each is charged in its cheapest microbatch.

    `costs[i * num_columns + c]` and `fills[i * num_fills + a]` are item i's. O(items * prices).
    """
    num_columns, num_fills = prices.size // num_microbatches, tolls.size // num_microbatches
    total = 0.0
    for item in range(costs.size // num_columns):
        least = np.inf
        for j in range(num_microbatches):
            charge = 0.0
            for c in range(num_columns):
                charge += prices[j * num_columns + c] * costs[item * num_columns + c]
            for a in range(num_fills):
                charge += tolls[j * num_fills + a] * fills[item * num_fills + a]
            least = min(least, charge)
        total += least
    return total
