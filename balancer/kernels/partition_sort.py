"""Sorting of a few indices by key, small to compile."""

from balancer.kernels.compiled import kernel

__all__ = ["sort_by_key"]


@kernel
def _after(a, b, keys):
    return keys[a] > keys[b] or (keys[a] == keys[b] and a > b)


@kernel
def _sink(order, at, size, keys):
    """Move the index at `at` down a heap whose root sorts last."""
    index = order[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _after(order[child + 1], order[child], keys):
            child += 1
        if not _after(order[child], index, keys):
            break
        order[at] = order[child]
        at = child
    order[at] = index


@kernel
def sort_by_key(order, keys):
    """Sort the indices in `order` in place: by `keys[index]`, then index. Heapsort."""
    size = order.size
    for at in range(size // 2 - 1, -1, -1):
        _sink(order, at, size, keys)
    for last in range(size - 1, 0, -1):
        order[0], order[last] = order[last], order[0]
        _sink(order, 0, last, keys)
