"""Published complaints about counts, tails, packing and order, each as a check; see README.md."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from balancer.cost import Costs
from balancer.errors import ArgumentError, PlanError
from balancer.packing import pack
from balancer.plan import Flag, Plan
from balancer.planner import EpochPlanner, plan_step
from balancer.topology import Limits, Topology
from tests.naive_packing import first_fit_decreasing

Tail = Literal["drop", "pad", "filler"]
TAILS = pytest.mark.parametrize("tail", ["drop", "pad", "filler"])


def _planner(
    costs: ArrayLike, topology: Topology, size: int | None, **options: Any
) -> EpochPlanner:
    priced = Costs.from_values(costs, tokens=costs)
    return EpochPlanner(priced, topology, global_batch_size=size, effort="fast", **options)


def _placed(plan: Plan, *, step: int, dp_rank: int) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Ids and flags of a rank's samples in a step."""
    cells = [
        plan.cell(step=step, index=index, dp_rank=dp_rank)
        for index in range(plan.num_microbatches(step))
    ]
    places = np.concatenate([np.arange(*plan.offsets[[cell, cell + 1]]) for cell in cells])
    return plan.sample_ids[places], plan.flags[places]


def _loads(plan: Plan, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens of every microbatch, a row for each slot and a column for each rank."""
    loads = np.add.reduceat(lengths[plan.sample_ids], plan.offsets[:-1])
    return loads.reshape(-1, plan.topology.dp_size)


@pytest.mark.parametrize("dp_size", [2, 3, 8])
def test_case_a1_ranks_count_alike_where_half_the_samples_fill_a_microbatch(dp_size: int) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.permutation(np.r_[np.full(48, 4096), rng.integers(20, 81, 48)])
    topology = Topology(dp_size=dp_size, num_microbatches=2, limits=Limits(max_tokens=4096))
    planner = _planner(lengths, topology, 4 * dp_size)
    plan = planner.plan_epoch(0)
    counts = {len(list(plan.for_rank(rank))) for rank in range(dp_size)}
    assert counts == {planner.microbatches_per_epoch(0)}
    assert _loads(plan, lengths).max() <= 4096


@TAILS
def test_case_a4_every_tail_has_equal_counts_and_keeps_the_samples_it_promises(tail: Tail) -> None:
    """Nine equal samples on four ranks: two steps and one sample over."""
    planner = _planner(np.ones(9, int), Topology(dp_size=4), 4, tail=tail)
    plan = planner.plan_epoch(0)
    counts = {len(list(plan.for_rank(rank))) for rank in range(4)}
    assert counts == {planner.num_steps} == {2 if tail == "drop" else 3}
    assert (
        np.bincount(plan.flags, minlength=3).tolist()
        == {
            "drop": [8, 0, 0],
            "pad": [9, 3, 0],
            "filler": [9, 0, 3],
        }[tail]
    )
    assert len(planner.dropped(0)) == (1 if tail == "drop" else 0)


@pytest.mark.parametrize("num_left", range(1, 8))
def test_case_a8_a_last_step_is_spread_evenly_over_the_ranks(num_left: int) -> None:
    """Equal samples on four ranks of two microbatches: five are 2, 1, 1, 1, and not 2, 2, 1, 0."""
    topology = Topology(dp_size=4, num_microbatches=2)
    plan = _planner(np.ones(8 + num_left, int), topology, 8, tail="filler").plan_epoch(0)
    flags = [_placed(plan, step=1, dp_rank=rank)[1] for rank in range(4)]
    counts = [np.count_nonzero(each == Flag.REAL) for each in flags]
    assert sum(counts) == num_left
    assert max(counts) - min(counts) <= 1
    assert all(each.size >= 2 for each in flags)


def test_case_b5_packed_samples_count_by_their_tokens_and_not_by_padded_width() -> None:
    assert pack([100] * 4, 1000).num_bins == 1


def test_case_b6_padded_microbatches_count_rows_times_longest() -> None:
    """Lengths of 7.3 to 11.4 seconds, in tenths of a second, within 300 seconds."""
    lengths = np.random.default_rng(0).integers(73, 115, 200)
    bins = list(pack(lengths, 3000, layout="padded"))
    assert max(len(ids) * lengths[ids].max() for ids in bins) <= 3000
    assert sorted(np.concatenate(bins).tolist()) == list(range(200))


def test_case_b9_a_step_of_samples_over_the_limit_is_taken_up_by_those_that_follow() -> None:
    """Steps are made of what is left, so none is empty; one that is given none says so."""
    lengths = [5] * 4 + [50] * 4 + [5] * 4
    topology = Topology(dp_size=2, limits=Limits(max_tokens=20))
    planner = _planner(lengths, topology, 4, oversize="drop", shuffle=False)
    plan = planner.plan_epoch(0)
    assert planner.dropped(0).tolist() == [4, 5, 6, 7]
    assert [sorted(planner.step_ids(0, step)[0].tolist()) for step in range(2)] == [
        [0, 1, 2, 3],
        [8, 9, 10, 11],
    ]
    assert [len(list(plan.for_rank(rank))) for rank in range(2)] == [2, 2]
    with pytest.raises(PlanError, match="step 7 has no samples left"):
        plan_step(planner.costs, topology, sample_ids=[4, 5], oversize="drop", fill=True, step=7)


@pytest.mark.parametrize("num_samples", [4, 5, 9])
def test_case_c1_every_sample_is_on_one_of_four_ranks_and_none_is_empty(num_samples: int) -> None:
    costs = Costs.from_values(np.ones(num_samples))
    plan = plan_step(costs, Topology(dp_size=4), effort="fast")
    assert sorted(plan.sample_ids.tolist()) == list(range(num_samples))
    assert np.diff(plan.offsets).min() >= 1
    assert len(plan.offsets) - 1 == 4


def test_case_c3_padding_replaces_no_sample_and_is_flagged() -> None:
    """71 samples on two ranks."""
    plan = _planner(np.arange(1, 72), Topology(dp_size=2), 4, tail="pad").plan_epoch(0)
    assert sorted(plan.sample_ids[plan.flags == Flag.REAL].tolist()) == list(range(71))
    assert plan.flags[plan.flags != Flag.REAL].tolist() == [Flag.REPEAT]


@TAILS
@pytest.mark.parametrize("oversize", ["drop", "alone"])
def test_case_c4_what_is_not_delivered_is_listed(
    tail: Tail, oversize: Literal["drop", "alone"]
) -> None:
    lengths = np.r_[np.full(20, 5), 50, 60]
    topology = Topology(dp_size=2, max_microbatches=None, limits=Limits(max_tokens=20))
    planner = _planner(lengths, topology, 4, tail=tail, oversize=oversize)
    plan = planner.plan_epoch(0)
    assert sorted({*range(22)} - {*plan.sample_ids.tolist()}) == planner.dropped(0).tolist()
    assert bool(plan.dropped.size) == (oversize == "drop" or tail == "drop")


def test_case_e1_five_samples_that_fit_one_bin_are_four_microbatches_and_none_is_empty() -> None:
    topology = Topology(dp_size=4, limits=Limits(max_tokens=100))
    plan = plan_step(Costs.from_values([10] * 5, tokens=[10] * 5), topology, effort="fast")
    assert np.diff(plan.offsets).tolist() == [2, 1, 1, 1]
    assert (plan.flags == Flag.REAL).all()


@TAILS
@pytest.mark.parametrize("num_samples", [249, 5])
def test_case_e2_e6_samples_that_do_not_divide_are_handled_by_the_tail(
    num_samples: int, tail: Tail
) -> None:
    """249 samples, and 5, in microbatches of two on two ranks."""
    planner = _planner(np.ones(num_samples, int), Topology(dp_size=2), 4, tail=tail)
    steps = num_samples // 4 + (tail != "drop")
    assert planner.num_steps == steps
    last = planner.plan(0, steps - 1)
    sizes = np.diff(last.offsets).tolist()
    assert sizes == {"drop": [2, 2], "pad": [2, 2], "filler": [1, 1]}[tail]


def test_case_e6_a_step_of_fewer_samples_than_microbatches_is_refused_at_construction() -> None:
    with pytest.raises(ArgumentError, match="global_batch_size"):
        _planner(np.ones(50, int), Topology(dp_size=4, num_microbatches=2), 6)


def test_case_e7_no_more_bins_than_first_fit_decreasing_and_nearly_full() -> None:
    rng = np.random.default_rng(0)
    skewed = np.clip(rng.lognormal(6, 1, 100_000), 1, 8192).astype(np.int64)
    for lengths in (skewed, rng.integers(1, 8193, 2_000)):
        theirs = pack(lengths, 8192, method="first_fit_decreasing")
        assert pack(lengths, 8192).num_bins <= theirs.num_bins
    assert pack(skewed, 8192).padding_fraction <= 0.01


def test_case_e9_bins_in_given_order() -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 200)
    packing = pack(lengths, 100, method="next_fit")
    assert packing.sample_ids.tolist() == list(range(200))
    assert max(lengths[ids].sum() for ids in packing) <= 100
    assert packing.num_bins < 200


def test_case_e11_ranks_have_like_samples_at_the_same_time() -> None:
    """Half the samples are short and half are long; eight for each rank are planned together."""
    rng = np.random.default_rng(0)
    lengths = rng.permutation(np.r_[rng.integers(20, 60, 32), rng.integers(3500, 4500, 32)])
    topology = Topology(dp_size=8, num_microbatches=4, barrier="microbatch")
    plan = plan_step(Costs.from_values(lengths), topology, effort="fast")
    loads = _loads(plan, lengths)
    assert loads.max(axis=1).sum() <= 1.05 * loads.mean(axis=1).sum()


def test_case_e11_any_number_of_long_samples_is_near_the_best_possible() -> None:
    """0 to 63 of 64 samples are long; the ranks wait little longer than for any plan of these."""
    limits = Limits(max_tokens=20_000)
    topology = Topology(dp_size=8, num_microbatches=4, barrier="microbatch", limits=limits)
    over_bound = []
    for long in range(64):
        rng = np.random.default_rng(long)
        lengths = np.r_[rng.integers(20, 60, 64 - long), rng.integers(3500, 4500, long)]
        lengths = rng.permutation(lengths)
        plan = plan_step(Costs.from_values(lengths, tokens=lengths), topology, effort="fast")
        taken = _loads(plan, lengths).max(axis=1).sum()
        over_bound.append(taken / plan.certificates[0].lower_bound)
    assert min(over_bound) >= 1.0
    assert max(over_bound) <= 1.07
    assert np.mean(over_bound) <= 1.03


@pytest.mark.parametrize("dp_size", [4, 8, 16, 32, 64, 128])
def test_case_f6_bins_of_two_rows_pad_less_than_random_ones(dp_size: int) -> None:
    """1024 lengths from 1680 to 1920, packed a global batch of two rows a rank at a time."""
    lengths = np.random.default_rng(0).integers(1680, 1921, 1024)
    ours = 0
    for step in lengths.reshape(-1, 2 * dp_size):
        bins = list(pack(step, 2 * 1920, layout="padded", max_samples=2))
        assert len(bins) == dp_size
        ours += sum(len(ids) * step[ids].max() - step[ids].sum() for ids in bins)
    pairs = lengths.reshape(-1, 2)
    assert ours < (2 * pairs.max(axis=1) - pairs.sum(axis=1)).sum()


@pytest.mark.parametrize("filled", [False, True])
def test_case_g4_steps_do_not_become_longer_or_shorter_over_an_epoch(filled: bool) -> None:
    """Spearman's correlation of the number of a step and its mean length, over 1000 steps."""
    lengths = np.clip(np.random.default_rng(0).lognormal(5, 1, 17_000), 1, 2000).astype(np.int64)
    limits = Limits(max_tokens=2200) if filled else Limits()
    planner = _planner(lengths, Topology(dp_size=2, limits=limits), None if filled else 16)
    assert planner.num_steps >= 1000
    means = [lengths[planner.step_ids(0, step)[0]].mean() for step in range(1000)]
    ranks = np.argsort(np.argsort(means, kind="stable"), kind="stable")
    assert abs(np.corrcoef(ranks, np.arange(1000))[0, 1]) <= 0.05


@pytest.mark.parametrize("above_half", [False, True])
def test_case_l1_first_fit_decreasing_gives_what_a_linear_scan_gives(above_half: bool) -> None:
    """Lengths of which many fit a bin, and lengths of which none fit together."""
    rng = np.random.default_rng(0)
    skewed = np.clip(rng.lognormal(6, 1, 2000), 1, 8192).astype(np.int64)
    lengths = rng.integers(4097, 8193, 1000) if above_half else skewed
    ours = pack(lengths, 8192, method="first_fit_decreasing")
    assert [ids.tolist() for ids in ours] == first_fit_decreasing(lengths.tolist(), 8192)


def test_case_l1_a_million_lengths_of_which_none_fit_together_are_packed_at_all() -> None:
    """A scan over all bins would compare 5 * 10**11 times, far beyond the time a test may take."""
    lengths = np.random.default_rng(0).integers(4097, 8193, 1_000_000)
    packing = pack(lengths, 8192, method="first_fit_decreasing")
    assert packing.num_bins == 1_000_000
    assert (np.diff(lengths[packing.sample_ids]) <= 0).all()


def test_case_l3_l4_a_saved_plan_is_indices_whatever_the_samples_hold(tmp_path: Path) -> None:
    """Samples of a million tokens take no more room than those of one."""
    sizes = []
    for tokens in (1, 1_000_000):
        plan = _planner(np.full(256, tokens), Topology(dp_size=2), 16).plan_epoch(0)
        plan.save(tmp_path / "plan.npz")
        assert Plan.load(tmp_path / "plan.npz").fingerprint == plan.fingerprint
        sizes.append((tmp_path / "plan.npz").stat().st_size)
    assert max(sizes) < 256 * 64
    assert max(sizes) - min(sizes) < 1024
