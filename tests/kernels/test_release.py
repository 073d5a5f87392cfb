"""Orders by release time: simulation and search against their oracles, Johnson's rule optimal."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.kernels.release import order_by_release, released_time
from balancer.release import johnson_order
from tests import naive_release
from tests.kernels.pipelines import pipelines
from tests.naive_pipeline import peak

_TIMES = st.integers(0, 20)


@given(st.lists(st.tuples(_TIMES, _TIMES), min_size=1, max_size=6))
def test_no_order_ends_sooner_than_johnsons(jobs):
    """Preparing and running one at a time: the rule is as fast as the best of all orders."""
    prep, work = zip(*jobs, strict=True)
    order = johnson_order(prep, work)
    assert sorted(order.tolist()) == list(range(len(jobs)))
    fastest = naive_release.best(lambda o: naive_release.flow_shop(o, prep, work), len(jobs))
    assert naive_release.flow_shop(order, prep, work) == fastest


@settings(max_examples=40)
@given(
    pipelines(max_microbatches=4, max_pp=3), st.integers(1, 2), st.booleans(),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_simulation_and_search_equal_the_oracles(drawn, rows, capped, seed):
    """Any schedule, one row or two, with and without a cap on tokens in flight."""
    shape, forward, backward = drawn
    rng, size = np.random.default_rng(seed), shape.num_microbatches
    prep = rng.integers(0, 2 * int(forward.max()) + 2, (rows, size))
    tokens = rng.integers(1, 9, size)
    most = int(peak(*shape.naive, tokens.tolist())) if capped else 0
    loads = np.concatenate([forward, backward], axis=1)
    arguments = (prep.ravel(), loads.ravel(), loads.shape[1], shape.kernel())

    def time(order):
        return naive_release.released_pipeline(
            order, prep.tolist(), forward.tolist(), backward.tolist(), shape.naive
        )

    def within(order):
        return not most or peak(*shape.naive, [int(tokens[j]) for j in order]) <= most

    start = rng.permutation(size) if not capped else np.arange(size)
    assert released_time(start, *arguments) == time(start.tolist())
    expected, value = naive_release.order_by_release(start.tolist(), time, within)
    order = start.copy()
    assert order_by_release(order, *arguments, tokens, most) == value
    assert order.tolist() == expected
