"""The bound by counts of the dearest items, beside every split of a few items."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.count_bounds import counted_bound
from balancer.load_bounds import partition_bound

_TWO_KINDS = st.sampled_from([1, 2, 3, 17, 19, 20])
_ANY = st.integers(0, 50)


def _least_largest_sum(weights: list[int], num_parts: int) -> int:
    """Of all splits; the first item is in the first part."""
    least = sum(weights)
    for rest in itertools.product(range(num_parts), repeat=len(weights) - 1):
        sums = [0] * num_parts
        for weight, part in zip(weights, (0, *rest), strict=True):
            sums[part] += weight
        least = min(least, max(sums))
    return least


@given(
    st.one_of(st.lists(_TWO_KINDS, min_size=1, max_size=7), st.lists(_ANY, min_size=1, max_size=7)),
    st.integers(1, 4),
)
def test_no_split_is_below_the_bound(weights, num_parts):
    """Whatever the weights, alone and beside the other bounds of a split."""
    best = _least_largest_sum(weights, num_parts)
    descending = np.sort(np.array(weights, np.int64))[::-1]
    assert counted_bound(descending, num_parts) <= best
    assert partition_bound(np.array(weights, np.int64), num_parts)[0] <= best


@pytest.mark.parametrize(("num_long", "num_parts"), [(5, 3), (6, 4), (7, 4), (8, 3)])
def test_long_items_that_are_no_multiple_of_the_parts_are_bounded_exactly(num_long, num_parts):
    """Ten draws of long items: the bound is the best split in most, where the mean is in none."""
    rng = np.random.default_rng(num_long)
    exact = 0
    for _ in range(10):
        weights = np.sort(rng.integers(35, 45, num_long))[::-1]
        best = _least_largest_sum(weights.tolist(), num_parts)
        assert -(-int(weights.sum()) // num_parts) < best
        exact += partition_bound(weights, num_parts)[0] == best
    assert exact >= 6


@given(st.lists(_ANY, max_size=300), st.integers(1, 9), st.integers(0, 4000))
def test_what_is_known_is_only_raised(weights, num_parts, known):
    """Given another bound, the result is the larger of both, though fewer items are looked at."""
    descending = np.sort(np.array(weights, np.int64))[::-1]
    raised = counted_bound(descending, num_parts, known)
    assert known <= raised <= max(known, int(descending.sum()))
    if len(weights) <= 64:
        assert raised == max(known, counted_bound(descending, num_parts))
