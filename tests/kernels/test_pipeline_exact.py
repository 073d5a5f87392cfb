"""The exact search on pipelines finds what trying every placement finds, bit for bit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.kernels.pipeline_exact import place_pipelines_exactly
from tests.kernels.pipelines import shapes
from tests.naive_pipeline_exact import shortest


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_first_shortest_placement_of_all(data):
    """Value and cells are the oracle's; nothing is written where nothing is shorter."""
    draw = data.draw
    shape = draw(shapes(max_microbatches=2, max_pp=3))
    num_ranks, num_slots = draw(st.integers(1, 2)), shape.num_microbatches
    num_items, num_caps = draw(st.integers(1, 4)), draw(st.integers(0, 2))
    unequal, columns = draw(st.booleans()), 2 * shape.num_stages
    padded = bool(num_caps) and not unequal and draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    costs = rng.integers(0, 12, (num_items, columns))
    constants = rng.integers(0, draw(st.sampled_from([1, 6])), columns)
    amounts = rng.integers(1, 8, (num_items, num_caps))
    caps = rng.integers(8, 20, num_caps)
    most = int(1.5 * caps[0]) * shape.virtual if num_caps and draw(st.booleans()) else 0
    slowness, reserve = np.ones(num_ranks, np.int64), np.zeros((num_ranks, num_caps), np.int64)
    if unequal:
        slowness = rng.integers(1, 4, num_ranks)
        reserve = rng.integers(0, 4, (num_ranks, num_caps)) * (most == 0)
    best = draw(st.sampled_from([2**62, int(costs.sum() + constants.sum())]))
    value, found = shortest(
        costs.tolist(), constants.tolist(), (amounts.tolist(), caps.tolist(), padded),
        (num_ranks, num_slots), shape.naive, most, best, slowness.tolist(), reserve.tolist(),
    )  # fmt: skip
    cells = np.full(num_items, 99)
    parts = np.broadcast_to(constants.reshape(2, 1, -1), (2, num_slots, shape.num_stages))
    least = int(slowness.max()) * shape.time(*parts)
    assert place_pipelines_exactly(
        cells, costs.ravel(), constants, (amounts.ravel(), caps, padded), num_ranks, num_slots,
        shape.kernel(), most, best, least, (slowness, reserve.ravel()) if unequal else None,
    ) == value  # fmt: skip
    assert cells.tolist() == ([99] * num_items if found is None else list(found))
