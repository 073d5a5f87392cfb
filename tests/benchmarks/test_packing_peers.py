"""The packing benchmark: peers pack what they are given, the bound holds, records are whole."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.packing import measure_packing
from benchmarks.packing_data import draw_lengths
from benchmarks.packing_peers import first_fit_arrays, knapsack, segment_tree_best_fit
from benchmarks.pattern_bound import pattern_bound
from tests import naive_packing as naive

_LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=40)


@given(_LENGTHS)
def test_peers_pack_every_sample_once_and_as_their_rules_say(lengths: list[int]) -> None:
    """Best-fit and first-fit need the bins of the naive rules; all keep samples and capacity."""
    tokens = np.array(lengths, np.int64)
    best, first = (f(lengths, 50) for f in (naive.best_fit_decreasing, naive.first_fit_decreasing))
    for peer, expected in (
        (segment_tree_best_fit, best),
        (first_fit_arrays, first),
        (knapsack, None),
    ):
        bins = peer(tokens, 50)
        assert sorted(i for ids in bins for i in ids) == list(range(len(lengths)))
        assert all(tokens[ids].sum() <= 50 for ids in bins)
        assert expected is None or len(bins) == len(expected)


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 4)), min_size=1, max_size=8))
def test_the_pattern_bound_is_not_above_the_fewest_bins(rows: list[tuple[int, int]]) -> None:
    """Bound <= optimum by brute force."""
    tokens, images = np.array(rows, np.int64).T
    fewest = naive.fewest_bins(
        len(rows), lambda ids: tokens[ids].sum() <= 20 and images[ids].sum() <= 5
    )
    assert pattern_bound(tokens, images, 20, 5) <= fewest


def test_the_pattern_bound_sees_what_sums_do_not() -> None:
    tokens, images = np.ones(12, np.int64), np.full(12, 5)
    assert pattern_bound(tokens, images, 100, 14) == 6  # two fives a bin; the sum says 5


@pytest.mark.parametrize("name", ["lognormal", "zipf", "bimodal", "uniform"])
def test_lengths_are_the_same_for_a_seed_and_within_the_capacity(name: str) -> None:
    first, again = (draw_lengths(name, 500, 4096, 3) for _ in range(2))
    assert (first.tokens == again.tokens).all()
    assert 1 <= first.tokens.min() <= first.tokens.max() <= 4096


def test_records_cover_ours_the_peers_and_two_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = measure_packing(
        name="packing",
        data=["bimodal", "internvl_tiles"],
        tiles=str(tmp_path / "absent.parquet"),
        sizes=[300, 3000],
        capacities=[8192, 4096],
        efforts=[0, 2],
        image_limits={"bimodal": [9]},
        most_for_peers=1000,
        most_for_efforts=1000,
        largest_size=10**9,
        largest_capacities=[8192],
        repeats=5,
        seed=0,
        quick=True,
    )
    assert "absent.parquet, skipped" in capsys.readouterr().err
    values = {(r.planner, r.metric): r.value for r in records if r.topology == "capacity8192_n300"}
    planners = ("balanced", "balanced_effort0", "balanced_effort2", "knapsack")
    for planner, metric in product(planners, ("bins_over_bound", "padding_fraction")):
        assert (planner, metric) in values
    ours = values["balanced", "bins_over_bound"]
    assert 1 <= values["balanced_effort2", "bins_over_bound"] <= ours
    assert ours <= values["segment_tree_best_fit", "bins_over_bound"]
    assert values["balanced", "seconds_vs_knapsack"] > 0
    both = {
        (r.planner, r.metric): r.value for r in records if r.topology == "capacity8192_images9_n300"
    }
    ours, more = (both[planner, "bins_over_bound"] for planner in ("balanced", "balanced_effort2"))
    assert 1 <= more <= ours < 1.1
