"""Plain-Python oracles of release times: every order of a few microbatches, simulated."""

from itertools import permutations

from tests.naive_pipeline import lane, waits_for


def flow_shop(order, prep, work):
    """When jobs end that are prepared, then run, one at a time, in an order."""
    ready = end = 0
    for job in order:
        ready += prep[job]
        end = max(end, ready) + work[job]
    return end


def released_pipeline(order, prep, forward, backward, shape):
    """When a pipeline ends whose k-th microbatch is prepared after all before it.

    `prep[row][j]` is what microbatch j takes in each row; all rows must be through.
    """
    schedule, pp_size, virtual = shape
    num_stages = pp_size * virtual
    release = [max(sum(row[j] for j in order[: k + 1]) for row in prep) for k in range(len(order))]
    left = [lane(schedule, p, pp_size, virtual, len(order)) for p in range(pp_size)]
    ended, clock = {}, [0] * pp_size
    while any(left):
        for p in range(pp_size):
            while left[p]:
                kind, stage, k = left[p][0]
                waited = waits_for(left[p][0], num_stages)
                if waited is not None and waited not in ended:
                    break
                earliest = release[k] if waited is None else ended[waited]
                took = (forward if kind == "F" else backward)[order[k]][stage]
                clock[p] = ended[left[p].pop(0)] = max(clock[p], earliest) + took
    return max(clock)


def best(time, size):
    """Least time of all orders."""
    return min(time(order) for order in permutations(range(size)))


def order_by_release(order, time, within):
    """The insertion search: order and time once no move of one microbatch makes it shorter."""
    order, found, improved = list(order), time(order), True
    while improved:
        improved = False
        for start in range(len(order)):
            for stop in range(len(order)):
                if start == stop:
                    continue
                other = list(order)
                other.insert(stop, other.pop(start))
                if time(other) < found and within(other):
                    order, found, improved = other, time(other), True
    return order, found
