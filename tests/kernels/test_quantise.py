"""Quantised costs and sorting keys against plain-Python oracles."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.kernels.quantise import largest_total, quantise, share_keys, shares_of
from balancer.sorting import stable_order

COSTS = st.one_of(st.floats(0, 1e18), st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.5]))


@given(st.integers(1, 3), st.lists(COSTS, max_size=36), st.integers(-20, 3))
def test_costs_are_rounded_half_up_and_the_largest_row_is_found(modules, costs, power):
    """A quantised cost is the floor of the scaled cost plus one half."""
    costs = costs[: len(costs) // modules * modules]
    values, factor = np.array(costs, np.float64), 2.0**power
    assert quantise(values, factor).tolist() == [math.floor(c * factor + 0.5) for c in costs]
    totals = [0.0]
    for begin in range(0, len(costs), modules):
        total = 0.0
        for cost in costs[begin : begin + modules]:
            total += cost
        totals.append(total)
    assert largest_total(values, modules) == max(totals)


@given(
    st.lists(st.lists(st.integers(0, 2**40), min_size=2, max_size=2), min_size=1, max_size=12),
    st.sampled_from([0, 10, 22]),
)
def test_keys_sort_by_the_leading_bits_of_peak_and_sum_descending(rows, shift):
    """Sorting keys ascending sorts items by largest share, then by sum of shares, descending."""
    costs = np.array(rows, np.int64).ravel()
    scales = np.array([1.0, 0.5])
    bits = 42 - shift if shift else 30
    rows = [row for row in rows if max(row) + sum(row) < 2**bits << shift]
    if not rows:
        return
    costs = np.array(rows, np.int64).ravel()
    keys = share_keys(costs, 2, scales, shift, min(bits, 30))
    expected = [[int(a * 1.0), int(b * 0.5)] for a, b in rows]
    assert shares_of(costs, 2, scales).reshape(-1, 2).tolist() == expected
    if bits <= 30:
        peaks = [(max(row) >> shift, sum(row) >> shift) for row in expected]
        order = sorted(range(len(rows)), key=lambda i: (-peaks[i][0], -peaks[i][1], i))
        assert stable_order(keys).tolist() == order


@given(
    st.sampled_from([5, 2**11, 2**12, 2**35, 2**62]).flatmap(
        lambda most: st.lists(st.integers(0, most), max_size=40)
    )
)
def test_stable_order_is_the_stable_argsort(keys):
    """Sorting digit by digit gives what a stable argsort gives, for any size of keys."""
    array = np.array(keys, np.int64)
    assert stable_order(array).tolist() == np.argsort(array, kind="stable").tolist()
    falling = np.argsort(-array, kind="stable").tolist()
    assert stable_order(array, descending=True).tolist() == falling
