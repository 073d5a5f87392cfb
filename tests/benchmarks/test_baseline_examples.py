"""Each baseline does what it is named after, on examples small enough to work out by hand."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.topology import Limits, Topology
from benchmarks import baselines
from benchmarks.baselines.disttrain import pipeline_order
from benchmarks.baselines.dynapipe import contiguous_runs
from benchmarks.baselines.entrain_pairs import bottleneck_pairs, pair_costs, pair_order
from benchmarks.baselines.verl import small_at_both_ends, verl_workload

# Language work of the samples of Entrain's microbatches 1 to 6 (Figures 8 and 9, loads 3, 4, 8, 6,
# 6, 9), chosen so that the subsets the figures hand over exist and no better ones do.
_FIGURE_8 = [[3], [4], [2, 6], [6], [6], [3, 3, 3]]


def _costs(tokens: list[int]) -> Costs:
    return Costs.from_values(np.asarray(tokens, float), tokens=tokens, unit="tokens")


def test_length_grouped_puts_alike_samples_into_one_slot() -> None:
    cells = baselines.length_grouped(
        _costs([1, 8, 2, 7, 3, 6, 4, 5]), Topology(dp_size=2, num_microbatches=2)
    )
    assert (cells // 2).tolist() == [1, 0, 1, 0, 1, 0, 1, 0]


def test_token_greedy_fills_the_emptiest_microbatch_first() -> None:
    cells = baselines.token_greedy(_costs([5, 4, 3, 3, 3]), Topology(dp_size=2))
    assert cells.tolist() == [0, 1, 1, 0, 1]


def test_best_fit_takes_the_fullest_bin_that_still_fits() -> None:
    # Budget 10: 7 and 6 open bins; 3 completes the first, then 4 the second.
    topology = Topology(dp_size=2, limits=Limits(max_tokens=10))
    assert baselines.best_fit(_costs([6, 7, 4, 3]), topology).tolist() == [1, 0, 1, 0]


def test_best_fit_raises_its_budget_until_the_bins_suffice() -> None:
    cells = baselines.best_fit(_costs([6, 6, 6, 6]), Topology(dp_size=3))
    assert np.bincount(cells, [6, 6, 6, 6]).tolist() in ([12, 6, 6], [6, 12, 6], [6, 6, 12])


def test_trl_packs_no_sample_with_one_of_another_thousand_rows() -> None:
    cells = baselines.trl_packs(_costs([1] * 1001), Topology(dp_size=1, num_microbatches=2))
    assert len(set(cells[:1000].tolist())) == 1
    assert cells[1000] != cells[0]


def test_batch_rebalance_is_what_the_sampler_yields_on_every_rank() -> None:
    from transformers.trainer_pt_utils import BatchRebalanceSampler

    tokens = np.random.default_rng(0).lognormal(6, 1, 48).astype(int).tolist()
    topology = Topology(dp_size=4, num_microbatches=3)
    cells = baselines.batch_rebalance(_costs(tokens), topology)
    for rank in range(4):
        sampler = BatchRebalanceSampler(tokens, 48, 4, 3, shuffle=False, rank=rank)
        for slot, samples in enumerate(sampler):
            assert sorted(samples) == np.flatnonzero(cells == slot * 4 + rank).tolist()


def test_verl_gives_ranks_equal_counts_and_puts_small_microbatches_at_both_ends() -> None:
    assert verl_workload(np.array([2])).tolist() == [2 * 24576 + 4]
    assert small_at_both_ends([10, 20, 30, 40, 50]) == [0, 2, 4, 3, 1]
    tokens = np.random.default_rng(0).integers(1, 9000, 64)
    cells = baselines.verl_balance(_costs(tokens.tolist()), Topology(dp_size=4, num_microbatches=3))
    assert np.bincount(cells % 4).tolist() == [16, 16, 16, 16]
    loads = np.bincount(cells, verl_workload(tokens), minlength=12).reshape(3, 4)
    assert (loads[1] >= np.maximum(loads[0], loads[2])).all()


def test_multipack_takes_the_longest_run_its_ranks_can_share() -> None:
    # Budget 3: the run 3 3 fills the first slot; 2 2 1 1 the second, as 2 + 1 on either rank.
    topology = Topology(dp_size=2, num_microbatches=2)
    cells = baselines.multipack_slots(_costs([3, 3, 2, 2, 1, 1]), topology)
    assert cells.tolist() == [0, 1, 2, 3, 2, 3]


def test_disttrain_starts_with_the_smallest_and_ends_with_the_next_small_ones() -> None:
    # 3 stages: 1 first, 2 and 3 kept for the end; the first wait of 6 is filled by 4 and 5.
    loads = [5, 1, 4, 2, 3, 6]
    assert [loads[index] for index in pipeline_order(loads, 3)] == [1, 4, 5, 6, 3, 2]
    assert [loads[index] for index in pipeline_order(loads, 1)] == [1, 2, 3, 4, 5, 6]


def test_disttrain_gives_the_dearest_sample_to_the_cheapest_rank() -> None:
    cells = baselines.disttrain_order(_costs([5, 4, 3, 3, 3]), Topology(dp_size=2))
    assert cells.tolist() == [0, 1, 1, 0, 1]


def test_wlb_deals_a_full_queue_of_outliers_one_to_each_microbatch() -> None:
    # 9, 10 and 8 are outliers; two of them fill the queue, the third is placed by workload.
    cells = baselines.wlb_queues(_costs([1, 9, 1, 10, 8, 1]), Topology(dp_size=2))
    assert cells[[1, 3, 4]].tolist() == [0, 1, 0]
    assert cells[[0, 2, 5]].tolist() == [1, 1, 1]


def test_wlb_takes_the_shortest_microbatch_where_the_cheapest_has_no_room() -> None:
    costs = Costs.from_values([1.0, 3.0, 1.0], tokens=[9, 4, 2])
    topology = Topology(dp_size=2, limits=Limits(max_tokens=10))
    assert baselines.wlb_queues(costs, topology).tolist() == [0, 1, 1]


def test_entrain_pairs_the_microbatches_of_its_figures() -> None:
    numbered = {(i + 1, j + 1): cost for (i, j), cost in pair_costs(_FIGURE_8).items()}
    assert numbered == {
        (3, 1): 6, (3, 2): 6, (3, 5): 8,
        (4, 1): 6, (4, 2): 6, (4, 5): 6,
        (6, 1): 6, (6, 2): 7, (6, 5): 9,
    }  # fmt: skip
    bottleneck, pairs = bottleneck_pairs(_FIGURE_8)
    assert bottleneck == 6
    assert {(i + 1, j + 1) for i, j in pairs} == {(3, 2), (6, 1), (4, 5)}
    assert [index + 1 for index in pair_order(_FIGURE_8)] == [3, 2, 6, 1, 4, 5]


@given(batches=st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=7))
def test_entrain_finds_the_least_bottleneck(batches: list[list[int]]) -> None:
    """No T below it lets every microbatch above T have a partner of its own at T or less."""
    bottleneck, pairs = bottleneck_pairs(batches)
    costs, loads = pair_costs(batches), [sum(batch) for batch in batches]

    def reachable(most: int) -> bool:
        sides = [{j for (i, j), cost in costs.items() if i == over and cost <= most}
                 for over, load in enumerate(loads) if load > most]  # fmt: skip
        return all(  # Hall's condition
            len(set().union(*chosen)) >= len(chosen)
            for size in range(1, len(sides) + 1)
            for chosen in combinations(sides, size)
        )

    assert reachable(bottleneck)
    assert bottleneck == 0 or not reachable(bottleneck - 1)
    assert sorted(pair_order(batches)) == list(range(len(batches)))
    assert len({under for _, under in pairs}) == len(pairs)


def test_entrain_piles_up_samples_without_encoder_work() -> None:
    costs = Costs.from_values(
        [[4.0, 1.0], [3.0, 1.0], [2.0, 1.0], *[[0.0, 1.0]] * 5],
        modules=("vision", "language"), tokens=[1] * 8,
    )  # fmt: skip
    cells = baselines.entrain_strata(costs, Topology(dp_size=1, num_microbatches=2))
    assert len(set(cells[3:].tolist())) == 1


def test_hydraulis_finds_the_even_split_that_greedy_misses() -> None:
    costs = _costs([3, 3, 2, 2, 2])
    topology = Topology(dp_size=2)
    assert np.bincount(baselines.token_greedy(costs, topology), costs.tokens).max() == 7
    assert np.bincount(baselines.hydraulis_dispatch(costs, topology), costs.tokens).max() == 6


def test_omnibal_closes_a_group_at_either_budget() -> None:
    # Four samples of one image's patches, four of text: two of each fill a group.
    costs = Costs.from_values(
        np.ones(8), tokens=[1, 1, 1, 1, 5, 5, 5, 5], patches=[6, 6, 6, 6, 0, 0, 0, 0]
    )
    cells = baselines.omnibal_groups(costs, Topology(dp_size=2, num_microbatches=2))
    assert np.bincount(cells, costs.patches).max() <= 12
    assert np.bincount(cells, costs.tokens).max() <= 12


@given(prices=st.lists(st.integers(0, 9), min_size=1, max_size=7), num_runs=st.integers(1, 4))
def test_dynapipe_cuts_the_sorted_samples_at_the_least_maximum(
    prices: list[int], num_runs: int
) -> None:
    """The largest sum equals that of the best of all ways to cut."""
    runs = contiguous_runs(prices, num_runs)
    count = min(num_runs, len(prices))
    assert len(runs) == count
    assert [0, *(end for _, end in runs)] == [*(begin for begin, _ in runs), len(prices)]
    best = min(
        max(sum(prices[i:j]) for i, j in zip((0, *cuts), (*cuts, len(prices)), strict=True))
        for cuts in combinations(range(1, len(prices)), count - 1)
    )
    assert max(sum(prices[begin:end]) for begin, end in runs) == best


def test_dynapipe_puts_neighbours_in_length_into_one_microbatch() -> None:
    cells = baselines.dynapipe_runs(
        _costs([1, 9, 1, 8, 2, 7, 1, 1]), Topology(dp_size=3, num_microbatches=1)
    )
    assert cells[1] != cells[3]
    assert len(set(cells[[0, 2, 4, 6, 7]].tolist())) == 1
