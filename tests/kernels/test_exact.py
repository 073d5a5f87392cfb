"""The exact search finds what trying every placement finds, bit for bit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.kernels.exact import place_exactly
from tests.naive_exact import shortest


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_first_shortest_placement_of_all(data):
    """Value and cells are the oracle's; nothing is written where nothing is shorter."""
    draw = data.draw
    dp_size, num_slots = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    num_items, num_modules = draw(st.integers(1, 5)), draw(st.integers(1, 2))
    num_caps, unequal = draw(st.integers(0, 2)), draw(st.booleans())
    padded = bool(num_caps) and not unequal and draw(st.booleans())
    num_groups = draw(st.sampled_from([1, num_slots]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    costs = np.sort(rng.integers(0, 12, num_items * num_modules))[::-1].copy()
    amounts = rng.integers(1, 8, num_items * num_caps)
    caps = rng.integers(8, 20, num_caps)
    slowness = np.ones((dp_size, num_modules), np.int64)
    reserve = np.zeros((dp_size, num_caps), np.int64)
    if unequal:
        slowness = rng.integers(1, 4, (dp_size, num_modules))
        reserve = rng.integers(0, 4, (dp_size, num_caps))
    ranks = (slowness.ravel(), reserve.ravel()) if unequal else None
    best = draw(st.sampled_from([2**62, int(costs.sum())]))
    sizes = (dp_size, num_slots, num_groups, best)
    value, found = shortest(
        costs.tolist(), num_modules, amounts.tolist(), caps.tolist(), padded, *sizes,
        slowness.tolist(), reserve.tolist(),
    )  # fmt: skip
    cells = np.full(num_items, 99)
    assert place_exactly(cells, costs, num_modules, amounts, caps, padded, *sizes, ranks) == value
    assert cells.tolist() == ([99] * num_items if found is None else list(found))
