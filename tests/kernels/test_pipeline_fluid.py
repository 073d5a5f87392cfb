"""Fluid sizes against their oracle, and what they are known to be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.kernels.pipeline_fluid import fluid_sizes, priced_total
from tests.kernels import naive_fluid
from tests.kernels.pipelines import Shape, shapes


@st.composite
def fluids(draw):
    """A shape, rows of work that sum to 1, shares of caps, constants."""
    shape = draw(shapes(max_microbatches=6, max_pp=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = rng.random((draw(st.integers(1, 4)), 2 * shape.num_stages)) + 1e-3
    fills = rng.random((len(rows), draw(st.integers(0, 2)))) * draw(st.sampled_from([0.2, 2.0]))
    constants = rng.random(rows.shape[1]) * draw(st.sampled_from([0.0, 0.01]))
    return shape, rows / rows.sum(), fills, constants


def run(shape, rows, fills, constants, rounds):
    lane, after, duration, _, pp_size = shape.kernel()
    return fluid_sizes(
        rows.ravel(), fills.ravel(), constants, lane, after, duration, pp_size,
        shape.num_microbatches, rounds,
    )  # fmt: skip


@given(fluids(), st.sampled_from([1, 2, 40]))
def test_fluid_sizes_equal_the_oracle(fluid, rounds):
    """Compiled and plain-Python rounds end at the same sizes, prices and tolls, bit for bit."""
    shape, rows, fills, constants = fluid
    lane, after, duration, _, pp_size = shape.kernel()
    expected = naive_fluid.fluid_sizes(
        rows.tolist(), fills.tolist(), constants.tolist(), lane.tolist(), after.tolist(),
        duration.tolist(), pp_size, shape.num_microbatches, rounds,
    )  # fmt: skip
    found = run(shape, rows, fills, constants, rounds)
    assert [array.tolist() for array in found] == list(expected)


@given(fluids())
def test_items_pay_the_prices_of_their_cheapest_microbatch(fluid):
    """The priced total is the sum over items of the least charge."""
    shape, rows, fills, constants = fluid
    _, prices, tolls = run(shape, rows, fills, constants, 20)
    by_slot = prices.reshape(shape.num_microbatches, -1)
    charges = rows @ by_slot.T + fills @ tolls.reshape(shape.num_microbatches, -1).T
    found = priced_total(rows.ravel(), fills.ravel(), prices, tolls, shape.num_microbatches)
    assert np.isclose(found, charges.min(axis=1).sum())


@pytest.mark.parametrize(
    ("num_microbatches", "optimum"), [(4, 1.66 / 4), (8, 0.318462050), (16, 0.277134871)]
)
def test_best_sizes_of_four_equal_stages_are_those_of_the_linear_program(num_microbatches, optimum):
    """Prices and sizes enclose the optimum that HiGHS finds within half a per cent."""
    shape = Shape("1f1b", 4, 1, num_microbatches)
    rows = np.repeat([[1 / 3, 2 / 3]], 4, axis=0).T.ravel()[None] / 4
    sizes, prices, _ = run(shape, rows, np.zeros((1, 0)), np.zeros(8), 1000)
    bound = priced_total(rows.ravel(), np.zeros(0), prices, np.zeros(0), num_microbatches)
    works = sizes.reshape(num_microbatches, 1) * rows
    time = shape.time(works[:, :4], works[:, 4:])
    assert optimum * 0.995 <= bound <= optimum * (1 + 1e-9)
    assert optimum * (1 - 1e-9) <= time <= optimum * 1.005
