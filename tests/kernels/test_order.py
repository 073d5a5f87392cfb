"""The order of an epoch is a permutation that any rank can look into anywhere."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.kernels.order import permuted, positions_of
from tests import naive

SEEDS = st.integers(0, 2**63 - 1)


@given(size=st.integers(1, 3000), seed=SEEDS, epoch=st.integers(0, 10**6))
def test_every_position_holds_another_sample(size, seed, epoch):
    """The ids at positions 0 to size - 1 are a permutation of 0 to size - 1."""
    ids = permuted(np.arange(size), size, seed, epoch)
    assert np.array_equal(np.sort(ids), np.arange(size))


@given(size=st.integers(1, 2**40), seed=SEEDS, epoch=st.integers(0, 10**6), data=st.data())
def test_kernel_equals_the_oracle_at_any_position(size, seed, epoch, data):
    """Compiled and plain-Python permutations agree bit for bit, without computing the rest."""
    positions = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5))
    expected = naive.permuted(positions, size, seed, epoch)
    assert permuted(np.array(positions, np.int64), size, seed, epoch).tolist() == expected


@given(size=st.integers(1, 2**40), seed=SEEDS, epoch=st.integers(0, 10**6), data=st.data())
def test_positions_are_found_again_from_the_ids(size, seed, epoch, data):
    """The inverse undoes the plain-Python permutation at any position."""
    positions = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5))
    ids = np.array(naive.permuted(positions, size, seed, epoch), np.int64)
    assert positions_of(ids, size, seed, epoch).tolist() == positions


def test_epochs_and_seeds_give_unlike_orders():
    orders = {
        permuted(np.arange(1000), 1000, seed, epoch).tobytes()
        for seed in range(5)
        for epoch in range(5)
    }
    assert len(orders) == 25


def test_neighbours_in_the_order_are_unrelated():
    ids = permuted(np.arange(100_000), 100_000, 0, 0).astype(float)
    correlation = np.corrcoef(ids[:-1], ids[1:])[0, 1]
    assert abs(correlation) < 0.01
    fixed_points = np.count_nonzero(ids == np.arange(100_000))
    assert fixed_points < 10
