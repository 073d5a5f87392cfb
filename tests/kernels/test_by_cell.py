"""Items in the order of their microbatches."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.kernels.by_cell import order_by_cell


@given(st.lists(st.integers(0, 6), max_size=40), st.randoms(use_true_random=False))
def test_items_stand_by_cell_then_by_position(cells, random):
    """As sorting by both does."""
    position = list(range(len(cells)))
    random.shuffle(position)
    order = order_by_cell(np.array(cells, np.int64), np.array(position, np.int64), 7)
    expected = sorted(range(len(cells)), key=lambda item: (cells[item], position[item]))
    assert order.tolist() == expected
