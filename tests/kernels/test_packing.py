"""Packing kernels against plain-Python oracles."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.kernels.packing_bound import least_bins, survey
from balancer.kernels.packing_decreasing import best_fit_decreasing, first_fit_decreasing
from balancer.kernels.packing_fill import contents_as_groups, fill_bins, give, new_stock
from balancer.kernels.packing_groups import write_ids
from balancer.kernels.packing_index import add, discard, next_member, num_words
from balancer.kernels.packing_order import longest_first, next_fit, runs
from balancer.kernels.packing_repack import repack
from balancer.kernels.packing_vector import first_fit_vectors
from tests import naive_packing as naive

_CAPACITY = 60
_LENGTHS = st.one_of(
    st.lists(st.integers(0, _CAPACITY), min_size=1, max_size=60),
    st.lists(st.sampled_from([7, 12, 13, 20, 31, 60]), min_size=1, max_size=80),
    st.lists(st.integers(12, 36), min_size=1, max_size=60),
)


def _sorted(lengths):
    values = np.array(lengths, np.int64)
    order = np.empty(len(lengths), np.int32)
    return order, *longest_first(values, values.max(), order)


def _as_lists(groups, order):
    ids, offsets = write_ids(*groups, order)
    return [ids[a:b].tolist() for a, b in pairwise(offsets)]


@given(st.lists(st.integers(0, 5000), max_size=60), st.integers(0, 6000), st.data())
def test_the_next_member_of_a_bitmap_is_the_smallest_at_least_as_large(members, number, data):
    """`next_member` equals min over the set, also after members were taken out."""
    words = np.zeros(num_words(5001), np.int64)
    summary = np.zeros(num_words(words.size), np.int64)
    for member in members:
        add(words, summary, member)
    kept = set(members)
    for member in data.draw(st.lists(st.sampled_from(members), max_size=20)) if members else []:
        discard(words, summary, member)
        kept.discard(member)
    expected = min((member for member in kept if member >= number), default=-1)
    assert next_member(words, summary, number) == expected


@given(_LENGTHS)
def test_counting_sort_is_stable_and_counts_each_length(lengths):
    """Ids come longest first, then ascending; values and counts describe the multiset."""
    order, values, counts = _sorted(lengths)
    assert order.tolist() == naive.longest_first(lengths)
    assert values.tolist() == sorted(set(lengths), reverse=True)
    assert counts.tolist() == [lengths.count(value) for value in values]
    again = runs(np.array(lengths, np.int64), order.astype(np.int64))
    assert [part.tolist() for part in again] == [values.tolist(), counts.tolist()]


@given(_LENGTHS, st.sampled_from([0, 1, 3, 6]))
def test_best_fit_decreasing_equals_the_oracle_bin_by_bin(lengths, shift):
    """Groups of equal bins give what placing sample by sample gives, however rooms are indexed."""
    order, values, counts = _sorted(lengths)
    bins = _as_lists(best_fit_decreasing(values, counts, _CAPACITY, shift), order)
    assert bins == naive.best_fit_decreasing(lengths, _CAPACITY)


@given(_LENGTHS)
def test_first_fit_decreasing_equals_the_oracle_bin_by_bin(lengths):
    """Groups of equal bins give what placing sample by sample gives."""
    order, values, counts = _sorted(lengths)
    bins = _as_lists(first_fit_decreasing(values, counts, _CAPACITY), order)
    assert bins == naive.first_fit_decreasing(lengths, _CAPACITY)


@given(_LENGTHS, st.sampled_from([0, 2, 9]))
def test_filling_equals_the_oracle_and_holds_every_sample_once(lengths, enough):
    """The contents of all bins are the oracle's, and as ids they are a permutation."""
    lengths = [max(1, length) for length in lengths]
    order, values, counts = _sorted(lengths)
    stock = new_stock(values[0])
    for value, count in zip(values, counts, strict=True):
        give(stock, value, count)
    state = np.ones(1, np.uint64)
    contents, end, bins, squares = fill_bins(
        stock, len(lengths), _CAPACITY, enough, 8, 1, state, np.empty(8, np.int64), 0
    )
    made = _as_lists(contents_as_groups(contents, end, values, counts), order)
    assert len(made) == bins
    assert sorted(i for ids in made for i in ids) == list(range(len(lengths)))
    held = [sorted(lengths[i] for i in ids) for ids in made]
    assert sorted(held) == naive.fill_bins(lengths, _CAPACITY, enough)
    assert squares == sum((_CAPACITY - sum(content)) ** 2 for content in held)


@given(_LENGTHS, st.booleans(), st.data())
def test_next_fit_equals_the_oracle(lengths, padded, data):
    """Bins are closed at the same samples, packed or padded, with or without another amount."""
    row = st.lists(st.integers(0, 4), min_size=1, max_size=1)
    rows = data.draw(st.lists(row, min_size=len(lengths), max_size=len(lengths)))
    values, caps = np.array(lengths, np.int64), np.array([5], np.int64)
    offsets = next_fit(values, _CAPACITY, padded, np.array(rows, np.int64).ravel(), caps)
    expected = naive.next_fit(lengths, _CAPACITY, padded, rows, [5])
    assert np.diff(offsets).tolist() == [len(ids) for ids in expected]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=60),
    st.booleans(),
)
def test_first_fit_of_vectors_equals_the_oracle(rows, rows_by_lead):
    """Each item goes to the first bin with room in every amount."""
    leads = [1 + 30 // (1 + row[0]) for row in rows] if rows_by_lead else None
    rows = [(1, row[1]) for row in rows] if rows_by_lead else rows
    caps = [9 if leads is None else len(rows), 5]
    order = np.argsort([-sum(row) for row in rows], kind="stable")
    amounts = np.array(rows, np.int64).ravel()
    lead = np.array(leads or [], np.int64)
    bins, num_bins = first_fit_vectors(order, amounts, np.array(caps, np.int64), lead, len(rows))
    expected = naive.first_fit_vectors(order.tolist(), rows, caps, leads)
    assert (bins.tolist(), num_bins) == expected


@given(_LENGTHS)
def test_the_lower_bound_equals_the_oracle(lengths):
    """L2 from distinct lengths equals L2 with every threshold tried, and is at least the sum's."""
    _, values, counts = _sorted(lengths)
    bound = least_bins(values, counts, _CAPACITY)
    assert bound == naive.least_bins(lengths, _CAPACITY)
    assert bound >= -(-sum(lengths) // _CAPACITY)
    assert survey(np.array(lengths, np.int64)) == (min(lengths), max(lengths), sum(lengths))


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=40),
    st.integers(1, 4),
)
def test_repacking_keeps_samples_caps_and_numbers_and_adds_no_bin(rows, seed):
    """Repacking one sample a bin leaves bins 0 to k - 1, k <= samples, all within the caps."""
    amounts = np.array(rows, np.int64)
    caps = np.array([9, 5], np.int64)
    shares = amounts / caps
    ranks = [
        np.argsort(np.lexsort((-amounts[:, 0], key)))
        for key in (-shares.max(axis=1), amounts[:, 1])
    ]
    bins = np.arange(len(rows))
    column, weights, state = amounts[:, 1].copy(), np.ones(2), np.array([seed], np.uint64)
    left = repack(
        bins, len(rows), *ranks, column, amounts.ravel(), caps, weights, 20, 1, state
    )  # fmt: skip
    assert left <= len(rows)
    assert sorted(set(bins.tolist())) == list(range(left))
    assert all((amounts[bins == b].sum(axis=0) <= caps).all() for b in range(left))
