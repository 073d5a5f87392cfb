"""Costs as whole numbers, and the keys that order samples, dearest first.

Costs are flattened rows: cost of sample `i` in module `k` is `values[i * num_modules + k]`.
"""

import numpy as np

from balancer.kernels.compiled import kernel

__all__ = ["largest_total", "quantise", "share_keys", "shares_of"]


@kernel
def largest_total(values, num_modules):
    """Largest sum over modules of any sample; 0 where there are none."""
    largest = 0.0
    for i in range(values.size // num_modules):
        total = 0.0
        for k in range(num_modules):
            total += values[i * num_modules + k]
        largest = max(largest, total)
    return largest


@kernel
def quantise(values, factor):
    """Costs times `factor`, rounded half up to int64."""
    costs = np.empty(values.size, np.int64)
    for i in range(values.size):
        costs[i] = np.int64(values[i] * factor + 0.5)
    return costs


@kernel
def shares_of(costs, num_modules, scales):
    """Shares of the modules: the floor of `cost * scales[k]`."""
    shares = np.empty(costs.size, np.int64)
    for i in range(costs.size // num_modules):
        for k in range(num_modules):
            shares[i * num_modules + k] = np.int64(costs[i * num_modules + k] * scales[k])
    return shares


@kernel
def share_keys(costs, num_modules, scales, shift, bits):
    """A key that is smaller the dearer an item is.

    It packs the largest of the item's shares, then the sum of them, both without their last `shift`
    bits and each in `bits` bits, so that larger come first.
    """
    keys = np.empty(costs.size // num_modules, np.int64)
    top = (np.int64(1) << bits) - 1
    for i in range(keys.size):
        peak, total = np.int64(0), np.int64(0)
        for k in range(num_modules):
            share = np.int64(costs[i * num_modules + k] * scales[k])
            peak, total = max(peak, share), total + share
        keys[i] = ((top - (peak >> shift)) << bits) | (top - (total >> shift))
    return keys
