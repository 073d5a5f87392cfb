"""The partition kernels against their plain-Python oracles, and what a search may never do."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.bounds import partition_bound
from balancer.count_bounds import counted_bound
from balancer.kernels.partition_bound import load_bounds
from balancer.kernels.partition_differencing import place_by_differences
from balancer.kernels.partition_pair import split_by_differences
from balancer.kernels.partition_place import place_by_fit, place_by_load, place_by_time
from balancer.kernels.partition_search import improve
from balancer.kernels.partition_sort import sort_by_key
from tests import naive_partition as naive

WEIGHTS = st.one_of(st.integers(0, 4), st.integers(0, 1000), st.sampled_from([0, 2**40]))
SPEEDS = st.sampled_from([1.0, 1.0, 2.0, 0.25, 1 / 3])


@st.composite
def small_rules(draw, *, max_items=12, max_parts=4, caps=True, speeds=True):
    """Items dearest first on few parts, with ties, zeros, tight caps and all kinds of counts."""
    num_parts = draw(st.integers(1, max_parts))
    num_items = draw(st.integers(0, max_items))
    weights = sorted(draw(st.lists(WEIGHTS, min_size=num_items, max_size=num_items)), reverse=True)
    inverse = [draw(SPEEDS) for _ in range(num_parts)] if speeds else [1.0] * num_parts
    num_caps = draw(st.integers(0, 2)) if caps else 0
    amount = st.lists(st.integers(0, 9), min_size=num_caps, max_size=num_caps)
    amounts = draw(st.lists(amount, min_size=num_items, max_size=num_items))
    cap = st.lists(st.integers(9, 40), min_size=num_caps, max_size=num_caps)
    if draw(st.booleans()):
        low, high = int(num_items >= num_parts), num_items
    else:
        low, high = num_items // num_parts, -(-num_items // num_parts)
    return naive.Rules(
        weights, inverse, amounts, draw(st.lists(cap, min_size=num_parts, max_size=num_parts)),
        low, high,
    )  # fmt: skip


def arrays(rules):
    """Weights, inverse speeds, amounts, caps, number of caps, low, high: as kernels take them."""
    caps = np.array(rules.caps, np.int64)
    return (
        np.array(rules.weights, np.int64), np.array(rules.inverse, np.float64),
        np.array(rules.amounts, np.int64).ravel(), caps.ravel(), caps.shape[1], rules.low,
        rules.high,
    )  # fmt: skip


@given(small_rules(caps=False, speeds=False))
def test_greedy_by_load_equals_the_oracle_and_greedy_by_time(rules):
    """On parts that are alike both greedy kernels place items as the oracle does."""
    weights, *_ = arrays(rules)
    parts = place_by_load(weights, len(rules.inverse), rules.low, rules.high).tolist()
    assert parts == naive.place_by_load(rules)
    counts = np.bincount(parts, minlength=len(rules.inverse)) if parts else np.zeros(1)
    assert not parts or (rules.low <= counts.min() and counts.max() <= rules.high)


@given(small_rules())
def test_greedy_by_time_equals_the_oracle(rules):
    """Compiled and plain-Python greedy agree under speeds, caps and counts."""
    assert place_by_time(*arrays(rules)).tolist() == naive.place_by_time(rules)


@given(small_rules(), st.randoms(use_true_random=False))
def test_best_fit_equals_the_oracle(rules, random):
    """Compiled and plain-Python best fit agree in any order of the items."""
    order = list(range(len(rules.weights)))
    random.shuffle(order)
    _, inverse, amounts, caps, num_caps, low, high = arrays(rules)
    if num_caps == 0:
        return
    tightest = [random.randrange(num_caps) for _ in order]
    parts = place_by_fit(
        np.array(order, np.int64), np.array(tightest, np.int64), amounts, caps, num_caps,
        len(inverse), low, high,
    )  # fmt: skip
    assert parts.tolist() == naive.place_by_fit(rules, order, tightest)


@given(
    st.lists(WEIGHTS, max_size=40).map(lambda w: sorted(w, reverse=True)),
    st.integers(1, 20),
    st.booleans(),
)
def test_differencing_equals_the_oracle(weights, num_parts, counted):
    """Compiled differencing on shared buffers ends as plain differencing on lists does."""
    chunk = num_parts if counted else 1
    parts = place_by_differences(np.array(weights, np.int64), num_parts, chunk)
    assert parts.tolist() == naive.place_by_differences(weights, num_parts, chunk)
    counts = np.bincount(parts, minlength=num_parts) if weights else np.zeros(num_parts)
    if counted:
        assert counts.max() - counts.min() <= 1
    else:
        assert (counts > 0).sum() == min(num_parts, len(weights))


@given(
    st.lists(WEIGHTS, min_size=1, max_size=30).map(lambda w: sorted(w, reverse=True)),
    st.booleans(),
    st.sampled_from([0, 3, 500, 2**41]),
)
def test_two_way_differencing_equals_the_oracle(weights, in_pairs, handicap):
    """Compiled two-way differencing colours the same tree of differences."""
    size = len(weights)
    values, nodes, parent = (np.empty(size + 1, np.int64) for _ in range(3))
    sides = np.empty(size, np.int64)
    split_by_differences(
        np.arange(size), size, in_pairs, handicap, np.array(weights, np.int64), values, nodes,
        parent, sides,
    )  # fmt: skip
    expected = naive.split_by_differences(weights, list(range(size)), in_pairs, handicap)
    assert sides.tolist() == expected
    if in_pairs:
        assert abs(size - 2 * int(sides.sum())) <= 1


@given(
    small_rules(max_items=26, max_parts=5),
    st.sampled_from([1, 60, 10**5]),
    st.sampled_from([0, 300]),
)
def test_search_equals_the_oracle(rules, budget, patience):
    """Compiled and plain-Python searches end at the same parts, end and budget."""
    start = naive.place_by_time(rules)
    if not start or min(start) < 0:
        return
    parts = np.array(start, np.int64)
    end, left = improve(parts, *arrays(rules), 0.0, budget, patience)
    expected = naive.improve(rules, start, 0.0, budget, patience)
    assert (parts.tolist(), end, left) == expected


@given(small_rules(max_items=40, max_parts=6))
def test_search_keeps_the_rules_and_never_ends_later(rules):
    """After a search counts and caps hold and the last part ends no later than before."""
    start = place_by_time(*arrays(rules))
    if not start.size or start.min() < 0:
        return
    num_parts = len(rules.inverse)

    def held(parts):
        return [np.flatnonzero(parts == part).tolist() for part in range(num_parts)]

    before = max(rules.end(part, items) for part, items in enumerate(held(start)))
    end, _ = improve(start, *arrays(rules), 0.0, 10**4, 500)
    after = held(start)
    assert end == max(rules.end(part, items) for part, items in enumerate(after))
    assert end <= before
    assert all(rules.legal(part, items) for part, items in enumerate(after))


@given(st.lists(WEIGHTS, min_size=1, max_size=60), st.integers(1, 9))
def test_the_bounds_of_free_counts_are_those_of_partition_bound(weights, num_parts):
    """With free counts they are partition_bound but for counted_bound, or rounded up above it."""
    array = np.sort(np.array(weights, np.int64))[::-1].copy()
    mean, together, counted = load_bounds(
        array, num_parts, int(len(array) >= num_parts), len(array)
    )
    bound, binds = partition_bound(array, num_parts)
    by_count = counted_bound(array, num_parts)
    assert max(mean, together, by_count) >= bound >= max(together, by_count)
    assert bound in (together, by_count) or binds == "mean load"
    assert counted <= max(mean, together)


@given(st.lists(st.integers(0, 5), max_size=40))
def test_indices_sort_by_key_then_index(keys):
    """The small sort equals a stable argsort."""
    order = np.arange(len(keys))
    sort_by_key(order, np.array(keys, np.int64))
    assert order.tolist() == np.argsort(keys, kind="stable").tolist()
