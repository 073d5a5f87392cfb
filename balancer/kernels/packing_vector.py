"""First-fit decreasing under several capacities at once.

Amount a of sample i is `amounts[i * caps.size + a]`; no sample exceeds a cap by itself.
"""

import numpy as np

from balancer.kernels.compiled import kernel

__all__ = ["first_fit_vectors"]


@kernel
def _all_fit(room, at, amounts, item, num_caps):
    fits = True
    for a in range(num_caps):
        fits = fits and amounts[item * num_caps + a] <= room[at * num_caps + a]
    return fits


@kernel
def _first_fit(tree, leaves, amounts, item, num_caps, begin):
    """First leaf from `begin` on with room for the item in every amount, or -1.

    Nodes hold the largest room of each amount below them, which different leaves may have: a node
    that passes is entered, and left again if no leaf below it fits.
    """
    node = leaves + begin
    while True:
        if _all_fit(tree, node, amounts, item, num_caps):
            if node >= leaves:
                return node - leaves
            node *= 2
            continue
        while node & 1:  # a right child: all below its parent is done
            node >>= 1
        if node == 0:
            return -1
        node += 1


@kernel
def _shrink(tree, leaves, place, amounts, item, num_caps):
    """Take the item's amounts from a leaf's room."""
    node = leaves + place
    for a in range(num_caps):
        tree[node * num_caps + a] -= amounts[item * num_caps + a]
    node >>= 1
    while node > 0:
        same = True
        for a in range(num_caps):
            left, right = tree[2 * node * num_caps + a], tree[(2 * node + 1) * num_caps + a]
            same = same and tree[node * num_caps + a] == max(left, right)
            tree[node * num_caps + a] = max(left, right)
        if same:
            break
        node >>= 1


@kernel
def first_fit_vectors(order, amounts, caps, rows, most_bins):
    """Bin of each sample, and how many bins: in the order given, each to the first with room.

    `most_bins` bins must suffice. Unless `rows` is empty, amount 0 counts samples, and a bin takes
    `rows[i]` of them where sample i was its first. A sample like the one before it starts where
    that one went.
    """
    num_caps = caps.size
    leaves = 1
    while leaves < most_bins:
        leaves *= 2
    tree = np.empty(2 * leaves * num_caps, np.int64)
    for node in range(2 * leaves):
        for a in range(num_caps):
            tree[node * num_caps + a] = caps[a]
    bins = np.empty(order.size, np.int64)
    num_bins, place = 0, 0
    for t in range(order.size):
        item = order[t]
        alike = t > 0
        for a in range(num_caps if alike else 0):
            before = amounts[order[t - 1] * num_caps + a]
            alike = alike and before == amounts[item * num_caps + a]
        place = _first_fit(tree, leaves, amounts, item, num_caps, place if alike else 0)
        bins[item] = place
        if place == num_bins:
            num_bins += 1
            if rows.size:
                tree[(leaves + place) * num_caps] = rows[item]
        _shrink(tree, leaves, place, amounts, item, num_caps)
    return bins, num_bins
